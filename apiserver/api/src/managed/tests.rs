//! What becomes of an object and of its owners when several managers apply and update it: the situations that
//! structured-merge-diff is held to, as scenarios.

use bytes::Bytes;

use super::{
    Bodies, Writer,
    apply::apply,
    conflict::Conflict,
    entries::{Managed, Operation},
    fields_v1, track,
};
use crate::{
    document::Document,
    json::Node,
    kind::Kind,
    meta::{self, ObjectMeta},
    schema::{Field, ListType, Schema, Shape},
    shoot_state,
};

static TEXT: Schema = Schema::string("");
static NUMBER: Schema = Schema::of("", Shape::Integer);
static ANY: Schema = Schema::of("", Shape::Opaque);
static MAP: Schema = Schema::of("", Shape::Map(&TEXT));
static SET: Schema = Schema::of("", Shape::List(&TEXT, ListType::Set));
static ATOMIC: Schema = Schema::of("", Shape::List(&TEXT, ListType::Atomic));
static PAIR: Schema =
    Schema::of("", Shape::AtomicObject(&[Field::optional("a", &NUMBER), Field::optional("b", &NUMBER)]));
static ITEM: Schema = Schema::of(
    "",
    Shape::Object(&[
        Field::optional("name", &TEXT),
        Field::optional("port", &NUMBER),
        Field::optional("value", &NUMBER),
        Field::optional("any", &ANY),
        Field::optional("map", &MAP),
        Field::optional("list", &LIST),
    ]),
);
static LIST: Schema = Schema::of("", Shape::List(&ITEM, ListType::Map(&["name"])));
static TWO_KEYS: Schema = Schema::of("", Shape::List(&ITEM, ListType::Map(&["port", "name"])));
static SPEC: Schema = Schema::of(
    "",
    Shape::Object(&[
        Field::optional("n", &NUMBER),
        Field::optional("t", &TEXT),
        Field::optional("any", &ANY),
        Field::optional("map", &MAP),
        Field::optional("set", &SET),
        Field::optional("atomic", &ATOMIC),
        Field::optional("pair", &PAIR),
        Field::optional("list", &LIST),
        Field::optional("ports", &TWO_KEYS),
        Field::optional("spec", &SPEC),
    ]),
);
static ROOT: Schema = Schema::of(
    "",
    Shape::Object(&[
        Field::optional("apiVersion", &TEXT),
        Field::optional("kind", &TEXT),
        Field::optional("metadata", &meta::OBJECT_META),
        Field::optional("spec", &SPEC),
    ]),
);

/// The only thing of a kind that matters here is its schema.
fn kind() -> Kind {
    Kind { schema: &ROOT, ..shoot_state::KIND_INFO }
}

/// An object, played with step by step. Time goes on by a second a step.
#[derive(Default)]
struct Play {
    live: Option<(ObjectMeta, Node)>,
    clock: u32,
}

impl Play {
    fn read(text: &str) -> (ObjectMeta, Node) {
        let (document, strict) =
            Document::decode(&Bytes::copy_from_slice(text.as_bytes()), &kind()).expect(text);
        assert!(strict.is_empty(), "{strict:?}");
        (document.meta, document.body)
    }

    fn writer(&mut self) -> String {
        self.clock += 1;
        format!("2024-01-01T00:00:{:02}Z", self.clock)
    }

    fn try_apply(&mut self, manager: &str, text: &str, force: bool) -> Result<(), Vec<Conflict>> {
        let (config, time) = (Self::read(text), self.writer());
        let writer = Writer { manager, api_version: "g/v1", subresource: "", time: &time };
        let live = self.live.as_ref().map(|(meta, body)| (meta, body));
        let applied = apply(&kind(), live, (&config.0, &config.1), force, writer)?;
        self.live = Some((applied.meta, applied.body));
        Ok(())
    }

    fn apply(mut self, manager: &str, text: &str) -> Self {
        self.try_apply(manager, text, false).expect("no conflict");
        self
    }

    fn force(mut self, manager: &str, text: &str) -> Self {
        self.try_apply(manager, text, true).expect("force knows no conflict");
        self
    }

    fn conflict(mut self, manager: &str, text: &str, fields: &[&str]) -> Self {
        let conflicts = self.try_apply(manager, text, false).expect_err("a conflict");
        let found: Vec<String> = conflicts.iter().map(Conflict::field).collect();
        assert_eq!(found, fields);
        self
    }

    fn update(mut self, manager: &str, text: &str) -> Self {
        let ((mut meta, body), time) = (Self::read(text), self.writer());
        let writer = Writer { manager, api_version: "g/v1", subresource: "", time: &time };
        let before = self.live.as_ref().map(|(_, body)| body);
        let bodies = Bodies::Changed { before, after: &body };
        meta.managed_fields = track(&ROOT, self.live.as_ref().map(|(meta, _)| meta), &meta, bodies, writer);
        self.live = Some((meta, body));
        self
    }

    fn managed(&self) -> Managed {
        Managed::of(self.live.as_ref().and_then(|(meta, _)| meta.managed_fields.as_deref()))
    }

    /// The object without its metadata, and what each manager owns: `manager` applied, `manager!` updated.
    fn ends(self, object: &str, owners: &[(&str, &str)]) {
        let (_, body) = self.live.as_ref().expect("an object");
        assert_eq!(String::from_utf8_lossy(body.to_raw().bytes()), object);
        let managed = self.managed();
        let found: Vec<(String, String)> = managed
            .0
            .iter()
            .map(|(id, owned)| {
                let mark = if id.operation == Operation::Update { "!" } else { "" };
                (format!("{}{mark}", id.manager), fields_v1::print(&owned.fields))
            })
            .collect();
        let owners: Vec<(String, String)> =
            owners.iter().map(|(m, f)| ((*m).to_owned(), (*f).to_owned())).collect();
        assert_eq!(found, owners);
    }
}

fn play() -> Play {
    Play::default()
}

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
        "{\"apiVersion\":\"g/v1\",\"kind\":\"ShootState\",\"metadata\":{},\"spec\":{\"n\":2,\"t\":\"x\"}}\n"
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
        super::conflict::summary(&conflicts),
        r#"Apply failed with 1 conflict: conflict with "u" using g/v1 at 2024-01-01T00:00:01Z: .spec.list[name="x"].value"#
    );
    let mut two = one.apply("b", r#"{"spec":{"n":1}}"#);
    let conflicts = two.try_apply("a", r#"{"spec":{"n":2}}"#, false).expect_err("conflicts");
    assert_eq!(
        super::conflict::summary(&conflicts),
        "Apply failed with 2 conflicts: conflicts with \"b\":\n- .spec.n\nconflicts with \"u\" using g/v1 at 2024-01-01T00:00:01Z:\n- .spec.n"
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
