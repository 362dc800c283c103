//! Which snapshots follow on each other. Pure: names in, answers out.

use std::ops::RangeInclusive;

use super::{Kind, Revision, SnapshotName};

/// What a restore needs, in the order in which it is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The full snapshot it begins with.
    pub base: SnapshotName,
    /// The deltas after it.
    pub deltas: Vec<SnapshotName>,
}

impl Plan {
    /// The revision after it, by names.
    #[must_use]
    pub fn reaches(&self) -> Revision {
        self.deltas.last().map_or(self.base.last, |delta| delta.last)
    }
}

/// Why there is nothing to restore.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Nothing to begin with.
    #[error("there is no full snapshot")]
    NoFull,
    /// The one asked for is not there.
    #[error("there is no full snapshot {0}")]
    NoSuchFull(SnapshotName),
    /// Revisions are missing.
    #[error("revisions {} to {} are in no snapshot: {before} begins after them", after.next(), before.start.0 - 1)]
    Gap {
        /// The last revision before the gap.
        after: Revision,
        /// The delta behind it.
        before: SnapshotName,
    },
}

/// Works out the newest state that a list of snapshots makes up, from the newest full or the one asked for.
///
/// # Errors
/// [`PlanError`].
pub fn plan(names: &[SnapshotName], base: Option<&SnapshotName>) -> Result<Plan, PlanError> {
    let mut fulls = names.iter().filter(|name| name.kind == Kind::Full);
    let base = match base {
        Some(base) => fulls.find(|name| *name == base).ok_or_else(|| PlanError::NoSuchFull(base.clone()))?,
        None => fulls.max().ok_or(PlanError::NoFull)?,
    };
    Ok(Plan { base: base.clone(), deltas: deltas_after(names, base.last)? })
}

/// The deltas of a list that lead from a revision to the newest state, in the order in which they are applied.
///
/// # Errors
/// [`PlanError::Gap`].
pub fn deltas_after(names: &[SnapshotName], reached: Revision) -> Result<Vec<SnapshotName>, PlanError> {
    let mut deltas: Vec<SnapshotName> = Vec::new();
    let mut covered = reached;
    loop {
        let beyond = || names.iter().filter(|name| name.kind == Kind::Delta && name.last > covered);
        // What begins exactly here is preferred to what repeats something.
        let exact = beyond().filter(|name| name.start == covered.next()).max_by_key(|name| name.last);
        let next = exact
            .or_else(|| beyond().filter(|name| name.start <= covered.next()).max_by_key(|name| name.last));
        match (next, beyond().min_by_key(|name| name.start)) {
            (Some(next), _) => {
                covered = next.last;
                deltas.push(next.clone());
            }
            (None, Some(before)) => {
                return Err(PlanError::Gap { after: covered, before: before.clone() });
            }
            (None, None) => return Ok(deltas),
        }
    }
}

/// Revisions that two deltas both hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// Index of the one that begins earlier.
    pub first: usize,
    /// Index of the other.
    pub second: usize,
    /// The revisions that both hold, first and last included.
    pub revisions: RangeInclusive<Revision>,
}

/// All pairs of deltas in a list that share revisions.
#[must_use]
pub fn overlaps(names: &[SnapshotName]) -> Vec<Overlap> {
    let mut order: Vec<usize> = (0..names.len()).filter(|at| names[*at].kind == Kind::Delta).collect();
    order.sort_by_key(|at| (names[*at].start, names[*at].last, *at));
    let mut found = Vec::new();
    for (at, first) in order.iter().enumerate() {
        let within = order[at + 1..].iter().take_while(|second| names[**second].start <= names[*first].last);
        found.extend(within.map(|second| {
            let end = names[*first].last.min(names[*second].last);
            Overlap { first: *first, second: *second, revisions: names[*second].start..=end }
        }));
    }
    found
}

/// A delta that follows on nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Index of the delta behind the gap.
    pub before: usize,
    /// The last revision before it that is in some snapshot; `None` when there is none.
    pub after: Option<Revision>,
    /// Whether the newest state cannot be restored for it. Otherwise it lies behind a newer full, as after the collection of
    /// old deltas.
    pub harmful: bool,
}

/// Deltas that follow on nothing. `reaches` is the revision that each snapshot is known to reach.
#[must_use]
pub fn gaps(names: &[SnapshotName], reaches: &[Revision]) -> Vec<Gap> {
    let of_full = |at: &usize| names[*at].kind == Kind::Full;
    let newest_full = (0..names.len()).filter(of_full).map(|at| reaches[at]).max();
    let mut found = Vec::new();
    for (at, delta) in names.iter().enumerate().filter(|(_, name)| name.kind == Kind::Delta) {
        let before = Revision(delta.start.0.saturating_sub(1));
        let carries = |other: usize| {
            let earlier = match names[other].kind {
                Kind::Full => names[other].last < delta.last,
                Kind::Delta => names[other].start < delta.start,
            };
            other != at && earlier && reaches[other] >= before
        };
        // A full that reaches as far as the delta has everything in it.
        let repeated = newest_full.is_some_and(|newest| newest >= delta.last);
        if (0..names.len()).any(carries) || (repeated && newest_full == Some(delta.last)) {
            continue;
        }
        let after = reaches.iter().copied().filter(|revision| *revision < before).max();
        found.push(Gap { before: at, after, harmful: !repeated });
    }
    found
}

/// The final snapshot, if there is one after which nothing was stored.
///
/// Another snapshot may have been begun at the same time as the final one, and an old final one may be left of an earlier life of
/// this etcd. So it counts when whatever reaches further than it was begun no later.
#[must_use]
pub fn final_snapshot(names: &[SnapshotName]) -> Option<&SnapshotName> {
    let settled = |one: &&SnapshotName| {
        names.iter().all(|other| other.last <= one.last || other.created <= one.created)
    };
    let finals = names.iter().filter(|name| name.kind == Kind::Full && name.is_final);
    finals.filter(settled).max_by_key(|name| (name.created, name.last))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::snapshot::Compression;

    fn name(kind: Kind, start: i64, last: i64, created: i64) -> SnapshotName {
        let (start, last) = (Revision(start), Revision(last));
        SnapshotName { kind, start, last, created, compression: Compression::Gzip, is_final: false }
    }

    fn full(last: i64) -> SnapshotName {
        name(Kind::Full, 0, last, last)
    }

    fn delta(start: i64, last: i64) -> SnapshotName {
        name(Kind::Delta, start, last, last)
    }

    fn planned(names: &[SnapshotName]) -> Result<Vec<(i64, i64)>, PlanError> {
        let plan = plan(names, None)?;
        let ends = |name: &SnapshotName| (name.start.0, name.last.0);
        Ok(std::iter::once(&plan.base).chain(&plan.deltas).map(ends).collect())
    }

    fn holes(names: &[SnapshotName]) -> Vec<(usize, Option<i64>, bool)> {
        let reaches: Vec<Revision> = names.iter().map(|name| name.last).collect();
        let short = |gap: Gap| (gap.before, gap.after.map(|after| after.0), gap.harmful);
        gaps(names, &reaches).into_iter().map(short).collect()
    }

    #[test]
    fn the_newest_state_is_planned() {
        assert_eq!(planned(&[]), Err(PlanError::NoFull));
        assert_eq!(planned(&[delta(1, 4)]), Err(PlanError::NoFull));
        assert_eq!(planned(&[full(9)]), Ok(vec![(0, 9)]));
        let list = [full(9), delta(10, 12), delta(13, 20), full(20), delta(21, 30)];
        assert_eq!(planned(&list), Ok(vec![(0, 20), (21, 30)]));
        // The same by an older full.
        let old = plan(&list, Some(&list[0])).expect("a plan");
        assert_eq!(old.deltas.len(), 3);
        assert_eq!(old.reaches(), Revision(30));
        assert_eq!(plan(&list, Some(&full(8))), Err(PlanError::NoSuchFull(full(8))));
    }

    #[test]
    fn a_plan_prefers_what_repeats_nothing_and_refuses_gaps() {
        assert_eq!(planned(&[full(9), delta(10, 12), delta(11, 15)]), Ok(vec![(0, 9), (10, 12), (11, 15)]));
        assert_eq!(planned(&[full(9), delta(10, 12), delta(10, 15)]), Ok(vec![(0, 9), (10, 15)]));
        let list = [full(9), delta(10, 12), delta(11, 15), delta(13, 15)];
        assert_eq!(planned(&list), Ok(vec![(0, 9), (10, 12), (13, 15)]));
        // The name of a full may be older than its content.
        assert_eq!(planned(&[full(9), delta(8, 12)]), Ok(vec![(0, 9), (8, 12)]));
        let gap = planned(&[full(9), delta(10, 12), delta(14, 15)]).expect_err("a gap").to_string();
        assert!(gap.starts_with("revisions 13 to 13 are in no snapshot: Incr-00000014"), "{gap}");
    }

    #[test]
    fn gaps_are_named() {
        assert_eq!(holes(&[full(9), delta(10, 12), delta(13, 20)]), []);
        assert_eq!(holes(&[full(9), delta(11, 12)]), [(1, Some(9), true)]);
        assert_eq!(holes(&[full(9), delta(10, 12), delta(14, 20)]), [(2, Some(12), true)]);
        assert_eq!(holes(&[delta(10, 12)]), [(0, None, true)]);
        // Old deltas are collected before old fulls are.
        assert_eq!(holes(&[full(9), delta(14, 20), delta(21, 22), full(30)]), [(1, Some(9), false)]);
        // A full taken at the end of a delta repeats it.
        assert_eq!(holes(&[delta(14, 20), full(20), delta(21, 22)]), []);
    }

    #[test]
    fn overlaps_are_named() {
        let ranges = |names: &[SnapshotName]| {
            let short = |o: Overlap| (o.first, o.second, o.revisions.start().0, o.revisions.end().0);
            overlaps(names).into_iter().map(short).collect::<Vec<_>>()
        };
        assert_eq!(ranges(&[full(9), delta(10, 12), delta(13, 20)]), []);
        assert_eq!(ranges(&[full(9), delta(12, 20), delta(10, 12)]), [(2, 1, 12, 12)]);
        assert_eq!(
            ranges(&[delta(1, 9), delta(2, 4), delta(4, 12)]),
            [(0, 1, 2, 4), (0, 2, 4, 9), (1, 2, 4, 4)]
        );
        assert_eq!(ranges(&[delta(1, 9), delta(1, 9)]), [(0, 1, 1, 9)]);
    }

    #[test]
    fn a_final_snapshot_counts_only_when_nothing_came_after_it() {
        let ended = |last, created| SnapshotName { is_final: true, ..name(Kind::Full, 0, last, created) };
        let found = |names: &[SnapshotName]| final_snapshot(names).map(|name| (name.last.0, name.created));
        assert_eq!(found(&[full(9)]), None);
        assert_eq!(found(&[ended(9, 100)]), Some((9, 100)));
        // Taken at the same time by a schedule, under a newer name.
        assert_eq!(found(&[ended(9, 100), name(Kind::Full, 0, 10, 100)]), Some((9, 100)));
        assert_eq!(found(&[ended(9, 100), name(Kind::Full, 0, 9, 101)]), Some((9, 100)));
        // Left of an earlier life.
        assert_eq!(found(&[ended(9, 100), name(Kind::Delta, 10, 12, 200)]), None);
        assert_eq!(found(&[ended(9, 100), name(Kind::Delta, 10, 12, 200), ended(12, 300)]), Some((12, 300)));
    }

    proptest! {
        #[test]
        fn a_plan_is_continuous_and_reaches_the_end(ends in proptest::collection::vec(1_i64..9, 1..12), at in any::<proptest::sample::Index>()) {
            let mut names = vec![full(5)];
            for length in &ends {
                let start = names.last().expect("one").last.next().0;
                names.push(delta(start, start + length - 1));
            }
            let end = names.last().expect("one").last;
            prop_assert_eq!(plan(&names, None).expect("a plan").reaches(), end);
            prop_assert_eq!(holes(&names), vec![]);
            prop_assert_eq!(overlaps(&names), vec![]);
            // Without one of them but the last there is a gap, in both views.
            let missing = 1 + at.index(ends.len());
            names.remove(missing);
            if missing < names.len() {
                let gap = matches!(plan(&names, None), Err(PlanError::Gap { .. }));
                prop_assert!(gap);
                prop_assert_eq!(holes(&names).len(), 1);
            }
        }
    }
}
