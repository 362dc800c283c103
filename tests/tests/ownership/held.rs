//! Everything of a member is held at once, as when a hypervisor stops a virtual machine or a container engine freezes a Pod.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::run;
use repot_tests::wait::until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use super::wall_clock::WallClock;
use super::world::{LEASE, NEW, OLD, OwnershipFixture, Writer, client_url, never_both, signal_alone};
use crate::etcd_agent::world::Agent;

/// The processes of a member: etcd, its guard, and the agent.
pub struct Processes {
    etcd: Pid,
    guard: Pid,
    agent: Pid,
}

impl Processes {
    pub fn of(agent: &Agent) -> Result<Self> {
        let etcd = *agent.etcds()?.first().context("an etcd")?;
        let stat = fs::read_to_string(format!("/proc/{etcd}/stat"))?;
        // The name of the program before may hold anything but another parenthesis at its end.
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        let guard = parent.context("a parent")?.parse()?;
        let pid = |id: i32| Pid::from_raw(id).context("a process");
        Ok(Self {
            etcd: pid(etcd.try_into()?)?,
            guard: pid(guard)?,
            agent: pid(agent.process.pid().try_into()?)?,
        })
    }

    pub fn hold(&self) -> Result<()> {
        for process in [self.agent, self.guard, self.etcd] {
            kill_process(process, Signal::STOP)?;
        }
        Ok(())
    }

    /// In the worst order.
    pub fn let_go(&self) -> Result<()> {
        for process in [self.etcd, self.guard, self.agent] {
            kill_process(process, Signal::CONT)?;
        }
        Ok(())
    }
}

#[test]
fn etcd_that_goes_on_before_its_guard_answers_nobody() {
    run(async |env| {
        let world = OwnershipFixture::new(env, 1).await?;
        let old = world.old.start_all(env).await?.remove(0);
        let old_writer = Writer::start(client_url(&world.old, 0), OLD);
        old_writer.goes_on().await?;
        let processes = Processes::of(&old)?;
        processes.hold()?;
        let held = Instant::now();
        world.hand_over(&[NEW]).await?;
        // Nobody took a final snapshot, so the new side waits; what the old one had is lost with it.
        let mut world = world;
        world.new.config["restore"] = json!(null);
        let (_new, new_writer) = world.take_over(env).await?;
        new_writer.goes_on().await?;
        sleep_until(held + LEASE).await;
        // The worst order: etcd has seconds to answer what has waited for it.
        kill_process(processes.etcd, Signal::CONT)?;
        let attempts = old_writer.attempts();
        until("clients to try again", LEASE, async || {
            ensure!(old_writer.attempts() > attempts + 2, "they have not");
            Ok(())
        })
        .await?;
        for process in [processes.guard, processes.agent] {
            kill_process(process, Signal::CONT)?;
        }
        old.no_etcd().await?;
        let last = old_writer.writes().last().map(|write| write.acked);
        ensure!(
            last.is_some_and(|last| last < held + Duration::from_secs(1)),
            "it answered after it was held"
        );
        never_both(&old_writer, &new_writer)
    });
}

#[test]
fn wall_clock_that_is_set_forward_ends_an_etcd_whose_lease_would_be_over() {
    run(async |env| {
        let mut world = OwnershipFixture::new(env, 1).await?;
        let clock = WallClock::new(env, "wall-clock")?;
        world.old.variables = clock.variables()?;
        // By the clock of the machine, the lease is longer than what follows.
        for (field, value) in [("interval", "5s"), ("timeout", "300s"), ("grace", "311s")] {
            world.old.config["owner"][field] = json!(value);
        }
        let mut old = world.old.start_all(env).await?.remove(0);
        let writer = Writer::start(client_url(&world.old, 0), OLD);
        writer.goes_on().await?;
        // The guard alone, without the agent.
        signal_alone(&old, Signal::STOP)?;
        clock.set_forward(200)?;
        writer.goes_on().await?;
        ensure!(old.etcds()?.len() == 1, "a correction that leaves some of the lease ends nothing");
        clock.set_forward(3600)?;
        old.no_etcd().await?;
        // The agent asks again, and learns that it is the owner.
        signal_alone(&old, Signal::CONT)?;
        old.ready().await?;
        writer.goes_on().await
    });
}
