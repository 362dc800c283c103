//! One pass of any flow: observe, decide, record, act.

use std::time::Duration;

use kube::runtime::controller::Action;
use repot_plan::{
    flow::{Flow, Input, LedgerOf},
    status::{Error, from_status},
};

use super::{
    driver::Driver,
    events::{self, event},
};
use crate::errors::causes;

/// A status that cannot be read is read again after this time.
const RARELY: Duration = Duration::from_secs(300);

/// The ledger of this side, and those of the others.
type Ledgers<F> = (LedgerOf<F>, Vec<(<F as Flow>::Side, LedgerOf<F>)>);

/// One pass. It returns when to look again.
///
/// # Errors
/// Where the object or the clusters cannot be read, or the ledger cannot be stored; then no effect was requested. A conflict of an
/// effect is returned after all effects were requested. Any other failed effect is no error: the next reconcile requests it again.
pub async fn reconcile<D: Driver>(driver: &D) -> Result<Action, D::Error> {
    let Some(object) = driver.read().await? else { return Ok(Action::await_change()) };
    let (ledger, others) = match ledgers(driver, &object) {
        Ok(ledgers) => ledgers,
        Err(error) => return leave_alone(driver, &object, &error).await,
    };
    let now = driver.now();
    let observation = driver.observe(&object, &ledger, now).await?;
    let observed = driver.facts(&observation);
    let input = Input { side: driver.side(), observed, ledger: &ledger, others: &others, now };
    let decision = driver.decide(&object, &observation, &input);
    let object = match &decision.records {
        None => object,
        Some(next) => record(driver, &object, &observation, &ledger, next).await?,
    };
    act(driver, &object, &observation, &decision.effects).await?;
    Ok(decision.requeue.map_or_else(Action::await_change, Action::requeue))
}

fn ledgers<D: Driver>(driver: &D, object: &D::Object) -> Result<Ledgers<D::Flow>, Error> {
    let (plans, statuses) = (driver.plans(), driver.statuses(object));
    let own = from_status(plans, &statuses.own)?;
    let others = statuses.others.into_iter().map(|(side, status)| Ok((side, from_status(plans, &status)?)));
    Ok((own, others.collect::<Result<_, Error>>()?))
}

/// What cannot be read is left as it is, with a message and an event.
async fn leave_alone<D: Driver>(driver: &D, object: &D::Object, error: &Error) -> Result<Action, D::Error> {
    let message = error.to_string();
    tracing::error!(flow = driver.title(), message, "status cannot be read, leaving the object alone");
    let reason = match error {
        Error::Version(_) => {
            driver.leave_alone(object, &message).await?;
            "UnknownPlanVersion"
        }
        // What is damaged may be repaired by a person, who needs it as it is.
        Error::Field(_) | Error::Word(..) | Error::Notes { .. } => "StatusUnreadable",
    };
    driver.publish(object, event(true, reason, &message)).await;
    Ok(Action::requeue(RARELY))
}

async fn record<D: Driver>(
    driver: &D,
    object: &D::Object,
    observation: &D::Observation,
    before: &LedgerOf<D::Flow>,
    next: &LedgerOf<D::Flow>,
) -> Result<D::Object, D::Error> {
    let stored = driver.record(object, observation, before, next).await?;
    let plan = driver.plans().of(next.version).unwrap_or(driver.plans().newest());
    driver.metrics().record_steps(plan, before, next);
    for event in events::changes(plan, before, next) {
        driver.publish(object, event).await;
    }
    Ok(stored)
}

/// Carries out all effects.
///
/// # Errors
/// The first conflict: an effect was decided on an object that has changed since.
async fn act<D: Driver>(
    driver: &D,
    object: &D::Object,
    observation: &D::Observation,
    effects: &[<D::Flow as Flow>::Effect],
) -> Result<(), D::Error> {
    let mut conflict = None;
    for effect in effects {
        let Err(error) = driver.act(object, observation, effect).await else {
            tracing::info!(flow = driver.title(), ?effect, "effect requested");
            continue;
        };
        if driver.is_conflict(&error) {
            conflict.get_or_insert(error);
            continue;
        }
        let error = causes(&error);
        tracing::warn!(flow = driver.title(), ?effect, error, "failed to apply effect");
        driver.publish(object, event(true, "EffectFailed", &error)).await;
    }
    conflict.map_or(Ok(()), Err)
}
