//! Faults of tables and controllers with two sides.

use super::{
    clusters::Clusters,
    flow::{Mode, Move, Step, not_yet},
};
use crate::{
    flow::{OnFailure, Plan, Plans, Row},
    ledger::Check,
    tests::sim::{Build, Fault},
};

fn plan(build: &mut Build<Clusters>, change: impl Fn(&mut Plan<Move>)) {
    let mut plan = *build.plans.newest();
    change(&mut plan);
    let plan: &'static Plan<Move> = Box::leak(Box::new(plan));
    build.plans = Box::leak(Box::new(Plans { versions: Box::leak(Box::new([plan])) }));
}

fn changed(rows: &[Row<Move>], step: Step, change: impl Fn(&mut Row<Move>)) -> &'static [Row<Move>] {
    let mut rows = rows.to_vec();
    rows.iter_mut().filter(|row| row.step == step).for_each(change);
    rows.leak()
}

fn row(build: &mut Build<Clusters>, step: Step, change: impl Fn(&mut Row<Move>)) {
    plan(build, |plan| {
        plan.forward = changed(plan.forward, step, &change);
        plan.rollback = changed(plan.rollback, step, &change);
    });
}

/// All of them.
pub(super) const FAULTS: &[Fault<Clusters>] = &[
    Fault {
        name: "serves before the lease of a dead source has expired",
        setup: Mode::Forced,
        build: |b| row(b, Step::LeaseExpired, |row| row.check = |_| Check::Met("supposed".into())),
        caught: &["two sides could be written"],
    },
    Fault {
        name: "exports while there are writers",
        setup: Mode::Planned,
        build: |b| {
            row(b, Step::WriterStopped, |row| {
                row.check = |context| not_yet(context.observed.writers.0 == 0, "WritersEnding");
            });
        },
        caught: &["serves a copy that is not whole", "served without", "two sides could be written"],
    },
    Fault {
        name: "does not wait for the evidence of the other side",
        setup: Mode::Planned,
        build: |b| {
            row(b, Step::OwnerMoved, |row| row.after = &[]);
            row(b, Step::Imported, |row| {
                row.after = &[];
                row.check = |context| not_yet(context.observed.copied.is_some(), "Importing");
            });
        },
        caught: &["serves a copy that is not whole", "two sides could be written", "served without"],
    },
    Fault {
        name: "serves before it has imported",
        setup: Mode::Planned,
        build: |b| row(b, Step::Serving, |row| row.after = &[Step::LeaseExpired]),
        caught: &["serves a copy that is not whole", "failed although there was a way"],
    },
    Fault {
        name: "deletes the source at once",
        setup: Mode::Planned,
        build: |b| row(b, Step::SourceReleased, |row| row.after = &[Step::Exported]),
        caught: &["deletes the source before the destination serves"],
    },
    Fault {
        name: "rolls back after the destination has served",
        setup: Mode::Planned,
        build: |b| {
            row(b, Step::Serving, |row| row.on_failure = OnFailure::RollBack);
            plan(b, |plan| plan.point_of_no_return = None);
        },
        caught: &[
            "rolled back, and serves",
            "two sides could be written",
            "served without",
            "rolled back without all writes",
            "one side succeeds and another one rolls back",
            "failed although there was a way",
        ],
    },
    Fault {
        name: "starts the writers without a fence",
        setup: Mode::Planned,
        build: |b| {
            row(b, Step::WriterStarted, |row| {
                row.check = |context| {
                    let wanted = context.observed.writers.0;
                    not_yet(context.notes.writers.is_none_or(|count| count == wanted), "WritersStopped")
                };
            });
        },
        caught: &["rolled back without writers"],
    },
    Fault {
        name: "stores records whatever others have stored",
        setup: Mode::Planned,
        build: |b| b.versioned = false,
        caught: &[
            "rolls back past the point of no return",
            "one side succeeds and another",
            "a record was lost",
        ],
    },
    Fault {
        name: "acts whatever has become of what it saw",
        setup: Mode::Planned,
        build: |b| b.guarded = false,
        caught: &[
            "rolled back without writers",
            "rolled back, and the record",
            "two sides",
            "served without",
            "serves a copy",
        ],
    },
    Fault {
        name: "acts before it has recorded",
        setup: Mode::Planned,
        build: |b| b.records_first = false,
        caught: &["acts before it has recorded"],
    },
    Fault {
        name: "waits for a dead side without end",
        setup: Mode::Planned,
        build: |b| {
            plan(b, |plan| {
                plan.side_limit = std::time::Duration::MAX;
                plan.committed_side_limit = std::time::Duration::MAX;
            });
        },
        caught: &["stuck"],
    },
    Fault {
        name: "goes on by another table than the one that it was started by",
        setup: Mode::Planned,
        build: |b| {
            static CHANGED: Plan<Move> = Plan {
                needs_rollback: |notes| notes.exported.is_some(),
                point_of_no_return: Some(Step::Exported),
                ..super::flow::MOVE_2
            };
            static RELABELLED: Plan<Move> = Plan { version: 1, ..CHANGED };
            static ONLY: Plans<Move> = Plans { versions: &[&RELABELLED] };
            b.upgrade = Some(&ONLY);
        },
        caught: &[
            "rolls back past",
            "rolled back without writers",
            "rolled back, and",
            "serves a copy",
            "one side",
            "failed although there was a way",
        ],
    },
];
