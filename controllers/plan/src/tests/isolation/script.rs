//! What goes wrong around an isolation, and when.

use crate::tests::{rng::Rng, sim::NEVER};

/// What people and providers do, and when.
#[derive(Clone, Debug)]
pub(super) struct Script {
    /// The annotation is removed, the isolation expires, the object or the Shoot is deleted.
    pub(super) removed_at: u64,
    pub(super) expires_at: u64,
    pub(super) object_deleted_at: u64,
    pub(super) shoot_deleted_at: u64,
    pub(super) shoot_gone_at: u64,
    /// From when on the zone is known, there is room, and the API of the Shoot answers.
    pub(super) known_at: u64,
    pub(super) room_at: u64,
    pub(super) api_away: (u64, u64),
    /// Pods of the zone end by themselves.
    pub(super) drains: bool,
    /// A machine comes back to the zone then.
    pub(super) machine_again_at: u64,
    /// A person takes the zone back in the Worker then, or deletes the SubnetIsolation.
    pub(super) worker_edited_at: u64,
    pub(super) subnet_deleted_at: u64,
    /// Another isolation is in the way until then.
    pub(super) obstacle_until: u64,
    /// A migration has machines and networks in its hands.
    pub(super) migrates: (u64, u64),
    pub(super) is_hibernated: bool,
    pub(super) can_show: bool,
}

/// A script by chance.
pub(super) fn script(rng: &mut Rng, is_calm: bool) -> Script {
    let end = 1_000 + rng.within(1, 9_000);
    let mut at = |chance: u64, latest: u64| {
        if !is_calm && rng.percent(chance) { 1_000 + rng.within(0, latest) } else { NEVER }
    };
    let (expires_at, object_deleted_at) = (at(20, 8_000), at(15, 8_000));
    let (shoot_deleted_at, machine_again_at) = (at(15, 8_000), at(30, 8_000));
    let away = at(20, 6_000);
    let late = |at: u64| if at == NEVER { 0 } else { at };
    let (known_at, room_at) = (late(at(20, 3_000)), late(at(20, 3_000)));
    let (worker_edited_at, subnet_deleted_at) = (at(20, 8_000), at(20, 8_000));
    let (obstacle_until, migrates) = (late(at(20, 6_000)), at(15, 8_000));
    let gone_after = if at(50, 1) == NEVER { 20_000 } else { 200 };
    let is_hibernated = at(10, 1) != NEVER;
    Script {
        removed_at: end,
        expires_at,
        object_deleted_at,
        shoot_deleted_at,
        shoot_gone_at: shoot_deleted_at.saturating_add(gone_after),
        known_at,
        room_at,
        api_away: (away, away.saturating_add(2_000)),
        drains: is_calm || rng.percent(80),
        machine_again_at,
        worker_edited_at,
        subnet_deleted_at,
        obstacle_until,
        migrates: (migrates, migrates.saturating_add(2_000)),
        is_hibernated,
        can_show: rng.percent(70),
    }
}
