//! The tables of classic, forced and live migrations.

use std::fmt::Write as _;

use super::{on_failure, proof, timeout};
use crate::{
    classic::PLAN,
    flow::{Flow, PAUSE_LIMIT, Plan, Row},
    forced, live,
    named::Named,
};

const HEAD: &str = "# Steps of a classic migration

Generated from the tables of `controllers/plan`; a test compares this page with them.

Three controllers work on one ControlPlaneMigration: one in the garden and one on each seed. Each records its steps in
its own part of the status. A step starts by its record, when all steps in *after* are reached; then its effects are
requested until they are observed. *Counts*: `once` is recorded and not looked at again; `until …` may be lost and has
to be reached again. *Waits*: a step is `spec.stepTimeout`. *On failure*: what follows when the step is not reached in
time, or cannot be reached.

| ends as | what holds then |
|---|---|
| Succeeded | the destination serves everything that the source had acknowledged; skipped steps say what is left to do |
| RolledBack | a step failed before the point of no return; the source serves everything that it had acknowledged |
| Cancelled | `spec.abort` or a deletion ended it early; the source serves everything that it had acknowledged |
| Failed | a step failed past the point of no return, or in the rollback; `status.message` says what a person can do |

[Faults of a classic migration](classic-migration-faults.md) says how each fault in each step ends.
";

/// The forward table and the rollback table of a classic migration as Markdown.
#[must_use]
pub fn classic_migration() -> String {
    let mut text = HEAD.to_owned();
    let hours = PAUSE_LIMIT.as_secs() / 3600;
    let _ = write!(
        text,
        "\n`spec.paused` holds a migration before its next step, for {hours} hours at most. `spec.abort` rolls it back until\n\
         the point of no return is started.\n\n## Forward\n\n"
    );
    tables(&mut text, &PLAN);
    text
}

const FORCED_HEAD: &str = "# Steps of a forced migration

Generated from the tables of `controllers/plan`; a test compares this page with them.

The source seed does not answer, or does not do what it is asked for: `spec.mode: Forced`. The garden and the destination work without
it, by what is stored elsewhere: the ShootState and the snapshots in its bucket. Rows of the source are done when its controller comes
back; nobody waits for them. [Steps of a classic migration](classic-migration.md) explains the columns.

| ends as | what holds then |
|---|---|
| Succeeded | the destination serves what the bucket of the source held; the garden and the destination have ended |
| RolledBack, Cancelled | it ended before the owner record was written, or another one goes on in place of it; nothing at the source was changed |
| Failed | a step failed after the owner record was written; the source stays fenced; `spec.retry` or another forced migration is the way out |
";

/// The forward table and the rollback table of a forced migration as Markdown.
#[must_use]
pub fn forced_migration() -> String {
    let mut text = format!("{FORCED_HEAD}\n## Forward\n\n");
    tables(&mut text, &forced::PLAN);
    text
}

const LIVE_HEAD: &str = "# Steps of a live migration

Generated from the tables of `controllers/plan`; a test compares this page with them.

Source and destination serve at the same time, on one etcd: `spec.mode: Live`. It is for control planes that are highly
available and awake, and for seeds that reach each other.
[Steps of a classic migration](classic-migration.md) explains the columns.

| ends as | what holds then |
|---|---|
| Succeeded | the destination serves; the etcd has its members alone |
| RolledBack, Cancelled | a step failed, or it was aborted, before members of the source left; the source serves as before |
| Failed | a step failed past the point of no return, or in the rollback; `status.message` says what a person can do |
";

const SHRUNK_HEAD: &str = "
## Forward, with `spec.forceShrinkEtcd`

All sides go by this table when the field is set while `ApiServes` runs, and members of the destination are ready. Members
of the source leave before kube-apiservers of the destination are waited for. The API is away until clients find these.

";

/// The forward tables and the rollback table of a live migration as Markdown.
#[must_use]
pub fn live_migration() -> String {
    let mut text = format!("{LIVE_HEAD}\n## Forward\n\n");
    tables(&mut text, &live::PLAN);
    text.push_str(SHRUNK_HEAD);
    table(&mut text, live::SHRUNK_PLAN.forward, "rollback");
    text
}

pub(super) fn tables<F: Flow>(text: &mut String, plan: &Plan<F>) {
    table(text, plan.forward, "rollback");
    if let Some(step) = plan.point_of_no_return {
        let _ = writeln!(text, "\n`{}` is the point of no return.", step.name());
    }
    text.push_str("\n## Rollback\n\n");
    table(text, plan.rollback, "Failed");
}

pub(super) fn table<F: Flow>(text: &mut String, rows: &[Row<F>], back: &str) {
    text.push_str(
        "| step | side | after | what is done and waited for | counts | waits | on failure | what a person can do |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let after = row.after.iter().map(|step| format!("`{}`", step.name())).collect::<Vec<_>>().join(", ");
        let _ = writeln!(
            text,
            "| `{}` | {} | {after} | {} | {} | {} | {} | {} |",
            row.step.name(),
            row.side.name(),
            row.does,
            proof(row.proof),
            timeout(row.timeout),
            on_failure(row.on_failure, back),
            row.advice
        );
    }
}
