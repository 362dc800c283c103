//! Parameters that several verbs share.

use repot_api::{field::FieldError, kind::Kind, selector};

use crate::{call::Query, status::Status, wire::Summary};

/// Which objects of a collection are meant.
#[derive(Clone, Debug, Default)]
pub(super) struct Selectors {
    labels: selector::LabelSelector,
    fields: selector::FieldSelector,
    /// The one object that a request for a single object means.
    name: Option<String>,
}

impl Selectors {
    pub(super) fn parse(query: &Query, kind: &Kind) -> Result<Self, Status> {
        let wrong = |e: selector::Error| Status::bad_request(e.to_string());
        let fields = selector::FieldSelector::parse(query.get("fieldSelector").unwrap_or_default());
        let fields = fields.map_err(wrong)?;
        fields.expect_fields(kind.selectable).map_err(wrong)?;
        Ok(Self {
            labels: selector::LabelSelector::parse(query.get("labelSelector").unwrap_or_default())
                .map_err(wrong)?,
            fields,
            name: None,
        })
    }

    pub(super) fn only(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.name.is_none()
    }

    pub(super) fn matches(&self, object: &repot_storage::Object) -> bool {
        let key = &object.key;
        self.name.as_ref().is_none_or(|name| *name == key.name)
            && self.fields.matches(&key.namespace, &key.name, || Summary::of(object).fields)
            && (self.labels.is_empty() || self.labels.matches(&crate::wire::parse_meta(object).labels))
    }
}

/// Whether a write is only to be tried out.
///
/// # Errors
/// 422 for any other value than `All`.
pub(super) fn dry_run(values: &[&str], kind: &str) -> Result<bool, Status> {
    match values.iter().find(|value| !matches!(**value, "All" | "")) {
        Some(other) => Err(unsupported(kind, "dryRun", other, &["All"])),
        None => Ok(values.contains(&"All")),
    }
}

/// What to do about unknown and duplicate fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

impl FieldValidation {
    pub(super) fn parse(query: &Query, kind: &str) -> Result<Self, Status> {
        match query.get("fieldValidation") {
            None | Some("Warn") => Ok(Self::Warn),
            Some("Ignore") => Ok(Self::Ignore),
            Some("Strict") => Ok(Self::Strict),
            Some(other) => Err(unsupported(kind, "fieldValidation", other, &["Ignore", "Strict", "Warn"])),
        }
    }
}

/// Checks `fieldManager`: printable and not too long.
///
/// # Errors
/// 422.
pub(super) fn field_manager(query: &Query, kind: &str) -> Result<(), Status> {
    match query.get("fieldManager") {
        Some(name) if name.chars().count() > 128 => {
            Err(option_error(kind, "fieldManager", name, "may not be more than 128 characters"))
        }
        Some(name) if name.chars().any(char::is_control) => {
            Err(option_error(kind, "fieldManager", name, "should only contain printable characters"))
        }
        _ => Ok(()),
    }
}

fn unsupported(kind: &str, field: &str, value: &str, allowed: &[&str]) -> Status {
    Status::invalid(("meta.k8s.io", kind), "", &[FieldError::not_supported(field, value, allowed)])
}

fn option_error(kind: &str, field: &str, value: &str, why: &str) -> Status {
    Status::invalid(("meta.k8s.io", kind), "", &[FieldError::invalid(field, value, why)])
}
