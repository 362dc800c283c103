//! What a store or the way to it said, in one line.

use std::{error::Error as StdError, fmt};

/// A failed request. Its text says each thing once; the library's own chain repeats it at each level, with whole documents of XML.
#[derive(Debug)]
pub struct Failure(object_store::Error);

impl Failure {
    /// Whether the store knows who asks, and refuses; or does not know them.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        use object_store::Error::{PermissionDenied, Unauthenticated};
        // A refused list is not told apart from other failures of a list.
        let said = |status| last(&self.0).to_string().contains(status);
        matches!(self.0, PermissionDenied { .. } | Unauthenticated { .. })
            || said("status code: 401")
            || said("status code: 403")
    }
}

impl From<object_store::Error> for Failure {
    fn from(error: object_store::Error) -> Self {
        Self(error)
    }
}

impl StdError for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let innermost = innermost(&self.0);
        if self.is_refusal() {
            return write!(f, "the store refuses these credentials: {innermost}");
        }
        if let object_store::Error::NotFound { .. } = self.0 {
            return write!(f, "there is no such object or bucket: {innermost}");
        }
        f.write_str(&innermost)
    }
}

fn last<'a>(mut error: &'a (dyn StdError + 'static)) -> &'a (dyn StdError + 'static) {
    while let Some(next) = error.source() {
        error = next;
    }
    error
}

/// The cause at the end of the chain, without the document in which a store put it.
fn innermost(error: &(dyn StdError + 'static)) -> String {
    let text = last(error).to_string();
    match (element(&text, "Code"), element(&text, "Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code.to_owned(),
        _ => text,
    }
}

/// The text of an element of XML.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(inner, _)| inner.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_line() {
        let body = "403 Forbidden: <Error><Code>InvalidAccessKeyId</Code><Message>It is unknown.</Message><AWSAccessKeyId>id</AWSAccessKeyId></Error>";
        let inner = object_store::Error::Generic { store: "S3", source: body.into() };
        let denied = object_store::Error::PermissionDenied { path: "a".to_owned(), source: inner.into() };
        let text = Failure::from(denied).to_string();
        assert_eq!(text, "the store refuses these credentials: InvalidAccessKeyId: It is unknown.");
        let failure = Failure::from(object_store::Error::Generic { store: "S3", source: "no route".into() });
        assert!(!failure.is_refusal() && failure.to_string() == "no route");
    }
}
