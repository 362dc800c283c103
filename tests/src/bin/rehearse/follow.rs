//! Follows a flow to its end: tells of each step that is reached, and lets a fault begin and end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use repot_console::text::duration;
use repot_tests::landscape::requests::Requests;
use repot_tests::landscape::world::World;
use repot_tests::landscape::{isolations, story};
use tokio::time::sleep;

use crate::injection::Injection;
use crate::machine::Machine;
use crate::progress::Progress;
use crate::view::View;

/// From one look at the flow to the next.
const LOOK: Duration = Duration::from_millis(200);
/// A flow that takes longer is stuck.
const LONGEST: Duration = Duration::from_secs(45 * 60);
/// For so long the garden may not answer.
const LONGEST_SILENCE: Duration = Duration::from_secs(120);

/// Which object is followed, and how.
#[derive(Clone, Copy)]
pub enum Object<'a> {
    /// A ControlPlaneMigration, by the end of its name.
    Migration(&'a str),
    /// The last ZoneIsolation of the Shoot.
    Isolation,
}

/// Follows one flow to its end.
pub struct Follower<'a> {
    pub world: &'a World,
    pub progress: &'a Progress,
    pub requests: &'a Requests,
    /// What goes wrong on purpose.
    pub injection: Option<Injection<'a>>,
    /// How busy this machine was.
    pub machine: Machine,
    /// States of steps that were told, by side and name.
    known: BTreeMap<(&'static str, String), String>,
    phase: String,
}

impl<'a> Follower<'a> {
    /// One that has seen nothing.
    pub fn new(
        world: &'a World,
        progress: &'a Progress,
        requests: &'a Requests,
        injection: Option<Injection<'a>>,
    ) -> Self {
        Self {
            world,
            progress,
            requests,
            injection,
            machine: Machine::new(),
            known: BTreeMap::new(),
            phase: String::new(),
        }
    }

    /// Looks at the flow until it is as wanted, or has ended.
    ///
    /// Errors: when it is stuck, or the garden does not answer for long.
    pub async fn until(&mut self, object: Object<'_>, is_wanted: fn(&View) -> bool) -> Result<View> {
        let (begun, mut answered) = (Instant::now(), Instant::now());
        loop {
            self.machine.look();
            match self.read(object).await {
                Ok(view) => {
                    answered = Instant::now();
                    self.tell(&view);
                    if let Some(injection) = &mut self.injection
                        && let Some(text) = injection.follow(&view).await?
                    {
                        self.progress.line(&text);
                    }
                    if view.is_over || is_wanted(&view) {
                        return Ok(view);
                    }
                    if begun.elapsed() > LONGEST {
                        bail!("it did not end within {LONGEST:?}: {} {}", view.running(), view.message);
                    }
                }
                Err(error) if answered.elapsed() > LONGEST_SILENCE => return Err(error),
                Err(_) => {}
            }
            sleep(LOOK).await;
        }
    }

    async fn read(&self, object: Object<'_>) -> Result<View> {
        match object {
            Object::Migration(name) => View::of_migration(&story::read(self.world, name).await?),
            Object::Isolation => Ok(View::of_isolation(&isolations::last(self.world).await?)),
        }
    }

    /// Prints what is new.
    fn tell(&mut self, view: &View) {
        if view.phase != self.phase {
            self.phase.clone_from(&view.phase);
            self.progress.line(&format!("phase {}", view.phase));
        }
        for (side, step) in view.steps() {
            let key = (side, step.name.clone());
            let is_told = matches!(step.state.as_str(), "Pending" | "Running" | "")
                || self.known.get(&key) == Some(&step.state);
            if is_told {
                continue;
            }
            let took =
                step.seconds().map_or_else(String::new, |seconds| format!(" after {}", duration(seconds)));
            let (name, word) = (&step.name, word(&step.state));
            self.progress.line(&format!("  {side:<12} {name:<26} {word}{took}"));
            self.known.insert(key, step.state.clone());
        }
        let count = self.requests.count();
        let (answered, failed) = (count.answered, count.failed.len());
        self.progress.status(&format!("{answered} answered, {failed} failed; {}", view.running()));
    }
}

/// A state in the words of progress.
fn word(state: &str) -> &str {
    match state {
        "Succeeded" => "reached",
        "Skipped" => "skipped",
        "Failed" => "failed",
        "RolledBack" => "rolled back",
        other => other,
    }
}
