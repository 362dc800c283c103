//! A gardenlet beside the controllers of Repot. It reconciles each new generation of the Shoot, unless it honours the annotation that
//! tells it not to.

use super::clusters::Clusters;
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
            (false, Ignored::ByThis) => Ignored::No,
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
    }

    /// The last operation of the Shoot by its fields.
    pub(super) fn last_operation(&self) -> Option<FormerOperation> {
        let runs = self.now < self.trouble.reconciled_until && self.operation == Operation::Other;
        let state = if runs { "Processing" } else { "Succeeded" };
        Some(FormerOperation { kind: "Reconcile".to_owned(), state: state.to_owned() })
    }

    /// Whether the annotation is there or not as before the migration.
    pub(super) fn is_ignored_as_before(&self) -> bool {
        let before = if self.trouble.ignored_before { Ignored::ByOther } else { Ignored::No };
        self.gardenlet.ignored == before
    }
}
