//! What a request that writes holds in memory at the worst, in bytes: the texts that it reads and writes, and the trees and sets
//! that are made of them.
//!
//! Texts are known by their length. Trees and sets are charged by a [`Census`] that is taken before they are made: a body of N
//! bytes may hold N / 3 nodes of a thousand times their length. `tests/tests/shootstate/large/hostile.rs` sends bodies of every kind
//! that is known to be expensive, several at once, and holds the server to its budget.

use repot_apimachinery::json::{Census, pointer::MAX_OPENED};

/// A patch may say the same in more bytes than the object, and a body may be indented.
pub const SLACK: u64 = 1 << 20;
/// What sealing and sending of one write holds at most, in batches on their way, however long its payload is.
const UNDER_WAY: u64 = 12 << 20;
/// A node of a tree, while it is decoded, compared and entered into a set of owned fields.
const NODE: u64 = 2 << 10;
/// The same in an apply, which holds the live object, the configuration and what comes of both, and several sets of each.
const APPLIED_NODE: u64 = 4 << 10;
/// A label, an owner or a finalizer in typed metadata.
const TYPED_NODE: u64 = 256;
/// A path in `managedFields`, in the sets of which it is read and written.
const PATH: u64 = 1 << 10;
/// How often a string is held: in trees, in typed metadata, in what is compared, in texts to be stored.
const COPIES: u64 = 8;
/// A value that a JSON patch opens, with its key.
const OPENED: u64 = 128;
/// A member that a merge patch opens, with its place in an index by key.
const MEMBER: u64 = 320;

/// What a write holds in memory at the worst: see [`MemoryEstimate::create`] and the others. All in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryEstimate {
    /// Length of the request body in bytes.
    pub body: u64,
    /// Whether the body has whitespace that is dropped: what stays is then a copy.
    pub indented: bool,
    /// What the body may come to as JSON, where it is YAML.
    pub from_yaml: Option<u64>,
    /// The largest question to a webhook, where there may be one.
    pub reviewed: Option<u64>,
    /// What is made of the text: see [`written`] and [`applied`].
    pub parsed: u64,
}

impl MemoryEstimate {
    /// A new object: the body, of which the decoded object is made of slices, and its text as it rests.
    #[must_use]
    pub fn create(&self) -> u64 {
        self.replace(0)
    }

    /// The same in place of an object with a payload of `old` bytes, which is read to tell who changed what.
    #[must_use]
    pub fn replace(&self, old: u64) -> u64 {
        let text = self.decoded();
        self.read() + text + old + self.beside(text, old)
    }

    /// A body laid over an object with a payload of `old` bytes, by a patch or an apply: what comes of it may have all of both.
    #[must_use]
    pub fn lay_over(&self, old: u64) -> u64 {
        let text = self.decoded() + old;
        self.read() + old + text + self.beside(text, old)
    }

    /// The body, and what is copied of it to read it.
    fn read(&self) -> u64 {
        match self.from_yaml {
            Some(json) => self.body + json,
            None if self.indented => 2 * self.body,
            None => self.body,
        }
    }

    fn decoded(&self) -> u64 {
        self.from_yaml.unwrap_or(self.body)
    }

    fn beside(&self, text: u64, old: u64) -> u64 {
        let shown = self.reviewed.map_or(0, |most| text.min(most) + old.min(most));
        text.min(UNDER_WAY) + shown + self.parsed
    }
}

/// What a create, an update or a patch makes of a text beside the text.
#[must_use]
pub fn written(census: Census) -> u64 {
    census.nodes * NODE + census.paths * PATH + census.copied * COPIES
}

/// What an apply makes of a text beside the text.
#[must_use]
pub fn applied(census: Census) -> u64 {
    census.nodes * APPLIED_NODE + census.paths * PATH + census.copied * 2 * COPIES
}

/// What metadata takes as a typed value, and printed again.
#[must_use]
pub fn typed(census: Census) -> u64 {
    census.nodes * TYPED_NODE + census.copied * 4
}

/// What a merge patch opens: so many members, at the patch and at the object.
#[must_use]
pub fn merged(members: u64) -> u64 {
    members * MEMBER
}

/// What a JSON patch opens of a text of so many bytes.
#[must_use]
pub fn opened(text: u64) -> u64 {
    (text / 2).min(MAX_OPENED as u64) * OPENED
}

/// The least budget with which every object of up to so many bytes can be created and replaced; webhooks may see
/// `reviewed` bytes of it.
#[must_use]
pub fn least(object_bytes: u64, reviewed: Option<u64>) -> u64 {
    let needs = MemoryEstimate { body: object_bytes + SLACK, reviewed, ..MemoryEstimate::default() };
    // The large lane has eleven of sixteen parts.
    needs.replace(object_bytes).div_ceil(11) * 16
}

#[cfg(test)]
mod tests {
    use crate::memory::Memory;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_least_budget_holds_the_largest_object() {
        for object in [15 * MIB, 64 * MIB, 256 * MIB] {
            let memory = Memory::new(least(object, Some(32 * MIB)));
            let flow = crate::shares::Flow::User("alice".into());
            let needs =
                MemoryEstimate { body: object + MIB, reviewed: Some(32 * MIB), ..MemoryEstimate::default() }
                    .replace(object);
            let held = memory.reserve_now(&flow, needs);
            assert!(held.is_some(), "{object}");
            assert!(memory.reserve_now(&flow, needs / 8).is_none(), "{object}: there is more than needed");
        }
    }

    #[test]
    fn counts_copies() {
        let plain = MemoryEstimate { body: 100 * MIB, ..MemoryEstimate::default() };
        assert_eq!(plain.create(), 212 * MIB);
        assert_eq!(plain.replace(50 * MIB), 262 * MIB);
        assert_eq!(plain.lay_over(50 * MIB), 312 * MIB);
        assert_eq!(MemoryEstimate { indented: true, ..plain }.create(), 312 * MIB);
        assert_eq!(MemoryEstimate { from_yaml: Some(150 * MIB), ..plain }.create(), 412 * MIB);
        assert_eq!(MemoryEstimate { reviewed: Some(32 * MIB), ..plain }.replace(50 * MIB), 326 * MIB);
        assert_eq!(MemoryEstimate { parsed: 7 * MIB, ..plain }.create(), 219 * MIB);
    }
}
