//! The rows of each mode, without the types of their flow.

use repot_plan::{
    classic,
    flow::{Flow, OnFailure, Plan, Row},
    forced, gardenlet, live,
    named::Named,
    render,
};
use serde::Serialize;

use crate::migration::{Executor, Migration, Mode};

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TableRow {
    /// The step that it reaches.
    pub step: &'static str,
    /// `garden`, `source` or `destination`.
    pub side: &'static str,
    /// Steps that have to be reached before.
    pub after: Vec<&'static str>,
    /// What is done and waited for.
    pub does: &'static str,
    /// What a person can do while it is waited for.
    pub advice: &'static str,
    /// How long it is waited for, in words.
    pub waits: String,
    /// What follows when it is not reached: `rollback`, `Failed` or `skipped`.
    pub on_failure: &'static str,
}

/// The tables of a mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Table {
    /// Rows that bring the control plane to its destination, each behind those that it waits for.
    pub forward: Vec<TableRow>,
    /// Rows that bring it back.
    pub rollback: Vec<TableRow>,
    /// From this step on nothing rolls back.
    pub point_of_no_return: &'static str,
    /// The steps between which clients cannot reach the API: it begins with the first and ends with the second one. `None` where it is
    /// never away.
    pub outage: Option<(&'static str, &'static str)>,
}

impl Table {
    /// The newest tables by which such a migration goes; `None` where there is no such flow.
    #[must_use]
    pub fn of(mode: Mode, executor: Executor) -> Option<Self> {
        match (executor, mode) {
            (Executor::Repot, Mode::Classic) => {
                Some(table(&classic::PLAN, Some(("SourceApiStopped", "ApiDnsSwitched"))))
            }
            (Executor::Repot, Mode::Forced) => {
                Some(table(&forced::PLAN, Some(("OwnerRecordTaken", "ApiDnsSwitched"))))
            }
            (Executor::Repot, Mode::Live) => Some(table(&live::PLAN, None)),
            (Executor::Gardenlet, Mode::Classic) => Some(table(&gardenlet::CLASSIC_PLAN, None)),
            (Executor::Gardenlet, Mode::Forced) => Some(table(&gardenlet::PLAN, None)),
            (Executor::Gardenlet, Mode::Live) => None,
        }
    }

    /// The tables by which this migration goes. Where the source of a live one was given up, members leave before the destination serves.
    #[must_use]
    pub fn by(migration: &Migration) -> Option<Self> {
        match (migration.mode, migration.executor) {
            (Mode::Live, Executor::Repot) if migration.shrunk => Some(table(&live::SHRUNK_PLAN, None)),
            (mode, executor) => Self::of(mode, executor),
        }
    }

    /// The row that reaches a step, of either table.
    #[must_use]
    pub fn row(&self, step: &str) -> Option<&TableRow> {
        self.forward.iter().chain(&self.rollback).find(|row| row.step == step)
    }

    /// What a controller says of a step, without what a person can do where it takes long: controllers add that from the beginning.
    #[must_use]
    pub fn without_advice<'a>(&self, step: &str, message: &'a str) -> &'a str {
        let advice = self.row(step).map(|row| row.advice).filter(|advice| !advice.is_empty());
        let plain = advice.and_then(|advice| message.strip_suffix(advice)?.strip_suffix("; "));
        plain.unwrap_or(message)
    }

    /// Whether a step stands in the rollback table.
    #[must_use]
    pub fn is_rollback(&self, step: &str) -> bool {
        self.rollback.iter().any(|row| row.step == step)
    }
}

fn table<F: Flow>(plan: &Plan<F>, outage: Option<(&'static str, &'static str)>) -> Table {
    Table {
        forward: plan.forward.iter().map(row).collect(),
        rollback: plan.rollback.iter().map(row).collect(),
        point_of_no_return: plan.point_of_no_return.map_or("", Named::name),
        outage,
    }
}

fn row<F: Flow>(row: &Row<F>) -> TableRow {
    TableRow {
        step: row.step.name(),
        side: row.side.name(),
        after: row.after.iter().map(|step| step.name()).collect(),
        does: row.does,
        advice: row.advice,
        waits: render::timeout(row.timeout),
        on_failure: match row.on_failure {
            OnFailure::RollBack => "rollback",
            OnFailure::Fail => "Failed",
            OnFailure::Skip => "skipped",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_has_the_steps_that_it_names() {
        let flows = [
            (Mode::Classic, Executor::Repot),
            (Mode::Forced, Executor::Repot),
            (Mode::Live, Executor::Repot),
            (Mode::Classic, Executor::Gardenlet),
            (Mode::Forced, Executor::Gardenlet),
        ];
        for (mode, executor) in flows {
            let table = Table::of(mode, executor).expect("a table");
            let named = table.outage.into_iter().flat_map(|(from, to)| [from, to]);
            for step in named.chain([table.point_of_no_return]) {
                assert!(table.row(step).is_some_and(|row| !table.is_rollback(row.step)), "{mode:?} {step}");
            }
            for row in &table.forward {
                assert!(row.after.iter().all(|step| table.row(step).is_some()), "{row:?}");
            }
        }
        assert_eq!(Table::of(Mode::Live, Executor::Gardenlet), None);
    }
}
