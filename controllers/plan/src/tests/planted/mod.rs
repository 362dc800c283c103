//! Faults planted on purpose: each is a wrong table or a wrong controller, and the simulated worlds catch every one of them.

mod deletion;
mod faults;

use super::sim::{Build, Kind, run};
use crate::{
    etcd::{EtcdFlow, migration},
    flow::{self, Plan},
    ledger::Check,
};

type Row = flow::Row<EtcdFlow>;
type Table = Vec<Row>;

/// As many worlds as a fault may hide in.
const WORLDS: u64 = 8_000;

struct Fault {
    name: &'static str,
    kind: Kind,
    build: fn(&mut Build),
    /// What the simulation says of it.
    caught: &'static [&'static str],
}

/// What the sound table checks.
fn sound(step: &str, scene: &flow::Scene<EtcdFlow>) -> Check {
    let rows = migration::PLAN.forward.iter().chain(migration::PLAN.back);
    (rows.clone().find(|row| row.step == step).expect("a step").check)(scene)
}

fn at(rows: &Table, step: &str) -> usize {
    rows.iter().position(|row| row.step == step).expect("a step")
}

/// The plan with other tables.
fn tables(build: &mut Build, change: fn(&mut Table, &mut Table)) {
    let plan = build.plan;
    let (mut forward, mut back) = (plan.forward.to_vec(), plan.back.to_vec());
    change(&mut forward, &mut back);
    build.plan = Box::leak(Box::new(Plan { forward: forward.leak(), back: back.leak(), ..*plan }));
}

/// The plan with another row on the way forward.
fn row(build: &mut Build, step: &'static str, change: impl Fn(&mut Row)) {
    let mut forward = build.plan.forward.to_vec();
    let at = at(&forward, step);
    change(&mut forward[at]);
    build.plan = Box::leak(Box::new(Plan { forward: forward.leak(), ..*build.plan }));
}

/// The plan with another row on the way back.
fn back_row(build: &mut Build, step: &'static str, change: impl Fn(&mut Row)) {
    let mut back = build.plan.back.to_vec();
    let at = at(&back, step);
    change(&mut back[at]);
    build.plan = Box::leak(Box::new(Plan { back: back.leak(), ..*build.plan }));
}

#[test]
fn the_worlds_catch_every_planted_fault() {
    let mut missed = Vec::new();
    for fault in faults::FAULTS.iter().chain(deletion::FAULTS) {
        let mut build = Build::of(fault.kind);
        (fault.build)(&mut build);
        match (0..WORLDS).find_map(|seed| run(build, seed).err()) {
            None => missed.push(format!("{}: not caught in {WORLDS} worlds", fault.name)),
            Some(why) => {
                let first = why.lines().next().unwrap_or_default();
                println!("{}: {first}", fault.name);
                if !fault.caught.iter().any(|rule| first.contains(rule)) {
                    missed.push(format!("{}: caught as {first}", fault.name));
                }
            }
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
