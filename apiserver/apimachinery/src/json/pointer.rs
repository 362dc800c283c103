//! JSON Pointer (RFC 6901) over trees that open on the way.

use super::node::{MAX_OPEN_DEPTH, Node};
use crate::field::shortened;

/// A malformed pointer is shown up to this length, in bytes.
const MAX_SHOWN: usize = 256;

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

/// A pointer that can be read. It is kept as text: a patch may have ten thousand pointers of a hundred tokens.
#[derive(Clone, Debug)]
pub struct Pointer(Box<str>);

impl Pointer {
    /// Reads a pointer.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        if !text.is_empty() {
            let rest = text
                .strip_prefix('/')
                .ok_or_else(|| Malformed::Start(shortened(text.to_owned(), MAX_SHOWN)))?;
            let parts = rest.split('/').count();
            if parts > MAX_OPEN_DEPTH {
                return Err(Malformed::TooDeep(parts));
            }
        }
        Ok(Self(text.into()))
    }

    /// Its reference tokens, unescaped.
    #[must_use]
    pub fn tokens(&self) -> Vec<String> {
        let tokens = self.0.split('/').skip(1);
        tokens.map(|token| token.replace("~1", "/").replace("~0", "~")).collect()
    }

    /// The last token and those of what holds it; `None` for the whole document.
    #[must_use]
    pub fn split_last(&self) -> Option<(String, Vec<String>)> {
        let mut tokens = self.tokens();
        tokens.pop().map(|last| (last, tokens))
    }

    /// Whether `other` is this place or lies inside it.
    #[must_use]
    pub fn holds(&self, other: &Pointer) -> bool {
        other.tokens().starts_with(&self.tokens())
    }
}

impl PartialEq for Pointer {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0 || self.tokens() == other.tokens()
    }
}

impl Eq for Pointer {}

/// What walks may cost in sum: bytes looked at and members passed, about a second of work; and nodes that are opened, which
/// take memory.
#[derive(Debug)]
pub struct Effort {
    work: u64,
    nodes: usize,
}

/// Nodes that one patch may open.
pub const MAX_OPENED: usize = 100_000;

impl Effort {
    /// Enough for ten thousand walks into an object of ordinary shape.
    pub const ENOUGH: u64 = 1 << 30;

    /// A budget of `most` units of work and [`MAX_OPENED`] nodes.
    #[must_use]
    pub fn new(most: u64) -> Self {
        Self { work: most, nodes: MAX_OPENED }
    }

    /// Takes some of it; `false`: it is used up.
    pub fn spend(&mut self, cost: usize) -> bool {
        self.work = self.work.saturating_sub(cost as u64);
        self.work > 0
    }

    /// Opens a node, and takes what that costs; `false`: it is used up, and the node is as it was.
    pub fn open(&mut self, node: &mut Node) -> bool {
        let cost = match node {
            Node::Raw(raw) => raw.len(),
            // Members are compared one by one.
            Node::Object(members) => members.len().saturating_mul(4),
            _ => 1,
        };
        if !self.spend(cost) {
            return false;
        }
        let nodes = node.count_to_open();
        let Some(left) = self.nodes.checked_sub(nodes) else {
            self.exhaust();
            return false;
        };
        self.nodes = left;
        node.open();
        true
    }

    /// Leaves no work, so that the next walk fails.
    pub fn exhaust(&mut self) {
        self.work = 0;
    }

    /// Whether it is used up.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.work == 0
    }
}

/// Walks down, opening raw text on the way. `None`: there is no such place, or the effort is spent.
pub fn find<'a>(mut node: &'a mut Node, tokens: &[String], effort: &mut Effort) -> Option<&'a mut Node> {
    for token in tokens {
        if !effort.open(node) {
            return None;
        }
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
        assert_eq!(Pointer::parse("/a~1b/~0~01/").expect("pointer").tokens(), ["a/b", "~~1", ""]);
        assert_eq!(Pointer::parse("/a~").expect("pointer"), Pointer::parse("/a~0").expect("pointer"));
        assert_eq!(Pointer::parse("").expect("pointer").tokens().len(), 0);
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
