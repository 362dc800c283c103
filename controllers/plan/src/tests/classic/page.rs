//! The page of faults: each row of the tables times each fault, played in simulated clusters.

use std::fmt::Write as _;

use super::{
    clusters::{Clusters, Kind, Setup},
    golden,
    script::{RowFault, Script},
};
use crate::{
    classic::{ClassicMigration, PLAN, PLANS, Side, Step},
    flow::Row,
    ledger::Phase,
    named::Named,
    tests::sim::{Build, Sim, play},
};

const PAGE: &str = "docs/reference/classic-migration-faults.md";

/// Each fault with the head of its column, and what it is.
const COLUMNS: &[(RowFault, &str, &str)] = &[
    (RowFault::Refused, "refused 5 min", "what the step requests is refused for five minutes"),
    (RowFault::AlwaysRefused, "refused always", "what the step requests is refused without end"),
    (RowFault::Lost, "lost", "the first requests are lost, and the controller believes that they were done"),
    (RowFault::Late, "late", "the requests of the first minute arrive ten minutes later"),
    (RowFault::Repeated, "repeated", "each request arrives at once, after ten minutes, and after two hours"),
    (RowFault::KilledBeforeRecord, "killed 1", "the controller is killed before it records that the step starts"),
    (RowFault::KilledBeforeEffect, "killed 2", "it is killed between that record and the first request"),
    (RowFault::KilledAfterEffect, "killed 3", "it is killed after the first request"),
    (RowFault::OwnApiAway, "API away", "the kube-apiserver of the step's side does not answer for a minute"),
    (RowFault::GardenApiAway, "garden away", "the kube-apiserver of the garden does not answer for a minute"),
    (RowFault::SourceCut, "source cut", "the source has no link to the garden for 15 minutes"),
    (RowFault::DestinationCut, "destination cut", "the destination has no link to the garden for 15 minutes"),
    (RowFault::ZoneCut, "zone cut", "no server of the DNS zone answers, or takes writes, for 15 minutes"),
    (RowFault::BucketCut, "bucket cut", "the destination has no link to the bucket of the source for 15 minutes"),
    (RowFault::Aborted, "aborted", "`spec.abort` is set when the step starts"),
];

/// How a row with a fault ends.
struct Outcome {
    /// `None` where the fault did not come about: the step requests nothing, or was reached at once.
    phase: Option<Phase>,
    reason: String,
    message: String,
}

fn kind_of(step: Step) -> Kind {
    match step {
        Step::SourceEtcdAwake | Step::SourceEtcdAsleep => Kind::Hibernated,
        _ => Kind::Awake,
    }
}

/// Plays a fault in a row. All that holds of every schedule is checked.
fn outcome(step: Step, fault: RowFault) -> Result<Outcome, String> {
    let setup = Setup { kind: kind_of(step), script: Some(Script { step, fault }) };
    let sim: Sim<Clusters> = play(Build::new(setup, &PLANS), 7).map_err(|why| format!("{} {fault:?}: {why}", step.name()))?;
    let script = sim.model.play.as_ref().expect("a script");
    if script.begun.is_none() {
        return Err(format!("{} is never started", step.name()));
    }
    let ledgers = || Side::ALL.iter().map(|side| sim.store.ledger(*side));
    let failed = ledgers().filter(|ledger| ledger.phase == Phase::Failed);
    // The side that has failed first; others say that it has.
    let failed = failed.min_by_key(|ledger| (ledger.reason == "OtherSideFailed", ledger.completed));
    let ledger = failed.unwrap_or(sim.store.ledger(Side::Garden));
    let phase = script.struck.map(|_| ledger.phase);
    Ok(Outcome { phase, reason: ledger.reason.clone(), message: ledger.message.clone() })
}

fn word(phase: Option<Phase>) -> &'static str {
    match phase {
        None => "–",
        Some(Phase::Succeeded) => "Succeeded",
        Some(Phase::RolledBack) => "RolledBack",
        Some(Phase::Cancelled) => "Cancelled",
        Some(Phase::Failed) => "**Failed**",
        Some(Phase::Pending | Phase::Scheduled | Phase::Running | Phase::RollingBack) => "never ends",
    }
}

/// The ends of all faults of a table, row by row; on two threads.
fn play_all(rows: &[Row<ClassicMigration>]) -> Result<Vec<Vec<Outcome>>, String> {
    let of_row = |row: &Row<ClassicMigration>| {
        COLUMNS.iter().map(|(fault, ..)| outcome(row.step, *fault)).collect::<Result<Vec<_>, _>>()
    };
    let half = |first: usize| rows.iter().skip(first).step_by(2).map(of_row).collect::<Result<Vec<_>, _>>();
    let [even, odd] = std::thread::scope(|scope| {
        let half = &half;
        let threads = [0, 1].map(|first| scope.spawn(move || half(first)));
        threads.map(|thread| thread.join().unwrap_or_else(|why| std::panic::resume_unwind(why)))
    });
    let (mut even, mut odd) = (even?.into_iter(), odd?.into_iter());
    Ok((0..rows.len()).filter_map(|at| if at % 2 == 0 { even.next() } else { odd.next() }).collect())
}

/// One row of the page for each row of a table, and what a person has to do where it fails.
fn table(text: &mut String, rows: &[Row<ClassicMigration>], failed: &mut String) -> Result<(), String> {
    text.push_str("| step | side |");
    COLUMNS.iter().for_each(|(_, head, _)| text.extend([" ", head, " |"]));
    text.push_str("\n|---|---|");
    text.push_str(&"---|".repeat(COLUMNS.len()));
    for (row, ends) in rows.iter().zip(play_all(rows)?) {
        let _ = write!(text, "\n| `{}` | {} |", row.step.name(), row.side.name());
        for (end, (_, head, _)) in ends.iter().zip(COLUMNS) {
            let _ = write!(text, " {} |", word(end.phase));
            if end.phase == Some(Phase::Failed) {
                let _ = writeln!(failed, "| `{}` | {head} | `{}` | {} |", row.step.name(), end.reason, end.message);
            }
        }
    }
    text.push('\n');
    Ok(())
}

fn page() -> Result<String, String> {
    let (mut text, mut failed) = (String::new(), String::new());
    table(&mut text, PLAN.forward, &mut failed)?;
    table(&mut text, PLAN.rollback, &mut failed)?;
    text.push_str(&failed);
    Ok(text)
}

#[test]
fn every_row_with_every_fault_ends_as_the_page_says() {
    golden::is_up_to_date(PAGE, &page().unwrap_or_else(|why| panic!("{why}")));
}
