//! Ten thousand worlds.

use std::collections::BTreeMap;

use super::sim::{Build, Kind, run};

const WORLDS: u64 = 10_000;

/// How the worlds of these seeds end.
fn ends(seeds: impl Iterator<Item = u64>) -> BTreeMap<String, u32> {
    let mut ends = BTreeMap::new();
    for seed in seeds {
        let kind = match seed % 5 {
            0 => Kind::Backup,
            1 | 2 => Kind::Restore,
            _ => Kind::Migration,
        };
        let phase = run(Build::of(kind), seed).unwrap_or_else(|why| panic!("{why}"));
        *ends.entry(format!("{kind:?} {phase:?}")).or_default() += 1;
    }
    ends
}

#[test]
fn every_world_comes_to_a_good_end() {
    let [mut ends, rest] = std::thread::scope(|scope| {
        let half = |first| scope.spawn(move || ends((first..WORLDS).step_by(2)));
        [half(0), half(1)].map(|half| half.join().expect("a good end"))
    });
    rest.into_iter().for_each(|(end, count)| *ends.entry(end).or_default() += count);
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
