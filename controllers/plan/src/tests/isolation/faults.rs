//! Faults of the table, which the schedules have to find.

use super::world::{World, ZONE};
use crate::{
    flow::{Plan, Plans, Row, StepContext},
    isolation::{PLANS, Step, ZoneIsolationFlow, effect::Effect, observed::Facts},
    ledger::Check,
    tests::sim::{Build, Fault},
};

fn row(build: &mut Build<World>, step: Step, change: impl Fn(&mut Row<ZoneIsolationFlow>)) {
    let mut plan: Plan<ZoneIsolationFlow> = *build.plans.newest();
    let mut rows = plan.forward.to_vec();
    rows.iter_mut().filter(|row| row.step == step).for_each(change);
    plan.forward = rows.leak();
    let plan: &'static Plan<ZoneIsolationFlow> = Box::leak(Box::new(plan));
    build.plans = Box::leak(Box::new(Plans { versions: Box::leak(Box::new([plan])) }));
}

const fn fault(
    name: &'static str,
    build: fn(&mut Build<World>),
    caught: &'static [&'static str],
) -> Fault<World> {
    Fault { name, setup: (), build, caught }
}

/// Forces machines after their time, whatever other zones have.
fn force_late(context: &StepContext<'_, ZoneIsolationFlow>) -> Vec<Effect> {
    let Facts::Seed(facts) = &context.observed.facts else { return Vec::new() };
    let since = context.since_start(Step::MachinesGone);
    let is_late = since.is_some_and(|since| since > context.observed.request.drain_timeout);
    let machines = facts.machines.clone();
    (is_late && !machines.is_empty()).then_some(Effect::ForceMachines { machines }).into_iter().collect()
}

/// Cuts networks off again, and forces nothing.
fn keep_empty_patiently(context: &StepContext<'_, ZoneIsolationFlow>) -> Vec<Effect> {
    let row = PLANS.newest().forward.iter().find(|row| row.step == Step::ZoneKeptEmpty);
    let effects = row.map(|row| (row.effects)(context)).unwrap_or_default();
    effects.into_iter().filter(|effect| !matches!(effect, Effect::ForceMachines { .. })).collect()
}

/// All of them.
pub(super) const FAULTS: &[Fault<World>] = &[
    fault(
        "does not ask for capacity",
        |b| row(b, Step::CapacitySuffices, |row| row.check = |_| Check::Met("supposed".into())),
        &["without room"],
    ),
    fault(
        "drains a machine that comes back for ever",
        |b| row(b, Step::ZoneKeptEmpty, |row| row.effects = keep_empty_patiently),
        &["drains machines for ever"],
    ),
    fault(
        "uses the zone before its networks are released",
        |b| {
            row(b, Step::WorkerRestored, |row| {
                row.after = &[Step::IsolationEnds, Step::ZoneKeptEmpty];
                row.effects = |_| vec![Effect::UseZone];
            });
        },
        &["whose networks are cut off"],
    ),
    fault(
        "isolates networks at once",
        |b| {
            row(b, Step::SubnetIsolated, |row| {
                row.after = &[Step::NodesCordoned];
                row.effects = |_| vec![Effect::IsolateSubnet { zone: ZONE.0.to_owned() }];
            });
        },
        &["isolates networks of machines", "isolates networks of a zone that is used"],
    ),
    fault(
        "ends machines before others have grown",
        |b| {
            row(b, Step::WorkerUpdated, |row| row.check = |_| Check::Met("supposed".into()));
            row(b, Step::MachinesGone, |row| row.effects = force_late);
        },
        &["machines end before others have grown"],
    ),
    fault(
        "leaves nodes cordoned",
        |b| row(b, Step::NodesUncordoned, |row| row.check = |_| Check::Met("supposed".into())),
        &["nodes are cordoned for ever", "gives the finalizer up while something is left"],
    ),
    fault(
        "forgets the annotation when the isolation expires",
        |b| row(b, Step::IsolationEnds, |row| row.effects = |_| Vec::new()),
        &["stuck", "the annotation is left"],
    ),
    fault(
        "gives machines no time to drain",
        |b| {
            row(b, Step::MachinesGone, |row| {
                row.effects = |_| vec![Effect::ForceMachines { machines: vec!["node-0".into()] }];
            });
        },
        &["deletes machines that are drained"],
    ),
    fault(
        "restores what it did not wait for",
        |b| row(b, Step::WorkerRestored, |row| row.check = |_| Check::Met("supposed".into())),
        &["the Worker leaves the zone out for ever", "machines are missing"],
    ),
    fault(
        "does not guard what it writes",
        |b| b.guarded = false,
        &[
            "the Worker leaves the zone out for ever",
            "nodes are cordoned",
            "used",
            "annotation",
            "cut off",
            "machines",
            "gives the finalizer up while something is left",
        ],
    ),
];
