//! Who owns what in the end, and how it is told.

use super::{super::conflict, Play, play};

#[test]
fn an_updater_owns_what_it_sets_anew() {
    play()
        .update("u", r#"{"metadata":{"labels":{"l":"1"}},"spec":{"n":1,"set":["x"]}}"#)
        .update("v", r#"{"metadata":{"labels":{"l":"1"}},"spec":{"n":2,"set":["x","y"]}}"#)
        .ends(
            r#"{"spec":{"n":2,"set":["x","y"]}}"#,
            &[
                ("u!", r#"{"f:metadata":{"f:labels":{".":{},"f:l":{}}},"f:spec":{".":{},"f:set":{".":{},"v:\"x\"":{}}}}"#),
                ("v!", r#"{"f:spec":{"f:n":{},"f:set":{"v:\"y\"":{}}}}"#),
            ],
        );
}

#[test]
fn what_was_there_before_belongs_to_nobody_who_applies() {
    let untracked = Play {
        live: Some(Play::read(r#"{"metadata":{"labels":{"l":"1"}},"spec":{"n":1,"t":"x"}}"#)),
        clock: 0,
    };
    untracked
        .conflict("a", r#"{"spec":{"n":2}}"#, &[".spec.n"])
        .apply("a", r#"{"spec":{"n":1}}"#)
        .force("a", r#"{"spec":{"n":3}}"#)
        .ends(
            r#"{"spec":{"n":3,"t":"x"}}"#,
            &[
                ("a", r#"{"f:spec":{"f:n":{}}}"#),
                (
                    "before-first-apply!",
                    r#"{"f:metadata":{"f:labels":{".":{},"f:l":{}}},"f:spec":{".":{},"f:t":{}}}"#,
                ),
            ],
        );
}

#[test]
fn updates_of_untracked_objects_stay_untracked() {
    let untracked = Play { live: Some(Play::read(r#"{"spec":{"n":1}}"#)), clock: 0 };
    untracked.update("u", r#"{"spec":{"n":2}}"#).ends(r#"{"spec":{"n":2}}"#, &[]);
    let reset = r#"{"metadata":{"managedFields":[{}]},"spec":{"n":1}}"#;
    play().apply("a", r#"{"spec":{"n":1}}"#).update("u", reset).ends(r#"{"spec":{"n":1}}"#, &[]);
    let reset = reset.replace("{}", "");
    play().apply("a", r#"{"spec":{"n":1}}"#).update("u", &reset).ends(r#"{"spec":{"n":1}}"#, &[]);
}

#[test]
fn writers_may_change_entries_and_cannot_break_them() {
    let given = |operation: &str| {
        format!(
            r#"{{"metadata":{{"managedFields":[{{"manager":"m","operation":"{operation}","apiVersion":"g/v1","fieldsType":"FieldsV1","fieldsV1":{{"f:spec":{{"f:n":{{}}}}}}}}]}},"spec":{{"n":1,"t":"x"}}}}"#
        )
    };
    let owned = r#"{"f:spec":{"f:n":{}}}"#;
    play()
        .update("u", r#"{"spec":{"n":1}}"#)
        .update("v", &given("Apply"))
        .ends(r#"{"spec":{"n":1,"t":"x"}}"#, &[("m", owned), ("v!", r#"{"f:spec":{"f:t":{}}}"#)]);
    play()
        .apply("a", r#"{"spec":{"n":1,"t":"x"}}"#)
        .update("v", &given("Nonsense"))
        .ends(r#"{"spec":{"n":1,"t":"x"}}"#, &[("a", r#"{"f:spec":{"f:n":{},"f:t":{}}}"#)]);
}

#[test]
fn entries_in_terms_of_other_versions_are_dropped() {
    let mut older = play().apply("a", r#"{"spec":{"n":1}}"#);
    if let Some((meta, _)) = &mut older.live {
        let text = meta.managed_fields.take().expect("entries").get().replace("g/v1", "g/v0");
        meta.managed_fields = serde_json::value::RawValue::from_string(text).ok();
    }
    older.apply("b", r#"{"spec":{"n":2}}"#).ends(r#"{"spec":{"n":2}}"#, &[("b", r#"{"f:spec":{"f:n":{}}}"#)]);
}

#[test]
fn times_change_only_with_what_they_are_of() {
    let time = |play: &Play, manager: &str| {
        let managed = play.managed();
        managed
            .0
            .iter()
            .find(|(id, _)| id.manager == manager)
            .and_then(|(_, o)| o.time.clone())
            .expect("a time")
    };
    let mut play = play().apply("a", r#"{"spec":{"n":1}}"#);
    let first = time(&play, "a");
    play = play.apply("a", r#"{"spec":{"n":1}}"#);
    assert_eq!(time(&play, "a"), first);
    play = play.update("u", r#"{"spec":{"n":1,"t":"x"}}"#);
    let updated = time(&play, "u");
    play = play.update("u", r#"{"spec":{"n":1,"t":"x"}}"#);
    assert_eq!((time(&play, "a"), time(&play, "u")), (first.clone(), updated));
    play = play.apply("a", r#"{"spec":{"n":2}}"#);
    assert_ne!(time(&play, "a"), first);
}

#[test]
fn kubectl_takes_over_from_its_own_client_side_apply() {
    let last = r#"{\"apiVersion\":\"g/v1\",\"kind\":\"K\",\"metadata\":{\"name\":\"x\"},\"spec\":{\"n\":1,\"t\":\"x\"}}"#;
    let client_side = |t: &str| {
        format!(
            r#"{{"metadata":{{"annotations":{{"kubectl.kubernetes.io/last-applied-configuration":"{last}"}}}},"spec":{{"n":1,"t":"{t}"}}}}"#
        )
    };
    let moved = play()
        .update("kubectl-client-side-apply", &client_side("x"))
        .apply("kubectl", r#"{"spec":{"n":2,"t":"x"}}"#);
    let (meta, _) = moved.live.as_ref().expect("an object");
    let kept = &meta.annotations["kubectl.kubernetes.io/last-applied-configuration"];
    assert_eq!(
        kept,
        "{\"apiVersion\":\"g/v1\",\"kind\":\"Sample\",\"metadata\":{},\"spec\":{\"n\":2,\"t\":\"x\"}}\n"
    );
    // Others do not, and neither does kubectl for what somebody else has changed since.
    play()
        .update("kubectl-client-side-apply", &client_side("x"))
        .conflict("other", r#"{"spec":{"n":2}}"#, &[".spec.n"])
        .update("u", &client_side("y"))
        .conflict("kubectl", r#"{"spec":{"n":2,"t":"z"}}"#, &[".spec.t"]);
}

#[test]
fn conflicts_are_told_as_clients_expect() {
    let mut one = play().update("u", r#"{"spec":{"list":[{"name":"x","value":1}],"n":1}}"#);
    let conflicts =
        one.try_apply("a", r#"{"spec":{"list":[{"name":"x","value":2}]}}"#, false).expect_err("a conflict");
    assert_eq!(conflicts[0].message(), r#"conflict with "u" using g/v1 at 2024-01-01T00:00:01Z"#);
    assert_eq!(
        conflict::summary(&conflicts),
        r#"Apply failed with 1 conflict: conflict with "u" using g/v1 at 2024-01-01T00:00:01Z: .spec.list[name="x"].value"#
    );
    let mut two = one.apply("b", r#"{"spec":{"n":1}}"#);
    let conflicts = two.try_apply("a", r#"{"spec":{"n":2}}"#, false).expect_err("conflicts");
    assert_eq!(
        conflict::summary(&conflicts),
        "Apply failed with 2 conflicts: conflicts with \"b\":\n- .spec.n\nconflicts with \"u\" using g/v1 at 2024-01-01T00:00:01Z:\n- .spec.n"
    );
}
