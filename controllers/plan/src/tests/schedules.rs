//! Many schedules of the workflows of a hosted etcd. `REPOT_SCHEDULES=100000` runs that many.

use super::{
    cluster::{Kind, Truth, sound},
    sim::schedules,
};

fn kind(seed: u64) -> Kind {
    match seed % 5 {
        0 => Kind::Backup,
        1 | 2 => Kind::Restore,
        _ => Kind::Migration,
    }
}

#[test]
fn every_schedule_comes_to_a_good_end() {
    let (count, ends) = schedules::<Truth>(1, |seed| sound(kind(seed)));
    // Every end of every kind is reached in many schedules, or little would have been shown.
    let often = |end: String, of_10_000: u64| {
        let found = ends.get(&end).copied().unwrap_or_default();
        assert!(found >= of_10_000 * count / 10_000, "{found} schedules ended in {end}: {ends:#?}");
    };
    for kind in ["Restore", "Migration"] {
        for (end, least) in [("Succeeded", 800), ("RolledBack", 200), ("Cancelled", 100), ("Failed", 50)] {
            often(format!("{kind} {end}"), least);
        }
    }
    for end in ["Succeeded", "Failed", "Cancelled"] {
        often(format!("Backup {end}"), 50);
    }
}
