//! The tables of migrations by gardenlet.

use super::classic::tables;
use crate::gardenlet::{CLASSIC_PLAN, PLAN};

const FORCED: &str = "# Steps of a forced migration by gardenlet

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

const CLASSIC: &str = "# Steps of a classic migration by gardenlet

Generated from the tables of `controllers/plan`; a test compares this page with them.

`spec.mode: Classic`, `spec.executor: Gardenlet`: both gardenlets answer. The one of the source migrates the Shoot, and the one of the
destination restores it. Repot asks beforehand what would stop them half-way, copies the snapshots ahead, binds the Shoot, watches and
measures. The source only measures: nobody waits for its row. [Steps of a classic migration](classic-migration.md) explains the columns.

| ends as | what holds then |
|---|---|
| Succeeded | gardenlet has restored the Shoot at the destination |
| RolledBack, Cancelled | it ended before the Shoot was bound; nothing of the Shoot was written |
| Failed | the binding was not written for two hours, gardenlet did not come to its end in time, somebody bound the Shoot to another seed, or `spec.abort` became Force after the binding |

## Forward

";

/// The forward table and the rollback table of a forced migration by gardenlet as Markdown.
#[must_use]
pub fn gardenlet_migration() -> String {
    let mut text = FORCED.to_owned();
    tables(&mut text, &PLAN);
    text
}

/// The same of a classic migration by gardenlet.
#[must_use]
pub fn classic_gardenlet_migration() -> String {
    let mut text = CLASSIC.to_owned();
    tables(&mut text, &CLASSIC_PLAN);
    text
}
