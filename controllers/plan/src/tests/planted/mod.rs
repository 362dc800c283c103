//! Faults planted on purpose: each is a wrong table or a wrong controller, and the simulated schedules find every one of them.

mod deletion;
mod faults;

use super::{
    cluster::{Truth, sound as sound_build},
    sim::{Build, missed},
};
use crate::{
    etcd::{EtcdFlow, Step, migration},
    flow::{self, Plan, Plans, StepContext},
    ledger::Check,
};

type Row = flow::Row<EtcdFlow>;
type Table = Vec<Row>;
type Etcds = Build<Truth>;

/// As many schedules as a fault may hide in.
const SCHEDULES: u64 = 8_000;

/// What the sound table checks.
fn sound(step: Step, context: &StepContext<'_, EtcdFlow>) -> Check {
    let rows = migration::PLAN.forward.iter().chain(migration::PLAN.rollback);
    (rows.clone().find(|row| row.step == step).expect("a step").check)(context)
}

fn at(rows: &Table, step: Step) -> usize {
    rows.iter().position(|row| row.step == step).expect("a step")
}

/// Another plan.
fn plan(build: &mut Etcds, change: impl Fn(&mut Plan<EtcdFlow>)) {
    let mut plan = *build.plans.newest();
    change(&mut plan);
    let plan: &'static Plan<EtcdFlow> = Box::leak(Box::new(plan));
    build.plans = Box::leak(Box::new(Plans { versions: Box::leak(Box::new([plan])) }));
}

/// Each row waits for the one that stands before it.
fn in_line(mut rows: Table) -> &'static [Row] {
    for at in 0..rows.len() {
        rows[at].after = if at == 0 { &[] } else { vec![rows[at - 1].step].leak() };
    }
    rows.leak()
}

/// The plan with other tables.
fn tables(build: &mut Etcds, change: fn(&mut Table, &mut Table)) {
    plan(build, |plan| {
        let (mut forward, mut rollback) = (plan.forward.to_vec(), plan.rollback.to_vec());
        change(&mut forward, &mut rollback);
        (plan.forward, plan.rollback) = (in_line(forward), in_line(rollback));
    });
}

/// The plan with another row in the forward table.
fn row(build: &mut Etcds, step: Step, change: impl Fn(&mut Row)) {
    plan(build, |plan| {
        let mut forward = plan.forward.to_vec();
        let at = at(&forward, step);
        change(&mut forward[at]);
        plan.forward = forward.leak();
    });
}

/// The plan with another row in the rollback table.
fn back_row(build: &mut Etcds, step: Step, change: impl Fn(&mut Row)) {
    plan(build, |plan| {
        let mut rollback = plan.rollback.to_vec();
        let at = at(&rollback, step);
        change(&mut rollback[at]);
        plan.rollback = rollback.leak();
    });
}

#[test]
fn schedules_find_every_planted_fault() {
    let missed = missed(faults::FAULTS.iter().chain(deletion::FAULTS), sound_build, SCHEDULES);
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
