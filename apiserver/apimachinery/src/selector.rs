//! Label and field selectors.

use std::collections::BTreeMap;

/// The selector cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Malformed text.
    #[error("unable to parse requirement: {0}")]
    Syntax(String),
    /// A field that nothing can be selected by.
    #[error("field label not supported: {0}")]
    Field(String),
}

/// A label selector: all requirements hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    /// Holds for absent keys too.
    NotIn(Vec<String>),
}

impl LabelSelector {
    /// Reads `a=b,c in (d,e),!f`.
    ///
    /// # Errors
    /// [`Error::Syntax`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        split_outside_parentheses(text)?.into_iter().map(requirement).collect::<Result<_, _>>().map(Self)
    }

    /// Whether everything is selected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an object with these labels is selected.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|Requirement { key, test }| match (test, labels.get(key)) {
            (Test::Exists, value) => value.is_some(),
            (Test::Absent, value) => value.is_none(),
            (Test::In(values), value) => value.is_some_and(|value| values.contains(value)),
            (Test::NotIn(values), value) => value.is_none_or(|value| !values.contains(value)),
        })
    }
}

fn split_outside_parentheses(text: &str) -> Result<Vec<&str>, Error> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_i32);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        if !(0..=1).contains(&depth) {
            return Err(Error::Syntax(text.to_owned()));
        }
    }
    parts.push(&text[start..]);
    if depth != 0 {
        return Err(Error::Syntax(text.to_owned()));
    }
    if text.trim().is_empty() { Ok(Vec::new()) } else { Ok(parts) }
}

fn requirement(text: &str) -> Result<Requirement, Error> {
    let syntax = || {
        Error::Syntax(format!(
            "{text:?} is none of: key, !key, key=value, key!=value, key in (a,b), key notin (a,b)"
        ))
    };
    let text = text.trim();
    let (key, test) = if let Some(key) = text.strip_prefix('!') {
        (key.trim(), Test::Absent)
    } else if let Some((key, value)) = text.split_once("!=") {
        (key.trim(), Test::NotIn(vec![value.trim().to_owned()]))
    } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        (key.trim(), Test::In(vec![value.trim().to_owned()]))
    } else if let Some((head, values)) = text.split_once('(') {
        let values = values.strip_suffix(')').ok_or_else(syntax)?;
        let values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
        match head.split_whitespace().collect::<Vec<_>>()[..] {
            [key, "in"] => (key, Test::In(values)),
            [key, "notin"] => (key, Test::NotIn(values)),
            _ => return Err(syntax()),
        }
    } else {
        (text, Test::Exists)
    };
    crate::validation::qualified(key).map_err(|_| syntax())?;
    if let Test::In(values) | Test::NotIn(values) = &test
        && let Some(bad) = values.iter().find(|value| crate::validation::label_value(value).is_err())
    {
        return Err(Error::Syntax(format!("{bad:?} is no label value")));
    }
    Ok(Requirement { key: key.to_owned(), test })
}

/// A field selector: all requirements hold. Every kind can be selected by `metadata.name` and `metadata.namespace`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<FieldRequirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldRequirement {
    field: String,
    equal: bool,
    value: String,
}

const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";

impl FieldSelector {
    /// Reads `metadata.name=a,metadata.namespace!=b`. Whether a kind has the fields is told by [`Self::expect_fields`].
    ///
    /// # Errors
    /// [`Error::Syntax`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        split_escaped(text).iter().map(|part| Self::requirement(part)).collect::<Result<_, _>>().map(Self)
    }

    fn requirement(text: &str) -> Result<FieldRequirement, Error> {
        let (field, equal, value) = if let Some((field, value)) = text.split_once("!=") {
            (field, false, value)
        } else if let Some((field, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
            (field, true, value)
        } else {
            return Err(Error::Syntax(format!("{text:?} is neither field=value nor field!=value")));
        };
        Ok(FieldRequirement { field: field.to_owned(), equal, value: unescape(value) })
    }

    /// Refuses a field that is neither of metadata nor among `known`: it is never passed over.
    ///
    /// # Errors
    /// [`Error::Field`].
    pub fn expect_fields(&self, known: &[&str]) -> Result<(), Error> {
        let strange = |field: &str| !matches!(field, NAME | NAMESPACE) && !known.contains(&field);
        let found = self.0.iter().find(|requirement| strange(&requirement.field));
        found.map_or(Ok(()), |requirement| Err(Error::Field(requirement.field.clone())))
    }

    /// Whether everything is selected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The one name that can be selected, if the selector asks for one.
    #[must_use]
    pub fn single_name(&self) -> Option<&str> {
        let name = self.0.iter().find(|requirement| requirement.field == NAME && requirement.equal);
        name.map(|requirement| requirement.value.as_str())
    }

    /// Whether an object of this name is selected. `fields`: its other values by path, asked for where they are needed; what is
    /// absent counts as empty.
    #[must_use]
    pub fn matches(
        &self,
        namespace: &str,
        name: &str,
        fields: impl FnOnce() -> BTreeMap<String, String>,
    ) -> bool {
        let of_metadata = |field: &str| match field {
            NAME => Some(name),
            NAMESPACE => Some(namespace),
            _ => None,
        };
        let needed = self.0.iter().any(|requirement| of_metadata(&requirement.field).is_none());
        let fields = if needed { fields() } else { BTreeMap::new() };
        self.0.iter().all(|FieldRequirement { field, equal, value }| {
            let other = || fields.get(field).map_or("", String::as_str);
            (of_metadata(field).unwrap_or_else(other) == value) == *equal
        })
    }
}

fn split_escaped(text: &str) -> Vec<String> {
    let (mut parts, mut part, mut escaped) = (Vec::new(), String::new(), false);
    for c in text.chars() {
        match c {
            ',' if !escaped => parts.push(std::mem::take(&mut part)),
            _ => part.push(c),
        }
        escaped = c == '\\' && !escaped;
    }
    parts.push(part);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

fn unescape(value: &str) -> String {
    let (mut plain, mut escaped) = (String::new(), false);
    for c in value.chars() {
        if c == '\\' && !escaped {
            escaped = true;
        } else {
            plain.push(c);
            escaped = false;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn selects_by_labels() {
        let object = labels(&[("app", "etcd"), ("example.com/tier", "one")]);
        for (selector, selected) in [
            ("", true),
            ("app", true),
            ("!app", false),
            ("!other", true),
            ("app=etcd", true),
            ("app==etcd,example.com/tier = one", true),
            ("app!=etcd", false),
            ("other!=x", true),
            ("app in (etcd, other)", true),
            ("app notin (etcd)", false),
            ("other notin (etcd)", true),
            ("app in (x),!y", false),
            ("empty=", false),
        ] {
            assert_eq!(
                LabelSelector::parse(selector).expect(selector).matches(&object),
                selected,
                "{selector}"
            );
        }
    }

    #[test]
    fn refuses_malformed_label_selectors() {
        for bad in ["a in", "a in (b", "a b", "=x", "a=b c", "a in ((b))", "a,,b", "a>1 x", ")("] {
            assert!(LabelSelector::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn selects_by_name_and_namespace() {
        let selector = FieldSelector::parse("metadata.name=a,metadata.namespace!=b").expect("selector");
        let matches = |namespace, name| selector.matches(namespace, name, || unreachable!("no other field"));
        assert!(matches("c", "a") && !matches("b", "a") && !matches("c", "x"));
        assert_eq!(selector.single_name(), Some("a"));
        assert!(FieldSelector::parse("metadata.name").is_err());
        let escaped = FieldSelector::parse(r"metadata.name=a\,b\=\\c").expect("selector");
        assert_eq!(escaped.single_name(), Some(r"a,b=\c"));
    }

    #[test]
    fn selects_by_fields_that_a_kind_declares() {
        let selector = FieldSelector::parse("status.phase=Running,spec.x!=1").expect("selector");
        assert_eq!(selector.expect_fields(&["status.phase"]), Err(Error::Field("spec.x".into())));
        assert_eq!(selector.expect_fields(&["status.phase", "spec.x"]), Ok(()));
        let matches = |pairs| selector.matches("n", "a", || labels(pairs));
        assert!(matches(&[("status.phase", "Running")]));
        assert!(!matches(&[]) && !matches(&[("status.phase", "Running"), ("spec.x", "1")]));
    }
}
