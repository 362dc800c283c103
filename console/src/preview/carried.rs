//! What a move carries with it: the ShootState, and the fields of its objects that depend on the seed.

use std::{collections::BTreeMap, io::Write};

use repot_controllers::migration::destination::bindings::{
    API_SERVER_ADDRESS, BindingError, MEMBER_NAME_PREFIX, SEED_NAME, SeedFacts, declared, fill,
};
use serde::Serialize;
use serde_json::Value;

use crate::text::{bytes, one_line};

/// Most bindings that are shown.
const MOST_BINDINGS: usize = 200;

/// What a ShootState holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Carried {
    /// Size of all of it as JSON, in bytes.
    pub bytes: u64,
    /// Entries by part: `gardener`, `extensions`, `resources`.
    pub entries: BTreeMap<&'static str, usize>,
    /// Fields of carried objects that depend on the seed.
    pub bindings: Vec<Binding>,
}

/// A field of a carried object that depends on the seed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Binding {
    /// Kind and name of the object.
    pub object: String,
    /// JSON pointer of the field.
    pub pointer: String,
    /// Template of its value, from the annotation of the object.
    pub template: String,
    /// What it will be, where that is known.
    pub value: Option<String>,
    /// Why it is not known.
    pub unknown: Option<String>,
}

impl Carried {
    /// What this ShootState holds, and what of it depends on the destination.
    pub(super) fn of(state: &Value, destination: &str) -> Self {
        let part = |name: &str| state["spec"][name].as_array().map_or(&[][..], Vec::as_slice);
        let parts = ["gardener", "extensions", "resources"];
        let entries = parts.into_iter().map(|name| (name, part(name).len())).collect();
        let bindings = part("resources").iter().flat_map(|entry| bindings_of(entry, destination));
        let mut size = Size(0);
        // Counting does not fail.
        let _ = serde_json::to_writer(&mut size, state);
        Self { bytes: size.0, entries, bindings: bindings.take(MOST_BINDINGS).collect() }
    }

    /// Its size and its entries.
    pub(super) fn words(&self) -> String {
        let count = |name| self.entries.get(name).copied().unwrap_or_default();
        format!(
            "{}: {} objects, {} secrets and Gardener's own data, {} states of extensions",
            bytes(self.bytes),
            count("resources"),
            count("gardener"),
            count("extensions")
        )
    }
}

/// Counts bytes, and keeps none: a ShootState may be large.
struct Size(u64);

impl Write for Size {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The bindings of a carried object, as the destination resolves them. Its own address is not known here.
fn bindings_of(entry: &Value, destination: &str) -> Vec<Binding> {
    let text = |field: &str| entry[field].as_str().unwrap_or("?");
    let object = one_line(&format!("{} {}", text("kind"), text("name")));
    let facts = SeedFacts::from([
        (SEED_NAME, Some(destination.to_owned())),
        (API_SERVER_ADDRESS, None),
        (MEMBER_NAME_PREFIX, None),
    ]);
    let of = |(pointer, template): (String, String)| {
        let value = match fill(&object, &pointer, &template, &facts) {
            Ok(value) => Ok(value),
            Err(BindingError::NoValue { .. }) => Err("known when the destination has it".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        Binding::new(&object, (&pointer, &template), value)
    };
    match declared(&entry["data"], &object) {
        Ok(declared) => declared.into_iter().map(of).collect(),
        Err(error) => vec![Binding::new(&object, ("?", "?"), Err(error.to_string()))],
    }
}

impl Binding {
    fn new(object: &str, (pointer, template): (&str, &str), value: Result<String, String>) -> Self {
        let (value, unknown) = match value {
            Ok(value) => (Some(one_line(&value)), None),
            Err(why) => (None, Some(one_line(&why))),
        };
        Self {
            object: object.to_owned(),
            pointer: one_line(pointer),
            template: one_line(template),
            value,
            unknown,
        }
    }

    pub(super) fn cells(&self) -> [String; 3] {
        let unknown = || format!("{} ({})", self.template, self.unknown.as_deref().unwrap_or_default());
        let value = self.value.clone().unwrap_or_else(unknown);
        [format!("  {}", self.object), self.pointer.clone(), value]
    }
}
