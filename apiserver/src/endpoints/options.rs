//! Parameters that several verbs share.

use repot_apimachinery::{field::FieldError, kind::Kind, selector};

use super::Request;
use crate::{
    call::Query,
    negotiate::{self, Form},
    status::Status,
    wire::Summary,
};

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
        // Not looked at by every verb, and yet refused where it is no number, as all of `ListOptions` are read at once.
        query.number("timeoutSeconds")?;
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

/// The options of a write.
pub(super) struct WriteOptions {
    pub(super) dry_run: bool,
    pub(super) form: Form,
    pub(super) validation: FieldValidation,
}

impl WriteOptions {
    pub(super) fn parse(request: &Request<'_>, kind: &str) -> Result<Self, Status> {
        let query = &request.call.query;
        let form = match negotiate::form(&request.call.headers, false)? {
            Form::Table(_) => Form::Object,
            form => form,
        };
        let dry_run: Vec<&str> = query.all("dryRun").collect();
        let validation = FieldValidation::parse(query);
        let mut errors: Vec<FieldError> = check_field_manager(query).into_iter().collect();
        errors.extend(check_dry_run(&dry_run));
        errors.extend(validation.as_ref().err().cloned());
        refuse(kind, &errors)?;
        let validation = validation.unwrap_or(FieldValidation::Warn);
        Ok(Self { dry_run: is_dry_run(&dry_run), form, validation })
    }
}

/// Whether a write is only to be tried out. [`check_dry_run`] comes first.
pub(super) fn is_dry_run(values: &[&str]) -> bool {
    !values.is_empty()
}

/// Checks `dryRun`: every value is `All`. An empty one is not, as in apimachinery's `ValidateDryRun`: who asks for a dry run
/// in a way that nobody knows must not write.
pub(super) fn check_dry_run(values: &[&str]) -> Option<FieldError> {
    let all = values.iter().all(|value| *value == "All");
    (!all).then(|| FieldError::not_supported("dryRun", values, &["All"]))
}

/// What to do about unknown and duplicate fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

impl FieldValidation {
    /// An empty value counts as absent, as in kube-apiserver.
    ///
    /// # Errors
    /// The value is none of those known.
    pub(super) fn parse(query: &Query) -> Result<Self, FieldError> {
        match query.get("fieldValidation") {
            None | Some("Warn") => Ok(Self::Warn),
            Some("Ignore") => Ok(Self::Ignore),
            Some("Strict") => Ok(Self::Strict),
            Some(other) => {
                let known = ["", "Ignore", "Strict", "Warn"];
                Err(FieldError::not_supported("fieldValidation", other, &known))
            }
        }
    }
}

/// The longest `fieldManager`, in bytes.
const MAX_FIELD_MANAGER: usize = 128;

/// Checks `fieldManager`: printable and not too long. An empty value counts as absent.
pub(super) fn check_field_manager(query: &Query) -> Option<FieldError> {
    let name = query.get("fieldManager")?;
    if name.len() > MAX_FIELD_MANAGER {
        return Some(FieldError::too_long("fieldManager", MAX_FIELD_MANAGER));
    }
    let printable = |c: char| c == ' ' || !(c.is_control() || c.is_whitespace());
    let why = "should only contain printable characters";
    (!name.chars().all(printable)).then(|| FieldError::invalid("fieldManager", name, why))
}

/// Refuses options in which something is wrong.
///
/// # Errors
/// 422.
pub(super) fn refuse(kind: &str, errors: &[FieldError]) -> Result<(), Status> {
    match errors {
        [] => Ok(()),
        errors => Err(Status::invalid(("meta.k8s.io", kind), "", errors)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_dry_run_is_refused_and_never_taken_for_a_write() {
        for (values, dry, refused) in [
            (&[][..], false, false),
            (&["All"], true, false),
            (&["All", "All"], true, false),
            (&[""], true, true),
            (&["All", ""], true, true),
            (&["all"], true, true),
        ] {
            assert_eq!((is_dry_run(values), check_dry_run(values).is_some()), (dry, refused), "{values:?}");
        }
    }
}
