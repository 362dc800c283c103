//! What the machinery has to know of a kind. One static value a kind; everything in it is a fact or a pure function.

use std::collections::BTreeMap;

use crate::{json::Node, schema::Schema};

/// A kind that is served.
#[derive(Debug)]
pub struct Kind {
    /// Name of the kind, such as `ShootState`.
    pub kind: &'static str,
    /// Kind of its lists, such as `ShootStateList`.
    pub list_kind: &'static str,
    /// Plural name in lower case, such as `shootstates`.
    pub plural: &'static str,
    /// Singular name in lower case, such as `shootstate`.
    pub singular: &'static str,
    /// Short names that `kubectl get` accepts, such as `shst`.
    pub short_names: &'static [&'static str],
    /// Categories of the kind for `kubectl get`, such as `all`.
    pub categories: &'static [&'static str],
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// The shape of the whole object.
    pub schema: &'static Schema,
    /// Columns between Name and Age; the store keeps their cells beside the object.
    pub columns: &'static [Column],
    /// What objects can be selected by beside name and namespace: paths such as `status.phase` of strings; the store keeps
    /// their values beside the object.
    pub selectable: &'static [&'static str],
    /// The cells of [`Kind::columns`] for an object whose payload has this many bytes.
    pub cells: fn(&Node, usize) -> Vec<Cell>,
}

impl Kind {
    /// Whether objects have a status, which is written through `/status` alone.
    #[must_use]
    pub fn has_status(&self) -> bool {
        self.schema.field("status").is_some()
    }

    /// The values of [`Kind::selectable`], by path; those that are absent are left out.
    #[must_use]
    pub fn selected_values(&self, object: &Node) -> BTreeMap<String, String> {
        let value = |path: &&'static str| Some(((*path).to_owned(), text_at(object, path)?.to_owned()));
        self.selectable.iter().filter_map(value).collect()
    }
}

/// The string at a dotted path.
#[must_use]
pub fn text_at<'a>(object: &'a Node, path: &str) -> Option<&'a str> {
    match path.split_once('.') {
        Some((field, rest)) => text_at(object.member(field)?, rest),
        None => object.text(path),
    }
}

/// A column of the Table form.
#[derive(Debug)]
pub struct Column {
    /// Heading of the column, such as `Phase`.
    pub name: &'static str,
    /// Type of its cells: `string` or `integer`.
    pub kind: &'static str,
    /// For clients that show it.
    pub description: &'static str,
    /// Zero: always shown; more: only with `-o wide`.
    pub priority: u8,
}

/// A value in a table.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// A number.
    Integer(u64),
    /// A short text.
    Text(String),
}

/// Bytes for people: `512`, `1.5Ki`, `12Mi`.
#[must_use]
pub fn human_bytes(bytes: usize) -> String {
    let (mut tenths, mut unit) = (bytes.saturating_mul(10), "");
    for next in ["Ki", "Mi", "Gi"] {
        if tenths < 10 * 1024 {
            break;
        }
        tenths = (tenths + 512) / 1024;
        unit = next;
    }
    match (tenths / 10, tenths % 10) {
        (whole, 0) => format!("{whole}{unit}"),
        (whole, tenth) => format!("{whole}.{tenth}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_bytes_for_people() {
        for (bytes, text) in
            [(0, "0"), (1023, "1023"), (1024, "1Ki"), (1536, "1.5Ki"), (12 << 20, "12Mi"), (3 << 30, "3Gi")]
        {
            assert_eq!(human_bytes(bytes), text);
        }
    }
}
