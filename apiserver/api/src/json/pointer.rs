//! JSON Pointer (RFC 6901) over trees that open on the way.

use super::node::{MAX_OPEN_DEPTH, Node};

/// The pointer cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It must be empty or start with a slash.
    #[error("{0:?} is no JSON pointer: it must be empty or start with \"/\"")]
    Start(String),
    /// It goes deeper than [`MAX_OPEN_DEPTH`].
    #[error("a JSON pointer may have {MAX_OPEN_DEPTH} parts, not {0}")]
    TooDeep(usize),
}

/// A parsed pointer: its reference tokens, unescaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer(pub Vec<String>);

impl Pointer {
    /// Reads a pointer.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        if text.is_empty() {
            return Ok(Self(Vec::new()));
        }
        let rest = text.strip_prefix('/').ok_or_else(|| Malformed::Start(text.to_owned()))?;
        let parts = rest.split('/').count();
        if parts > MAX_OPEN_DEPTH {
            return Err(Malformed::TooDeep(parts));
        }
        Ok(Self(rest.split('/').map(|token| token.replace("~1", "/").replace("~0", "~")).collect()))
    }

    /// The last token and the pointer to what holds it; `None` for the whole document.
    #[must_use]
    pub fn split_last(&self) -> Option<(&str, &[String])> {
        self.0.split_last().map(|(last, parents)| (last.as_str(), parents))
    }

    /// Whether `other` is this place or lies inside it.
    #[must_use]
    pub fn holds(&self, other: &Pointer) -> bool {
        other.0.starts_with(&self.0)
    }
}

/// What walks may cost in sum, in bytes looked at and members passed: about a second of work.
#[derive(Debug)]
pub struct Effort(u64);

impl Effort {
    /// Enough for ten thousand walks into an object of ordinary shape.
    pub const ENOUGH: u64 = 1 << 30;

    /// A fresh budget.
    #[must_use]
    pub fn new(most: u64) -> Self {
        Self(most)
    }

    /// Takes some of it; `false`: it is used up.
    pub fn spend(&mut self, cost: usize) -> bool {
        self.0 = self.0.saturating_sub(cost as u64);
        self.0 > 0
    }

    /// Whether it is used up.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.0 == 0
    }
}

/// Walks down, opening raw text on the way. `None`: there is no such place, or the effort is spent.
pub fn find<'a>(mut node: &'a mut Node, tokens: &[String], effort: &mut Effort) -> Option<&'a mut Node> {
    for token in tokens {
        let cost = match node {
            Node::Raw(raw) => raw.len(),
            Node::Object(members) => members.len(),
            _ => 1,
        };
        if !effort.spend(cost) {
            return None;
        }
        node.open();
        node = match node {
            Node::Object(_) => node.member_mut(token)?,
            Node::Array(items) => {
                let at = index(token, items.len())?;
                items.get_mut(at)?
            }
            _ => return None,
        };
    }
    Some(node)
}

/// An array index: digits without a leading zero, below `length`.
#[must_use]
pub fn index(token: &str, length: usize) -> Option<usize> {
    let digits = !token.is_empty() && token.bytes().all(|b| b.is_ascii_digit());
    let plain = digits && (token == "0" || !token.starts_with('0'));
    plain.then(|| token.parse().ok()).flatten().filter(|at| *at < length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_escapes() {
        assert_eq!(Pointer::parse("/a~1b/~0~01/").expect("pointer").0, ["a/b", "~~1", ""]);
        assert_eq!(Pointer::parse("").expect("pointer").0.len(), 0);
        assert!(Pointer::parse("a").is_err());
    }

    #[test]
    fn indexes_are_plain_numbers() {
        assert_eq!(index("0", 1), Some(0));
        for token in ["01", "-1", "+1", "", "1", "x", "99999999999999999999999"] {
            assert_eq!(index(token, 1), None, "{token}");
        }
    }
}
