//! What goes wrong in a schedule.

use super::{FaultRates, NEVER};
use crate::tests::{rng::Rng, sim};

/// Nothing.
pub(in crate::tests) fn none() -> FaultRates {
    FaultRates { cancel_at: NEVER, delete_at: NEVER, cluster_gone_at: NEVER, ..FaultRates::default() }
}

/// A calm world, for tests that plan what goes wrong themselves.
pub(in crate::tests) fn calm() -> FaultRates {
    FaultRates { calm: true, ..none() }
}

pub(super) fn any(rng: &mut Rng) -> FaultRates {
    let mut trouble = FaultRates { calm: rng.percent(10), ..none() };
    if trouble.calm {
        return trouble;
    }
    trouble.controllers = sim::FaultRates {
        crash: rng.within(0, 20),
        lost_write: rng.within(0, 20),
        lost_effect: rng.within(0, 10),
        late: rng.within(0, 30),
        latest: 900,
        twice: rng.within(0, 20),
        stale: rng.within(0, 30),
        cut_off: None,
    };
    // A few of these at a time: a schedule in which everything fails shows little.
    for _ in 0..rng.within(0, 3) {
        let (soon, later) = (1_000_000 + rng.within(0, 3000), rng.within(60, 6000));
        match rng.within(0, 17) {
            0 => trouble.backup_fails = rng.within(20, 100),
            1 => trouble.corrupt = 60,
            2 => trouble.wrong_restore = true,
            3 => trouble.no_room = true,
            4 => trouble.api_never_up = true,
            5 => trouble.old_never_up = true,
            6 => trouble.api_lingers = later,
            7 => trouble.members_linger = later,
            8 => trouble.quorum_lost = Some((soon, soon + later)),
            9 => trouble.intruder = true,
            10 => trouble.cancel_at = soon,
            11 => trouble.delete_at = soon,
            12 => trouble.pause = Some((soon, soon + later * rng.within(1, 30))),
            13 => trouble.rival_until = soon,
            14 => trouble.theft = Some((soon, soon + later)),
            15 => delete_cluster(rng, &mut trouble, soon),
            16 => trouble.controllers.cut_off = Some((0, soon, soon + later)),
            _ => trouble.members_linger = 60,
        }
    }
    trouble
}

/// Somebody deletes the HostedEtcd.
fn delete_cluster(rng: &mut Rng, trouble: &mut FaultRates, at: u64) {
    trouble.cluster_gone_at = at;
    match rng.within(0, 5) {
        0 => trouble.kept_until = at + rng.within(60, 6000),
        1 | 2 => trouble.released_by_hand_at = Some(at + rng.within(0, 600)),
        3 => trouble.with_namespace = true,
        _ => {}
    }
}
