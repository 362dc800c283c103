//! The tables of flows as Markdown, for the pages in `docs/reference`; a test compares each page with its table.

mod classic;
mod etcd;
mod gardenlet;
mod isolation;

use std::fmt::Write as _;

pub use classic::{classic_migration, forced_migration, live_migration};
pub use etcd::etcd_workflows;
pub use gardenlet::{classic_gardenlet_migration, gardenlet_migration};
pub use isolation::zone_isolation;

use crate::{
    flow::{Flow, OnFailure, Proof, Row, Timeout},
    named::Named,
};

/// Writes the rows of a flow with one side. `back` is what is said of a row that rolls back on failure.
fn table<F: Flow>(text: &mut String, rows: &[Row<F>], back: &str) {
    text.push_str("| step | what is done and waited for | counts | waits | on failure | what a person can do |\n|---|---|---|---|---|---|\n");
    for row in rows {
        let (proof, timeout, on_failure) =
            (proof(row.proof), timeout(row.timeout), on_failure(row.on_failure, back));
        let _ = writeln!(
            text,
            "| `{}` | {} | {proof} | {timeout} | {on_failure} | {} |",
            row.step.name(),
            row.does,
            row.advice
        );
    }
}

fn proof<S: Named>(proof: Proof<S>) -> String {
    match proof {
        Proof::Latched => "once".to_owned(),
        Proof::Held => "until the end".to_owned(),
        Proof::HeldUntil(step) => format!("until `{}`", step.name()),
    }
}

/// How long a row is waited for, in words.
#[must_use]
pub fn timeout<F: Flow>(timeout: Timeout<F>) -> String {
    match timeout {
        Timeout::Steps(1) => "1 step".to_owned(),
        Timeout::Steps(steps) => format!("{steps} steps"),
        Timeout::Hours(hours) => format!("{hours} h"),
        Timeout::Computed { text, .. } => text.to_owned(),
    }
}

fn on_failure(on_failure: OnFailure, rollback: &str) -> &str {
    match on_failure {
        OnFailure::RollBack => rollback,
        OnFailure::Fail => "Failed",
        OnFailure::Skip => "skipped",
    }
}
