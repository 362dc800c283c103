//! Which rules were heard: recorded where a test asserts them.

use std::collections::BTreeSet;
use std::sync::{LazyLock, Mutex};

use repot_rules::table::RULES;

static HEARD: LazyLock<Mutex<BTreeSet<&'static str>>> = LazyLock::new(Mutex::default);

/// Records the rules that a message of a webhook names.
pub fn hear(said: &str) {
    let named = RULES.iter().map(|rule| rule.name).filter(|rule| said.contains(&format!("({rule})")));
    HEARD.lock().expect("no test holds it across a panic").extend(named);
}

/// Whether a rule was heard in this run.
pub fn was_heard(rule: &str) -> bool {
    HEARD.lock().expect("no test holds it across a panic").contains(rule)
}
