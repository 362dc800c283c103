//! A binding that changes nothing is a mistake.

use repot_api::gardener::shoot::Shoot;

use crate::{
    change::{Change, Operation},
    facts::Facts,
    finding::Finding,
    migration::SEED_NAME,
};

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
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
