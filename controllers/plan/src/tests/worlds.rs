//! Ten thousand worlds.

use std::collections::BTreeMap;

use super::sim::{Build, Kind, run};

const WORLDS: u64 = 10_000;

#[test]
fn every_world_comes_to_a_good_end() {
    let mut ends: BTreeMap<String, u32> = BTreeMap::new();
    for seed in 0..WORLDS {
        let kind = match seed % 5 {
            0 => Kind::Backup,
            1 | 2 => Kind::Restore,
            _ => Kind::Migration,
        };
        let phase = run(Build::of(kind), seed).unwrap_or_else(|why| panic!("{why}"));
        *ends.entry(format!("{kind:?} {phase:?}")).or_default() += 1;
    }
    println!("{ends:#?}");
    // Every end of every kind is reached in many worlds, or little would have been shown.
    for kind in ["Restore", "Migration"] {
        for (end, least) in [("Succeeded", 800), ("RolledBack", 200), ("Cancelled", 100), ("Failed", 50)] {
            let count = ends.get(&format!("{kind} {end}")).copied().unwrap_or_default();
            assert!(count >= least, "{kind} ended {count} times in {end}");
        }
    }
    for end in ["Succeeded", "Failed", "Cancelled"] {
        assert!(ends.get(&format!("Backup {end}")).is_some_and(|count| *count >= 50), "{ends:?}");
    }
}
