//! The catalogue of rules, as the docs have it.

use std::fmt::Write as _;

use crate::{
    judge,
    table::RULES,
    watch::{WATCHES, Watch},
};

/// The catalogue of rules and webhooks as Markdown.
#[must_use]
pub fn render() -> String {
    let mut text = String::from(
        "# Rules of admission\n\nGenerated from the table of rules by `repot webhook --print-rules`; a test compares the two.\n\
         Every rule judges the change: what was wrong before may stay, be repaired or be deleted.\n",
    );
    let mut chapter = "";
    for rule in RULES {
        if rule.chapter != chapter {
            chapter = rule.chapter;
            let _ = write!(text, "\n## {chapter}\n\n| rule | webhooks | what it says |\n|---|---|---|\n");
        }
        let asks = |watch: &&'static Watch| judge::rules_of(watch).any(|own| own.name == rule.name);
        let watches: Vec<String> =
            WATCHES.iter().copied().filter(asks).map(|watch| format!("`{}`", watch.path())).collect();
        let _ = writeln!(text, "| `{}` | {} | {} |", rule.name, watches.join(" "), rule.doc);
    }
    text.push_str(
        "\n## Webhooks\n\nWhat each webhook is asked about, and what happens while it is unavailable.\n\n\
         | path | resources | operations | timeout | while it is unavailable | why |\n|---|---|---|---|---|---|\n",
    );
    for watch in WATCHES {
        let resources: Vec<String> =
            watch.matches.iter().flat_map(|m| m.resources).map(|r| format!("`{r}`")).collect();
        let operations = operations(watch);
        let policy = match watch.failure_policy {
            crate::watch::FailurePolicy::Fail => "refused",
            crate::watch::FailurePolicy::Ignore => "allowed",
        };
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} s | {policy} | {} |",
            watch.path(),
            resources.join(" "),
            operations,
            watch.timeout_seconds,
            watch.why
        );
    }
    text
}

/// The operations of all resources; where these differ, by resource.
fn operations(watch: &Watch) -> String {
    let sorted = |operations: &[&str]| {
        let mut sorted = operations.to_vec();
        sorted.sort_unstable();
        sorted.join(" ")
    };
    let all: Vec<String> = watch.matches.iter().map(|one| sorted(one.operations)).collect();
    let mut distinct = all.clone();
    distinct.dedup();
    match distinct.as_slice() {
        [same] => same.clone(),
        _ => {
            let resources = watch.matches.iter().map(|one| one.resources.join(", "));
            let each =
                resources.zip(&all).map(|(resources, operations)| format!("{resources}: {operations}"));
            each.collect::<Vec<_>>().join("; ")
        }
    }
}
