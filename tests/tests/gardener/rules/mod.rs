//! Every rule of the garden is seen to refuse and to allow through gardener-apiserver. Tables say what makes a rule refuse, on which
//! path, and who is heard: plugins of gardener-apiserver come before webhooks, so some reasons are heard from them.

mod markers;
mod moving;
mod seeds;
mod states;

use std::collections::BTreeSet;

use repot_rules::table::{Judge, RULES};
use repot_rules::watch::Place;

/// Rules that another test of this module shows.
const ELSEWHERE: &[(&str, &str)] = &[
    // gardener-apiserver refuses the same itself; `scheduling` asks the webhook directly.
    ("binding-only", "scheduling::the_seed_is_changed_through_the_binding_that_discovery_shows"),
    // kube-apiserver does not ask about a binding that changes nothing; preflight does.
    ("different-seed", "rules::seeds::preflight_says_that_a_shoot_is_there_already"),
];

#[test]
fn the_tables_have_every_rule_of_the_garden() {
    let mut shown: BTreeSet<&str> = ELSEWHERE.iter().map(|(rule, _)| *rule).collect();
    shown.extend(seeds::cases().iter().map(|case| case.rule));
    shown.extend(moving::RULES.iter().chain(markers::RULES).chain(states::RULES));
    let garden = RULES.iter().filter(|rule| {
        matches!(rule.judge, Judge::Validate(_))
            && rule.watches.iter().any(|watch| watch.place == Place::Garden)
    });
    let all: BTreeSet<&str> = garden.map(|rule| rule.name).collect();
    assert_eq!(shown, all);
}
