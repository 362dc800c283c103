//! What the machinery has to know of a kind. One static value a kind; everything in it is a fact or a pure function.

use crate::{field::FieldError, json::Node, names, schema::Schema};

/// A kind that is served.
#[derive(Debug)]
pub struct Kind {
    /// `ShootState`.
    pub kind: &'static str,
    /// `ShootStateList`.
    pub list_kind: &'static str,
    /// `shootstates`.
    pub plural: &'static str,
    /// `shootstate`.
    pub singular: &'static str,
    /// For `kubectl get`.
    pub short_names: &'static [&'static str],
    /// Such as `all`.
    pub categories: &'static [&'static str],
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Whether an update may leave out the version it is based on: the last writer then wins.
    pub unconditional_update: bool,
    /// What names look like.
    pub name_rule: names::Rule,
    /// The shape of the whole object.
    pub schema: &'static Schema,
    /// Columns between Name and Age; the store keeps their cells beside the object.
    pub columns: &'static [Column],
    /// Brings older shapes into today's; tells clients what it did.
    pub normalise: fn(&mut Node) -> Vec<String>,
    /// Everything that is wrong outside of metadata.
    pub validate: fn(&Node) -> Vec<FieldError>,
    /// The cells of [`Kind::columns`] for an object whose payload has this many bytes.
    pub cells: fn(&Node, usize) -> Vec<Cell>,
}

/// A column of the Table form.
#[derive(Debug)]
pub struct Column {
    /// Heading.
    pub name: &'static str,
    /// `string` or `integer`.
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
