//! What clients did and what they were told, as plain data. Nothing in here does I/O.
//!
//! Time is a counter that all clients share: of two moments in one history, the smaller was earlier.

use std::collections::{BTreeMap, BTreeSet};

/// A moment, as a number that only rises.
pub type Time = u64;
/// A write, named by the head it leaves. No two writes of a history share one.
pub type Tag = u64;
/// The number of an object.
pub type Name = u32;

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Get,
    Create(Tag),
    /// Replaces the state that this write left.
    Update {
        from: Tag,
        tag: Tag,
    },
    /// Removes the state that this write left.
    Delete {
        from: Tag,
    },
}

/// A state: which write left it, and at which version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    pub tag: Tag,
    pub version: u64,
}

/// What the store answered to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// What there is, or that there is nothing.
    Seen(Option<State>),
    /// The write happened, at this version.
    Done(u64),
    /// The write did not happen: the object exists already, or is not in the state that was to be replaced.
    Refused,
    /// The write did not happen, and will not.
    NotDone,
    /// The write may have happened, or may happen later. With a moment: not after it.
    Unknown(Option<Time>),
}

/// One call on one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    pub client: u32,
    pub name: Name,
    pub call: Call,
    pub asked: Time,
    /// Without meaning for [`Answer::Unknown`].
    pub answered: Time,
    pub answer: Answer,
}

impl Call {
    /// The write this would be.
    pub fn tag(self) -> Option<Tag> {
        match self {
            Self::Create(tag) | Self::Update { tag, .. } => Some(tag),
            Self::Get | Self::Delete { .. } => None,
        }
    }
}

/// All objects at one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    pub asked: Time,
    pub answered: Time,
    pub version: u64,
    /// Whether it has to show everything that was acknowledged before it was asked for.
    pub fresh: bool,
    /// The least version it has to show.
    pub at_least: u64,
    pub states: BTreeMap<Name, State>,
}

/// Something that happened to an object, as a watch tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    pub version: u64,
    pub name: Name,
    /// The write that left the state after; `None`: removed.
    pub now: Option<Tag>,
    /// The write that left the state before; `None`: created.
    pub before: Option<Tag>,
}

/// What one watcher was told, over all the streams it needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// It asked for everything after this version.
    pub after: u64,
    /// It was told that everything up to this version was delivered.
    pub until: u64,
    pub told: Vec<Told>,
}

/// What happened to a store.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub operations: Vec<Operation>,
    pub listings: Vec<Listing>,
    /// The first of them is told everything from before the first operation to after the last.
    pub watches: Vec<Watched>,
    /// What no fault excuses, such as a payload that is not the one of its head.
    pub breaches: Vec<String>,
}

impl History {
    /// The operations on one object, with every fresh list as a look at it.
    ///
    /// Whoever removes a state and learns only that it is gone is told that it was removed, by whomever. So of several removals
    /// of one state, each may have happened; what is sure is that the state was gone before the answer.
    pub fn of(&self, name: Name) -> Vec<Operation> {
        let shared = self.shared();
        let own = self.operations.iter().filter(|operation| operation.name == name);
        let own = own.flat_map(|&operation| match (operation.call, operation.answer) {
            (Call::Delete { from }, Answer::Done(_)) if shared.contains(&(name, from)) => {
                let answer = Answer::Unknown(Some(operation.answered));
                vec![Operation { answer, ..operation }, Operation { answer: Answer::Refused, ..operation }]
            }
            _ => vec![operation],
        });
        let looks = self.listings.iter().filter(|listing| listing.fresh).map(|listing| Operation {
            client: u32::MAX,
            name,
            call: Call::Get,
            asked: listing.asked,
            answered: listing.answered,
            answer: Answer::Seen(listing.states.get(&name).copied()),
        });
        own.chain(looks).collect()
    }

    /// States that more than one may have removed.
    pub fn shared(&self) -> BTreeSet<(Name, Tag)> {
        let (mut once, mut again) = (BTreeSet::new(), BTreeSet::new());
        for operation in &self.operations {
            if let (Call::Delete { from }, Answer::Done(_) | Answer::Unknown(_)) =
                (operation.call, operation.answer)
                && !once.insert((operation.name, from))
            {
                again.insert((operation.name, from));
            }
        }
        again
    }

    /// Every object that was ever asked for.
    pub fn names(&self) -> BTreeSet<Name> {
        self.operations.iter().map(|operation| operation.name).collect()
    }
}
