use super::{super::pointer::MAX_OPENED, *};

fn run(document: &str, patch: &str) -> Result<String, Error> {
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let mut node = Node::Raw(decode_opaque(&bytes(document)).expect("JSON"));
    Patch::parse(&bytes(patch))?.apply(&mut node, 1000)?;
    Ok(String::from_utf8(node.to_raw().bytes().to_vec()).expect("UTF-8"))
}

#[test]
fn applies_every_operation() {
    let cases = [
        (r#"{"a":1}"#, r#"[{"op":"add","path":"/b","value":{"x":1.0}}]"#, r#"{"a":1,"b":{"x":1.0}}"#),
        (r#"{"a":[1,2]}"#, r#"[{"op":"add","path":"/a/1","value":9}]"#, r#"{"a":[1,9,2]}"#),
        (r#"{"a":[1,2]}"#, r#"[{"op":"add","path":"/a/-","value":9}]"#, r#"{"a":[1,2,9]}"#),
        (r#"{"a":[1,2]}"#, r#"[{"op":"remove","path":"/a/0"}]"#, r#"{"a":[2]}"#),
        (
            r#"{"a":{"b":1,"c":2}}"#,
            r#"[{"op":"replace","path":"/a/b","value":null}]"#,
            r#"{"a":{"b":null,"c":2}}"#,
        ),
        (r#"{"a":1,"b":{}}"#, r#"[{"op":"move","from":"/a","path":"/b/c"}]"#, r#"{"b":{"c":1}}"#),
        (r#"{"a":[1e0]}"#, r#"[{"op":"copy","from":"/a/0","path":"/b"}]"#, r#"{"a":[1e0],"b":1e0}"#),
        (
            r#"{"a":{"x":1,"y":[2]}}"#,
            r#"[{"op":"test","path":"/a","value":{"y":[2.0],"x":1}}]"#,
            r#"{"a":{"x":1,"y":[2]}}"#,
        ),
        (r#"{"a/b":1,"m~n":2}"#, r#"[{"op":"remove","path":"/a~1b"},{"op":"remove","path":"/m~0n"}]"#, "{}"),
        ("1", r#"[{"op":"replace","path":"","value":[]}]"#, "[]"),
    ];
    for (document, patch, expected) in cases {
        assert_eq!(run(document, patch).expect(patch), expected, "{patch}");
    }
}

#[test]
fn keeps_the_spelling_of_what_it_does_not_touch() {
    assert_eq!(
        run(
            r#"{"s":{"n":1.50,"n":2E1,"\u0061":"\/","x":1}}"#,
            r#"[{"op":"replace","path":"/s/x","value":2}]"#
        )
        .expect("applies"),
        r#"{"s":{"n":1.50,"n":2E1,"\u0061":"\/","x":2}}"#
    );
}

#[test]
fn says_what_does_not_apply() {
    for patch in [
        r#"[{"op":"remove","path":"/x"}]"#,
        r#"[{"op":"replace","path":"/a/9","value":1}]"#,
        r#"[{"op":"add","path":"/a/3","value":1}]"#,
        r#"[{"op":"add","path":"/x/y","value":1}]"#,
        r#"[{"op":"test","path":"/a/0","value":"1"}]"#,
        r#"[{"op":"move","from":"/a","path":"/a/0"}]"#,
        r#"[{"op":"remove","path":""}]"#,
        r#"[{"op":"add","path":"/a/0/x","value":1}]"#,
    ] {
        assert!(matches!(run(r#"{"a":[1,2]}"#, patch), Err(Error::Apply { .. })), "{patch}");
    }
}

#[test]
fn refuses_malformed_patches() {
    for patch in ["{}", "[1]", "["] {
        assert!(matches!(run("{}", patch), Err(Error::Syntax(_))), "{patch}");
    }
    for operation in [
        r#"{"op":"add","path":"/a"}"#,
        r#"{"op":"eat","path":""}"#,
        r#"{"op":"move","path":"/a"}"#,
        r#"{"op":"remove","path":"a"}"#,
        r#"{"op":"remove"}"#,
    ] {
        assert!(
            matches!(run("{}", &format!("[{operation}]")), Err(Error::Apply { at: 0, .. })),
            "{operation}"
        );
    }
}

#[test]
fn bounds_operations_and_copies() {
    let many = format!("[{}]", vec![r#"{"op":"test","path":"","value":{}}"#; MAX_OPERATIONS + 1].join(","));
    assert!(matches!(run("{}", &many), Err(Error::TooMany(_))));
    let bomb = vec![r#"{"op":"copy","from":"/a","path":"/a/-"}"#; 20].join(",");
    assert!(matches!(run(r#"{"a":[1,2,3]}"#, &format!("[{bomb}]")), Err(Error::TooMuchCopied(1000))));
}

#[test]
fn bounds_the_work_that_a_short_patch_can_ask_for() {
    let large = format!(r#"{{"a":[{}1]}}"#, "1,".repeat(90_000));
    let tests = vec![r#"{"op":"test","path":"","value":{}}"#; 5000].join(",");
    let applied = run(&large, &format!(r#"[{{"op":"add","path":"/b","value":1}},{tests}]"#));
    assert!(matches!(applied, Err(Error::Apply { at: 1, .. })));
    let walks = vec![r#"{"op":"copy","from":"/a/0","path":"/a/0"}"#; 9000].join(",");
    assert!(matches!(run(&large, &format!("[{walks}]")), Err(Error::TooMuchCopied(_))));
    let passing = format!(r#"{{"op":"test","path":"/a","value":[{}1]}}"#, "1,".repeat(90_000));
    let passing = vec![passing.as_str(); 700].join(",");
    let applied = run(
        &large,
        &format!(r#"[{{"op":"add","path":"/a/-","value":1}},{{"op":"remove","path":"/a/90001"}},{passing}]"#),
    );
    assert!(matches!(applied, Err(Error::TooCostly)));
}

#[test]
fn bounds_the_nodes_that_a_short_patch_can_open() {
    let opened = |length: usize| {
        let large = format!(r#"{{"a":[{}1]}}"#, "1,".repeat(length - 2));
        run(&large, r#"[{"op":"replace","path":"/a/0","value":2}]"#)
    };
    assert!(opened(MAX_OPENED).is_ok());
    assert!(matches!(opened(MAX_OPENED + 1), Err(Error::TooCostly)));
    // Inserting at the front moves all others, every time.
    let inserts = vec![r#"{"op":"add","path":"/a/0","value":1}"#; MAX_OPERATIONS].join(",");
    let large = format!(r#"{{"a":[{}1]}}"#, "1,".repeat(MAX_OPENED / 2));
    assert!(matches!(run(&large, &format!("[{inserts}]")), Err(Error::TooCostly)));
    let few = run(r#"{"a":[1]}"#, &format!("[{inserts}]")).expect("applies");
    assert_eq!(few.len(), r#"{"a":[1]}"#.len() + 2 * MAX_OPERATIONS);
}

#[test]
fn refuses_pointers_that_would_exhaust_the_stack() {
    let deep = r#"{"a":"#.repeat(9000) + "1" + &"}".repeat(9000);
    let patch = format!(r#"[{{"op":"remove","path":"{}"}}]"#, "/a".repeat(9000));
    assert!(matches!(run(&deep, &patch), Err(Error::Apply { .. })));
}
