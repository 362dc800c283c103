//! The ledger of one side becomes a part of the status, under the version that was read.

use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams, TypeMeta},
};
use repot_apimachinery::time::Time;
use repot_plan::{
    flow::LedgerOf,
    isolation::{IsolationSide, PLANS, Step, ZoneIsolationFlow, shown},
    named::Named,
    status,
};
use serde_json::{Map, Value, json};

use super::{api::ZoneIsolation, names::MANAGER, request};
use crate::migration::{Error, Result};

/// The ledger of a side.
pub type Ledger = LedgerOf<ZoneIsolationFlow>;

/// Fields of the status that follow from the ledgers of both sides.
const WHOLE: [&str; 5] = ["isolatedZoneCode", "message", "phase", "reason", "status"];

/// The status with the ledger of a side; what is unknown here stays.
#[must_use]
pub fn render(
    isolation: &ZoneIsolation,
    side: IsolationSide,
    next: &Ledger,
    now: Time,
) -> Map<String, Value> {
    let mut own = match isolation.part(side) {
        Value::Object(own) => own,
        _ => Map::new(),
    };
    status::fields(&PLANS).for_each(|field| drop(own.remove(field)));
    let plan = PLANS.of(next.version).unwrap_or(PLANS.newest());
    if let Value::Object(ledger) = status::to_status(plan, next) {
        own.extend(ledger);
    }
    let mut all = isolation.status.clone();
    all.insert(side.name().to_owned(), Value::Object(own));
    WHOLE.iter().for_each(|field| drop(all.remove(*field)));
    let read = |of: &IsolationSide| match *of == side {
        true => Some(next.clone()),
        false => status::from_status(&PLANS, &isolation.part(*of)).ok(),
    };
    let ledgers: Vec<(IsolationSide, Ledger)> =
        IsolationSide::ALL.iter().filter_map(|side| Some((*side, read(side)?))).collect();
    all.extend(whole(isolation, &ledgers, now));
    all.insert("observedGeneration".to_owned(), isolation.metadata.generation.into());
    all
}

/// What both sides say together: that of the seed is told, unless the garden says why nothing has begun.
fn whole(isolation: &ZoneIsolation, ledgers: &[(IsolationSide, Ledger)], now: Time) -> Map<String, Value> {
    let record = |step| ledgers.iter().find_map(|(_, ledger)| ledger.steps.get(&step));
    let notes = ledgers.iter().find(|(side, _)| *side == IsolationSide::Seed).map(|(_, it)| &it.notes);
    let was_isolated = notes.is_some_and(|notes| notes.isolated);
    let limit = request::request(isolation, None).limits();
    let (direction, progress) = shown::progress(record, was_isolated, (now, limit));
    let says = |ledger: &&(IsolationSide, Ledger)| !ledger.1.message.is_empty() && !ledger.1.phase.is_end();
    let teller = ledgers.iter().filter(says).max_by_key(|(side, ledger)| {
        (repot_plan::ledger::Urgency::of(&ledger.reason), *side == IsolationSide::Seed)
    });
    // When all is over, why it has ended.
    let end = || record(Step::IsolationEnds).map_or("", |end| &*end.message);
    let (reason, message) = teller.map_or(("", end()), |(_, ledger)| (&*ledger.reason, &*ledger.message));
    let fields = json!({
        "phase": direction.name(),
        "status": progress.name(),
        "isolatedZoneCode": notes.and_then(|notes| notes.zone_code.as_deref()),
        "reason": if reason.is_empty() { progress.name() } else { reason },
        "message": message,
    });
    let Value::Object(fields) = fields else { return Map::new() };
    fields.into_iter().filter(|(_, value)| !value.is_null()).collect()
}

/// Stores the ledger of a side, and gives the object as it is then.
///
/// # Errors
/// [`Error::Write`]; a conflict where somebody changed the object since it was read, and then nothing was stored.
pub async fn record(
    all: &Api<ZoneIsolation>,
    isolation: &ZoneIsolation,
    (side, next): (IsolationSide, &Ledger),
    now: Time,
) -> Result<ZoneIsolation> {
    let changed = ZoneIsolation {
        types: Some(TypeMeta::resource::<ZoneIsolation>()),
        status: render(isolation, side, next, now),
        ..isolation.clone()
    };
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    let stored = all.replace_status(&isolation.name_any(), &params, &changed).await;
    stored.map_err(Error::write("record the ledger"))
}

/// Says in the status why an isolation is left alone, and changes nothing else of it.
///
/// # Errors
/// [`Error::Write`].
pub async fn leave_alone(all: &Api<ZoneIsolation>, isolation: &ZoneIsolation, message: &str) -> Result<()> {
    if isolation.status.get("message").and_then(Value::as_str) == Some(message) {
        return Ok(());
    }
    let patch = json!({
        "metadata": {"resourceVersion": isolation.resource_version()}, "status": {"message": message},
    });
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let outcome = all.patch_status(&isolation.name_any(), &params, &Patch::Merge(patch)).await;
    outcome.map(drop).map_err(Error::write("say in its status why the isolation is left alone"))
}
