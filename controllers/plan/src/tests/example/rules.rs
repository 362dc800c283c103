//! What must hold of the move.

use super::{
    clusters::{Clusters, WRITERS},
    flow::{Effect, Mode, Move, Side},
};
use crate::{
    flow::Decision,
    ledger::Phase,
    tests::sim::{Sim, hold},
};

/// Of every decision.
pub(super) fn decision(clusters: &Clusters, decision: &Decision<Move>) -> Result<(), String> {
    for effect in &decision.effects {
        match effect {
            Effect::Released => hold(clusters.server, "deletes the source before the destination serves")?,
            Effect::Server => {
                let is_whole = clusters.copy.as_ref() == Some(&clusters.must);
                let is_whole = is_whole || clusters.server || clusters.mode == Mode::Forced;
                hold(is_whole && clusters.copy.is_some(), "serves a copy that is not whole")?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// When nothing happens any more.
pub(super) fn at_the_end(sim: &Sim<Clusters>) -> Result<(), String> {
    let clusters = &sim.model;
    for side in [Side::Source, Side::Destination] {
        let ledger = sim.store.ledger(side);
        match ledger.phase {
            Phase::Succeeded => is_moved(clusters)?,
            Phase::RolledBack | Phase::Cancelled if side == Side::Source => is_as_before(clusters)?,
            Phase::RolledBack | Phase::Cancelled => hold(!clusters.server, "rolled back, and serves")?,
            Phase::Failed => {
                hold(!ledger.message.is_empty(), "failed without a word")?;
                hold(is_hopeless(clusters), "failed although there was a way")?;
            }
            // Dead, which the simulation has accepted before.
            Phase::Pending | Phase::Scheduled | Phase::Running | Phase::RollingBack => {}
        }
        let is_good = ledger.phase == Phase::Succeeded || sim.is_dead(side);
        hold(!clusters.is_calm || is_good, "failed for no reason")?;
    }
    Ok(())
}

fn is_moved(clusters: &Clusters) -> Result<(), String> {
    hold(clusters.does_destination_serve(), "succeeded without a server")?;
    hold(clusters.copy.as_ref() == Some(&clusters.must), "succeeded without all writes")
}

fn is_as_before(clusters: &Clusters) -> Result<(), String> {
    hold(clusters.writers.0 == WRITERS, "rolled back without writers")?;
    hold(clusters.owner.0 == Side::Source, "rolled back, and the record names the destination")?;
    hold(clusters.data == clusters.must && !clusters.is_released, "rolled back without all writes")
}

/// A side was cut off for longer than others wait for it, or the server did not start for longer than it is waited for.
fn is_hopeless(clusters: &Clusters) -> bool {
    let is_long = |(_, from, until): (usize, u64, u64)| until - from > 600;
    clusters.trouble.cut_off.is_some_and(is_long) || clusters.server_starts_at > 1_600
}
