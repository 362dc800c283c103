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
};

mod applying;
mod owning;

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
    Kind { schema: &ROOT, ..crate::sample::KIND_INFO }
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
