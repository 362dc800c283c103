//! Brings a fault about when its step begins, and ends it.

use std::time::{Duration, Instant};

use anyhow::Result;
use jiff::Timestamp;
use repot_tests::landscape::wide_network::Partition;
use repot_tests::landscape::world::{SEEDS, World};
use repot_tests::pods::Cut;

use crate::faults::{Fault, Kind, Means};
use crate::view::View;

/// How long a fault lasts that ends by itself: longer than elections of etcd, leases of leaders, and the grace of the owner check.
const LASTS: Duration = Duration::from_secs(60);

/// A fault of a rehearsal.
pub struct Injection<'a> {
    world: &'a World,
    fault: Fault,
    state: State<'a>,
}

enum State<'a> {
    Waiting,
    Active { since: Instant, from: Timestamp, harm: Harm<'a> },
    Over { from: Timestamp, to: Timestamp },
}

/// What has to be undone.
enum Harm<'a> {
    Nothing,
    Frozen { seed: &'static str, containers: Vec<(String, String)> },
    Link { _cut: Partition<'a> },
    Provider { seed: &'static str },
    Bucket(Cut),
}

impl<'a> Injection<'a> {
    /// A fault that waits for its step.
    pub fn new(world: &'a World, fault: Fault) -> Self {
        Self { world, fault, state: State::Waiting }
    }

    /// The fault that is injected.
    pub fn fault(&self) -> &Fault {
        &self.fault
    }

    /// When it began and ended; `None` where its step was never started.
    pub fn times(&self) -> Option<(Timestamp, Timestamp)> {
        match &self.state {
            State::Waiting => None,
            State::Active { from, .. } => Some((*from, Timestamp::now())),
            State::Over { from, to } => Some((*from, *to)),
        }
    }

    /// Begins or ends it, as the flow goes; gives what was done, for people.
    pub async fn follow(&mut self, view: &View) -> Result<Option<String>> {
        match &self.state {
            State::Waiting if self.is_due(view) => self.begin().await.map(Some),
            State::Active { since, .. } if self.has_lasted(*since, view) => self.end().await,
            _ => Ok(None),
        }
    }

    /// A step that must not be reached is kept from it before it begins: when a step begins that it waits for.
    fn is_due(&self, view: &View) -> bool {
        let is_early =
            self.fault.kind == Kind::Never && self.fault.after.iter().any(|step| view.has_started(step));
        is_early || view.has_started(self.fault.step)
    }

    fn has_lasted(&self, since: Instant, view: &View) -> bool {
        match self.fault.kind {
            Kind::Kill => true,
            Kind::StopSeed | Kind::Link => since.elapsed() >= LASTS,
            Kind::Never => view.is_over || view.has_given_up(),
        }
    }

    async fn begin(&mut self) -> Result<String> {
        let (world, from) = (self.world, Timestamp::now());
        let harm = match self.fault.means {
            Means::KillControllersOfGarden => {
                world.kill_controllers_of_garden()?;
                Harm::Nothing
            }
            Means::KillControllersOfSeed(seed) => {
                world.kill_controllers_of_seed(seed).await?;
                Harm::Nothing
            }
            Means::StopSeed(seed) => {
                let containers = stop_seed(world, seed).await?;
                Harm::Frozen { seed, containers }
            }
            Means::CutLink => Harm::Link { _cut: world.landscape.wide.cut() },
            Means::StopProvider(seed) => {
                world.landscape.seed(seed)?.stop_providers();
                Harm::Provider { seed }
            }
            Means::CutBucket => {
                let bucket = world.landscape.seed(SEEDS.0)?.store_address();
                Harm::Bucket(world.landscape.seed(SEEDS.1)?.runner.cut_server(bucket).await?)
            }
        };
        self.state = State::Active { since: Instant::now(), from, harm };
        Ok(format!("fault {}: {}", self.fault.name(), self.fault.means.describe()))
    }

    /// Ends the fault where it lasts; gives what was done, for people.
    pub async fn end(&mut self) -> Result<Option<String>> {
        let (from, harm) = match std::mem::replace(&mut self.state, State::Waiting) {
            State::Active { from, harm, .. } => (from, harm),
            other => {
                self.state = other;
                return Ok(None);
            }
        };
        match harm {
            Harm::Nothing | Harm::Link { .. } => {}
            Harm::Frozen { seed, containers } => resume_seed(self.world, seed, &containers)?,
            Harm::Provider { seed } => self.world.landscape.seed(seed)?.start_providers(),
            Harm::Bucket(cut) => self.world.landscape.seed(SEEDS.1)?.runner.heal(cut).await?,
        }
        self.state = State::Over { from, to: Timestamp::now() };
        Ok(Some(format!("the fault {} is over", self.fault.name())))
    }
}

/// kube-apiserver of a seed and all Pods of the Shoot in it stand still; gives their containers.
pub async fn stop_seed(world: &World, seed: &str) -> Result<Vec<(String, String)>> {
    let containers = world.containers(seed).await?;
    world.landscape.seed(seed)?.cluster.apiserver_process().pause();
    world.freeze(seed, &containers, true)?;
    Ok(containers)
}

/// Lets them go on.
pub fn resume_seed(world: &World, seed: &str, containers: &[(String, String)]) -> Result<()> {
    world.freeze(seed, containers, false)?;
    world.landscape.seed(seed)?.cluster.apiserver_process().resume();
    Ok(())
}
