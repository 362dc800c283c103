//! What effects change, and which of them are refused.

use super::world::{DESTINATION, World};
use crate::gardenlet::effect::Effect;

/// Versions of the objects that a decision was made on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    shoot: u64,
    entry: u64,
    copy: u64,
    states: u64,
}

pub(super) fn seen(world: &World) -> Seen {
    Seen {
        shoot: world.shoot.version,
        entry: world.entry.version,
        copy: world.copy_version,
        states: world.states_version,
    }
}

pub(super) fn apply(world: &mut World, effect: &Effect, seen: &Seen, guarded: bool) {
    let may = |own: u64, now: u64| !guarded || own == now;
    match effect {
        Effect::EnsureFinalizer { present } => world.finalizer = *present,
        Effect::BindShoot { .. } | Effect::FenceShoot { .. } | Effect::RequestRestore { .. }
            if may(seen.shoot, world.shoot.version) =>
        {
            apply_to_shoot(world, effect);
        }
        Effect::BindBackupEntry { .. }
        | Effect::SetBackupEntryStatus { .. }
        | Effect::FenceBackupEntry { .. }
            if may(seen.entry, world.entry.version) =>
        {
            apply_to_entry(world, effect);
        }
        Effect::EnsureCopyNamespace if world.copy.is_none() => {
            world.copy = Some(world.now);
            world.copy_version += 1;
        }
        Effect::CopySnapshots if world.copy.is_some() && world.job.is_none() => {
            world.job = Some((world.now + world.rng.within(5, 400), world.newest.0));
        }
        Effect::EnsureState if may(seen.states, world.states_version) => {
            world.states.1 = Some(world.states.0);
            world.states_version += 1;
        }
        Effect::MarkCopyTask { uid } => world.gardenlet.mark(uid),
        Effect::RemoveCopy if may(seen.copy, world.copy_version) => {
            (world.copy, world.job) = (None, None);
            world.copy_version += 1;
        }
        _ => {}
    }
}

fn apply_to_shoot(world: &mut World, effect: &Effect) {
    let is_restoring = world.gardenlet.has_begun();
    let shoot = &mut world.shoot;
    shoot.version += 1;
    match effect {
        Effect::BindShoot { seed } => {
            shoot.generation += u64::from(shoot.spec.as_ref() != Some(seed));
            shoot.spec = Some(seed.clone());
        }
        Effect::RequestRestore { seed } => {
            if shoot.spec.as_deref() != Some(DESTINATION) {
                world.broken.get_or_insert("requests a restore of a Shoot that is not bound");
            }
            if is_restoring {
                world.broken.get_or_insert("the restore is requested twice");
            }
            shoot.status = Some(seed.clone());
            shoot.generation += 1;
            world.operation = ("Migrate", "Succeeded");
        }
        Effect::FenceShoot { fence } => shoot.fence.clone_from(fence),
        _ => {}
    }
}

fn apply_to_entry(world: &mut World, effect: &Effect) {
    let entry = &mut world.entry;
    entry.version += 1;
    match effect {
        Effect::BindBackupEntry { seed } => {
            entry.generation += u64::from(entry.spec.as_ref() != Some(seed));
            entry.spec = Some(seed.clone());
        }
        Effect::SetBackupEntryStatus { seed } => entry.status.clone_from(seed),
        Effect::FenceBackupEntry { fence } => entry.fence.clone_from(fence),
        _ => {}
    }
}
