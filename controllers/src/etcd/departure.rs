//! The finalizer of an Etcd whose members are part of an etcd that goes on elsewhere: members that stop without being removed from
//! it would leave the others with a quorum that is harder to reach, or with none.

use super::{
    membership::{self, Known},
    observe::Observed,
};

/// Whether the Etcd has to stay until its members have left.
#[must_use]
pub fn is_bound(observed: &Observed, known: Option<&Known>) -> bool {
    if observed.existing().is_none() {
        return false;
    }
    if observed.wanted() > 0 {
        return true;
    }
    // The others are asked again before anything is given up.
    let Some(known) = known else { return observed.is_held() };
    let have_left = known.pods(membership::side(observed)) == Some(0);
    !have_left && !known.are_alone()
}
