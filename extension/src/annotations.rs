//! The annotations of the operation contract.

use std::collections::BTreeMap;

use kube::{Resource, ResourceExt};
use repot_api::names;

/// An operation that an annotation asks for; the order is that of precedence where two spellings contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Requested {
    /// Do nothing until the state was written.
    WaitForState,
    /// Give the object up without touching what it stands for.
    Migrate,
    /// Take over what `status.state` describes.
    Restore,
    /// Make what the spec asks for.
    Reconcile,
}

impl Requested {
    /// The value of the annotation that asks for this operation.
    #[must_use]
    pub fn value(self) -> &'static str {
        match self {
            Self::WaitForState => names::OPERATION_WAIT_FOR_STATE,
            Self::Migrate => names::OPERATION_MIGRATE,
            Self::Restore => names::OPERATION_RESTORE,
            Self::Reconcile => names::OPERATION_RECONCILE,
        }
    }

    fn parse(value: &str) -> Option<Self> {
        let all = [Self::WaitForState, Self::Migrate, Self::Restore, Self::Reconcile];
        all.into_iter().find(|requested| requested.value() == value)
    }
}

/// Spellings of the annotation: Gardener's, and that of GEP-7.
pub const OPERATION_KEYS: [&str; 2] = [names::OPERATION, names::OPERATION_GEP_7];

/// The operation annotations of one object at one time, and when they were set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenRequest {
    operations: BTreeMap<&'static str, String>,
    timestamp: Option<String>,
}

impl SeenRequest {
    /// Reads the annotations of an object.
    #[must_use]
    pub fn of(object: &impl Resource) -> Self {
        let annotations = object.annotations();
        let operations = OPERATION_KEYS.into_iter();
        let operations = operations.filter_map(|key| Some((key, annotations.get(key)?.clone()))).collect();
        Self { operations, timestamp: annotations.get(names::TIMESTAMP).cloned() }
    }

    /// The operation that is asked for. Unknown values count as none, as in Gardener's library. Where the spellings contradict each
    /// other, the operation that does least to the infrastructure wins.
    #[must_use]
    pub fn requested(&self) -> Option<Requested> {
        self.operations.values().filter_map(|value| Requested::parse(value)).min()
    }

    /// Value of the annotation `gardener.cloud/timestamp` as it was set.
    #[must_use]
    pub fn timestamp(&self) -> Option<&str> {
        self.timestamp.as_deref()
    }

    /// Whether any spelling of the operation annotation is there, whatever its value.
    #[must_use]
    pub fn has_operation(&self) -> bool {
        !self.operations.is_empty()
    }

    /// Keys of annotations that ask for this operation and are the same in `now`. None are when the request was renewed meanwhile,
    /// which its timestamp tells: the new request has not been served yet.
    #[must_use]
    pub fn removable(&self, requested: Requested, now: &Self) -> Vec<&'static str> {
        if self.timestamp != now.timestamp {
            return Vec::new();
        }
        let same = |(key, value): &(&&'static str, &String)| {
            value.as_str() == requested.value() && now.operations.get(**key) == Some(*value)
        };
        self.operations.iter().filter(same).map(|(key, _)| *key).collect()
    }
}

/// Whether the deletion of an object is confirmed, with the values that Go's `strconv.ParseBool` takes for true.
#[must_use]
pub fn deletion_is_confirmed(object: &impl Resource) -> bool {
    let value = object.annotations().get(names::CONFIRM_DELETION).map(String::as_str);
    matches!(value, Some("1" | "t" | "T" | "true" | "TRUE" | "True"))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    const PAPER: &str = "core.gardener.cloud/operation";
    const UPSTREAM: &str = "gardener.cloud/operation";

    fn seen(annotations: &[(&str, &str)]) -> SeenRequest {
        let mut object = ConfigMap::default();
        object.annotations_mut().extend(annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        SeenRequest::of(&object)
    }

    #[test]
    fn both_spellings_are_read_and_the_gentler_one_wins() {
        for key in [PAPER, UPSTREAM] {
            for (value, requested) in [
                ("reconcile", Some(Requested::Reconcile)),
                ("migrate", Some(Requested::Migrate)),
                ("restore", Some(Requested::Restore)),
                ("wait-for-state", Some(Requested::WaitForState)),
                ("retry", None),
                ("", None),
            ] {
                assert_eq!(seen(&[(key, value)]).requested(), requested, "{key}={value}");
            }
        }
        for (one, other, wins) in [
            ("reconcile", "migrate", Requested::Migrate),
            ("restore", "migrate", Requested::Migrate),
            ("restore", "reconcile", Requested::Restore),
            ("migrate", "wait-for-state", Requested::WaitForState),
            ("unknown", "restore", Requested::Restore),
        ] {
            assert_eq!(seen(&[(PAPER, one), (UPSTREAM, other)]).requested(), Some(wins));
            assert_eq!(seen(&[(PAPER, other), (UPSTREAM, one)]).requested(), Some(wins));
        }
    }

    #[test]
    fn only_what_was_seen_and_is_still_there_may_be_removed() {
        let time = |at| (names::TIMESTAMP, at);
        let first = seen(&[(UPSTREAM, "migrate"), (PAPER, "reconcile"), time("1")]);
        let removable = |now: &[(&str, &str)]| first.removable(Requested::Migrate, &seen(now));
        assert_eq!(removable(&[(UPSTREAM, "migrate"), (PAPER, "reconcile"), time("1")]), [UPSTREAM]);
        assert!(removable(&[(UPSTREAM, "restore"), time("1")]).is_empty(), "the value changed");
        assert!(removable(&[(UPSTREAM, "migrate"), time("2")]).is_empty(), "the request was renewed");
        assert!(removable(&[(PAPER, "migrate"), time("1")]).is_empty(), "this spelling was not seen");
        assert!(removable(&[time("1")]).is_empty(), "somebody else removed it");
    }

    #[test]
    fn deletion_is_confirmed_by_a_true_value_alone() {
        for (value, confirmed) in [("true", true), ("1", true), ("false", false), ("yes", false), ("", false)]
        {
            let mut object = ConfigMap::default();
            object.annotations_mut().insert(names::CONFIRM_DELETION.to_owned(), value.to_owned());
            assert_eq!(deletion_is_confirmed(&object), confirmed, "{value}");
        }
        assert!(!deletion_is_confirmed(&ConfigMap::default()));
    }
}
