//! Messages of DNS (RFC 1035): names, questions, and the records of an answer. Pure.
//!
//! Nothing in an answer is trusted: all lengths are checked, a name has at most 255 bytes, and compressed names are followed a limited number
//! of times.

use std::fmt;

pub(super) const HEADER: usize = 12;
pub(super) const TXT: u16 = 16;
pub(super) const A: u16 = 1;
pub(super) const NS: u16 = 2;
pub(super) const CNAME: u16 = 5;
pub(super) const SOA: u16 = 6;
pub(super) const AAAA: u16 = 28;
pub(super) const INTERNET: u16 = 1;
/// Compressed names point backwards; nobody needs more jumps than this.
const JUMPS: usize = 32;
/// Aliases in one answer.
const ALIASES: usize = 8;
/// Bytes of a name, with the length of each label.
const LONGEST_NAME: usize = 255;

/// A text that is no name in DNS.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no name in DNS: {why}")]
pub struct NameError {
    text: String,
    why: &'static str,
}

/// A name, in lower case: DNS makes no difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(Vec<Vec<u8>>);

impl Name {
    /// Reads `owner.example.org`, with or without a dot at its end. It is always absolute.
    ///
    /// # Errors
    /// Where a label is empty or longer than 63 bytes, or all are longer than 253.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let refuse = |why| NameError { text: text.to_owned(), why };
        let bare = text.strip_suffix('.').unwrap_or(text);
        if bare.is_empty() || bare.len() > 253 {
            return Err(refuse("it must have between 1 and 253 bytes"));
        }
        if !bare.is_ascii() || bare.contains(|c: char| c.is_ascii_whitespace() || c.is_ascii_control()) {
            return Err(refuse("it must be of printable ASCII characters"));
        }
        if bare.split('.').any(|label| label.is_empty() || label.len() > 63) {
            return Err(refuse("each part between dots must have between 1 and 63 bytes"));
        }
        Ok(Self(bare.split('.').map(|label| label.to_ascii_lowercase().into_bytes()).collect()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels: Vec<_> = self.0.iter().map(|label| String::from_utf8_lossy(label)).collect();
        f.write_str(&labels.join("."))
    }
}

/// A question for records of a kind; whoever is asked is asked to ask others.
pub(super) fn question_of(id: u16, name: &Name, kind: u16) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + 260);
    for field in [id, 0x0100, 1, 0, 0, 0] {
        bytes.extend(field.to_be_bytes());
    }
    for label in &name.0 {
        bytes.push(u8::try_from(label.len()).unwrap_or(0));
        bytes.extend(label);
    }
    bytes.push(0);
    bytes.extend(kind.to_be_bytes());
    bytes.extend(INTERNET.to_be_bytes());
    bytes
}

/// What the head of an answer says of the rest.
pub(super) enum Outcome {
    /// Records follow.
    Records {
        /// Whether the name does not exist at all (NXDOMAIN).
        no_name: bool,
    },
    /// The answer does not fit into a datagram.
    Truncated,
    /// The server gives no answer: the text says why.
    Nothing(&'static str),
}

/// Reads an answer up to the end of the question, and the counts of its records. `None` where these bytes are no answer to this question.
pub(super) fn head<'a>(
    bytes: &'a [u8],
    id: u16,
    name: &Name,
    kind: u16,
) -> Option<(Reader<'a>, [u16; 3], Outcome)> {
    let mut reader = Reader { bytes, at: 0 };
    let (got, flags) = (reader.number()?, reader.number()?);
    let counts = [reader.number()?, reader.number()?, reader.number()?];
    reader.number()?;
    let is_response = flags & 0x8000 != 0 && flags & 0x7800 == 0;
    if got != id || !is_response || counts[0] != 1 {
        return None;
    }
    let asked = (reader.name()?, reader.number()?, reader.number()?);
    if asked != (name.clone(), kind, INTERNET) {
        return None;
    }
    let outcome = match flags & 0x000f {
        _ if flags & 0x0200 != 0 => Outcome::Truncated,
        0 => Outcome::Records { no_name: false },
        3 => Outcome::Records { no_name: true },
        1 => Outcome::Nothing("it does not understand the question (FORMERR)"),
        2 => Outcome::Nothing("it failed (SERVFAIL)"),
        5 => Outcome::Nothing("it refuses (REFUSED)"),
        _ => Outcome::Nothing("it answers with an error"),
    };
    Some((reader, counts, outcome))
}

/// The name behind aliases, and the longest time for which one of them may be kept.
pub(super) fn follow(name: &Name, answers: &[Record]) -> Option<(Name, Option<u32>)> {
    let (mut name, mut longest) = (name.clone(), None);
    for _ in 0..ALIASES {
        let Some(alias) = answers.iter().find(|r| r.kind == CNAME && r.name == name) else {
            return Some((name, longest));
        };
        longest = longest.max(Some(alias.ttl));
        name = alias.target.clone()?;
    }
    None
}

/// A record of an answer.
pub(super) struct Record<'a> {
    pub(super) name: Name,
    pub(super) kind: u16,
    /// Seconds.
    pub(super) ttl: u32,
    pub(super) data: &'a [u8],
    /// Of an alias, or of a name server.
    pub(super) target: Option<Name>,
}

/// A place in a message, up to which it is read.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn number(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_be_bytes)
    }

    fn name(&mut self) -> Option<Name> {
        let (mut labels, mut jumps, mut back) = (Vec::new(), 0, None);
        let mut left = LONGEST_NAME;
        loop {
            let length = usize::from(*self.take(1)?.first()?);
            if length <= 63 {
                left = left.checked_sub(length + 1)?;
            }
            match length {
                0 => break,
                1..=63 => labels.push(self.take(length)?.to_ascii_lowercase()),
                192.. if jumps < JUMPS => {
                    let low = usize::from(*self.take(1)?.first()?);
                    back = back.or(Some(self.at));
                    self.at = ((length & 0x3f) << 8) | low;
                    jumps += 1;
                }
                _ => return None,
            }
        }
        self.at = back.unwrap_or(self.at);
        Some(Name(labels))
    }

    /// Reads so many records.
    pub(super) fn section(&mut self, count: u16) -> Option<Vec<Record<'a>>> {
        (0..count).map(|_| self.record()).collect()
    }

    fn record(&mut self) -> Option<Record<'a>> {
        let name = self.name()?;
        let (kind, class) = (self.number()?, self.number()?);
        let ttl = self.take(4)?.try_into().ok().map(u32::from_be_bytes)?;
        let length = usize::from(self.number()?);
        let target = match (kind, class) {
            (CNAME | NS, INTERNET) => Some(Reader { bytes: self.bytes, at: self.at }.name()?),
            _ => None,
        };
        let data = self.take(length)?;
        // Of another class it is another record.
        let kind = if class == INTERNET { kind } else { 0 };
        Some(Record { name, kind, ttl, data, target })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        let long = "a".repeat(64);
        for bad in ["", ".", "a..b", "a b", "ä.org", long.as_str(), &"a.".repeat(128)] {
            assert!(Name::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(Name::parse("A.org").ok(), Name::parse("a.org.").ok());
        assert_eq!(Name::parse("A.org.").map(|name| name.to_string()).ok().as_deref(), Some("a.org"));
    }

    #[test]
    fn names_in_answers_are_not_longer_than_dns_allows() {
        let of = |labels: usize| [b"\x3f".as_slice(), &[b'a'; 63]].concat().repeat(labels);
        let read = |bytes: &[u8]| Reader { bytes, at: 0 }.name();
        assert!(read(&[&of(3), &b"\0"[..]].concat()).is_some());
        assert!(read(&[&of(4), &b"\0"[..]].concat()).is_none());
        // The same by pointing back again and again.
        let mut bytes = of(1);
        bytes.extend([0xc0, 0]);
        assert!(read(&bytes).is_none());
    }
}
