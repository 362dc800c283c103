//! Both gardenlets run the same code: what one writes into the state, the other has to understand.

use repot_api::gardener::shoot::Seed;

use crate::{
    change::Change,
    facts::Facts,
    finding::Finding,
    migration::{SEED_NAME, unless_dead},
};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some((from, to)) = change.seed_change().heads() else { return Vec::new() };
    let (Some(source), Some(destination)) = (facts.seed(from), facts.seed(to)) else { return Vec::new() };
    let reason = match (Seed(source).version(), Seed(destination).version()) {
        (Some(one), Some(two)) if one == two => return Vec::new(),
        (Some(one), Some(two)) => {
            format!("the gardenlets differ: {one} on source seed {from:?}, {two} on destination seed {to:?}")
        }
        (None, _) => format!("source seed {from:?} does not tell the version of its gardenlet"),
        (_, None) => format!("destination seed {to:?} does not tell the version of its gardenlet"),
    };
    let finding = Finding::refuse(SEED_NAME, reason, "bring both gardenlets to the same version");
    vec![unless_dead(facts, from, finding)]
}
