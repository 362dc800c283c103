//! `metadata.managedFields`: who owns which fields, as it is written and as it is worked with.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{fields_v1, set::Set, time};

/// More entries of updates than this are merged, the oldest first.
pub const MAX_UPDATERS: usize = 10;
/// Who owns what merged entries of updates own.
pub const ANCIENT_CHANGES: &str = "ancient-changes";
/// Longest name of a field manager, in characters.
pub const MAX_MANAGER: usize = 128;
const MAX_SUBRESOURCE: usize = 256;
const FIELDS_TYPE: &str = "FieldsV1";

/// How a manager came to own fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Operation {
    /// By server-side apply.
    Apply,
    /// By any other write.
    Update,
}

/// What tells entries apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// Name of the field manager.
    pub manager: String,
    /// Whether the manager writes by server-side apply or otherwise.
    pub operation: Operation,
    /// In which version; empty for [`Operation::Apply`], of which a manager has one entry whatever the version.
    pub api_version: String,
    /// Subresource through which the manager writes, such as `status`; empty for the object itself.
    pub subresource: String,
}

/// What a manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// The version in whose terms the fields are.
    pub api_version: String,
    /// When the manager last changed what it owns, as RFC 3339.
    pub time: Option<String>,
    /// The fields that the manager owns.
    pub fields: Set,
}

/// All entries of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Managed(pub BTreeMap<Id, Owned>);

/// The entries cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("metadata.managedFields[{at}]: {what}")]
pub struct Unreadable {
    at: usize,
    what: &'static str,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Entry<'a> {
    #[serde(skip_serializing_if = "String::is_empty")]
    manager: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    operation: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    api_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    fields_type: String,
    #[serde(rename = "fieldsV1", borrow, skip_serializing_if = "Option::is_none")]
    fields_v1: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "String::is_empty")]
    subresource: String,
}

impl Entry<'_> {
    fn is_blank(&self) -> bool {
        let texts = [&self.manager, &self.operation, &self.api_version, &self.fields_type, &self.subresource];
        texts.iter().all(|text| text.is_empty()) && self.time.is_none() && self.fields_v1.is_none()
    }

    fn read(self) -> Result<(Id, Owned), &'static str> {
        let operation = match self.operation.as_str() {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err("operation must be Apply or Update"),
        };
        if self.api_version.is_empty() {
            return Err("apiVersion must not be empty");
        }
        if self.fields_type != FIELDS_TYPE {
            return Err("fieldsType must be FieldsV1");
        }
        if self.time.as_ref().is_some_and(|time| time::seconds(time).is_none()) {
            return Err("time is not in RFC 3339");
        }
        let fields = self.fields_v1.map_or("{}", RawValue::get);
        let fields = fields_v1::parse(fields).map_err(|_| "fieldsV1 cannot be read")?;
        let of_id = match operation {
            Operation::Apply => String::new(),
            Operation::Update => self.api_version.clone(),
        };
        let id = Id { manager: self.manager, operation, api_version: of_id, subresource: self.subresource };
        Ok((id, Owned { api_version: self.api_version, time: self.time, fields }))
    }
}

fn read_entries(raw: &RawValue) -> Result<Vec<Entry<'_>>, Unreadable> {
    serde_json::from_str(raw.get()).map_err(|_| Unreadable { at: 0, what: "not a list of entries" })
}

/// Whether a writer asks for all entries to be forgotten: an empty list, or one empty entry.
#[must_use]
pub fn is_reset(raw: &RawValue) -> bool {
    read_entries(raw).is_ok_and(|entries| match entries.as_slice() {
        [] => true,
        [only] => only.is_blank(),
        _ => false,
    })
}

/// Whether entries are fit to be stored, such as those that a webhook has worked on.
///
/// # Errors
/// What is wrong with the first that is not.
pub fn validate(raw: &RawValue) -> Result<(), Unreadable> {
    for (at, entry) in read_entries(raw)?.into_iter().enumerate() {
        let wrong = |what| Unreadable { at, what };
        if entry.manager.chars().count() > MAX_MANAGER || entry.manager.chars().any(char::is_control) {
            return Err(wrong("manager must be up to 128 printable characters"));
        }
        if entry.subresource.len() > MAX_SUBRESOURCE {
            return Err(wrong("subresource may not be more than 256 bytes"));
        }
        entry.read().map_err(wrong)?;
    }
    Ok(())
}

impl Managed {
    /// Reads entries.
    ///
    /// # Errors
    /// What is wrong with the first that cannot be read.
    pub fn read(raw: &RawValue) -> Result<Self, Unreadable> {
        let entries = read_entries(raw)?.into_iter().enumerate();
        entries
            .map(|(at, entry)| entry.read().map_err(|what| Unreadable { at, what }))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Reads entries of an object at rest. Those that cannot be read are nobody's: they must not keep anybody from writing.
    #[must_use]
    pub fn of(raw: Option<&RawValue>) -> Self {
        raw.and_then(|raw| Self::read(raw).ok()).unwrap_or_default()
    }

    /// Prints the entries: by operation, time and manager. `None`: there are none.
    #[must_use]
    pub fn print(&self) -> Option<Box<RawValue>> {
        let mut sorted: Vec<(&Id, &Owned)> = self.0.iter().collect();
        sorted.sort_by_key(|(id, owned)| (id.operation, owned.seconds(), *id));
        let texts: Vec<String> = sorted.iter().map(|(_, owned)| fields_v1::print(&owned.fields)).collect();
        let entry = |((id, owned), fields): (&(&Id, &Owned), &String)| -> Option<String> {
            let fields: &RawValue = serde_json::from_str(fields).ok()?;
            let entry = Entry {
                manager: id.manager.clone(),
                operation: format!("{:?}", id.operation),
                api_version: owned.api_version.clone(),
                time: owned.time.clone(),
                fields_type: FIELDS_TYPE.to_owned(),
                fields_v1: Some(fields),
                subresource: id.subresource.clone(),
            };
            serde_json::to_string(&entry).ok()
        };
        let entries: Vec<String> = sorted.iter().zip(&texts).filter_map(entry).collect();
        if entries.is_empty() {
            return None;
        }
        RawValue::from_string(format!("[{}]", entries.join(","))).ok()
    }

    /// Whether others own the same, whenever they came to.
    #[must_use]
    pub fn same_but_times(&self, other: &Self) -> bool {
        let same = |((id, owned), (other_id, other)): ((&Id, &Owned), (&Id, &Owned))| {
            id == other_id && owned.api_version == other.api_version && owned.fields == other.fields
        };
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(same)
    }

    /// Merges the oldest entries of updates until there are few enough. Fields of different versions are never mixed.
    pub fn cap(&mut self) {
        let mut updaters: Vec<(i64, Id)> = self
            .0
            .iter()
            .filter(|(id, _)| id.operation == Operation::Update)
            .map(|(id, owned)| (owned.seconds(), id.clone()))
            .collect();
        updaters.sort();
        let mut left = updaters.len();
        let mut first_of = BTreeMap::<String, Id>::new();
        for (_, id) in updaters {
            if left <= MAX_UPDATERS {
                return;
            }
            let Some(first) = first_of.get(&id.api_version) else {
                first_of.insert(id.api_version.clone(), id);
                continue;
            };
            let bucket = Id {
                manager: ANCIENT_CHANGES.to_owned(),
                operation: Operation::Update,
                api_version: id.api_version.clone(),
                subresource: String::new(),
            };
            if !self.0.contains_key(&bucket)
                && let Some(owned) = self.0.remove(first)
            {
                self.0.insert(bucket.clone(), owned);
            }
            if id == bucket {
                continue;
            }
            if let (Some(newer), Some(merged)) = (self.0.remove(&id), self.0.get_mut(&bucket)) {
                merged.fields.unite(newer.fields);
                merged.time = newer.time;
                left -= 1;
            }
        }
    }
}

impl Owned {
    fn seconds(&self) -> i64 {
        self.time.as_ref().and_then(|time| time::seconds(time)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).expect(text)
    }

    fn entry(manager: &str, operation: &str, time: &str, fields: &str) -> String {
        format!(
            r#"{{"manager":"{manager}","operation":"{operation}","apiVersion":"g/v1","time":"{time}","fieldsType":"FieldsV1","fieldsV1":{fields}}}"#
        )
    }

    #[test]
    fn prints_what_it_reads_in_order() {
        let (a, b, c) = (
            entry("b", "Apply", "2024-01-02T00:00:00Z", r#"{"f:a":{}}"#),
            entry("a", "Update", "2024-01-01T00:00:00Z", r#"{"f:b":{}}"#),
            entry("c", "Update", "2024-01-03T00:00:00Z", r#"{"f:c":{}}"#),
        );
        let managed = Managed::read(&raw(&format!("[{c},{b},{a}]"))).expect("entries");
        assert_eq!(managed.print().expect("entries").get(), format!("[{a},{b},{c}]"));
        assert!(Managed::default().print().is_none());
    }

    #[test]
    fn one_applier_has_one_entry_and_subresources_have_their_own() {
        let applied = entry("a", "Apply", "2024-01-01T00:00:00Z", "{}");
        let through_status = applied.replace("\"manager\"", "\"subresource\":\"status\",\"manager\"");
        let other_version = applied.replace("g/v1", "g/v2");
        let managed =
            Managed::read(&raw(&format!("[{applied},{through_status},{other_version}]"))).expect("entries");
        assert_eq!(managed.0.len(), 2);
    }

    #[test]
    fn tells_a_reset() {
        for reset in ["[]", "[{}]"] {
            assert!(is_reset(&raw(reset)), "{reset}");
        }
        for other in ["{}", "[{},{}]", r#"[{"manager":"a"}]"#, "1"] {
            assert!(!is_reset(&raw(other)), "{other}");
        }
    }

    #[test]
    fn refuses_what_cannot_be_read() {
        let good = entry("a", "Update", "2024-01-01T00:00:00Z", "{}");
        assert_eq!(validate(&raw(&format!("[{good}]"))), Ok(()));
        for (what, bad) in [
            ("operation", good.replace("Update", "Create")),
            ("apiVersion", good.replace("g/v1", "")),
            ("fieldsType", good.replace("\"FieldsV1\"", "\"FieldsV2\"")),
            ("time", good.replace("2024-01-01T00:00:00Z", "yesterday")),
            ("fieldsV1", good.replace("{}", r#"{"x":{}}"#)),
            ("list", "{}".to_owned()),
        ] {
            let text = if what == "list" { bad } else { format!("[{good},{bad}]") };
            let error = validate(&raw(&text)).expect_err(what).to_string();
            assert!(error.contains(what), "{error}");
            assert_eq!(Managed::of(Some(&raw(&text))), Managed::default(), "{what}");
        }
    }

    #[test]
    fn merges_the_oldest_updates() {
        let entries: Vec<String> = (0..12)
            .map(|n| {
                entry(
                    &format!("m{n:02}"),
                    "Update",
                    &format!("2024-01-{:02}T00:00:00Z", n + 1),
                    &format!(r#"{{"f:f{n}":{{}}}}"#),
                )
            })
            .chain([entry("z", "Apply", "2023-01-01T00:00:00Z", r#"{"f:z":{}}"#)])
            .collect();
        let mut managed = Managed::read(&raw(&format!("[{}]", entries.join(",")))).expect("entries");
        managed.cap();
        assert_eq!(managed.0.len(), MAX_UPDATERS + 1);
        let (_, ancient) = managed.0.iter().find(|(id, _)| id.manager == ANCIENT_CHANGES).expect("a bucket");
        assert_eq!(fields_v1::print(&ancient.fields), r#"{"f:f0":{},"f:f1":{},"f:f2":{}}"#);
        assert_eq!(ancient.time.as_deref(), Some("2024-01-03T00:00:00Z"));
        let mut again = managed.clone();
        again.cap();
        assert_eq!(again, managed);
    }
}
