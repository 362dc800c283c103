use super::*;
use crate::schema::{Field, ListType};

static TEXT: Schema = Schema::string("");
static NUMBER: Schema = Schema::of("", Shape::Integer);
static ANY: Schema = Schema::of("", Shape::Opaque);
static ITEM: Schema =
    Schema::of("", Shape::Object(&[Field::required("name", &TEXT), Field::optional("state", &ANY)]));
static ITEMS: Schema = Schema::of("", Shape::List(&ITEM, ListType::Map(&["name"])));
static LABELS: Schema = Schema::of("", Shape::Map(&TEXT));
static ROOT: Schema = Schema::of(
    "",
    Shape::Object(&[
        Field::optional("items", &ITEMS),
        Field::optional("count", &NUMBER),
        Field::optional("labels", &LABELS),
    ]),
);

fn read(text: &str) -> (String, Findings) {
    let mut findings = Findings::default();
    let node = decode(&Bytes::copy_from_slice(text.as_bytes()), &ROOT, &mut findings).expect("JSON");
    (String::from_utf8(node.to_raw().bytes().to_vec()).expect("UTF-8"), findings)
}

#[test]
fn keeps_opaque_parts_token_for_token() {
    let text = r#"{"items":[{"name":"a","state":{"x":1.50,"x":1E+2,"\u0061":"\/"}}],"count":3}"#;
    assert_eq!(read(text), (text.to_owned(), Findings::default()));
}

#[test]
fn finds_everything_at_once() {
    let (kept, findings) = read(
        r#"{"items":[{"name":1,"x":{}},{"name":"b","name":"c"}],"count":"no","labels":{"a":"1","a":"2"},"y":1}"#,
    );
    assert_eq!(kept, r#"{"items":[{},{"name":"c"}],"labels":{"a":"2"}}"#);
    assert_eq!(
        findings.strict,
        [
            r#"unknown field "items[0].x""#,
            r#"duplicate field "items[1].name""#,
            r#"duplicate field "labels.a""#,
            r#"unknown field "y""#,
        ]
    );
    assert_eq!(
        findings.mismatches,
        ["items[0].name: expected a string, got a number", "count: expected an integer, got a string"]
    );
}

#[test]
fn null_means_absent_except_in_opaque_parts() {
    assert_eq!(
        read(r#"{"count":null,"labels":null,"items":[{"name":"a","state":null}]}"#).0,
        r#"{"items":[{"name":"a","state":null}]}"#
    );
}

#[test]
fn refuses_what_is_not_json() {
    for text in ["", "{", "{}{}", "[1,]", "{\"a\":nul}", "\u{feff}{}"] {
        let result = decode(&Bytes::copy_from_slice(text.as_bytes()), &ROOT, &mut Findings::default());
        assert!(matches!(result, Err(Error::Syntax(_))), "{text:?} was accepted");
    }
    let invalid = Bytes::from_static(b"{\"items\":[{\"name\":\"\xff\"}]}");
    assert!(decode(&invalid, &ROOT, &mut Findings::default()).is_err());
}

#[test]
fn gives_up_where_the_tree_takes_too_much() {
    let read = |text: &str, most| {
        let (bytes, mut findings) = (Bytes::copy_from_slice(text.as_bytes()), Findings::default());
        decode_compact(&bytes, crate::sample::KIND_INFO.schema, &mut findings, most)
    };
    let data = "1,".repeat(1000) + "1";
    let many = format!(r#"{{"spec":{{"items":[{}{{"data":[{data}]}}]}}}}"#, "{},".repeat(10));
    let long = format!(r#"{{"metadata":{{"annotations":{{"a":"{}"}}}}}}"#, "y".repeat(1000));
    let managed = format!(r#"{{"metadata":{{"managedFields":[{{"manager":"{}"}}]}}}}"#, "y".repeat(1000));
    // What is in opaque parts does not count.
    for (text, takes) in [(&many, 15 * VALUE), (&long, 4 * VALUE), (&managed, 3 * VALUE)] {
        assert_eq!(read(text, 10 << 10).expect("an object").to_raw().bytes(), text.as_bytes());
        assert!(matches!(read(text, takes - 1), Err(Error::TooMuch(_))), "{text:.40}");
    }
    for text in [&long, &managed] {
        assert!(matches!(read(text, COPIES * 1000), Err(Error::TooMuch(_))), "{text:.40}");
    }
    assert!(matches!(read("{", 10 << 10), Err(Error::Syntax(_))));
}

#[test]
fn conforms_what_a_patch_has_opened() {
    let text = r#"{"items":[{"name":"a","state":{"x":[1.0,{"k":1e0}]}}]}"#;
    let mut node = Node::Raw(Raw::from_valid(Bytes::from_static(text.as_bytes())).expect("bearable"));
    node.open();
    node.member_mut("items").expect("items").open();
    let Some(Node::Array(items)) = node.member_mut("items") else { panic!("an array") };
    items[0].open();
    items[0].member_mut("state").expect("state").open();
    let mut findings = Findings::default();
    let conformed = conform(node, &ROOT, &mut findings).expect("conforms");
    assert_eq!(findings, Findings::default());
    assert_eq!(conformed.to_raw().bytes(), text.as_bytes());
    assert!(matches!(
        conformed.member("items").expect("items").items()[0].member("state"),
        Some(Node::Raw(_))
    ));
}
