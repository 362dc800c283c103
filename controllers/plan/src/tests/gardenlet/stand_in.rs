//! The gardenlet of the destination: woken by generations, and slow.

use super::world::{Bound, DESTINATION, World};
use crate::tests::rng::Rng;

/// How long gardenlet waits for its EtcdCopyBackupsTask before it creates another one.
const TASK_WAIT: u64 = 300;

#[derive(Clone, Debug, Default)]
pub(super) struct Gardenlet {
    /// Generation of the Shoot that it was last woken by.
    seen: u64,
    /// It does not run until then.
    starts_at: u64,
    /// How long a restore takes after the backups.
    takes: u64,
    began: Option<u64>,
    /// UID of its EtcdCopyBackupsTask, and whether that is marked.
    pub(super) task: Option<(u64, bool)>,
    task_since: u64,
    copied_at: Option<u64>,
    pub(super) is_api_ready: bool,
}

impl Gardenlet {
    pub(super) fn new(is_calm: bool, rng: &mut Rng) -> Self {
        let is_down = !is_calm && rng.percent(20);
        Self {
            starts_at: if is_down { 10_000 + rng.within(0, 9_000) } else { 0 },
            takes: rng.within(60, 1_200),
            ..Self::default()
        }
    }

    pub(super) fn has_begun(&self) -> bool {
        self.began.is_some()
    }

    pub(super) fn mark(&mut self, uid: &str) {
        if let Some((own, is_marked)) = &mut self.task {
            *is_marked |= own.to_string() == uid;
        }
    }

    /// Who works on an object, by the rule of Gardener.
    fn is_responsible(bound: &Bound) -> bool {
        let status = bound.status.as_ref().or(bound.spec.as_ref());
        bound.spec.is_some() && status.is_some_and(|seed| seed == DESTINATION)
    }

    pub(super) fn advance(world: &mut World) {
        if world.now < world.gardenlet.starts_at {
            return;
        }
        let is_woken = world.gardenlet.seen != world.shoot.generation;
        world.gardenlet.seen = world.shoot.generation;
        if is_woken && Self::is_responsible(&world.shoot) && world.gardenlet.began.is_none() {
            Self::begin(world);
        }
        if world.gardenlet.began.is_some() {
            Self::go_on(world);
        }
    }

    fn begin(world: &mut World) {
        if world.operation != ("Migrate", "Succeeded") {
            world.broken.get_or_insert("gardenlet begins with something else than a restore");
        }
        if world.states.1.is_none_or(|gardener| gardener < world.states.0) {
            world.broken.get_or_insert("restores without a ShootState");
        }
        if world.target.is_none() {
            world.broken.get_or_insert("restores without the backups");
        }
        // It writes the bucket of its seed now, which wakes the gardenlet of the responsible seed once.
        if !Self::is_responsible(&world.entry) {
            world.broken.get_or_insert("nobody is woken for the BackupEntry");
        }
        world.entry.status = Some(DESTINATION.to_owned());
        world.entry.generation += 1;
        world.entry.version += 1;
        world.operation = ("Restore", "Processing");
        world.shoot.version += 1;
        let now = world.now;
        let gardenlet = &mut world.gardenlet;
        gardenlet.began = Some(now);
        (gardenlet.task, gardenlet.task_since) = (Some((now, false)), now);
    }

    fn go_on(world: &mut World) {
        let now = world.now;
        let gardenlet = &mut world.gardenlet;
        match (gardenlet.task, gardenlet.copied_at) {
            (Some((_, true)), None) => (gardenlet.task, gardenlet.copied_at) = (None, Some(now)),
            // Its flow fails, and begins anew with another task.
            (Some((_, false)), None) if now > gardenlet.task_since + TASK_WAIT => {
                (gardenlet.task, gardenlet.task_since) = (Some((now, false)), now);
                world.operation = ("Restore", "Error");
                world.shoot.version += 1;
            }
            (_, Some(copied)) if now > copied + gardenlet.takes => {
                gardenlet.is_api_ready = true;
                if world.operation != ("Restore", "Succeeded") && world.operation.0 == "Restore" {
                    world.operation = ("Restore", "Succeeded");
                    world.shoot.version += 1;
                } else if world.rng.percent(1) {
                    world.operation = ("Reconcile", "Processing");
                    world.shoot.version += 1;
                }
            }
            _ => {}
        }
    }
}
