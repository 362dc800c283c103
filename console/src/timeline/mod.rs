//! The steps of a migration as bars over time: one scale for text and SVG.

mod scale;
mod svg;
mod text;

use jiff::Timestamp;

use crate::{
    migration::{Migration, SidePart, StepRecord},
    progress::title,
    table::Table,
};

pub use svg::{svg, svg_of};
pub use text::{Charset, text, text_of};

/// A bar: a step, or the outage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bar<'a> {
    /// What it is of.
    pub name: &'a str,
    /// State of the step; empty for the outage.
    pub state: &'a str,
    /// When it begins.
    pub from: Timestamp,
    /// When it ends; `None` while it runs.
    pub to: Option<Timestamp>,
}

/// The bars of one side, those that begin first before the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane<'a> {
    /// `garden`, `source` or `destination`.
    pub side: &'a str,
    /// Its steps.
    pub bars: Vec<Bar<'a>>,
}

/// Which steps are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Without steps that did not apply.
    Applied,
    /// All that are recorded with a start.
    All,
}

/// What is drawn: of a migration, or of another flow whose sides record their steps in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chart<'a> {
    /// One line about the flow.
    pub title: String,
    /// The bars of each side.
    pub lanes: Vec<Lane<'a>>,
    /// The outage; `None` where there was none.
    pub outage: Option<Bar<'a>>,
}

impl<'a> Chart<'a> {
    /// That of a migration.
    #[must_use]
    pub fn of(migration: &'a Migration, detail: Detail, now: Timestamp) -> Self {
        Self {
            title: title(migration, now),
            lanes: lanes(&migration.sides, detail, turned_back(migration)),
            outage: outage(migration),
        }
    }

    fn bars(&self) -> impl Iterator<Item = &Bar<'a>> {
        self.lanes.iter().flat_map(|lane| &lane.bars).chain(&self.outage)
    }
}

/// When a migration began to go back: what ran then was not brought to its end. `None` where it does not go back.
fn turned_back(migration: &Migration) -> Option<Timestamp> {
    let table = Table::by(migration)?;
    let back = migration.steps().filter(|(_, step)| table.is_rollback(&step.name));
    back.filter_map(|(_, step)| step.started).min()
}

/// The lanes of all sides that have bars. Steps that were not brought to their end do so at `turned_back`.
#[must_use]
pub fn lanes(sides: &[SidePart], detail: Detail, turned_back: Option<Timestamp>) -> Vec<Lane<'_>> {
    let is_shown = |step: &&StepRecord| {
        let did_nothing = step.state == "Skipped" && step.seconds().unwrap_or_default() == 0;
        detail == Detail::All || !did_nothing
    };
    let mut lanes = Vec::new();
    for side in sides {
        let mut bars: Vec<Bar<'_>> =
            side.steps.iter().filter(is_shown).filter_map(|step| Bar::of_step(step, turned_back)).collect();
        bars.sort_by_key(|bar| bar.from);
        if !bars.is_empty() {
            lanes.push(Lane { side: side.name, bars });
        }
    }
    lanes
}

/// The outage as a bar; `None` where there was none.
#[must_use]
pub fn outage(migration: &Migration) -> Option<Bar<'_>> {
    let outage = migration.api_outage.as_ref()?;
    Some(Bar { name: "API outage", state: "", from: outage.from, to: outage.to })
}

impl<'a> Bar<'a> {
    fn of_step(step: &'a StepRecord, turned_back: Option<Timestamp>) -> Option<Self> {
        let from = step.started?;
        let is_left = step.state == "RolledBack" && step.completed.is_none();
        let ended = step.completed.or(turned_back.filter(|_| is_left));
        let to = ended.filter(|to| *to >= from).or((!step.is_running()).then_some(from));
        Some(Self { name: &step.name, state: &step.state, from, to })
    }

    /// How long it is, in seconds, at this time.
    #[must_use]
    pub fn seconds(&self, now: Timestamp) -> i64 {
        self.to.unwrap_or(now).duration_since(self.from).as_secs().max(0)
    }
}
