//! How objects of a kind behave when they are written: the same questions for every kind, answered in a file a kind.

use repot_apimachinery::{field::FieldError, json::Node, kind::Kind, validation};

/// The answers of one kind. All of them are pure.
#[derive(Debug)]
pub struct Strategy {
    /// The kind that this strategy is for.
    pub kind: &'static Kind,
    /// The group it is served in.
    pub group: &'static str,
    /// What names look like.
    pub name_rule: validation::Rule,
    /// Whether an update may leave out the version it is based on: the last writer then wins.
    pub unconditional_update: bool,
    /// Brings older shapes into today's and sets defaults; tells clients what it did. Comes first, on every write.
    pub normalise: fn(&mut Node) -> Vec<String>,
    /// Everything that is wrong outside of metadata and status.
    pub validate: fn(&Node) -> Vec<FieldError>,
    /// What may not be changed in this way, outside of metadata and status.
    pub validate_change: fn(&Node, &Node) -> Vec<FieldError>,
    /// Everything that is wrong in the status.
    pub validate_status: fn(&Node) -> Vec<FieldError>,
}
