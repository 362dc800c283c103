//! How much of an object the rules look at. What they do not look at is never opened: its text tells whether it changes, and a
//! Shoot with a hundred worker pools costs little more than one with three.

use serde_json::{Map, Value};

use crate::watch::{ISOLATED_VERSIONS, Watch};

/// What is opened of a value.
#[derive(Debug)]
pub enum Projection {
    /// All of it.
    Whole,
    /// All of it but `managedFields`.
    Metadata,
    /// These members of an object, and of each object in a list; all others are kept as text.
    Members(&'static [(&'static str, Projection)]),
    /// The same, but all others are kept as one text, under the empty name.
    Items(&'static [(&'static str, Projection)]),
}

use Projection::{Items, Members, Metadata, Whole};

/// Any object.
static ANY: Projection = Members(&[
    ("apiVersion", Whole),
    ("kind", Whole),
    ("metadata", Metadata),
    ("spec", Whole),
    ("status", Whole),
]);

/// A ShootState: the rules ask whether its payload changes, and that may have megabytes.
static STATE: Projection =
    Members(&[("apiVersion", Whole), ("kind", Whole), ("metadata", Metadata), ("status", Whole)]);

/// A Shoot. A test judges every change of the tables in this form, too.
static SHOOT: Projection = Members(&[
    ("apiVersion", Whole),
    ("kind", Whole),
    ("metadata", Metadata),
    (
        "spec",
        Members(&[
            ("accessRestrictions", Whole),
            ("cloudProfile", Whole),
            ("cloudProfileName", Whole),
            ("controlPlane", Whole),
            ("dns", Whole),
            ("hibernation", Whole),
            ("networking", Whole),
            (
                "provider",
                Members(&[("type", Whole), ("workers", Items(&[("name", Whole), ("zones", Whole)]))]),
            ),
            ("region", Whole),
            ("seedName", Whole),
            ("tolerations", Whole),
        ]),
    ),
    (
        "status",
        Members(&[
            ("constraints", Items(&[("status", Whole), ("type", Whole)])),
            ("credentials", Whole),
            ("isHibernated", Whole),
            ("lastOperation", Whole),
            ("liveMigration", Whole),
            ("networking", Whole),
            ("observedGeneration", Whole),
            ("retryCycleStartTime", Whole),
            ("seedName", Whole),
            ("zoneIsolation", Whole),
        ]),
    ),
]);

/// A Shoot whose versions are compared.
static VERSIONED_SHOOT: Projection = Members(&[
    ("apiVersion", Whole),
    ("kind", Whole),
    ("metadata", Metadata),
    ("spec", Members(&[("kubernetes", Members(&[("version", Whole)])), ("provider", POOL_VERSIONS)])),
    ("status", Members(&[("zoneIsolation", Whole)])),
]);
const POOL_VERSIONS: Projection =
    Members(&[("workers", Items(&[("kubernetes", Whole), ("machine", Whole), ("name", Whole)]))]);

impl Projection {
    /// For the objects that a webhook is asked about.
    #[must_use]
    pub fn of(watch: &Watch) -> &'static Self {
        let only = |resource: &str| {
            let all = watch.matches.iter().flat_map(|one| one.resources);
            all.map(|name| name.split('/').next()).all(|name| name == Some(resource))
        };
        match () {
            () if watch.name == ISOLATED_VERSIONS.name => &VERSIONED_SHOOT,
            () if only("shoots") => &SHOOT,
            () if only("shootstates") => &STATE,
            () => &ANY,
        }
    }

    /// What is opened of a member; none where it is kept as text.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&'static Self> {
        match self {
            Whole => Some(&Whole),
            Metadata => Some(&Whole),
            Members(named) | Items(named) => {
                named.iter().find(|(own, _)| *own == name).map(|(_, opening)| opening)
            }
        }
    }
}

/// A value as it would be read with this opening.
#[must_use]
pub fn cut(value: &Value, opening: &Projection) -> Value {
    match (value, opening) {
        (_, Whole) => value.clone(),
        (Value::Array(items), _) => items.iter().map(|item| cut(item, opening)).collect(),
        (Value::Object(members), Metadata) => {
            let kept = members.iter().filter(|(name, _)| *name != "managedFields");
            Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
        }
        (Value::Object(members), _) => {
            let mut kept = Map::new();
            let mut rest = String::new();
            for (name, value) in members {
                match (opening.member(name), opening) {
                    (Some(opening), _) => _ = kept.insert(name.clone(), cut(value, opening)),
                    (None, Items(_)) => rest += &format!("{name}:{value},"),
                    (None, _) => _ = kept.insert(name.clone(), value.to_string().into()),
                }
            }
            if !rest.is_empty() {
                kept.insert(String::new(), rest.into());
            }
            Value::Object(kept)
        }
        _ => value.clone(),
    }
}
