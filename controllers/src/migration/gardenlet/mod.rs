//! Migrations that gardenlets carry out, and that Repot steers: the I/O of [`repot_plan::gardenlet`].
//!
//! | module | does |
//! |---|---|
//! | [`driver`] | one side as a driver of the flow |
//! | [`status`] | what the sides have recorded, as the status of the whole |
//! | [`request`] | what the object asks for |
//! | [`rights`] | which rights are missing |
//! | [`garden`] | Shoot, BackupEntry and Seeds: observed, and written |
//! | [`source`] | what the source of a classic migration observes |
//! | [`destination`] | what the destination observes, and its effects |
//! | [`copy`] | the copy of the backups, in a namespace of its own |
//! | [`copy_tasks`] | EtcdCopyBackupsTasks of gardenlet |
//! | [`states`] | the ShootState that gardenlet reads |

pub mod copy;
pub mod copy_tasks;
pub mod destination;
pub mod driver;
pub mod garden;
pub mod request;
pub mod rights;
pub mod source;
pub mod states;
pub mod status;

use std::time::Duration;

use kube::{ResourceExt, runtime::controller::Action};

use super::{api::ControlPlaneMigration, context::Context, error::Result};
use crate::flow;
use driver::Steered;
use repot_plan::migration::observed::MigrationMode;

/// From one look at a migration that runs to the next: gardenlet works in minutes.
const LOOK: Duration = Duration::from_secs(2);

/// One pass of each side that this controller works on.
///
/// # Errors
/// As [`flow::reconcile`].
pub async fn reconcile(
    cached: &ControlPlaneMigration,
    mode: MigrationMode,
    context: &Context,
) -> Result<Action> {
    let (namespace, name) = (cached.namespace().unwrap_or_default(), cached.name_any());
    let mut action = Action::await_change();
    for side in context.sides(cached) {
        let steered = Steered { context, side, mode, namespace: namespace.clone(), name: name.clone() };
        action = flow::reconcile(&steered).await?;
        if !cached.has_side_ended(side) {
            action = Action::requeue(LOOK);
        }
    }
    Ok(action)
}
