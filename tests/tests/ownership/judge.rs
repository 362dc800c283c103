//! Many hand-overs, each behind another cache and with other processes held or killed at another moment. A judge looks at every
//! write that either side has acknowledged: the old side has taken its last one before the new side takes its first.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::try_join_all;
use repot_tests::dns::{Fate, ZONE};
use repot_tests::dns_cache::{DnsCache, Kind};
use repot_tests::run;
use repot_tests::test_env::TestEnv;
use rustix::process::Signal;
use serde_json::json;
use tokio::time::sleep;

use super::held::Processes;
use super::wall_clock::WallClock;
use super::world::{
    LEASE, NEW, OLD, OwnershipFixture, Writer, client_url, never_both, signal_alone, stays_down,
};
use crate::etcd_agent::world::Agent;

/// At a time: each has two agents, two etcds, a DNS server and perhaps a cache.
const LANES: usize = 4;

const CACHES: [Option<Kind>; 5] =
    [None, Some(Kind::CoreDns), Some(Kind::CoreDnsStale), Some(Kind::Unbound), Some(Kind::UnboundExpired)];

/// What happens to the old side.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Nothing,
    /// Its agent is held before the record changes, and goes on when the other side serves.
    AgentHeld,
    /// Its agent is killed when the record has changed.
    AgentKilled,
    /// All its processes are held, and go on at some moment.
    AllHeld,
}

const FAULTS: [Fault; 4] = [Fault::Nothing, Fault::AgentHeld, Fault::AgentKilled, Fault::AllHeld];

/// Speeds of the wall clocks of the old and of the new side: none, and by 1 percent wrong in either direction.
const SPEEDS: [Option<(f64, f64)>; 3] = [None, Some((0.99, 1.01)), Some((1.01, 0.99))];

/// One hand-over.
#[derive(Clone, Copy, Debug)]
struct Case {
    number: usize,
    cache: Option<Kind>,
    fault: Fault,
    speeds: Option<(f64, f64)>,
}

impl Case {
    /// Every cache with every fault, and then the same with faults that begin and end later.
    fn new(number: usize) -> Self {
        let (cache, fault) = (CACHES[number % CACHES.len()], FAULTS[number / CACHES.len() % FAULTS.len()]);
        Self { number, cache, fault, speeds: SPEEDS[number % SPEEDS.len()] }
    }

    /// From no time to a little more than a lease.
    fn delay(self) -> Duration {
        LEASE * u32::try_from(self.number / (CACHES.len() * FAULTS.len()) % 5).unwrap_or_default() / 3
    }

    async fn play(self, env: &TestEnv) -> Result<()> {
        // Without an epoch only the time counts.
        let (old_id, new_id) =
            if self.number.is_multiple_of(2) { (OLD, NEW) } else { ("seed-a/1", "seed-b/2") };
        let mut world = OwnershipFixture::with_ids(env, 1, old_id, new_id).await?;
        // The old side may serve for much longer than the new one takes to start: so the wait between them is what counts.
        for side in [&mut world.old, &mut world.new] {
            side.config["owner"]["timeout"] = json!("15s");
            side.config["owner"]["grace"] = json!("26s");
        }
        if let Some((old, new)) = self.speeds {
            let clocks = ["old-clock", "new-clock"].map(|name| WallClock::new(env, name));
            for ((clock, speed), side) in
                clocks.into_iter().zip([old, new]).zip([&mut world.old, &mut world.new])
            {
                let clock = clock?;
                clock.set_speed(speed).await?;
                side.variables = clock.variables()?;
            }
        }
        let cache = match self.cache {
            Some(kind) => Some(DnsCache::start(env, &world.dns, kind).await?),
            None => None,
        };
        let _port_53 = world.dns.open_port_53().await?;
        if let (Some(cache), Some(kind)) = (&cache, self.cache) {
            ask_cache(&mut world, cache, kind);
        }
        let mut old = world.old.start_all(env).await?.remove(0);
        let old_writer = Writer::start(client_url(&world.old, 0), OLD);
        old_writer.goes_on().await?;
        old.get("/snapshot/full").await?.ok()?;
        if self.cache.is_some_and(is_stale) {
            // From now on the cache hears nothing of the zone.
            world.dns.wire.set(Fate::Lost);
        }
        let (_new, new_writer) = self.hand_over(env, &world, &old, new_id).await?;
        new_writer.goes_on().await?;
        match self.fault {
            Fault::AgentKilled => old.no_etcd().await?,
            Fault::Nothing | Fault::AgentHeld | Fault::AllHeld => {
                drop(stays_down(&mut old, "NotOwner").await?)
            }
        }
        never_both(&old_writer, &new_writer)?;
        for dir in [&world.old.dir, &world.new.dir] {
            fs::remove_dir_all(dir)?;
        }
        Ok(())
    }

    /// Both agents and both writers are there when this returns.
    async fn hand_over(
        self,
        env: &TestEnv,
        world: &OwnershipFixture,
        old: &Agent,
        new_id: &str,
    ) -> Result<(Agent, Writer)> {
        match self.fault {
            Fault::Nothing => {
                sleep(self.delay()).await;
                world.hand_over(&[new_id]).await?;
                world.take_over(env).await
            }
            Fault::AgentHeld => {
                signal_alone(old, Signal::STOP)?;
                sleep(self.delay()).await;
                world.hand_over(&[new_id]).await?;
                let new = world.take_over(env).await?;
                signal_alone(old, Signal::CONT)?;
                Ok(new)
            }
            Fault::AgentKilled => {
                world.hand_over(&[new_id]).await?;
                sleep(self.delay()).await;
                old.kill_alone()?;
                world.take_over(env).await
            }
            Fault::AllHeld => {
                let processes = Processes::of(old)?;
                processes.hold()?;
                world.hand_over(&[new_id]).await?;
                let wake = async {
                    sleep(self.delay()).await;
                    processes.let_go()
                };
                let (woken, new) = tokio::join!(wake, world.take_over(env));
                woken?;
                new
            }
        }
    }
}

fn is_stale(kind: Kind) -> bool {
    matches!(kind, Kind::CoreDnsStale | Kind::UnboundExpired)
}

/// Both sides ask the cache. One that hands out old answers can only be asked for the name servers of the zone.
fn ask_cache(world: &mut OwnershipFixture, cache: &DnsCache, kind: Kind) {
    let server = match is_stale(kind) {
        true => format!("ns:{ZONE}@{}", cache.address()),
        false => cache.address().to_string(),
    };
    for side in [&mut world.old, &mut world.new] {
        side.config["owner"]["servers"] = json!([server]);
    }
}

#[test]
fn judge_sees_no_write_of_the_old_side_after_one_of_the_new_side() {
    let runs = if std::env::var_os("REPOT_SOAK").is_some() { 100 } else { 8 };
    run(async |env| {
        let lane = async |lane: usize| -> Result<()> {
            // The short form has every cache and every fault.
            for number in (lane..runs).step_by(LANES) {
                let case = Case::new(if runs == 100 { number } else { number * 6 });
                case.play(env).await.with_context(|| format!("{case:?}"))?;
            }
            Ok(())
        };
        try_join_all((0..LANES).map(lane)).await.map(drop)
    });
}
