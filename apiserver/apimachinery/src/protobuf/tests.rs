use serde::Deserialize;
use serde_json::{Value, json};

use super::*;

/// What Go's types make of documents: `go run ./tests/go/clientgo goldens` prints it.
const GOLDENS: &str = include_str!("goldens.jsonl");

#[derive(Deserialize)]
struct Golden {
    json: String,
    #[serde(default)]
    event: String,
    protobuf: String,
}

fn goldens() -> Vec<Golden> {
    GOLDENS.lines().map(|line| serde_json::from_str(line).expect("a golden")).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("digits"));
    digits.map(|pair| u8::from_str_radix(pair, 16).expect("a byte")).collect()
}

fn is_options(golden: &Golden) -> bool {
    golden.json.contains("\"DeleteOptions\"")
}

#[test]
fn documents_are_encoded_as_go_encodes_them() {
    let mut seen = 0;
    for golden in goldens().iter().filter(|golden| golden.event.is_empty() && !is_options(golden)) {
        let encoded = encode(golden.json.as_bytes()).expect("a kind that is known");
        assert_eq!(hex(&encoded), golden.protobuf, "{}", golden.json);
        seen += 1;
    }
    assert!(seen >= messages::kinds().count() * 2, "{seen} documents are too few");
}

#[test]
fn every_kind_has_a_golden() {
    for (version, kind) in messages::kinds() {
        let words = [format!("\"kind\":\"{kind}\","), format!("\"apiVersion\":\"{version}")];
        let has = |golden: &Golden| words.iter().all(|word| golden.json.contains(word));
        assert!(goldens().iter().any(has), "{version} {kind} has none");
    }
}

#[test]
fn events_are_encoded_as_go_encodes_them() {
    let events: Vec<_> = goldens().into_iter().filter(|golden| !golden.event.is_empty()).collect();
    assert!(events.len() >= 2, "{} events are too few", events.len());
    for golden in events {
        let encoded = watch_event(&golden.event, golden.json.as_bytes()).expect("a kind that is known");
        assert_eq!(hex(&encoded), golden.protobuf, "{} {}", golden.event, golden.json);
    }
}

#[test]
fn options_are_read_as_go_wrote_them() {
    let options: Vec<_> = goldens().into_iter().filter(is_options).collect();
    assert!(options.len() >= 4, "{} options are too few", options.len());
    for golden in options {
        let read = delete_options(&bytes(&golden.protobuf)).expect("options");
        let written: Value = serde_json::from_str(&golden.json).expect("JSON");
        assert_eq!(read, written);
    }
}

#[test]
fn options_that_are_cut_short_are_refused_or_read_as_less() {
    for golden in goldens().iter().filter(|golden| is_options(golden)) {
        let whole = bytes(&golden.protobuf);
        for length in 0..whole.len() {
            // Where a field ends, a message may end.
            if let Ok(read) = delete_options(&whole[..length]) {
                assert!(read.is_object(), "{length} bytes of {}", golden.json);
            }
        }
        for (at, bit) in (0..whole.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << bit;
            let _ = delete_options(&flipped);
        }
    }
    for wrong in [&b""[..], b"k8s", b"k8s\x01", b"{}", b"k8s\0\x12\x02\x08", b"k8s\0\x12\x04\x0a\x02ab"] {
        assert_eq!(delete_options(wrong), Err(Malformed), "{wrong:?}");
    }
    assert_eq!(delete_options(b"k8s\0"), Ok(json!({})));
}

#[test]
fn what_has_no_protobuf_is_not_encoded() {
    for json in [
        r#"{"kind":"ShootState","apiVersion":"core.gardener.cloud/v1alpha1","metadata":{}}"#,
        r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1"}"#,
        r#"{"paths":[]}"#,
        "[]",
        "",
        r#"{"kind":"Status""#,
    ] {
        assert_eq!(encode(json.as_bytes()), None, "{json}");
        assert_eq!(watch_event("ADDED", json.as_bytes()), None, "{json}");
    }
}

#[test]
fn values_of_another_type_count_as_absent() {
    let of = |metadata: Value| {
        let kind =
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata});
        encode(kind.to_string().as_bytes()).expect("metadata")
    };
    for (wrong, right) in [
        (json!({"name": 1}), json!({})),
        (json!({"name": "a", "labels": ["b"]}), json!({"name": "a"})),
        (json!({"generation": "1"}), json!({})),
        (json!({"creationTimestamp": "yesterday"}), json!({})),
        (json!({"ownerReferences": [1]}), json!({"ownerReferences": [{}]})),
        (json!({"finalizers": {"a": 1}}), json!({})),
        (json!(7), json!({})),
    ] {
        assert_eq!(hex(&of(wrong.clone())), hex(&of(right)), "{wrong}");
    }
}

#[test]
fn a_list_of_a_thousand_is_half_as_long_as_in_json() {
    let fields =
        json!({"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:spec": {".": {}, "f:gardener": {}}});
    let item = |n: usize| {
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {
            "name": format!("shoot-{n}"), "namespace": "garden-project", "uid": "cb6ac1f6-9a3f-4b76-8e3f-6d0a8a3a3f5e",
            "resourceVersion": format!("{n}"), "generation": 1, "creationTimestamp": "2026-11-22T21:00:00Z",
            "labels": {"app": "x"},
            "managedFields": [{"manager": "gardenlet", "operation": "Update", "apiVersion": "core.gardener.cloud/v1alpha1",
                "time": "2026-11-22T21:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields}],
        }})
    };
    let items: Vec<Value> = (0..1000).map(item).collect();
    let list = json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "items": items});
    let text = list.to_string();
    let encoded = encode(text.as_bytes()).expect("a list").len();
    println!("{} bytes of JSON are {encoded} bytes of protobuf", text.len());
    assert!(encoded * 100 < text.len() * 60, "{encoded} of {}", text.len());
}
