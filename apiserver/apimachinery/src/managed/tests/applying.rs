//! What becomes of an object when several managers apply to it.

use super::play;

#[test]
fn an_applier_owns_what_it_says() {
    play()
        .apply("a", r#"{"metadata":{"name":"x","labels":{"l":"1"}},"spec":{"n":1,"any":{"k":[1]},"pair":{"a":1},"atomic":["x"]}}"#)
        .ends(
            r#"{"spec":{"n":1,"any":{"k":[1]},"pair":{"a":1},"atomic":["x"]}}"#,
            &[("a", r#"{"f:metadata":{"f:labels":{"f:l":{}}},"f:spec":{"f:any":{},"f:atomic":{},"f:n":{},"f:pair":{}}}"#)],
        );
    play().apply("a", r#"{"spec":{}}"#).ends(r#"{"spec":{}}"#, &[("a", r#"{"f:spec":{}}"#)]);
}

#[test]
fn what_its_only_owner_says_no_more_goes() {
    play()
        .apply("a", r#"{"spec":{"n":1,"t":"x","map":{"a":"1","b":"2"},"set":["a","b"],"list":[{"name":"a","value":1},{"name":"b"}]}}"#)
        .apply("a", r#"{"spec":{"n":1,"map":{"b":"2"},"set":["b"],"list":[{"name":"b"}]}}"#)
        .ends(
            r#"{"spec":{"n":1,"map":{"b":"2"},"set":["b"],"list":[{"name":"b"}]}}"#,
            &[("a", r#"{"f:spec":{"f:list":{"k:{\"name\":\"b\"}":{".":{},"f:name":{}}},"f:map":{"f:b":{}},"f:n":{},"f:set":{"v:\"b\"":{}}}}"#)],
        );
    play()
        .apply("a", r#"{"spec":{"map":{"a":"1"},"spec":{"n":1}}}"#)
        .apply("a", r#"{"spec":{"n":1}}"#)
        .ends(r#"{"spec":{"n":1}}"#, &[("a", r#"{"f:spec":{"f:n":{}}}"#)]);
    play().apply("a", r#"{"metadata":{"labels":{"l":"1"}},"spec":{"n":1}}"#).apply("a", "{}").ends("{}", &[]);
}

#[test]
fn what_others_own_too_stays() {
    play()
        .apply("a", r#"{"spec":{"n":1,"set":["a","b"],"list":[{"name":"x","value":1},{"name":"y"}]}}"#)
        .apply("b", r#"{"spec":{"n":1,"set":["b"],"list":[{"name":"x","map":{"k":"v"}}]}}"#)
        .apply("a", r#"{"spec":{"t":"t"}}"#)
        .ends(
            r#"{"spec":{"n":1,"set":["b"],"list":[{"name":"x","map":{"k":"v"}}],"t":"t"}}"#,
            &[
                ("a", r#"{"f:spec":{"f:t":{}}}"#),
                ("b", r#"{"f:spec":{"f:list":{"k:{\"name\":\"x\"}":{".":{},"f:map":{"f:k":{}},"f:name":{}}},"f:n":{},"f:set":{"v:\"b\"":{}}}}"#),
            ],
        );
}

#[test]
fn an_item_goes_with_its_last_owner_whatever_updaters_have_put_into_it() {
    play()
        .apply("a", r#"{"spec":{"list":[{"name":"x","value":1},{"name":"y"}]}}"#)
        .update("u", r#"{"spec":{"list":[{"name":"x","value":1,"any":2},{"name":"y"}]}}"#)
        .apply("a", r#"{"spec":{"list":[{"name":"y"}]}}"#)
        .ends(
            r#"{"spec":{"list":[{"name":"y"}]}}"#,
            &[("a", r#"{"f:spec":{"f:list":{"k:{\"name\":\"y\"}":{".":{},"f:name":{}}}}}"#)],
        );
}

#[test]
fn another_value_is_a_conflict_and_the_same_is_none() {
    play()
        .apply("a", r#"{"spec":{"n":1,"t":"x"}}"#)
        .conflict("b", r#"{"spec":{"n":2,"t":"y"}}"#, &[".spec.n", ".spec.t"])
        .apply("b", r#"{"spec":{"n":1}}"#)
        .conflict("b", r#"{"spec":{"n":3}}"#, &[".spec.n"])
        .force("b", r#"{"spec":{"n":3}}"#)
        .conflict("a", r#"{"spec":{"n":1,"t":"x"}}"#, &[".spec.n"])
        .apply("a", r#"{"spec":{"t":"x"}}"#)
        .ends(
            r#"{"spec":{"n":3,"t":"x"}}"#,
            &[("a", r#"{"f:spec":{"f:t":{}}}"#), ("b", r#"{"f:spec":{"f:n":{}}}"#)],
        );
}

#[test]
fn updates_never_conflict_but_take_over() {
    play()
        .apply("a", r#"{"spec":{"n":1,"t":"x"}}"#)
        .update("u", r#"{"spec":{"n":2,"t":"x"}}"#)
        .conflict("a", r#"{"spec":{"n":1,"t":"x"}}"#, &[".spec.n"])
        .apply("a", r#"{"spec":{"n":2,"t":"x"}}"#)
        .update("u", r#"{"spec":{"t":"x"}}"#)
        .ends(r#"{"spec":{"t":"x"}}"#, &[("a", r#"{"f:spec":{"f:t":{}}}"#)]);
}

#[test]
fn whole_parts_conflict_as_a_whole() {
    play()
        .apply("a", r#"{"spec":{"any":{"x":1,"y":2},"atomic":["a"],"pair":{"a":1}}}"#)
        .conflict(
            "b",
            r#"{"spec":{"any":{"x":1},"atomic":["a","b"],"pair":{"b":1}}}"#,
            &[".spec.any", ".spec.atomic", ".spec.pair"],
        )
        .force("b", r#"{"spec":{"any":{"x":1},"atomic":["a","b"],"pair":{"b":1}}}"#)
        .ends(
            r#"{"spec":{"any":{"x":1},"atomic":["a","b"],"pair":{"b":1}}}"#,
            &[("b", r#"{"f:spec":{"f:any":{},"f:atomic":{},"f:pair":{}}}"#)],
        );
}

#[test]
fn items_are_found_by_all_their_keys_and_absent_ones_count_as_empty() {
    play()
        .apply("a", r#"{"spec":{"ports":[{"port":1,"name":"x","value":1},{"port":2,"value":2},{"name":"x","value":3}]}}"#)
        .conflict(
            "b",
            r#"{"spec":{"ports":[{"port":2,"name":"","value":3},{"port":1,"name":"y","value":1}]}}"#,
            &[r#".spec.ports[name="",port=2].value"#],
        )
        .apply("b", r#"{"spec":{"ports":[{"port":2,"value":2}]}}"#)
        .apply("a", "{}")
        .ends(
            r#"{"spec":{"ports":[{"port":2,"value":2}]}}"#,
            &[("b", r#"{"f:spec":{"f:ports":{"k:{\"name\":\"\",\"port\":2}":{".":{},"f:port":{},"f:value":{}}}}}"#)],
        );
}

#[test]
fn nested_items_come_and_go() {
    play()
        .apply("a", r#"{"spec":{"list":[{"name":"o","list":[{"name":"i","list":[{"name":"d","value":1}]}]}]}}"#)
        .apply("b", r#"{"spec":{"list":[{"name":"o","list":[{"name":"j"}]}]}}"#)
        .apply("a", r#"{"spec":{"list":[{"name":"o","list":[{"name":"i"}]}]}}"#)
        .ends(
            r#"{"spec":{"list":[{"name":"o","list":[{"name":"i"},{"name":"j"}]}]}}"#,
            &[
                ("a", r#"{"f:spec":{"f:list":{"k:{\"name\":\"o\"}":{".":{},"f:list":{"k:{\"name\":\"i\"}":{".":{},"f:name":{}}},"f:name":{}}}}}"#),
                ("b", r#"{"f:spec":{"f:list":{"k:{\"name\":\"o\"}":{".":{},"f:list":{"k:{\"name\":\"j\"}":{".":{},"f:name":{}}},"f:name":{}}}}}"#),
            ],
        );
}

#[test]
fn duplicates_at_rest_are_tolerated() {
    let twice = r#"{"spec":{"list":[{"name":"x","value":1},{"name":"x","value":2},{"name":"y"}]}}"#;
    play()
        .update("u", twice)
        .ends(
            r#"{"spec":{"list":[{"name":"x","value":1},{"name":"x","value":2},{"name":"y"}]}}"#,
            &[("u!", r#"{"f:spec":{".":{},"f:list":{".":{},"k:{\"name\":\"x\"}":{},"k:{\"name\":\"y\"}":{".":{},"f:name":{}}}}}"#)],
        );
    // Somebody else's items beside them, and one in their place.
    play()
        .update("u", twice)
        .apply("a", r#"{"spec":{"list":[{"name":"z"}]}}"#)
        .conflict("a", r#"{"spec":{"list":[{"name":"x","value":3}]}}"#, &[r#".spec.list[name="x"]"#])
        .force("a", r#"{"spec":{"list":[{"name":"x","value":3}]}}"#)
        .ends(
            r#"{"spec":{"list":[{"name":"x","value":3},{"name":"y"}]}}"#,
            &[
                ("a", r#"{"f:spec":{"f:list":{"k:{\"name\":\"x\"}":{".":{},"f:name":{},"f:value":{}}}}}"#),
                ("u!", r#"{"f:spec":{".":{},"f:list":{".":{},"k:{\"name\":\"y\"}":{".":{},"f:name":{}}}}}"#),
            ],
        );
    // An update that resolves them, and one that changes only one of them.
    play()
        .update("u", r#"{"spec":{"set":["a","a","b"],"list":[{"name":"x"},{"name":"x","value":1}]}}"#)
        .update("v", r#"{"spec":{"set":["a","b"],"list":[{"name":"x"},{"name":"x","value":2}]}}"#)
        .ends(
            r#"{"spec":{"set":["a","b"],"list":[{"name":"x"},{"name":"x","value":2}]}}"#,
            &[
                ("u!", r#"{"f:spec":{".":{},"f:list":{},"f:set":{".":{},"v:\"b\"":{}}}}"#),
                ("v!", r#"{"f:spec":{"f:list":{"k:{\"name\":\"x\"}":{}},"f:set":{"v:\"a\"":{}}}}"#),
            ],
        );
}

#[test]
fn what_is_left_empty_stays_with_who_created_it() {
    play()
        .update("u", r#"{"spec":{"map":{}}}"#)
        .apply("a", r#"{"spec":{"map":{"k":"v"}}}"#)
        .apply("a", "{}")
        .ends(r#"{"spec":{}}"#, &[("u!", r#"{"f:spec":{".":{},"f:map":{}}}"#)]);
}
