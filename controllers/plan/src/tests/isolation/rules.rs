//! What must hold of an isolation.

use super::world::{ALL, DRAIN_TIMEOUT, IN_ZONE, World, ZONE};
use crate::{
    flow::Decision,
    isolation::{
        IsolationSide as Side, Step, ZoneIsolationFlow,
        effect::Effect,
        observed::{Facts, Observed, SubnetFacts},
        shown::{Direction, Progress},
    },
    ledger::Phase,
    tests::sim::{Model, NEVER, Sim, hold},
};

/// Of every decision.
pub(super) fn decision(
    sim: &Sim<World>,
    observed: &Observed,
    decision: &Decision<ZoneIsolationFlow>,
) -> Result<(), String> {
    let Facts::Seed(facts) = &observed.facts else { return Ok(()) };
    let has_room = sim.model.now >= sim.model.script.room_at;
    for effect in &decision.effects {
        match effect {
            _ if facts.migration.is_some() => hold(false, "acts while a migration has the machines")?,
            Effect::Cordon { zone } => {
                hold(has_room, "cordons without room in other zones")?;
                hold(zone == ZONE.1, "cordons another zone")?;
            }
            Effect::LeaveZone { zone } => {
                hold(has_room, "leaves the zone without room in others")?;
                hold(zone == ZONE.0, "leaves another zone")?;
            }
            Effect::IsolateSubnet { .. } => {
                let left_out = facts.worker.as_ref().and_then(|worker| worker.left_out.as_ref());
                hold(facts.machines.is_empty(), "isolates networks of machines")?;
                hold(left_out.is_some(), "isolates networks of a zone that is used")?;
            }
            Effect::UseZone => {
                let is_released = facts.subnet == SubnetFacts::Absent;
                let is_over = sim.store.ledger(Side::Seed).phase.is_end();
                hold(is_released || is_over, "uses a zone whose networks are cut off")?;
            }
            Effect::ForceMachines { machines } => {
                let draining = sim.store.ledger(Side::Seed).steps.get(&Step::MachinesGone);
                let begun = draining.and_then(|record| record.started).map_or(u64::MAX, |begun| begun.0);
                let since = sim.model.now.saturating_sub(begun);
                let are_late = machines.iter().all(|name| facts.late_machines.contains(name));
                let is_late = since > observed.request.drain_timeout.as_secs();
                hold(is_late || are_late, "deletes machines that are drained")?;
                hold(machines.iter().all(|name| facts.machines.contains(name)), "deletes other machines")?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Machines that do not end by themselves are ended, also those that come back, unless something else is in the way.
pub(super) fn drain_ends(world: &World) -> Result<(), String> {
    const LIMIT: u64 = 2_400;
    let script = &world.script;
    let ends = script.expires_at.min(script.object_deleted_at).min(script.shoot_deleted_at);
    let is_wanted = world.annotation.is_some() && world.now < ends && world.left_out.is_some();
    let is_quiet = world.trouble.cut_off.is_none() && script.migrates.0 == NEVER;
    let since = world.drained_since.filter(|_| is_wanted && is_quiet);
    let is_endless = since.is_some_and(|since| world.now > since + DRAIN_TIMEOUT.as_secs() + LIMIT);
    hold(!is_endless, "drains machines for ever")
}

/// When nothing happens any more.
pub(super) fn at_the_end(sim: &Sim<World>) -> Result<(), String> {
    let world = &sim.model;
    let is_done = |side| sim.store.ledger(side).phase == Phase::Succeeded;
    // An object that is deleted before the finalizer is there goes at once.
    let is_ended = is_done(Side::Garden) && is_done(Side::Seed);
    hold(is_ended || world.is_gone(), "did not come to its end")?;
    hold(world.subnet == SubnetFacts::Absent, "networks are cut off for ever")?;
    if world.is_shoot_deleting() {
        return Ok(());
    }
    hold(world.annotation.is_none(), "the annotation is left")?;
    hold(world.left_out.is_none(), "the Worker leaves the zone out for ever")?;
    hold(world.ours == 0, "nodes are cordoned for ever")?;
    hold(world.in_zone() >= IN_ZONE && world.others >= ALL - IN_ZONE, "machines are missing")?;
    if let (true, Some(shown)) = (world.script.can_show && is_ended, &world.shown) {
        hold((shown.direction, shown.progress) == (Direction::Failback, Progress::Done), "the status lies")?;
    }
    hold(!world.finalizer, "the finalizer is left")
}

/// How a schedule ended.
pub(super) fn end(sim: &Sim<World>) -> String {
    let ledger = sim.store.ledger(Side::Seed);
    let was = if ledger.notes.isolated { "isolated" } else { "called off" };
    format!("{was} {:?}", ledger.phase)
}
