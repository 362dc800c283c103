//! What names, qualified names and label values look like.

/// A check of a name: the error says what is expected instead.
pub type Rule = fn(&str) -> Result<(), String>;

/// An RFC 1123 label: 63 lower-case alphanumerics or `-`.
///
/// # Errors
/// What is expected instead.
pub fn dns_label(name: &str) -> Result<(), String> {
    let fits = (1..=63).contains(&name.len()) && label_chars(name);
    let rule = "a lowercase RFC 1123 label must consist of at most 63 lower case alphanumeric characters or '-', \
                and must start and end with an alphanumeric character";
    if fits { Ok(()) } else { Err(rule.to_owned()) }
}

/// An RFC 1123 subdomain: labels joined by dots, 253 bytes at most.
///
/// # Errors
/// What is expected instead.
pub fn dns_subdomain(name: &str) -> Result<(), String> {
    let fits = (1..=253).contains(&name.len()) && name.split('.').all(label_chars);
    let rule = "a lowercase RFC 1123 subdomain must consist of at most 253 lower case alphanumeric characters, '-' \
                or '.', and must start and end with an alphanumeric character";
    if fits { Ok(()) } else { Err(rule.to_owned()) }
}

/// A qualified name such as `example.com/part`: label keys, annotation keys, finalizers.
///
/// # Errors
/// What is expected instead.
pub fn qualified(name: &str) -> Result<(), String> {
    let (prefix, part) = name.split_once('/').map_or((None, name), |(prefix, part)| (Some(prefix), part));
    if let Some(prefix) = prefix {
        dns_subdomain(prefix).map_err(|why| format!("prefix part {why}"))?;
    }
    let fits = (1..=63).contains(&part.len()) && value_chars(part);
    let rule = "name part must consist of at most 63 alphanumeric characters, '-', '_' or '.', and must start and \
                end with an alphanumeric character";
    if fits { Ok(()) } else { Err(rule.to_owned()) }
}

/// Checks that a text can be the value of a label.
///
/// # Errors
/// What is expected instead.
pub fn label_value(value: &str) -> Result<(), String> {
    let fits = value.is_empty() || (value.len() <= 63 && value_chars(value));
    let rule = "a valid label must be an empty string or consist of at most 63 alphanumeric characters, '-', '_' or \
                '.', and must start and end with an alphanumeric character";
    if fits { Ok(()) } else { Err(rule.to_owned()) }
}

fn label_chars(label: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
}

fn value_chars(value: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let outer = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = value.as_bytes();
    value.bytes().all(inner) && outer(bytes.first()) && outer(bytes.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_good_names_from_bad() {
        assert!(dns_label("shoot-1").is_ok() && dns_label(&"a".repeat(63)).is_ok());
        for bad in ["", "-a", "a-", "A", "a.b", "a/b", &"a".repeat(64)] {
            assert!(dns_label(bad).is_err(), "{bad}");
        }
        assert!(dns_subdomain("a.b-c.d").is_ok());
        for bad in ["", ".a", "a..b", "a_b", &"a".repeat(254)] {
            assert!(dns_subdomain(bad).is_err(), "{bad}");
        }
        for good in ["persist", "example.com/Some_name.1", "core.gardener.cloud/shootstate"] {
            assert!(qualified(good).is_ok(), "{good}");
        }
        for bad in ["", "/a", "a/", "a/b/c", "UPPER.com/a", "a b", &"x".repeat(64)] {
            assert!(qualified(bad).is_err(), "{bad}");
        }
        assert!(label_value("").is_ok() && label_value("a_b.C").is_ok());
        assert!(label_value("-a").is_err() && label_value("a b").is_err());
    }
}
