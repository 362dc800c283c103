//! Faults that a rehearsal brings about, each when one step begins.

use std::fmt::Write as _;

use repot_console::migration::{Executor, Mode};
use repot_console::table::Table;
use repot_plan::flow::Row as PlanRow;
use repot_plan::isolation;
use repot_plan::named::Named as _;
use repot_tests::landscape::world::SEEDS;

use crate::arguments::Flow;

/// What is asked for by `--fault`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultRequest {
    /// The steps, and what can go wrong in each.
    List,
    /// A step, and the word for what goes wrong.
    Of {
        /// Name of the step.
        step: String,
        /// Name of the kind.
        kind: String,
    },
}

/// A fault that this machine can bring about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The step in which it begins.
    pub step: &'static str,
    /// Steps that the step waits for.
    pub after: Vec<&'static str>,
    /// The word for it.
    pub kind: Kind,
    /// What is done to bring it about.
    pub means: Means,
}

/// The words for faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Controllers are killed and start again.
    Kill,
    /// A seed stands still for a while.
    StopSeed,
    /// The seeds do not reach each other for a while.
    Link,
    /// The step is kept from being reached until the flow gives it up.
    Never,
}

/// What is done to the landscape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// The controllers of the garden are killed.
    KillControllersOfGarden,
    /// The controllers of a seed are killed.
    KillControllersOfSeed(&'static str),
    /// kube-apiserver of a seed and all Pods of the Shoot in it stand still.
    StopSeed(&'static str),
    /// Nothing that seeds say to each other arrives.
    CutLink,
    /// The provider of a seed is stopped, which acts on extension resources.
    StopProvider(&'static str),
    /// The Pods of the destination get no answers from the bucket of the source.
    CutBucket,
}

/// A step of a flow.
struct Row {
    step: &'static str,
    side: &'static str,
    after: Vec<&'static str>,
}

impl FaultRequest {
    /// Reads a fault from `STEP=KIND`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "list" {
            return Ok(Self::List);
        }
        match text.split_once('=') {
            Some((step, kind)) if !step.is_empty() && !kind.is_empty() => {
                Ok(Self::Of { step: step.to_owned(), kind: kind.to_owned() })
            }
            _ => Err("it is not STEP=KIND, such as SourceApiStopped=kill".to_owned()),
        }
    }
}

impl Kind {
    const ALL: [Self; 4] = [Self::Kill, Self::StopSeed, Self::Link, Self::Never];

    /// The word as it is asked for.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::StopSeed => "stop-seed",
            Self::Link => "link",
            Self::Never => "never",
        }
    }
}

impl Fault {
    /// The fault of these words.
    ///
    /// Errors: where there is no such step or kind, or the kind does not exist in the step; with what there is.
    pub fn find(flow: Flow, step: &str, kind: &str) -> Result<Self, String> {
        let name = flow.name();
        let Some(row) = rows(flow).into_iter().find(|row| row.step == step) else {
            return Err(format!("there is no step {step} in {name}; there are\n{}", list(flow)));
        };
        let kinds = kinds(flow, &row);
        match kinds.iter().find(|(known, _)| known.name() == kind) {
            Some((kind, means)) => Ok(Self { step: row.step, after: row.after, kind: *kind, means: *means }),
            None => Err(format!("{kind} cannot go wrong in {step} of {name}; there are\n{}", list(flow))),
        }
    }

    /// The words, as they are asked for.
    pub fn name(&self) -> String {
        format!("{}={}", self.step, self.kind.name())
    }

    /// Whether it takes something away from clients, so that their requests may fail meanwhile.
    pub fn excuses_failures(&self) -> bool {
        matches!(self.kind, Kind::StopSeed | Kind::Link)
    }
}

impl Means {
    /// What is done, for people.
    pub fn describe(self) -> String {
        match self {
            Self::KillControllersOfGarden => "the controllers of the garden are killed".to_owned(),
            Self::KillControllersOfSeed(seed) => format!("the controllers of {seed} are killed"),
            Self::StopSeed(seed) => format!("kube-apiserver and all Pods of the Shoot stand still at {seed}"),
            Self::CutLink => "the seeds do not reach each other".to_owned(),
            Self::StopProvider(seed) => format!("the provider of {seed} is stopped"),
            Self::CutBucket => "the destination gets no answers from the bucket of the source".to_owned(),
        }
    }
}

/// Steps of a flow, each with what can go wrong in it; one a line.
pub fn list(flow: Flow) -> String {
    let mut text = String::new();
    for row in rows(flow) {
        let kinds: Vec<_> = kinds(flow, &row).into_iter().map(|(kind, _)| kind.name()).collect();
        // Writing to a String does not fail.
        let _ = writeln!(text, "  {:<26} {:<12} {}", row.step, row.side, kinds.join(", "));
    }
    text
}

fn rows(flow: Flow) -> Vec<Row> {
    let mode = match flow {
        Flow::Live => Mode::Live,
        Flow::Classic => Mode::Classic,
        Flow::Forced => Mode::Forced,
        Flow::Isolate => {
            let row = |row: &PlanRow<isolation::ZoneIsolationFlow>| Row {
                step: row.step.name(),
                side: row.side.name(),
                after: row.after.iter().map(|step| step.name()).collect(),
            };
            return isolation::PLAN.forward.iter().map(row).collect();
        }
    };
    let table = Table::of(mode, Executor::Repot).map(|table| table.forward).unwrap_or_default();
    table.into_iter().map(|row| Row { step: row.step, side: row.side, after: row.after }).collect()
}

/// What can go wrong in a step.
fn kinds(flow: Flow, row: &Row) -> Vec<(Kind, Means)> {
    let found = Kind::ALL.into_iter().filter_map(|kind| Some((kind, means(flow, row, kind)?)));
    found.collect()
}

fn means(flow: Flow, row: &Row, kind: Kind) -> Option<Means> {
    // A source that is left by force stands still already.
    let seed = match (flow, row.side) {
        (Flow::Forced, "source") | (_, "garden") => None,
        (_, "destination") => Some(SEEDS.1),
        _ => Some(SEEDS.0),
    };
    match kind {
        Kind::Kill if row.side == "garden" => Some(Means::KillControllersOfGarden),
        Kind::Kill => seed.map(Means::KillControllersOfSeed),
        Kind::StopSeed => seed.map(Means::StopSeed),
        Kind::Link => seed.filter(|_| flow == Flow::Live).map(|_| Means::CutLink),
        Kind::Never => never(flow, row.step),
    }
}

/// What keeps a step from being reached, and not those before it.
fn never(flow: Flow, step: &str) -> Option<Means> {
    match (flow, step) {
        (Flow::Classic, "SourceBucketReadable") => Some(Means::CutBucket),
        (Flow::Classic | Flow::Live, "ApiTtlLowered" | "DnsRecordsMigrated") => {
            Some(Means::StopProvider(SEEDS.0))
        }
        (Flow::Classic, "OwnerRecordTaken") | (Flow::Live, "ApiDnsSwitched") => {
            Some(Means::StopProvider(SEEDS.1))
        }
        (Flow::Live, "SixMemberETCDReady") => Some(Means::CutLink),
        (Flow::Isolate, "WorkerUpdated") => Some(Means::StopProvider(SEEDS.0)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOWS: [Flow; 4] = [Flow::Live, Flow::Classic, Flow::Forced, Flow::Isolate];

    #[test]
    fn step_and_kind_are_found_with_the_side_that_they_hit() {
        let found = |flow, step, kind| Fault::find(flow, step, kind).expect("a fault");
        let kill = found(Flow::Live, "ApiServes", "kill");
        assert_eq!(kill.means, Means::KillControllersOfSeed("seed-b"));
        assert_eq!(kill.name(), "ApiServes=kill");
        assert!(kill.after.contains(&"SixMemberETCDReady"), "{kill:?}");
        let stop = found(Flow::Classic, "SourceServes", "stop-seed");
        assert_eq!(stop.means, Means::StopSeed("seed-a"));
        assert_eq!(found(Flow::Isolate, "MachinesGone", "stop-seed").means, Means::StopSeed("seed-a"));
        assert_eq!(found(Flow::Live, "SixMemberETCDReady", "never").means, Means::CutLink);
    }

    #[test]
    fn unknown_steps_and_kinds_are_refused_with_what_there_is() {
        let refused = Fault::find(Flow::Live, "ApiServers", "kill").expect_err("no such step");
        assert!(refused.contains("there is no step ApiServers in live"), "{refused}");
        assert!(refused.contains("SixMemberETCDReady"), "{refused}");
        for (flow, step, kind) in [
            (Flow::Live, "ApiServes", "explode"),
            (Flow::Live, "TurnTaken", "stop-seed"),
            (Flow::Classic, "ApiServes", "link"),
            (Flow::Forced, "SourceApiStopped", "stop-seed"),
            (Flow::Forced, "SourceApiStopped", "kill"),
            (Flow::Live, "SourceRemoved", "never"),
        ] {
            let refused = Fault::find(flow, step, kind).expect_err("no such fault");
            assert!(refused.contains("cannot go wrong") && refused.contains("kill"), "{refused}");
        }
    }

    #[test]
    fn each_flow_has_steps_and_each_step_of_never_exists() {
        for flow in FLOWS {
            assert!(rows(flow).len() > 10, "{flow:?}");
        }
        let nevers: usize = FLOWS
            .iter()
            .map(|flow| rows(*flow).iter().filter(|row| never(*flow, row.step).is_some()).count())
            .sum();
        assert_eq!(nevers, 9);
    }

    #[test]
    fn request_is_a_step_and_a_kind() {
        let of = |text: &str| FaultRequest::parse(text);
        assert_eq!(of("list"), Ok(FaultRequest::List));
        assert_eq!(of("A=b=c"), Ok(FaultRequest::Of { step: "A".to_owned(), kind: "b=c".to_owned() }));
        assert!(of("A=").is_err() && of("=b").is_err() && of("A").is_err());
    }
}
