//! Rows of the seed: machines leave the zone, its networks are cut off, and all of that is undone.

use super::{
    capacity,
    context::{Context, seed_check},
    effect::Effect,
    notes::Notes,
    observed::{Asked, SeedFacts, ShootLife, SubnetFacts, WorkerFacts},
    shown::ISOLATED,
    step::{IsolationSide, Step},
};
use crate::ledger::Check;

/// Evidence of a Shoot whose workers were taken away meanwhile.
const NO_WORKER: &str = "the Shoot has no Worker";

/// Whether the garden has let the isolation begin.
fn has_begun(context: &Context) -> bool {
    context.side(IsolationSide::Garden).is_some_and(|garden| garden.notes.begun)
}

/// Checks what the seed observes, where there is anything to do, and no migration has machines and networks in its hands.
fn unless_idle(context: &Context, check: impl Fn(&SeedFacts) -> Check) -> Check {
    if !has_begun(context) {
        return Check::Met("it has never begun".to_owned());
    }
    seed_check(context, |facts| match &facts.migration {
        Some(name) => Check::waiting("Migrating", format!("ControlPlaneMigration {name} has not ended")),
        None => check(facts),
    })
}

/// The same for a row of the failover. Where the isolation is called off, nothing more is done on the way to it.
fn unless_over(context: &Context, check: impl Fn(&SeedFacts) -> Check) -> Check {
    match context.is_settled(Step::IsolationEnds) {
        true => Check::Met("called off".to_owned()),
        false => unless_idle(context, check),
    }
}

/// What the seed observes, where it may change anything.
fn active<'a>(context: &'a Context) -> Option<&'a SeedFacts> {
    context.at_seed().filter(|facts| facts.migration.is_none() && has_begun(context))
}

/// The effects of a row of the failover.
fn on_the_way(context: &Context, effects: impl Fn(&SeedFacts) -> Vec<Effect>) -> Vec<Effect> {
    active(context).filter(|_| !context.is_settled(Step::IsolationEnds)).map(effects).unwrap_or_default()
}

/// The zone in the account of the Shoot, once it is known.
fn code(context: &Context) -> String {
    context.notes.zone_code.clone().unwrap_or_default()
}

fn zone(context: &Context) -> String {
    context.observed.request.zone.clone()
}

pub(super) fn is_zone_known(context: &Context) -> Check {
    let zone = &context.observed.request.zone;
    unless_over(context, |facts| match &facts.zone_code {
        Some(code) => Check::Met(format!("zone {zone} is {code} to the Shoot")),
        None => Check::waiting("ZoneUnknown", format!("nobody has told which zone of the Shoot {zone} is")),
    })
}

pub(super) fn note_zone(context: &Context, notes: &mut Notes) {
    notes.zone_code = context.at_seed().and_then(|facts| facts.zone_code.clone());
}

pub(super) fn has_capacity(context: &Context) -> Check {
    unless_over(context, |facts| {
        let problems = capacity::problems(&facts.pools, &code(context), &facts.free);
        match (facts.unsupported.as_slice(), problems.is_empty()) {
            ([], true) => Check::Met("other zones can take the machines".to_owned()),
            ([], false) => Check::waiting("NoCapacity", problems.join("; ")),
            (unsupported, _) => Check::waiting("NotSupported", unsupported.join("; ")),
        }
    })
}

pub(super) fn note_machines(context: &Context, notes: &mut Notes) {
    if let Some(facts) = context.at_seed() {
        notes.machines = capacity::machines(&facts.pools, &code(context));
    }
}

/// A zone without machines has no nodes, whether or not the API of the Shoot answers.
pub(super) fn are_cordoned(context: &Context) -> Check {
    unless_over(context, |facts| match (facts.open_nodes.as_deref(), facts.machines.as_slice()) {
        (Some([]), _) | (None, []) => Check::Met("no node of the zone takes new Pods".to_owned()),
        (Some(open), _) => Check::waiting("Cordoning", format!("nodes take Pods: {}", few(open))),
        (None, _) => Check::waiting("ApiAway", "the API of the Shoot does not answer"),
    })
}

pub(super) fn cordon(context: &Context) -> Vec<Effect> {
    on_the_way(context, |_| vec![Effect::Cordon { zone: code(context) }])
}

/// A row that is called off before it starts changes nothing.
pub(super) fn note_worker(context: &Context, notes: &mut Notes) {
    notes.worker_changed |= active(context).is_some() && !context.is_settled(Step::IsolationEnds);
}

pub(super) fn is_worker_updated(context: &Context) -> Check {
    let zone = &context.observed.request.zone;
    unless_over(context, |facts| {
        let Some(worker) = &facts.worker else { return Check::Met(NO_WORKER.to_owned()) };
        let is_asked = worker.left_out.as_ref() == Some(zone) && worker.asked == Some(Asked::LeaveZone);
        let missing = capacity::missing(&facts.pools, &code(context), &context.notes.machines);
        let other = worker.code.as_ref().filter(|told| **told != code(context));
        match (&worker.pending, is_asked) {
            (_, false) => Check::waiting("UpdatingWorker", "the Worker is being changed"),
            (Some(why), true) => Check::waiting("WorkerPending", why.clone()),
            (None, true) if let Some(told) = other => {
                let code = code(context);
                let message = format!(
                    "to the Worker zone {zone} is {told}, and not {code}; call it off, and correct the CloudProfile"
                );
                Check::waiting("ZoneDiffers", message)
            }
            (None, true) if !missing.is_empty() => {
                Check::waiting("OtherZonesGrow", format!("other zones have too few: {}", missing.join(", ")))
            }
            (None, true) => Check::Met("other zones have the machines of the zone".to_owned()),
        }
    })
}

pub(super) fn update_worker(context: &Context) -> Vec<Effect> {
    on_the_way(context, |_| vec![Effect::LeaveZone { zone: zone(context) }])
}

pub(super) fn are_machines_gone(context: &Context) -> Check {
    unless_over(context, |facts| match facts.machines.as_slice() {
        [] if leaves(context, facts) => Check::Met("no machine is in the zone".to_owned()),
        [] => Check::waiting("UpdatingWorker", "the Worker is being changed"),
        left => Check::waiting("Draining", drained(left, &facts.closed_budgets)),
    })
}

fn drained(machines: &[String], closed_budgets: &[String]) -> String {
    let machines = format!("machines are left: {}", few(machines));
    match closed_budgets {
        [] => machines,
        closed => format!("{machines}; PodDisruptionBudgets that let no Pod end: {}", few(closed)),
    }
}

/// Whether nothing makes new machines in the zone.
fn leaves(context: &Context, facts: &SeedFacts) -> bool {
    let zone = Some(&context.observed.request.zone);
    facts.worker.as_ref().is_none_or(|worker| worker.left_out.as_ref() == zone)
}

/// A node of a sick zone may never end its Pods.
pub(super) fn end_machines(context: &Context) -> Vec<Effect> {
    let is_late = |since| since > context.observed.request.drain_timeout;
    let is_late = context.since_start(Step::MachinesGone).is_some_and(is_late);
    on_the_way(context, |facts| {
        let machines = facts.machines.clone();
        // Somebody may have taken the zone back for a while, and other zones grow anew.
        let is_due = is_late && !machines.is_empty() && have_others_grown(context, facts);
        let force = is_due.then_some(Effect::ForceMachines { machines });
        stay_away(context, facts).into_iter().chain(force).collect()
    })
}

fn have_others_grown(context: &Context, facts: &SeedFacts) -> bool {
    let is_done = |worker: &WorkerFacts| worker.asked == Some(Asked::LeaveZone) && worker.pending.is_none();
    let missing = capacity::missing(&facts.pools, &code(context), &context.notes.machines);
    leaves(context, facts) && facts.worker.as_ref().is_none_or(is_done) && missing.is_empty()
}

/// Somebody may have changed the Worker, or uncordoned a node.
fn stay_away(context: &Context, facts: &SeedFacts) -> Vec<Effect> {
    let leave = (!leaves(context, facts)).then(|| Effect::LeaveZone { zone: zone(context) });
    let has_open = facts.open_nodes.as_ref().is_some_and(|open| !open.is_empty());
    let cordon = has_open.then(|| Effect::Cordon { zone: code(context) });
    leave.into_iter().chain(cordon).collect()
}

pub(super) fn is_subnet_isolated(context: &Context) -> Check {
    unless_over(context, |facts| match &facts.subnet {
        _ if !is_empty(context, facts) => Check::waiting("MachinesAgain", "machines are in the zone again"),
        SubnetFacts::Ready => Check::Met("the networks of the zone are cut off".to_owned()),
        SubnetFacts::Absent => Check::waiting("CreatingSubnetIsolation", "it is being created"),
        SubnetFacts::Pending(why) => Check::waiting("SubnetIsolationPending", why.clone()),
        SubnetFacts::Foreign(whose) => Check::waiting("OtherSubnetIsolation", format!("there is {whose}")),
        SubnetFacts::Deleting(why) => Check::waiting("SubnetIsolationDeleting", why.clone()),
    })
}

fn is_empty(context: &Context, facts: &SeedFacts) -> bool {
    facts.machines.is_empty() && leaves(context, facts)
}

/// Networks are never cut off under machines.
pub(super) fn isolate_subnet(context: &Context) -> Vec<Effect> {
    on_the_way(context, |facts| match is_empty(context, facts) {
        true => vec![Effect::IsolateSubnet { zone: zone(context) }],
        false => stay_away_from_machines(context, facts),
    })
}

/// The same where machines have come back although the Worker leaves the zone out: its controller is asked again.
fn stay_away_from_machines(context: &Context, facts: &SeedFacts) -> Vec<Effect> {
    let again = !facts.machines.is_empty() && facts.worker.is_some() && leaves(context, facts);
    let ask = again.then(|| Effect::LeaveZone { zone: zone(context) });
    let is_late = !facts.late_machines.is_empty() && have_others_grown(context, facts);
    let force = is_late.then(|| Effect::ForceMachines { machines: facts.late_machines.clone() });
    ask.into_iter().chain(force).chain(stay_away(context, facts)).collect()
}

pub(super) fn note_subnet(context: &Context, notes: &mut Notes) {
    if let Some(facts) = active(context).filter(|_| !context.is_settled(Step::IsolationEnds)) {
        notes.subnet_seed = Some(facts.seed.clone());
    }
}

pub(super) fn note_isolated(context: &Context, notes: &mut Notes) {
    notes.isolated = !context.is_settled(Step::IsolationEnds);
}

/// The autoscaler, or a person, may bring machines back, and a control plane that has moved has no SubnetIsolation.
pub(super) fn is_kept_empty(context: &Context) -> Check {
    unless_over(context, |facts| match (&facts.subnet, facts.open_nodes.as_deref()) {
        _ if !is_empty(context, facts) => {
            Check::waiting("MachinesAgain", format!("machines are there: {}", few(&facts.machines)))
        }
        (_, Some(open)) if !open.is_empty() => {
            Check::waiting("Cordoning", format!("nodes take Pods: {}", few(open)))
        }
        (SubnetFacts::Ready, _) => Check::waiting(ISOLATED, "the zone is isolated"),
        (_, _) => Check::waiting("SubnetIsolationPending", "the networks are being cut off again"),
    })
}

pub(super) fn keep_empty(context: &Context) -> Vec<Effect> {
    on_the_way(context, |facts| match is_empty(context, facts) && facts.subnet != SubnetFacts::Ready {
        true => vec![Effect::IsolateSubnet { zone: zone(context) }],
        false => stay_away_from_machines(context, facts),
    })
}

/// Whether the networks were cut off from another seed, which the control plane has left since: nothing is known of that here.
pub(super) fn was_isolated_elsewhere(context: &Context) -> bool {
    let other =
        |facts: &SeedFacts| context.notes.subnet_seed.as_ref().is_some_and(|seed| *seed != facts.seed);
    context.at_seed().is_some_and(other)
}

/// The provider finds what it has made by the Shoot, and undoes it when the SubnetIsolation goes.
pub(super) fn is_subnet_found(context: &Context) -> Check {
    unless_idle(context, |facts| match &facts.subnet {
        SubnetFacts::Absent if facts.worker.is_none() => Check::Met(NO_WORKER.to_owned()),
        SubnetFacts::Absent => Check::waiting("CreatingSubnetIsolation", "it is being created again"),
        _ => Check::Met("there is a SubnetIsolation to be deleted".to_owned()),
    })
}

pub(super) fn find_subnet(context: &Context) -> Vec<Effect> {
    active(context).map(|_| vec![Effect::IsolateSubnet { zone: zone(context) }]).unwrap_or_default()
}

pub(super) fn is_subnet_released(context: &Context) -> Check {
    unless_idle(context, released)
}

fn released(facts: &SeedFacts) -> Check {
    match &facts.subnet {
        SubnetFacts::Absent => Check::Met("the networks of the zone are as before".to_owned()),
        SubnetFacts::Foreign(whose) => Check::Met(format!("there is none but {whose}")),
        SubnetFacts::Deleting(why) => Check::waiting("ReleasingSubnet", why.clone()),
        SubnetFacts::Ready | SubnetFacts::Pending(_) => {
            Check::waiting("ReleasingSubnet", "the SubnetIsolation is being deleted")
        }
    }
}

/// Whether networks are cut off, or may be: also while the provider undoes that.
fn has_subnet(facts: &SeedFacts) -> bool {
    matches!(facts.subnet, SubnetFacts::Ready | SubnetFacts::Pending(_) | SubnetFacts::Deleting(_))
}

pub(super) fn release_subnet(context: &Context) -> Vec<Effect> {
    active(context).and_then(release).into_iter().collect()
}

/// What is being deleted is not asked for again.
fn release(facts: &SeedFacts) -> Option<Effect> {
    matches!(facts.subnet, SubnetFacts::Ready | SubnetFacts::Pending(_)).then_some(Effect::ReleaseSubnet)
}

/// Machines of a Shoot that is being deleted do not come back.
pub(super) fn is_shoot_kept(context: &Context) -> bool {
    context.observed.request.shoot == ShootLife::Kept
}

/// A SubnetIsolation that was requested before may arrive late, and no machine joins then.
pub(super) fn is_worker_restored(context: &Context) -> Check {
    let was_changed = context.notes.worker_changed;
    let zone = &context.observed.request.zone;
    unless_idle(context, |facts| {
        let Some(worker) = &facts.worker else { return Check::Met(NO_WORKER.to_owned()) };
        let is_used = worker.left_out.as_ref() != Some(zone);
        let is_asked = worker.left_out.is_none() && worker.asked == Some(Asked::UseZone);
        match (&worker.pending, is_asked) {
            _ if !is_shoot_kept(context) => Check::Met("the Shoot is being deleted".to_owned()),
            _ if has_subnet(facts) => released(facts),
            _ if !was_changed && is_used => Check::Met("the Worker was not changed".to_owned()),
            (_, false) => Check::waiting("UpdatingWorker", "the Worker is being changed"),
            (Some(why), true) => Check::waiting("WorkerPending", why.clone()),
            (None, true) => Check::Met("the Worker uses all zones".to_owned()),
        }
    })
}

pub(super) fn restore_worker(context: &Context) -> Vec<Effect> {
    let effect = |facts| if has_subnet(facts) { release(facts) } else { Some(Effect::UseZone) };
    active(context).and_then(effect).into_iter().collect()
}

pub(super) fn are_uncordoned(context: &Context) -> Check {
    unless_idle(context, |facts| match facts.own_cordoned.as_deref() {
        _ if !is_shoot_kept(context) => Check::Met("the Shoot is being deleted".to_owned()),
        Some([]) => Check::Met("nodes take Pods as before".to_owned()),
        Some(left) => Check::waiting("Uncordoning", format!("nodes are cordoned: {}", few(left))),
        None => Check::waiting("ApiAway", "the API of the Shoot does not answer"),
    })
}

pub(super) fn uncordon(context: &Context) -> Vec<Effect> {
    active(context).map(|_| vec![Effect::Uncordon]).unwrap_or_default()
}

/// What was requested before the end may arrive after it. Where the zone is isolated again, another one undoes it.
pub(super) fn left_over(context: &Context) -> Vec<Effect> {
    let Some(facts) = active(context).filter(|facts| !facts.is_followed) else { return Vec::new() };
    let is_kept = is_shoot_kept(context);
    let left_out = facts.worker.as_ref().and_then(|worker| worker.left_out.as_ref());
    let is_left_out = left_out == Some(&context.observed.request.zone);
    let has_cordoned = facts.own_cordoned.as_ref().is_some_and(|own| !own.is_empty());
    let subnet = release(facts);
    let worker = (is_kept && is_left_out && !has_subnet(facts)).then_some(Effect::UseZone);
    let uncordon = (is_kept && has_cordoned).then_some(Effect::Uncordon);
    subnet.into_iter().chain(worker).chain(uncordon).collect()
}

/// A few of these names: a zone may have a thousand nodes.
fn few(names: &[String]) -> String {
    const FEW: usize = 5;
    let more = names.len().saturating_sub(FEW);
    let mut text = names.iter().take(FEW).cloned().collect::<Vec<_>>().join(", ");
    if more > 0 {
        text = format!("{text}, and {more} more");
    }
    text
}
