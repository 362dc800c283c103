//! What is wrong with an object, field by field, in the words of `metav1.StatusCause`.

use std::fmt;

/// The kind of a field error (`FieldValueRequired` and so on).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A required value is missing.
    Required,
    /// A value is malformed.
    Invalid,
    /// A value is none of the allowed ones.
    NotSupported,
    /// A value occurs twice where it must be unique.
    Duplicate,
    /// The value may not be set or changed here.
    Forbidden,
    /// The value is too long.
    TooLong,
}

impl Cause {
    /// The `reason` of a `StatusCause`.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// What kind of wrong.
    pub cause: Cause,
    /// Where: `spec.gardener[3].name`.
    pub field: String,
    /// The offending value, printed; `None` where it is absent, secret or too long to print.
    pub value: Option<String>,
    /// What is expected instead.
    pub detail: String,
}

impl FieldError {
    /// A required value is missing.
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { cause: Cause::Required, field: field.into(), value: None, detail: detail.into() }
    }

    /// A value is malformed.
    pub fn invalid(field: impl Into<String>, value: impl fmt::Debug, detail: impl Into<String>) -> Self {
        let value = Some(format!("{value:?}"));
        Self { cause: Cause::Invalid, field: field.into(), value, detail: detail.into() }
    }

    /// A value is none of the allowed ones.
    pub fn not_supported(field: impl Into<String>, value: impl fmt::Debug, allowed: &[&str]) -> Self {
        let allowed: Vec<String> = allowed.iter().map(|value| format!("{value:?}")).collect();
        let detail = format!("supported values: {}", allowed.join(", "));
        Self { cause: Cause::NotSupported, field: field.into(), value: Some(format!("{value:?}")), detail }
    }

    /// A value occurs twice where it must be unique.
    pub fn duplicate(field: impl Into<String>, value: impl fmt::Debug) -> Self {
        let value = Some(format!("{value:?}"));
        Self { cause: Cause::Duplicate, field: field.into(), value, detail: String::new() }
    }

    /// The value may not be set or changed here.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { cause: Cause::Forbidden, field: field.into(), value: None, detail: detail.into() }
    }

    /// The value is longer than `limit` bytes.
    pub fn too_long(field: impl Into<String>, limit: usize) -> Self {
        let detail = format!("may not be more than {limit} bytes");
        Self { cause: Cause::TooLong, field: field.into(), value: None, detail }
    }

    /// The message of a `StatusCause`: everything but the field.
    #[must_use]
    pub fn message(&self) -> String {
        let value = self.value.as_ref().map(|value| format!(": {value}")).unwrap_or_default();
        let what = match self.cause {
            Cause::Required => "Required value",
            Cause::Invalid => "Invalid value",
            Cause::NotSupported => "Unsupported value",
            Cause::Duplicate => "Duplicate value",
            Cause::Forbidden => "Forbidden",
            Cause::TooLong => "Too long",
        };
        let detail = if self.detail.is_empty() { String::new() } else { format!(": {}", self.detail) };
        format!("{what}{value}{detail}")
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message())
    }
}
