//! Clocks that run wrong. Agents keep deadlines by a clock that nobody can set (CLOCK_BOOTTIME) and by the wall clock, whichever
//! comes first. So a wall clock may be as wrong as it likes. The first clock can only run at another speed: by 1 percent, the
//! documentation allows. libfaketime does not reach it, and the whole machine has one, so its speed is played by durations: a clock
//! that is slow by 1 percent is one by which every duration lasts 1 percent longer.

use anyhow::{Context, Result, ensure};
use repot_tests::run;
use repot_tests::test_env::TestEnv;
use rustix::process::Signal;
use serde_json::json;

use super::wall_clock::WallClock;
use super::world::{OLD, OwnershipFixture, Writer, client_url, never_both, signal_alone, stays_down};
use crate::etcd_agent::world::Agent;

/// With an epoch, so that only the time counts and nobody takes a final snapshot.
const NEXT: &str = "seed-b/2";
/// What etcd may take to end, which the grace has to cover beside the timeout. In seconds.
const STOP: u32 = 11;

/// Seconds by which a side goes.
#[derive(Clone, Copy, Debug)]
struct Durations {
    interval: u32,
    timeout: u32,
}

fn set(owner: &mut serde_json::Value, durations: Durations) {
    owner["interval"] = json!(format!("{}s", durations.interval));
    owner["timeout"] = json!(format!("{}s", durations.timeout));
    owner["grace"] = json!(format!("{}s", durations.timeout + STOP));
}

/// Both sides, each with a writer, where the agent of the old side stands still before the record changes: its guard is alone with
/// the lease. Both have written when this returns. `meanwhile`: what happens to clocks when the agent stands still.
async fn hand_over(
    env: &TestEnv,
    world: &OwnershipFixture,
    meanwhile: impl FnOnce() -> Result<()>,
) -> Result<[(Agent, Writer); 2]> {
    let old = world.old.start_all(env).await?.remove(0);
    let old_writer = Writer::start(client_url(&world.old, 0), OLD);
    old_writer.goes_on().await?;
    old.get("/snapshot/full").await?.ok()?;
    signal_alone(&old, Signal::STOP)?;
    meanwhile()?;
    world.hand_over(&[NEXT]).await?;
    let (new, new_writer) = world.take_over(env).await?;
    new_writer.goes_on().await?;
    Ok([(old, old_writer), (new, new_writer)])
}

/// Lets the old side see that it is not the owner any more, and judges.
async fn judge([(mut old, old_writer), (_new, new_writer)]: [(Agent, Writer); 2]) -> Result<()> {
    signal_alone(&old, Signal::CONT)?;
    stays_down(&mut old, "NotOwner").await?;
    never_both(&old_writer, &new_writer)
}

#[test]
fn wall_clocks_that_are_wrong_let_no_two_sides_serve() {
    run(async |env| {
        let mut world = OwnershipFixture::with_ids(env, 1, OLD, NEXT).await?;
        let (old, new) = (WallClock::new(env, "old-clock")?, WallClock::new(env, "new-clock")?);
        // By its wall clock the lease of the old side would be twice as long.
        old.set_speed(0.5).await?;
        new.set_speed(1.01).await?;
        (world.old.variables, world.new.variables) = (old.variables()?, new.variables()?);
        // The guard has its deadline; by the wall clock it is more than an hour away then.
        judge(hand_over(env, &world, || old.set_back(3600)).await?).await
    });
}

#[test]
#[ignore = "minutes, in make soak"]
fn clocks_that_are_as_wrong_as_is_documented_let_no_two_sides_serve() {
    run(async |env| {
        let mut world = OwnershipFixture::with_ids(env, 1, OLD, NEXT).await?;
        // A lease of 100 seconds, by a clock that is slow by 1 percent; and a wait for it by one that is fast by 1 percent.
        set(&mut world.old.config["owner"], Durations { interval: 10, timeout: 91 });
        set(&mut world.new.config["owner"], Durations { interval: 10, timeout: 89 });
        judge(hand_over(env, &world, || Ok(())).await?).await
    });
}

/// The fault that the judge has to find: without it the tests above would show nothing.
#[test]
fn a_clock_that_is_far_slower_than_is_documented_is_found_by_the_judge() {
    run(async |env| {
        let mut world = OwnershipFixture::with_ids(env, 1, OLD, NEXT).await?;
        // The lease lasts 62 seconds, as that of 6 seconds would by a clock that is ten times too slow; the new side waits 19.
        set(&mut world.old.config["owner"], Durations { interval: 2, timeout: 60 });
        set(&mut world.new.config["owner"], Durations { interval: 2, timeout: 4 });
        let [(_old, old_writer), (_new, new_writer)] = hand_over(env, &world, || Ok(())).await?;
        old_writer.goes_on().await.context("the old side has ended: the test shows nothing")?;
        let judged = never_both(&old_writer, &new_writer);
        ensure!(judged.is_err(), "both sides are writable, and the judge has not seen it");
        Ok(())
    });
}
