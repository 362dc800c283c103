//! ZoneIsolation: a zone of a Shoot is left, and used again later, on two sides.
//!
//! A pass is that of all flows ([`crate::flow`]): a side observes its own cluster, asks the table in `repot_plan::isolation`, stores what it
//! says in its part of the status, and only then requests effects.
//!
//! | file | does |
//! |---|---|
//! | `api.rs` | ZoneIsolations as a type |
//! | `driver.rs` | one side as a driver of the flow |
//! | `request.rs` | what the object asks for |
//! | `record.rs` | ledgers as the status |
//! | `siblings.rs` | other isolations and migrations of the same Shoot |
//! | `annotated.rs` | a ZoneIsolation for each Shoot with the annotation |
//! | `bulk.rs` | one zone of many Shoots, for a command of a user |
//! | `seed_zone.rs` | what a zone of a seed touches |
//! | `garden/`, `seed/` | what each side observes, and its effects as calls |

pub mod annotated;
pub mod api;
pub mod bulk;
mod driver;
mod garden;
mod names;
mod record;
mod request;
mod seed;
pub mod seed_zone;
pub mod siblings;

use std::{sync::Arc, time::Duration};

use kube::{
    Api, ResourceExt,
    runtime::{Controller, controller::Action, watcher},
};
use repot_plan::isolation::IsolationSide;
use tokio_util::sync::CancellationToken;

use crate::{
    flow,
    migration::{Context, Result},
    reconciler,
};
use api::ZoneIsolation;
use driver::Isolation;

/// From one look at an isolation that goes on to the next, where nothing in the garden changes.
const LOOK: Duration = Duration::from_secs(5);
/// The same of a zone that is isolated, until it is used again.
const LASTING_LOOK: Duration = Duration::from_secs(60);

/// Runs the controller of one side of all isolations until `stop`.
pub async fn run(context: Context, stop: CancellationToken) {
    let context = Arc::new(context);
    let all = Api::<ZoneIsolation>::all(context.garden_client().clone());
    let controller = Controller::new(all, watcher::Config::default());
    let settings = context.controller("zoneisolation");
    reconciler::run(settings, controller, reconcile, context, stop).await;
}

/// One pass of the side that this controller works on.
async fn reconcile(cached: Arc<ZoneIsolation>, context: Arc<Context>) -> Result<Action> {
    if cached.has_ended() && cached.finalizers().is_empty() {
        return Ok(Action::await_change());
    }
    let side = match &context.seed {
        None => IsolationSide::Garden,
        // Where the control plane moves, the garden says so, and this is looked at again.
        Some(own) if cached.place().is_some_and(|place| place.seed == *own) => IsolationSide::Seed,
        Some(_) => return Ok(Action::await_change()),
    };
    let (namespace, name) = (cached.namespace().unwrap_or_default(), cached.name_any());
    let action = flow::reconcile(&Isolation { context: &context, side, namespace, name }).await?;
    Ok(match cached.has_side_ended(side) {
        // Requests that are late are undone until the finalizer goes.
        true if !cached.finalizers().is_empty() => Action::requeue(LOOK),
        true => action,
        false => Action::requeue(if cached.lasts() { LASTING_LOOK } else { LOOK }),
    })
}
