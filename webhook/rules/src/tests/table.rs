use std::collections::BTreeSet;

use super::*;
use crate::{
    catalogue,
    table::{Judge, RULES},
};

#[test]
fn rules_have_names_of_their_own_and_webhooks_that_ask_them() {
    let names: BTreeSet<&str> = RULES.iter().map(|rule| rule.name).collect();
    assert_eq!(names.len(), RULES.len());
    for rule in RULES {
        assert!(!rule.watches.is_empty() && rule.doc.ends_with('.'), "{}", rule.name);
        let mutates = matches!(rule.judge, Judge::Mutate(_));
        assert!(rule.watches.iter().all(|watch| watch.mutating == mutates), "{}", rule.name);
    }
    for watch in WATCHES {
        assert!(judge::rules_of(watch).next().is_some(), "nobody is asked at {}", watch.path());
    }
}

#[test]
fn what_fails_closed_is_narrowed_down() {
    for watch in WATCHES.iter().filter(|watch| watch.failure_policy == FailurePolicy::Fail) {
        assert!(!watch.conditions.is_empty(), "{} could lock a cluster", watch.name);
        assert!(!watch.mutating, "{} is a convenience", watch.name);
    }
}

#[test]
fn the_catalogue_has_every_rule_and_webhook() {
    let text = catalogue::render();
    for name in RULES.iter().map(|rule| format!("| `{}` |", rule.name)) {
        assert_eq!(text.matches(&name).count(), 1, "{name}");
    }
    for watch in WATCHES {
        assert!(text.contains(&format!("| `{}` |", watch.path())), "{}", watch.name);
    }
}
