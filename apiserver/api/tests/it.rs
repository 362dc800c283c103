//! Goldens of every kind: how an object rests, and how its schema is published. A change of either is a decision, so it has to
//! be seen in a review: `UPDATE_GOLDENS=1 cargo test -p repot-api --test it` writes them anew.

use std::{fs, path::Path};

use bytes::Bytes;
use repot_api::{
    control_plane_migration, etcd_backup, etcd_migration, etcd_restore, hosted_etcd, shoot_state,
    zone_isolation,
};
use repot_apimachinery::{
    document::Document,
    field::FieldError,
    json::Node,
    kind::Kind,
    openapi::{GroupVersion, v3},
};
use serde_json::Value;

type Normalise = fn(&mut Node) -> Vec<String>;
type Validate = fn(&Node) -> Vec<FieldError>;

/// Kind, what normalises it, what validates it and its status.
const KINDS: &[(&Kind, Normalise, Validate, Validate)] = &[
    (&shoot_state::KIND_INFO, shoot_state::normalise, shoot_state::validate, |_| Vec::new()),
    (&hosted_etcd::KIND_INFO, hosted_etcd::normalise, hosted_etcd::validate, hosted_etcd::validate_status),
    (&etcd_backup::KIND_INFO, etcd_backup::normalise, etcd_backup::validate, etcd_backup::validate_status),
    (
        &etcd_restore::KIND_INFO,
        etcd_restore::normalise,
        etcd_restore::validate,
        etcd_restore::validate_status,
    ),
    (
        &etcd_migration::KIND_INFO,
        etcd_migration::normalise,
        etcd_migration::validate,
        etcd_migration::validate_status,
    ),
    (
        &control_plane_migration::KIND_INFO,
        control_plane_migration::normalise,
        control_plane_migration::validate,
        control_plane_migration::validate_status,
    ),
    (
        &zone_isolation::KIND_INFO,
        zone_isolation::normalise,
        zone_isolation::validate,
        zone_isolation::validate_status,
    ),
];

fn compare(file: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(file);
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        fs::write(&path, found).expect("a golden that can be written");
    }
    let golden = fs::read_to_string(&path).unwrap_or_else(|_| panic!("{file} is missing"));
    let lines = golden.lines().zip(found.lines()).zip(1..);
    let differs = lines.into_iter().find(|((golden, found), _)| golden != found);
    assert!(golden == found, "{file} differs from what it is now, first at {differs:#?}");
}

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(file);
    fs::read_to_string(path).unwrap_or_else(|_| panic!("{file} is missing"))
}

fn decode(text: &str, kind: &Kind) -> Document {
    let (document, strict) =
        Document::decode(&Bytes::copy_from_slice(text.as_bytes()), kind).expect("an object");
    assert_eq!(strict, [""; 0], "{}", kind.kind);
    document
}

/// What is written rests as the golden says, is valid, and rests the same when it is written again.
#[test]
fn objects_rest_as_they_did() {
    for (kind, normalise, validate, validate_status) in KINDS {
        let mut document = decode(&read(&format!("{}.written.json", kind.plural)), kind);
        normalise(&mut document.body);
        assert_eq!(validate(&document.body), [], "{}", kind.kind);
        assert_eq!(validate_status(&document.body), [], "{}", kind.kind);
        let rests = String::from_utf8(document.body.to_raw().bytes().to_vec()).expect("text");
        compare(&format!("{}.rests.json", kind.plural), &format!("{rests}\n"));
        let mut again = decode(&rests, kind);
        normalise(&mut again.body);
        assert_eq!(again.body, document.body, "{}", kind.kind);
    }
}

#[test]
fn schemas_are_published_as_they_were() {
    for (kind, ..) in KINDS {
        let group = GroupVersion { group: "g.example".into(), version: "v1alpha1".into(), kinds: vec![kind] };
        let document = v3(&group, "v0");
        let Value::Object(mut schemas) = document["components"]["schemas"].clone() else { panic!("schemas") };
        schemas.retain(|name, _| name.starts_with("cloud.gardener."));
        let text = serde_json::to_string_pretty(&schemas).expect("JSON");
        compare(&format!("{}.openapi.json", kind.plural), &format!("{text}\n"));
    }
}

/// Place in [`KINDS`], the spec, and what is wrong with it.
type WrongSpec = (usize, &'static str, &'static [(&'static str, &'static str)]);

fn fields(errors: &[FieldError]) -> Vec<(&'static str, &str)> {
    errors.iter().map(|error| (error.cause.reason(), error.field.as_str())).collect()
}

/// The body of an object with this spec.
fn body(kind: &Kind, spec: &str) -> Node {
    decode(&format!("{{\"spec\":{spec}}}"), kind).body
}

#[test]
fn everything_that_is_wrong_with_a_spec_is_told_at_once() {
    const REQUIRED: &str = "FieldValueRequired";
    const INVALID: &str = "FieldValueInvalid";
    const FORBIDDEN: &str = "FieldValueForbidden";
    const UNSUPPORTED: &str = "FieldValueNotSupported";
    let cases: &[WrongSpec] = &[
        (1, "{}", &[(REQUIRED, "spec.apiServerRef"), (REQUIRED, "spec.etcdRef")]),
        (
            1,
            r#"{"etcdRef":{"name":"A"},"apiServerRef":{"name":""},"settings":{"replicas":4,"size":"big"},
                "backupStore":{"provider":"Tape","container":"c","prefix":"../up","endpoint":"minio"}}"#,
            &[
                (REQUIRED, "spec.apiServerRef.name"),
                (UNSUPPORTED, "spec.backupStore.provider"),
                (INVALID, "spec.etcdRef.name"),
                (INVALID, "spec.settings.size"),
                (INVALID, "spec.settings.replicas"),
                (INVALID, "spec.backupStore.prefix"),
                (REQUIRED, "spec.backupStore.secretRef"),
                (INVALID, "spec.backupStore.endpoint"),
            ],
        ),
        (
            2,
            r#"{"clusterRef":{"name":"c"},"schedule":"hourly","stepTimeout":"soon","retention":{"policy":"LimitBased"}}"#,
            &[(INVALID, "spec.stepTimeout"), (INVALID, "spec.schedule"), (REQUIRED, "spec.retention.limit")],
        ),
        (
            2,
            r#"{"clusterRef":{},"retention":{"policy":"Exponential","limit":0}}"#,
            &[
                (REQUIRED, "spec.clusterRef.name"),
                (INVALID, "spec.retention.limit"),
                (FORBIDDEN, "spec.retention.limit"),
                (FORBIDDEN, "spec.retention"),
            ],
        ),
        (3, r#"{"clusterRef":{"name":"c"},"source":{}}"#, &[(REQUIRED, "spec.source")]),
        (
            3,
            r#"{"clusterRef":{"name":"c"},"source":{"backupName":"b","store":{"provider":"Local","container":"d","prefix":"p"}}}"#,
            &[(FORBIDDEN, "spec.source.store")],
        ),
        (4, r#"{"clusterRef":{"name":"c"},"settings":{}}"#, &[(REQUIRED, "spec.settings")]),
        (
            5,
            r#"{"shootRef":{"name":"S"},"sourceSeed":"a","destinationSeed":"a","mode":"Slow","abort":"Now","stepTimeout":"soon"}"#,
            &[
                (UNSUPPORTED, "spec.mode"),
                (UNSUPPORTED, "spec.abort"),
                (INVALID, "spec.stepTimeout"),
                (INVALID, "spec.shootRef.name"),
                (INVALID, "spec.destinationSeed"),
            ],
        ),
        (
            5,
            r#"{"shootRef":{"name":"s"},"sourceSeed":"a","destinationSeed":"b","retry":-1}"#,
            &[(INVALID, "spec.retry")],
        ),
        (5, r#"{"shootRef":{"name":"s"},"sourceSeed":"a","destinationSeed":"b","retry":1000000}"#, &[]),
        (
            5,
            r#"{"shootRef":{"name":"s"},"sourceSeed":"a","destinationSeed":"b","retry":1000001}"#,
            &[(INVALID, "spec.retry")],
        ),
        (
            5,
            "{}",
            &[(REQUIRED, "spec.destinationSeed"), (REQUIRED, "spec.shootRef"), (REQUIRED, "spec.sourceSeed")],
        ),
    ];
    for (at, spec, expected) in cases {
        let (kind, _, validate, _) = KINDS[*at];
        assert_eq!(fields(&validate(&body(kind, spec))), *expected, "{} {spec}", kind.kind);
    }
}

#[test]
fn gardenlet_carries_out_no_live_migrations() {
    let (kind, _, validate, _) = KINDS[5];
    let errors = |mode: &str| {
        let spec = r#"{"shootRef":{"name":"s"},"sourceSeed":"a","destinationSeed":"b","executor":"Gardenlet","mode":"#;
        fields(&validate(&body(kind, &format!("{spec}\"{mode}\"}}")))).len()
    };
    assert_eq!((errors("Classic"), errors("Live"), errors("Forced")), (0, 1, 0));
}

#[test]
fn a_ledger_that_cannot_be_is_refused() {
    let status = r#"{"planVersion":0,"apiDownSeconds":-1,"proof":{"keys":-1,"revision":-2},"pausedTime":"noon",
        "before":{"apiReplicas":-1},
        "steps":[{"name":"ApiDown","state":"Running","attempts":-1,"reason":"two words"},{"name":"ApiDown","state":"Done"}]}"#;
    let body = |kind, status: &str| decode(&format!("{{\"spec\":{{}},\"status\":{status}}}"), kind).body;
    let errors = etcd_migration::validate_status(&body(&etcd_migration::KIND_INFO, status));
    let found: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
    let expected = [
        "status.pausedTime",
        "status.proof.hash",
        "status.steps[1]",
        "status.steps[1].state",
        "status.planVersion",
        "status.apiDownSeconds",
        "status.proof.keys",
        "status.proof.revision",
        "status.before.apiReplicas",
        "status.steps[0].attempts",
        "status.steps[0].reason",
    ];
    for field in expected {
        assert!(found.contains(&field), "{field} is not told of: {found:?}");
    }
    assert_eq!(found.len(), expected.len(), "{found:?}");
}

/// The step that runs, or else the first that is not done, is what a table shows.
#[test]
fn tables_show_the_step_that_a_workflow_is_at() {
    let at = |steps: &str| {
        let text = format!("{{\"spec\":{{}},\"status\":{{\"steps\":[{steps}]}}}}");
        let body = decode(&text, &etcd_restore::KIND_INFO).body;
        format!("{:?}", (etcd_restore::KIND_INFO.cells)(&body, 0)[2])
    };
    let step = |name: &str, state: &str| format!("{{\"name\":\"{name}\",\"state\":\"{state}\"}}");
    let forward = [step("ApiDown", "Succeeded"), step("EtcdDeleted", "Pending")].join(",");
    assert!(at(&forward).contains("EtcdDeleted"));
    let back = [step("ApiDown", "Succeeded"), step("EtcdRestored", "Failed"), step("OldEtcdUp", "Running")]
        .join(",");
    assert!(at(&back).contains("OldEtcdUp"));
}

#[test]
fn a_record_of_a_side_that_cannot_be_is_refused() {
    let status = r#"{"apiOutage":{"from":"noon"},"garden":{"planVersion":0,"phase":"Done"},
        "source":{"etcdReplicas":-1,"finalSnapshot":{"name":"f","epoch":1},
            "steps":[{"name":"A","state":"Running","reason":"two words","attempts":-1}]}}"#;
    let body =
        decode(&format!("{{\"spec\":{{}},\"status\":{status}}}"), &control_plane_migration::KIND_INFO).body;
    let errors = control_plane_migration::validate_status(&body);
    let found: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
    let expected = [
        "status.apiOutage.from",
        "status.garden.phase",
        "status.garden.planVersion",
        "status.source.etcdReplicas",
        "status.source.finalSnapshot.revision",
        "status.source.steps[0].attempts",
        "status.source.steps[0].reason",
    ];
    for field in expected {
        assert!(found.contains(&field), "{field} is not reported: {found:?}");
    }
    assert_eq!(found.len(), expected.len(), "{found:?}");
}

#[test]
fn workflows_keep_the_spec_they_were_begun_with() {
    type Change = fn(&Node, &Node) -> Vec<FieldError>;
    type Case = (&'static Kind, Change, &'static str, &'static str, &'static [&'static str]);
    let cases: &[Case] = &[
        (
            &etcd_migration::KIND_INFO,
            etcd_migration::validate_change,
            r#"{"clusterRef":{"name":"a"},"settings":{"size":"1Gi"},"cancel":true}"#,
            r#"{"clusterRef":{"name":"b"},"settings":{"size":"2Gi"},"paused":true,"stepTimeout":"1h"}"#,
            &["spec.clusterRef", "spec.settings", "spec.cancel"],
        ),
        (
            &etcd_restore::KIND_INFO,
            etcd_restore::validate_change,
            r#"{"clusterRef":{"name":"a"},"source":{"backupName":"x"}}"#,
            r#"{"clusterRef":{"name":"a"},"source":{"backupName":"y"},"cancel":true}"#,
            &["spec.source"],
        ),
        (
            &etcd_backup::KIND_INFO,
            etcd_backup::validate_change,
            r#"{"clusterRef":{"name":"a"},"schedule":"@daily","retention":{"limit":1}}"#,
            r#"{"clusterRef":{"name":"a"},"schedule":"@hourly","deletionPolicy":"Delete"}"#,
            &[],
        ),
        (
            &etcd_backup::KIND_INFO,
            etcd_backup::validate_change,
            r#"{"clusterRef":{"name":"a"}}"#,
            r#"{"clusterRef":{"name":"a"},"schedule":"@hourly","paused":true}"#,
            &["spec.schedule"],
        ),
        (
            &hosted_etcd::KIND_INFO,
            hosted_etcd::validate_change,
            r#"{"etcdRef":{"name":"a"},"apiServerRef":{"name":"b"}}"#,
            r#"{"etcdRef":{"name":"x"},"apiServerRef":{"name":"y"},"settings":{"replicas":3}}"#,
            &["spec.apiServerRef", "spec.etcdRef"],
        ),
        (
            &control_plane_migration::KIND_INFO,
            control_plane_migration::validate_change,
            r#"{"shootRef":{"name":"s","uid":"1"},"sourceSeed":"a","destinationSeed":"b","mode":"Classic","abort":"Force"}"#,
            r#"{"shootRef":{"name":"s","uid":"2"},"sourceSeed":"a","destinationSeed":"c","mode":"Live","abort":"Abort","paused":true}"#,
            &["spec.destinationSeed", "spec.mode", "spec.shootRef", "spec.abort"],
        ),
        // The UID may be filled in once.
        (
            &control_plane_migration::KIND_INFO,
            control_plane_migration::validate_change,
            r#"{"shootRef":{"name":"s"},"sourceSeed":"a","destinationSeed":"b"}"#,
            r#"{"shootRef":{"name":"s","uid":"2"},"sourceSeed":"a","destinationSeed":"b","abort":"Abort"}"#,
            &[],
        ),
        (
            &control_plane_migration::KIND_INFO,
            control_plane_migration::validate_change,
            r#"{"shootRef":{"name":"s"},"sourceSeed":"a","destinationSeed":"b"}"#,
            r#"{"shootRef":{"name":"t","uid":"2"},"sourceSeed":"a","destinationSeed":"b"}"#,
            &["spec.shootRef"],
        ),
        (
            &zone_isolation::KIND_INFO,
            zone_isolation::validate_change,
            r#"{"shootRef":{"name":"s"},"isolatedZoneID":"a","expiresAt":"2026-05-01T06:30:00Z"}"#,
            r#"{"shootRef":{"name":"s","uid":"2"},"isolatedZoneID":"a","drainTimeout":"2h"}"#,
            &[],
        ),
        (
            &zone_isolation::KIND_INFO,
            zone_isolation::validate_change,
            r#"{"shootRef":{"name":"s","uid":"1"},"isolatedZoneID":"a"}"#,
            r#"{"shootRef":{"name":"s","uid":"2"},"isolatedZoneID":"b"}"#,
            &["spec.isolatedZoneID", "spec.shootRef"],
        ),
        // A request to try again stands until a higher one.
        (
            &control_plane_migration::KIND_INFO,
            control_plane_migration::validate_change,
            r#"{"shootRef":{"name":"s"},"sourceSeed":"a","destinationSeed":"b","retry":2}"#,
            r#"{"shootRef":{"name":"s"},"sourceSeed":"a","destinationSeed":"b","retry":3}"#,
            &[],
        ),
        (
            &control_plane_migration::KIND_INFO,
            control_plane_migration::validate_change,
            r#"{"shootRef":{"name":"s"},"sourceSeed":"a","destinationSeed":"b","retry":2}"#,
            r#"{"shootRef":{"name":"s"},"sourceSeed":"a","destinationSeed":"b"}"#,
            &["spec.retry"],
        ),
    ];
    for (kind, validate_change, before, after, forbidden) in cases {
        let errors = validate_change(&body(kind, before), &body(kind, after));
        let found: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(found, *forbidden, "{}: {before} to {after}", kind.kind);
    }
}
