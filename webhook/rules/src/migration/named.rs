//! A Shoot keeps a seed, and a binding names another one.

use crate::{
    change::{Change, Operation},
    facts::Facts,
    finding::Finding,
    migration::SEED_NAME,
    shoot::Shoot,
    travel::Travel,
};

/// A seed is never taken away.
pub(crate) fn unset(change: &Change, _: &Facts) -> Vec<Finding> {
    let Travel::Unset { from } = Travel::of(change) else { return Vec::new() };
    let reason = format!("the Shoot is on seed {from:?} and cannot be without one");
    vec![Finding::refuse(SEED_NAME, reason, "name the seed to which it is to move")]
}

/// A binding that changes nothing is a mistake.
pub(crate) fn same(change: &Change, _: &Facts) -> Vec<Finding> {
    let seed = Shoot(&change.new).spec_seed();
    let binding = change.target.subresource == "binding" && change.operation == Operation::Update;
    match seed.filter(|seed| binding && Shoot(&change.old).spec_seed() == Some(*seed)) {
        None => Vec::new(),
        Some(seed) => {
            let reason = format!("the Shoot is assigned to seed {seed:?} already");
            vec![Finding::refuse(SEED_NAME, reason, "name another seed")]
        }
    }
}
