//! Which resources an entry of the configuration is for.

/// What kube-apiserver keeps in its store, and serves by no API.
const NOT_SERVED: [&str; 3] = ["apiserveripinfo", "serviceipallocations", "servicenodeportallocations"];

/// `shootstates.core.gardener.cloud`, `secrets` (core group), `*.apps`, `*.` (all of the core group) or `*.*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    /// `None`: all.
    group: Option<String>,
    /// `None`: all.
    resource: Option<String>,
}

impl Pattern {
    /// Reads a pattern; the error says what is wrong and what to write instead.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("is empty; write <resource>.<group>, *.<group> or *.*".into());
        }
        if text.chars().any(char::is_uppercase) {
            return Err(format!("{text:?} has upper-case letters; write {:?}", text.to_lowercase()));
        }
        if NOT_SERVED.contains(&text) {
            return Err(format!("{text:?} has no API; remove it"));
        }
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        match group {
            "events.k8s.io" => return Err(format!("{text:?} rests in the core group; write \"events\"")),
            "extensions" => return Err("group \"extensions\" is gone; remove it".into()),
            _ => {}
        }
        match (resource, group) {
            ("*", "*") => Ok(Self { group: None, resource: None }),
            ("*", group) if text.contains('.') && !group.contains('*') => {
                Ok(Self { group: Some(group.into()), resource: None })
            }
            ("*", "") => Err("\"*\" alone is ambiguous; write \"*.\" for the core group or \"*.*\"".into()),
            (resource, group) if !text.contains(['*', '/', ' ']) && !resource.is_empty() => {
                Ok(Self { group: Some(group.into()), resource: Some(resource.into()) })
            }
            _ => Err(format!("{text:?} is no resource; write <resource>.<group>, *.<group> or *.*")),
        }
    }

    /// Whether it is for more than one resource.
    pub(super) fn is_wild(&self) -> bool {
        self.group.is_none() || self.resource.is_none()
    }

    /// Whether the pattern is for this resource.
    pub(super) fn covers(&self, group: &str, resource: &str) -> bool {
        self.group.as_deref().is_none_or(|own| own == group)
            && self.resource.as_deref().is_none_or(|own| own == resource)
    }

    /// Whether everything that the other is for is covered by this one.
    pub(super) fn masks(&self, other: &Self) -> bool {
        let wider = |own: &Option<String>, other: &Option<String>| own.is_none() || own == other;
        wider(&self.group, &other.group) && wider(&self.resource, &other.resource)
    }
}
