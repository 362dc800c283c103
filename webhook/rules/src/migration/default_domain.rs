//! A default domain of the source, where the Shoot uses one, is one of the destination.

use repot_apimachinery::value::{items_at, text_at};

use crate::{change::Change, facts::Facts, finding::Finding, migration::SEED_NAME};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some((from, to)) = change.seed_change().heads() else { return Vec::new() };
    let Some(domain) = text_at(&change.new, "/spec/dns/domain") else { return Vec::new() };
    let (source, destination) = (defaults(facts, from), defaults(facts, to));
    let below = |suffix: &&str| domain.strip_suffix(*suffix).is_some_and(|start| start.ends_with('.'));
    let Some(used) = source.into_iter().filter(below).max_by_key(|suffix| suffix.len()) else {
        return Vec::new();
    };
    // A seed that lists none leaves them to the garden: then all seeds have the same.
    if destination.is_empty() || destination.contains(&used) {
        return Vec::new();
    }
    let reason =
        format!("the Shoot uses default domain {used:?}, and seed {to:?} has {}", destination.join(", "));
    vec![Finding::refuse(SEED_NAME, reason, "choose a seed with this default domain")]
}

fn defaults<'a>(facts: &'a Facts, seed: &str) -> Vec<&'a str> {
    let listed = facts.seed(seed).map_or(&[][..], |seed| items_at(seed, "/spec/dns/defaults"));
    listed.iter().filter_map(|one| text_at(one, "/domain")).collect()
}
