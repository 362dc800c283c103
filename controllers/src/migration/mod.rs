//! ControlPlaneMigration: classic and forced migrations of a control plane, on three sides.
//!
//! A pass is that of all flows ([`crate::flow`]): a side observes its own cluster, asks the table of its mode in `repot_plan`, stores what it says in its
//! part of the status, and only then requests effects.
//!
//! | module | does |
//! |---|---|
//! | [`api`] | ControlPlaneMigrations and Shoots as types |
//! | [`driver`] | one side as a driver of the flow |
//! | [`pass`] | what one pass of a side has observed |
//! | [`request`] | what the object asks for |
//! | [`record`], [`overall`] | ledgers as the status |
//! | [`garden`], [`source`], [`destination`] | what each side observes, and its effects as calls |
//! | [`gardenlet`] | the same of a migration that gardenlet carries out |
//! | [`seed`] | what source and destination have in common |
//! | [`follow_up`] | what a destination does after a forced migration, until the source has ended |
//! | [`quarantine`] | the command that takes away the credentials of a dead seed |
//! | [`siblings`] | other migrations of the same Shoot |
//! | [`turns`] | how many migrations a seed has at once |
//! | [`names`] | names on objects |

pub mod api;
pub(crate) mod clock;
pub mod context;
pub mod destination;
pub mod driver;
pub mod error;
pub mod follow_up;
pub mod garden;
pub mod gardenlet;
mod gauges;
pub mod names;
pub mod overall;
pub mod pass;
pub mod quarantine;
pub mod record;
pub mod request;
pub mod seed;
pub mod siblings;
pub mod source;
pub mod turns;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    runtime::{Controller, controller::Action, watcher},
};
use repot_plan::migration::Side;
use tokio_util::sync::CancellationToken;

use crate::{flow, reconciler};
use api::ControlPlaneMigration;
pub use context::{Context, GardenOptions, Seed};
use driver::Migration;
pub use error::{Error, Result};
pub use seed::exposure::{Exposer, GatewayKind, GatewayName};

/// From one look at a migration that runs to the next, where nothing in the garden changes.
const LOOK: Duration = Duration::from_secs(1);
/// The same while other migrations go first.
const QUEUED_LOOK: Duration = Duration::from_secs(10);
/// The same while the API of the Shoot is away, at the side that it waits for.
const OUTAGE_LOOK: Duration = Duration::from_millis(400);
/// The same at the garden shortly after a migration has ended.
const LATE_LOOK: Duration = Duration::from_secs(60);

/// Runs the controller of one side of all migrations until `stop`.
pub async fn run(mut context: Context, stop: CancellationToken) {
    let all = Api::<ControlPlaneMigration>::all(context.garden_client().clone());
    let controller = Controller::new(all, watcher::Config::default());
    context.turns.follow(controller.store());
    if context.seed.is_none()
        && let Err(error) =
            gauges::MigrationGauges::add(controller.store(), Timestamp::now(), &context.metrics)
    {
        tracing::warn!(%error, "no metrics of migrations");
    }
    let settings = context.controller("controlplanemigration");
    reconciler::run(settings, controller, reconcile, Arc::new(context), stop).await;
}

/// How soon a side looks again.
fn pause(migration: &ControlPlaneMigration, side: Side) -> Duration {
    match (migration.does_outage_wait_for(side), migration.is_queued()) {
        (true, _) => OUTAGE_LOOK,
        (false, true) => QUEUED_LOOK,
        (false, false) => LOOK,
    }
}

/// One pass of each side that this controller works on.
async fn reconcile(cached: Arc<ControlPlaneMigration>, context: Arc<Context>) -> Result<Action> {
    if let Some(mode) = cached.gardenlet_mode() {
        return gardenlet::reconcile(&cached, mode, &context).await;
    }
    if cached.mode().is_none() {
        return Ok(Action::await_change());
    }
    let (namespace, name) = (cached.namespace().unwrap_or_default(), cached.name_any());
    let mut action = Action::await_change();
    for side in context.sides(&cached) {
        let (namespace, name, plans) = (namespace.clone(), name.clone(), cached.plans());
        let migration = Migration { context: &context, side, plans, namespace, name };
        action = flow::reconcile(&migration).await?;
        if !cached.has_side_ended(side) {
            action = Action::requeue(pause(&cached, side));
        } else if side == Side::Destination
            && let Some(pause) = follow_up::follow_up(&context, &cached).await?
        {
            action = Action::requeue(pause);
        } else if side == Side::Garden && follow_up::may_garden_get_late_requests(&cached) {
            action = Action::requeue(LATE_LOOK);
        }
    }
    Ok(action)
}
