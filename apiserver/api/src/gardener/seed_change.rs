//! What a change of `spec.seedName` amounts to.

use serde_json::Value;

use crate::gardener::shoot::Shoot;

/// What a change of `spec.seedName` amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeedChange<'a> {
    /// There is none.
    Stay,
    /// It gets its first seed: the scheduler's work.
    Schedule,
    /// Its seed is taken away.
    Unset {
        /// The seed it had.
        from: &'a str,
    },
    /// A migration begins.
    Start {
        /// Source seed.
        from: &'a str,
        /// Destination seed.
        to: &'a str,
    },
    /// A migration that runs is turned around.
    Back {
        /// Source seed, where it is and is to stay.
        to: &'a str,
    },
    /// A migration that runs is sent elsewhere.
    Again {
        /// The seed to which it was on its way.
        from: &'a str,
        /// Another one.
        to: &'a str,
    },
}

impl<'a> SeedChange<'a> {
    /// What an update of a Shoot from `old` to `new` amounts to.
    #[must_use]
    pub fn between(old: &'a Value, new: &'a Value) -> Self {
        if !new.is_object() {
            return Self::Stay;
        }
        let (old, new) = (Shoot(old), Shoot(new));
        match (old.spec_seed(), new.spec_seed()) {
            (from, to) if from == to => Self::Stay,
            (None, _) => Self::Schedule,
            (Some(from), None) => Self::Unset { from },
            (Some(from), Some(to)) if !old.is_moving() => Self::Start { from, to },
            (Some(_), Some(to)) if old.status_seed() == Some(to) => Self::Back { to },
            (Some(from), Some(to)) => Self::Again { from, to },
        }
    }

    /// The seed that was to be left and the one that is named now, of a migration that begins or is sent elsewhere.
    #[must_use]
    pub fn heads(self) -> Option<(&'a str, &'a str)> {
        match self {
            Self::Start { from, to } | Self::Again { from, to } => Some((from, to)),
            _ => None,
        }
    }

    /// Source and destination of a migration that begins.
    #[must_use]
    pub fn start(self) -> Option<(&'a str, &'a str)> {
        match self {
            Self::Start { from, to } => Some((from, to)),
            _ => None,
        }
    }
}
