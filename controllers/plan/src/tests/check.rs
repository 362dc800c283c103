//! What must hold of every decision, at every time, and at the end.

use repot_etcd_core::volumes::VolumeSet;

use super::{
    cluster::{Kind, NEVER, REPLICAS, Truth, old_set, old_settings},
    sim::{Sim, hold},
};
use crate::{
    etcd::{
        EtcdFlow, EtcdLedger, Step,
        effect::Effect,
        observed::{Cluster, Lock, Observed},
    },
    flow::Decision,
    ledger::{Phase, State},
};

type Etcds = Sim<Truth>;

/// Of a decision, given what was seen, and what really is.
pub(super) fn decision(sim: &Etcds, world: &Observed, decision: &Decision<EtcdFlow>) -> Result<(), String> {
    let effects = &decision.effects;
    hold(effects.iter().filter(|e| e.destroys()).count() <= 1, "destroys two things at once")?;
    for effect in effects {
        one(sim, world, effect)?;
    }
    Ok(())
}

fn one(sim: &Etcds, world: &Observed, effect: &Effect) -> Result<(), String> {
    let truth = &sim.model;
    let ours = matches!(
        effect,
        Effect::EnsureLock { .. } | Effect::EnsureFinalizer { .. } | Effect::EnsureClusterFinalizer { .. }
    );
    let is_locked = world.lock == Lock::Ours || (world.cluster == Cluster::Gone && sim.ledger().notes.locked);
    hold(ours || is_locked, "acts without the lock")?;
    let holds = world.cluster_finalizer || world.cluster != Cluster::Present;
    let is_forward = sim.ledger().phase == Phase::Running && sim.build.setup != Kind::Backup;
    hold(holds || ours || !is_forward || keeps(effect), "changes an etcd that it does not hold")?;
    hold(ours || !sim.ledger().phase.is_end(), "acts after the end")?;
    match effect {
        Effect::EnsureNoVolumes { volumes } => {
            hold(truth.serving() != Some(volumes), "deletes the volumes that serve")?;
            hold(copies(truth).any(|copy| copy != Copy::Volumes(volumes)), "deletes the last good copy")?;
            let old_goes = *volumes == old_set();
            let new_serves = truth
                .serving()
                .is_some_and(|set| *set != old_set() && truth.volumes[set].writes == truth.must);
            hold(!old_goes || new_serves, "deletes the old volumes before the new ones serve")
        }
        Effect::EnsureNoEtcd { volumes } if *volumes == old_set() => {
            hold(truth.api.pods == 0 || truth.trouble.intruder, "deletes an etcd in use")?;
            let proof = sim
                .ledger()
                .notes
                .backup
                .as_ref()
                .and_then(|name| truth.store.get(name))
                .and_then(|s| s.data.as_ref());
            let sound = proof.is_some_and(|data| {
                sim.build.setup == Kind::Restore || data.writes == truth.must || truth.trouble.intruder
            });
            hold(sound, "deletes an etcd without a backup of all of it")
        }
        Effect::EnsureEtcd { volumes, .. } => {
            hold(world.pods_beside(volumes) == 0, "starts an etcd beside another")
        }
        _ => Ok(()),
    }
}

/// Whether it changes nothing of the etcd and its API servers.
fn keeps(effect: &Effect) -> bool {
    matches!(effect, Effect::EnsureBackup { .. } | Effect::EnsureVerified { .. })
}

#[derive(PartialEq)]
enum Copy<'a> {
    Volumes(&'a VolumeSet),
    Backup,
}

/// Where everything is that was acknowledged.
fn copies(truth: &Truth) -> impl Iterator<Item = Copy<'_>> {
    let volumes =
        truth.volumes.iter().filter(|(_, data)| data.writes == truth.must).map(|(set, _)| Copy::Volumes(set));
    let whole = |data: &super::cluster::Data| data.writes == truth.must;
    volumes
        .chain(truth.store.values().filter(move |s| s.data.as_ref().is_some_and(whole)).map(|_| Copy::Backup))
}

/// In every world, at every time.
pub(super) fn always(sim: &mut Etcds) -> Result<(), String> {
    // A restore gives up what came after its backup, deliberately and from one moment on.
    if sim.build.setup == Kind::Restore
        && sim.ledger().is_started(Step::ApiUp)
        && !sim.ledger().phase.is_end()
    {
        let new = sim.ledger().notes.new.as_ref().and_then(|set| sim.model.volumes.get(set));
        if let Some(data) =
            new.filter(|_| sim.ledger().state(Step::ApiUp) == State::Running && sim.model.api.pods == 0)
        {
            let name = sim.ledger().notes.backup.as_deref().unwrap_or_default();
            let named = sim.model.store.get("from").and_then(|store| store.data.as_ref());
            let backup = sim.model.elsewhere.as_ref().or(named);
            hold(sim.model.store.contains_key(name), "restored what is in no store")?;
            hold(backup.is_some_and(|backup| backup.writes == data.writes), "restored something else")?;
            sim.model.must.clone_from(&data.writes);
        }
    }
    if let Some(broken) = sim.model.broken {
        return Err(broken.to_owned());
    }
    lets_go(sim)?;
    hold(sim.model.namespace_deleted || copies(&sim.model).next().is_some(), "lost what was acknowledged")
}

/// The HostedEtcd goes by itself only when its API servers are wanted again, or when it was told that they cannot be started.
fn lets_go(sim: &Etcds) -> Result<(), String> {
    let truth = &sim.model;
    let by_itself = truth.cluster == Cluster::Gone && !truth.released_by_hand && !truth.namespace_deleted;
    let is_whole = truth.api.wanted == REPLICAS || sim.ledger().phase == Phase::Failed;
    hold(!by_itself || is_whole, "lets the HostedEtcd go while its API servers are stopped")
}

/// When nothing happens any more.
pub(super) fn at_the_end(sim: &Etcds) -> Result<(), String> {
    let (truth, ledger) = (&sim.model, sim.ledger());
    if truth.object_gone && !ledger.phase.is_end() {
        // It was gone before it had a finalizer, and so before anything was done.
        let is_whole = truth.api.wanted == REPLICAS && truth.sts.is_some();
        return hold(is_whole || truth.namespace_deleted, "went away in the middle");
    }
    hold(!truth.trouble.calm || ledger.phase == Phase::Succeeded, "failed for no reason")?;
    hold(truth.request.deleting.is_none() || !truth.request.finalizer, "holds up its own deletion")?;
    // Whoever has stolen the lock takes it off.
    let is_anothers = truth.object_gone || matches!(truth.lock, Lock::Other(_));
    hold(!truth.cluster_finalizer || is_anothers, "keeps its finalizer on the HostedEtcd")?;
    if truth.namespace_deleted {
        return is_told(sim);
    }
    // The lock of an object that is gone counts as free.
    hold(truth.lock != Lock::Ours || truth.object_gone, "keeps the lock")?;
    match ledger.phase {
        Phase::Succeeded if sim.build.setup == Kind::Backup => is_backed_up(truth, ledger),
        Phase::Succeeded => is_moved(sim),
        Phase::RolledBack | Phase::Cancelled => is_as_before(truth),
        Phase::Failed => is_explained(sim),
        other => Err(format!("ends in {other:?}")),
    }
}

/// What was deleted with its namespace does not come back, and no end says that it did.
fn is_told(sim: &Etcds) -> Result<(), String> {
    let ledger = sim.ledger();
    let was_up = |step| ledger.notes.api_replicas.is_none() || ledger.state(step) == State::Succeeded;
    match ledger.phase {
        Phase::Failed => tells_whereabouts(ledger),
        Phase::Succeeded => hold(was_up(Step::ApiUp), "succeeded without API servers"),
        _ => hold(was_up(Step::ApiUpAgain), "went back without API servers"),
    }
}

fn tells_whereabouts(ledger: &EtcdLedger) -> Result<(), String> {
    let told = ledger.notes.old.as_ref().is_none_or(|(set, _)| ledger.message.contains(&set.0));
    hold(told, "does not tell where the data is")
}

fn is_backed_up(truth: &Truth, ledger: &EtcdLedger) -> Result<(), String> {
    let data = ledger.notes.backup.as_ref().and_then(|name| truth.store[name].data.as_ref());
    hold(data.is_some_and(|data| truth.must.starts_with(&data.writes)), "has no sound backup")
}

fn is_moved(sim: &Etcds) -> Result<(), String> {
    let (truth, notes) = (&sim.model, &sim.ledger().notes);
    let Some(sts) = &truth.sts else { return Err("succeeded without an etcd".into()) };
    hold(Some(&sts.deployed.volumes) == notes.new.as_ref(), "succeeded on the old volumes")?;
    let class = if sim.build.setup == Kind::Migration { "fast" } else { "slow" };
    hold(
        sts.deployed.settings.storage_class == class && truth.settings == sts.deployed.settings,
        "has other settings",
    )?;
    hold(truth.api.wanted == REPLICAS, "left API servers stopped")?;
    hold(truth.volumes[&sts.deployed.volumes].writes == truth.must, "succeeded without all data")?;
    let skipped = sim.ledger().state(Step::OldVolumesReleased) == State::Skipped;
    hold(skipped || !truth.volumes.contains_key(&old_set()), "left the old volumes")
}

fn is_as_before(truth: &Truth) -> Result<(), String> {
    let Some(sts) = &truth.sts else { return Err("went back to no etcd".into()) };
    hold(
        sts.deployed.volumes == old_set() && sts.deployed.settings == old_settings(),
        "went back to another etcd",
    )?;
    // Those of a HostedEtcd that is gone are gone with it.
    let is_gone = truth.cluster == Cluster::Gone;
    hold(is_gone || truth.settings == old_settings(), "left the new settings")?;
    hold(truth.api.wanted == REPLICAS, "went back without API servers")?;
    hold(truth.volumes[&old_set()].writes == truth.must, "went back without all data")
}

fn is_explained(sim: &Etcds) -> Result<(), String> {
    let (truth, ledger) = (&sim.model, sim.ledger());
    hold(!ledger.message.is_empty() && !ledger.reason.is_empty(), "failed without a word")?;
    if sim.build.setup == Kind::Backup {
        return is_as_before(truth);
    }
    // Only where a thing that the way back needs does not work at all.
    let trouble = &truth.trouble;
    let hopeless = trouble.api_never_up
        || trouble.old_never_up
        || trouble.members_linger > 1800
        || trouble.api_lingers > 1800
        || trouble.quorum_lost.is_some_and(|(from, to)| to - from > 1200)
        || trouble.controllers.cut_off.is_some_and(|(_, from, to)| to - from > 1200)
        || trouble.rival_until == NEVER;
    hold(hopeless, "gave up although there was a way")?;
    tells_whereabouts(ledger)
}
