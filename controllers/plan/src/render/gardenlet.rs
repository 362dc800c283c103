//! The tables of a forced migration by gardenlet.

use super::classic::tables;
use crate::gardenlet::PLAN;

const HEAD: &str = "# Steps of a forced migration by gardenlet

Generated from the tables of `controllers/plan`; a test compares this page with them.

`spec.mode: Forced`, `spec.executor: Gardenlet`: the source seed is dead, and the gardenlet of the destination restores the Shoot. Repot
makes what it needs, requests the restore, and watches. The source has no rows: nobody fences it but a person.
[Steps of a classic migration](classic-migration.md) explains the columns.

| ends as | what holds then |
|---|---|
| Succeeded | gardenlet has restored the Shoot at the destination |
| RolledBack, Cancelled | it ended before a restore was requested; Shoot and BackupEntry name the seeds that they named before |
| Failed | gardenlet did not restore the Shoot in time, or somebody bound it to another seed meanwhile |

## Forward

";

/// The forward table and the rollback table of a forced migration by gardenlet as Markdown.
#[must_use]
pub fn gardenlet_migration() -> String {
    let mut text = HEAD.to_owned();
    tables(&mut text, &PLAN);
    text
}
