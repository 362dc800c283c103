//! What a pass has read and decided, for the status.

use repot_apimachinery::time::Time;
use repot_etcd_core::operator::Next;

use super::{membership::MembershipStatus, observe::Observed};

/// What a pass came to.
pub struct Pass<'a> {
    /// The Etcd and its objects, as they were read in this pass.
    pub observed: &'a Observed,
    /// What was decided about the StatefulSet in this pass.
    pub next: &'a Next,
    /// What members say; nothing where they were not asked.
    pub known: Option<&'a MembershipStatus>,
    /// Time of the pass, which new timestamps in the status get.
    pub now: Time,
}

impl Pass<'_> {
    /// How many members there are to be at the moment.
    pub(super) fn planned_members(&self) -> u32 {
        match self.next {
            Next::Run { members } => *members,
            Next::Stop(_) | Next::Wait(_) | Next::Rest | Next::Copy(_) => 0,
        }
    }
}
