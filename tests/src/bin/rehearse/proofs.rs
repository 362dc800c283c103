//! What is looked at after a flow: whether everything is there that was promised.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use repot_tests::landscape::requests::{Requests, Written, read_back};
use repot_tests::landscape::world::{Workload, World};

use crate::report::Proof;

/// Some objects of a list, for messages.
const SOME: usize = 5;

/// What may be missing of the writes that were acknowledged.
#[derive(Clone, Copy, Debug)]
pub enum Loss<'a> {
    /// Nothing.
    Nothing,
    /// The newest of these, which the source had acknowledged and not stored in its bucket.
    NewestOf(&'a BTreeMap<String, Written>),
}

/// Each acknowledged write is read at a seed, at its own address, and versions have only grown.
pub async fn writes(world: &World, requests: &Requests, seed: &str, loss: Loss<'_>) -> Vec<Proof> {
    let written = requests.written();
    let read = async {
        let api = world.shoot.control_plane.api_at(world.landscape.seed(seed)?).await?;
        read_back(&api).await
    };
    let outcome = read.await.and_then(|found| compare(&written, &found, loss));
    let older = requests.older_versions();
    let growing = match older.as_slice() {
        [] => Ok(format!("of {} objects, by the answers to their writes", written.len())),
        [first, ..] => Err(anyhow::anyhow!("{} are not newer; {first}", older.len())),
    };
    vec![
        Proof::of(&format!("every acknowledged write is read back at {seed}"), outcome),
        Proof::of("versions only grow", growing),
    ]
}

/// Compares what was acknowledged with what is there.
fn compare(
    written: &BTreeMap<String, Written>,
    found: &BTreeMap<String, Written>,
    loss: Loss<'_>,
) -> Result<String> {
    ensure!(!written.is_empty(), "nothing was written");
    let is_there = |name: &str, own: &Written| {
        found.get(name).is_some_and(|one| one.version >= own.version && (one.is_changed || !own.is_changed))
    };
    let (mut lost, mut newest_kept) = (BTreeMap::new(), 0);
    for (name, own) in written {
        let at_stop = match loss {
            Loss::Nothing => None,
            Loss::NewestOf(at_stop) => at_stop.get(name),
        };
        match at_stop {
            Some(earlier) if is_there(name, earlier) => newest_kept = newest_kept.max(earlier.version),
            Some(earlier) if earlier == own => {
                lost.insert(name.as_str(), own.version);
                continue;
            }
            _ => {}
        }
        ensure!(is_there(name, own), "{name} is lost, which was acknowledged with version {}", own.version);
    }
    let (count, all) = (lost.len(), written.len());
    let some: Vec<_> = lost.keys().take(SOME).copied().collect();
    match lost.values().min() {
        None => Ok(format!("{all} of {all} objects, none of an older version")),
        Some(oldest) => {
            ensure!(
                newest_kept < *oldest,
                "{} are lost, and not the newest: version {oldest} is lost and {newest_kept} is there",
                some.join(", ")
            );
            Ok(format!("{} of {all} objects; {count} are lost, newer than the newest snapshot", all - count))
        }
    }
}

/// Nodes, VMs and an object of before are the same.
pub async fn workload(world: &World, before: &Workload) -> Proof {
    let look = async {
        let after = world.workload().await?;
        ensure!(*before == after, "before {before:?}, after {after:?}");
        Ok(after.summary())
    };
    Proof::of("nodes and machines are the same, and none was created or deleted", look.await)
}

/// The Shoot is at the second of these seeds, and nothing of it is left at the first.
pub async fn moved(world: &World, before: &Workload, (from, to): (&str, &str)) -> Proof {
    let moved = world.ensure_moved(before, (from, to)).await;
    let what = format!("nothing of the Shoot is left at {from}, and its snapshots were not deleted");
    Proof::of(&what, moved.map(|()| "its namespace and BackupEntry are gone".to_owned()))
}

/// The Shoot is where it was, and nothing of it is left where it was going.
pub async fn stayed(world: &World, to: &str) -> Proof {
    let gone = world.ensure_gone(to).await;
    let what = format!("nothing of the Shoot is left at {to}");
    Proof::of(&what, gone.map(|()| "its namespace and BackupEntry are gone".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(all: &[(&str, u64, bool)]) -> BTreeMap<String, Written> {
        let of = |(name, version, is_changed): &(&str, u64, bool)| {
            ((*name).to_owned(), Written { version: *version, is_changed: *is_changed })
        };
        all.iter().map(of).collect()
    }

    #[test]
    fn write_that_is_missing_older_or_undone_is_lost() {
        let written = objects(&[("a", 10, true), ("b", 12, false)]);
        let compare = |found: &[(&str, u64, bool)]| compare(&written, &objects(found), Loss::Nothing);
        assert!(compare(&[("a", 10, true), ("b", 14, true), ("c", 15, false)]).is_ok());
        for wrong in [
            &[("a", 10, true)][..],
            &[("a", 9, true), ("b", 12, false)],
            &[("a", 10, false), ("b", 12, false)],
        ] {
            assert!(compare(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn only_the_newest_writes_of_a_dead_source_may_be_lost() {
        let at_stop = objects(&[("a", 10, true), ("b", 12, false), ("c", 14, false)]);
        let mut written = at_stop.clone();
        written.extend(objects(&[("d", 1_000, true)]));
        let compare =
            |found: &[(&str, u64, bool)]| compare(&written, &objects(found), Loss::NewestOf(&at_stop));
        let said =
            compare(&[("a", 10, true), ("b", 12, false), ("d", 1_000, true)]).expect("the newest is lost");
        assert_eq!(said, "3 of 4 objects; 1 are lost, newer than the newest snapshot");
        let of_before = compare(&[("a", 10, true), ("c", 14, false), ("d", 1_000, true)]);
        assert!(of_before.expect_err("b is older than c").to_string().contains("not the newest"));
        let of_after = compare(&[("a", 10, true), ("b", 12, false), ("c", 14, false)]);
        assert!(of_after.expect_err("d is of the destination").to_string().contains("d is lost"));
    }

    #[test]
    fn rehearsal_without_a_write_proves_nothing() {
        assert!(compare(&BTreeMap::new(), &BTreeMap::new(), Loss::Nothing).is_err());
    }
}
