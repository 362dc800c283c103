//! A gardenlet beside the controllers of Repot. It reconciles each new generation of the Shoot, unless it honours the annotation that
//! tells it not to.

use super::{clusters::Clusters, zone::is_in};
use crate::migration::observed::{FormerOperation, Ignored, Operation};

/// What gardenlet and the migration say to each other through the Shoot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gardenlet {
    pub(super) ignored: Ignored,
    pub(super) generation: u64,
    pub(super) observed_generation: u64,
}

impl Gardenlet {
    /// It has reconciled the Shoot before.
    pub(super) fn new() -> Self {
        Self { ignored: Ignored::No, generation: 7, observed_generation: 7 }
    }

    /// What a migration does to the annotation, as the controller of the garden does it.
    pub(super) fn set_ignored(&mut self, ignored: bool) {
        self.generation += u64::from(ignored);
        self.ignored = match (ignored, self.ignored) {
            (true, Ignored::ByOther) => Ignored::Kept,
            (true, Ignored::No) => Ignored::ByThis,
            (true, Ignored::TakenAway) => Ignored::ByThis,
            (false, Ignored::ByThis | Ignored::TakenAway) => Ignored::No,
            (false, Ignored::Kept) => Ignored::ByOther,
            (_, other) => other,
        };
    }
}

impl Clusters {
    pub(super) fn run_gardenlet(&mut self) {
        if self.trouble.defiant_gardenlet {
            self.gardenlet.observed_generation = self.gardenlet.generation;
        }
        if self.gardenlet.ignored == Ignored::ByThis && is_in(self.trouble.ignore_removed, self.now) {
            self.gardenlet.ignored = Ignored::TakenAway;
        }
    }

    /// The last operation of the Shoot by its fields.
    pub(super) fn last_operation(&self) -> Option<FormerOperation> {
        let runs = self.now < self.trouble.reconciled_until && self.operation == Operation::Other;
        let state = if runs { "Processing" } else { "Succeeded" };
        Some(FormerOperation { kind: "Reconcile".to_owned(), state: state.to_owned() })
    }

    /// What a person has requested of gardenlet, which takes it up after a while.
    pub(super) fn requested_operation(&self) -> Option<String> {
        let is_requested = self.now < self.trouble.requested_until;
        is_requested.then(|| "rotate-credentials-start".to_owned())
    }

    /// Whether the annotation is there or not as before the migration. It stays where the seed is being deleted.
    pub(super) fn is_ignored_as_before(&self) -> bool {
        let before = if self.trouble.ignored_before { Ignored::ByOther } else { Ignored::No };
        self.trouble.seed_deleted || self.gardenlet.ignored == before
    }
}
