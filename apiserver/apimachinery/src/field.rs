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

/// Errors of one object that are listed. Validation stops soon after, for an object may have millions of them.
pub const MAX_ERRORS: usize = 100;
/// A value is shown up to this length, in bytes.
const MAX_VALUE: usize = 256;
/// A path is shown up to this length, in bytes; keys of maps may be of any length.
const MAX_FIELD: usize = 512;

/// Whether there are more errors than are listed, so that looking for others is in vain.
#[must_use]
pub fn is_enough(errors: &[FieldError]) -> bool {
    errors.len() > MAX_ERRORS
}

/// A text cut off at a length in bytes, with three dots where something is missing.
#[must_use]
pub fn shortened(mut text: String, length: usize) -> String {
    if text.len() > length {
        text.truncate(text.floor_char_boundary(length));
        text.push_str("...");
        text.shrink_to_fit();
    }
    text
}

/// A value as Rust prints it for people, without writing more of it than is shown.
fn shown(value: impl fmt::Debug) -> String {
    struct Bounded(String);
    impl fmt::Write for Bounded {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.push_str(&text[..text.floor_char_boundary(MAX_VALUE + 1)]);
            if self.0.len() > MAX_VALUE { Err(fmt::Error) } else { Ok(()) }
        }
    }
    let mut bounded = Bounded(String::new());
    // An error only says that the rest is not shown.
    let _ = fmt::write(&mut bounded, format_args!("{value:?}"));
    shortened(bounded.0, MAX_VALUE)
}

fn place(field: impl Into<String>) -> String {
    shortened(field.into(), MAX_FIELD)
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// What kind of wrong.
    pub cause: Cause,
    /// Path of the field, such as `spec.gardener[3].name`.
    pub field: String,
    /// The offending value, printed; `None` where it is absent, secret or too long to print.
    pub value: Option<String>,
    /// What is expected instead.
    pub detail: String,
}

impl FieldError {
    /// A required value is missing.
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { cause: Cause::Required, field: place(field), value: None, detail: detail.into() }
    }

    /// A value is malformed.
    pub fn invalid(field: impl Into<String>, value: impl fmt::Debug, detail: impl Into<String>) -> Self {
        let value = Some(shown(value));
        Self { cause: Cause::Invalid, field: place(field), value, detail: detail.into() }
    }

    /// A value is none of the allowed ones.
    pub fn not_supported(field: impl Into<String>, value: impl fmt::Debug, allowed: &[&str]) -> Self {
        let allowed: Vec<String> = allowed.iter().map(|value| format!("{value:?}")).collect();
        let detail = format!("supported values: {}", allowed.join(", "));
        Self { cause: Cause::NotSupported, field: place(field), value: Some(shown(value)), detail }
    }

    /// A value occurs twice where it must be unique.
    pub fn duplicate(field: impl Into<String>, value: impl fmt::Debug) -> Self {
        let value = Some(shown(value));
        Self { cause: Cause::Duplicate, field: place(field), value, detail: String::new() }
    }

    /// The value may not be set or changed here.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { cause: Cause::Forbidden, field: place(field), value: None, detail: detail.into() }
    }

    /// The value is longer than `limit` bytes.
    pub fn too_long(field: impl Into<String>, limit: usize) -> Self {
        let detail = format!("may not be more than {limit} bytes");
        Self { cause: Cause::TooLong, field: place(field), value: None, detail }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_any_length_is_shown_whole() {
        let error = FieldError::invalid("a".repeat(10_000), "\u{e9}".repeat(1 << 20), "must be short");
        assert!(error.to_string().len() < 1000, "{} bytes", error.to_string().len());
        assert!(error.message().contains("...: must be short"), "{}", error.message());
        assert_eq!(FieldError::invalid("a", "b", "c").to_string(), "a: Invalid value: \"b\": c");
    }
}
