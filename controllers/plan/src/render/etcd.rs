//! The tables of the workflows of a hosted etcd.

use std::fmt::Write as _;

use super::table;
use crate::{
    etcd::{backup, migration, restore},
    flow::PAUSE_LIMIT,
    named::Named,
};

const HEAD: &str = "# Workflows of a hosted etcd

Made from the tables of `controllers/plan`; a test holds the two together.

A workflow goes from row to row. A row is begun by its record in `status.steps`, and only then is anything asked for; what is asked
for is asked again until it is seen. *Counts*: `once` is recorded and not looked at again; `until …` may be lost and has to be reached
again. *Waits*: a step is `spec.stepTimeout`. *Otherwise*: what follows when the row is not reached in time, or cannot be.
";

const DELETION: &str = "**When the HostedEtcd is deleted.** A restore or a migration puts the finalizer \
`migration.gardener.cloud/workflow` on its
HostedEtcd together with the lock, before anything is stopped. A HostedEtcd that is deleted then stays until the workflow is over:

- Before `ApiUp` the workflow goes back and ends RolledBack, with the reason `HostedEtcdDeleted`. From `ApiUp` on it goes on to its end.
- The condition `Terminating` of the HostedEtcd says which workflow and which step is waited for. Each row of the way back has its
  own time; whatever the end is, Failed too, the finalizer and the lock are given back.
- A workflow that has not taken the lock yet ends Cancelled and changes nothing. An EtcdBackup sets no finalizer on the HostedEtcd.
- What is deleted as well, as with the namespace, is not waited for: without the old volumes, the Etcd or the Deployment of the API
  servers the workflow ends Failed at once, and says where the data is. Backups in the store stay.
- Where somebody removes the finalizer by hand, the HostedEtcd goes, and the workflow still starts the old etcd and the API servers.
  Do so only where no controllers run any more; then nothing else would take it off.
";

/// The tables of EtcdBackup, EtcdRestore and EtcdMigration as Markdown.
#[must_use]
pub fn etcd_workflows() -> String {
    let mut text = HEAD.to_owned();
    let hours = PAUSE_LIMIT.as_secs() / 3600;
    let _ = write!(
        text,
        "\n`spec.paused` holds a workflow up before its next row, on the way forward only, for {hours} hours at most. `spec.cancel`, or \
         deleting the object, turns it back, until the row that says there is no way back is begun.\n\n{DELETION}\n\
         | ends as | what holds then |\n|---|---|\n\
         | Succeeded | what was asked for |\n\
         | RolledBack | it failed, or its HostedEtcd was deleted; everything is as it was before |\n\
         | Cancelled | it was called off; everything is as it was before |\n\
         | Failed | it failed and cannot go back by itself; no data is lost, and `status.message` says where it is and what to do |\n"
    );
    for plan in [&backup::PLAN, &restore::PLAN, &migration::PLAN] {
        let _ = write!(text, "\n## {}\n\n", plan.kind);
        // Where there is no way back, turning back is the end.
        table(&mut text, plan.forward, if plan.rollback.is_empty() { "Failed" } else { "way back" });
        if let Some(step) = plan.point_of_no_return {
            let _ = writeln!(text, "\nThere is no way back once `{}` is begun.", step.name());
        }
    }
    text.push_str("\n## The way back of EtcdRestore and EtcdMigration\n\n");
    table(&mut text, migration::PLAN.rollback, "Failed");
    text
}
