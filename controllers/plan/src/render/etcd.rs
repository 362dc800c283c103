//! The tables of the workflows of a hosted etcd.

use std::fmt::Write as _;

use super::table;
use crate::{
    etcd::{backup, migration, restore},
    flow::PAUSE_LIMIT,
    named::Named,
};

const HEAD: &str = "# Workflows of a hosted etcd

Generated from the tables of `controllers/plan`; a test compares this page with them.

A workflow works on its steps in their order. A step starts by its record in `status.steps`; then its effects are requested until they
are observed. *Counts*: `once` is recorded and not looked at again; `until …` may be lost and has to be reached again. *Waits*: a
step is `spec.stepTimeout`. *On failure*: what follows when the step is not reached in time, or cannot be reached.
";

const DELETION: &str = "**When the HostedEtcd is deleted.** A restore or a migration sets the finalizer \
`migration.gardener.cloud/workflow` on its
HostedEtcd together with the lock, before anything is stopped. A HostedEtcd that is deleted then stays until the workflow is over:

- Before `ApiUp` the workflow rolls back and ends RolledBack, with the reason `HostedEtcdDeleted`. From `ApiUp` on it goes on to its end.
- The condition `Terminating` of the HostedEtcd says which workflow it waits for, and which step. Each step of the rollback has its own
  timeout. The finalizer and the lock are removed at every end, also when the workflow failed.
- A workflow that has not taken the lock yet ends Cancelled and changes nothing. An EtcdBackup sets no finalizer on the HostedEtcd.
- The workflow does not wait for what is deleted as well, for example with the namespace: without the old volumes, the Etcd or the
  Deployment of the API servers it ends Failed at once, and says where the data is. Backups in the store stay.
- If somebody removes the finalizer by hand, the HostedEtcd is deleted, and the workflow still starts the old etcd and the API servers.
  Do so only if no controllers run any more; then nothing else removes it.
";

/// The tables of EtcdBackup, EtcdRestore and EtcdMigration as Markdown.
#[must_use]
pub fn etcd_workflows() -> String {
    let mut text = HEAD.to_owned();
    let hours = PAUSE_LIMIT.as_secs() / 3600;
    let _ = write!(
        text,
        "\n`spec.paused` holds a workflow before its next step, while it goes forward, for {hours} hours at most. `spec.cancel`, or\n\
         deleting the object, rolls it back until the point of no return is started.\n\n{DELETION}\n\
         | ends as | what holds then |\n|---|---|\n\
         | Succeeded | what was requested |\n\
         | RolledBack | it failed, or its HostedEtcd was deleted; everything is as it was before |\n\
         | Cancelled | it was cancelled; everything is as it was before |\n\
         | Failed | it failed and cannot roll back; no data is lost, and `status.message` says where it is and what to do |\n"
    );
    for plan in [&backup::PLAN, &restore::PLAN, &migration::PLAN] {
        let _ = write!(text, "\n## {}\n\n", plan.kind);
        // A workflow without a rollback fails instead.
        table(&mut text, plan.forward, if plan.rollback.is_empty() { "Failed" } else { "rollback" });
        if let Some(step) = plan.point_of_no_return {
            let _ = writeln!(text, "\n`{}` is the point of no return.", step.name());
        }
    }
    text.push_str("\n## Rollback of EtcdRestore and EtcdMigration\n\n");
    table(&mut text, migration::PLAN.rollback, "Failed");
    text
}
