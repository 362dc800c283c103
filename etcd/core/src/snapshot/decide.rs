//! What the snapshots in a store mean for the one who goes on from them, and which of them are not kept. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    backups::{Backup, Taking, Verifying},
    digest::Digest,
    retention::{Retention as Thinned, expendable},
};
use repot_apimachinery::time::Time;

use crate::snapshot::{
    Kind, Revision, SnapshotName,
    chain::{self, PlanError},
};

/// Which full snapshots are kept. The two newest always are, and of deltas those that lead on from them: older full ones restore what
/// they hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// All.
    All,
    /// All of the last hour, one an hour for a day, one a day for a week, one a week for four weeks.
    Exponential,
    /// The newest ones, so many.
    LimitBased(u32),
}

/// What is known when somebody begins to take snapshots.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// What is in the store.
    pub names: &'a [SnapshotName],
    /// Whether the newest full snapshot was made by this very cluster.
    pub ours: bool,
    /// The revision of etcd.
    pub current: Revision,
    /// A full snapshot was due since the newest was taken, by the schedule.
    pub due: bool,
    /// What was tried before failed in a way that only a full snapshot helps against.
    pub broken: bool,
}

/// How an agent begins to take snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the events after this revision.
    Continue(Revision),
    /// With a full snapshot, because of this.
    Full(&'static str),
    /// Not at all, because of this.
    Refuse(String),
}

/// Decides how an agent begins to take snapshots, by what is in the store and in etcd.
pub fn start(facts: &Facts<'_>) -> Start {
    let furthest = facts.names.iter().map(|name| name.last).max();
    // Names are in the order of revisions: what this etcd wrote would be taken for old, and never be restored.
    if let Some(furthest) = furthest.filter(|furthest| *furthest > facts.current) {
        return Start::Refuse(format!(
            "AnotherHistory: the store has snapshots up to revision {furthest}, and this etcd is at {}: \
             they are of another etcd, or it was restored from an older one; give it a store of its own",
            facts.current
        ));
    }
    match chain::plan(facts.names, None) {
        Err(PlanError::NoFull | PlanError::NoSuchFull(_)) => Start::Full("there is none"),
        Err(PlanError::Gap { .. }) => Start::Full("deltas are missing after the newest one"),
        Ok(_) if facts.broken => Start::Full("the events after the newest delta are not to be had"),
        Ok(_) if !facts.ours => Start::Full("the newest one was made by another cluster"),
        Ok(plan) if plan.base.is_final => Start::Full("the newest one is a final one, and etcd goes on"),
        Ok(_) if facts.due => Start::Full("it is due"),
        Ok(plan) => Start::Continue(plan.reaches()),
    }
}

/// Which snapshots are not kept. Nothing is needed of them to restore the newest state, from the newest full snapshot and, should
/// that one be damaged, from the one before it.
pub fn superfluous(names: &[SnapshotName], retention: Retention, now: Time) -> Vec<SnapshotName> {
    let policy = match retention {
        Retention::All => return Vec::new(),
        Retention::Exponential => Thinned::Exponential,
        Retention::LimitBased(limit) => Thinned::LimitBased(usize::try_from(limit).unwrap_or(usize::MAX)),
    };
    let mut fulls: Vec<&SnapshotName> = names.iter().filter(|name| name.kind == Kind::Full).collect();
    fulls.sort();
    let backups: Vec<(String, Backup)> = fulls.iter().map(|full| (full.to_string(), backup(full))).collect();
    let backups: BTreeMap<String, &Backup> = backups.iter().map(|(name, one)| (name.clone(), one)).collect();
    let mut gone: BTreeSet<String> = expendable(policy, &backups, now).into_iter().collect();
    // By revision, which is what a restore goes by, and not by time.
    let kept_back = fulls.iter().rev().take(2).map(|full| full.to_string());
    kept_back.for_each(|name| {
        gone.remove(&name);
    });
    let before = fulls.iter().rev().nth(1).or(fulls.last()).map_or(Revision(0), |full| full.last);
    let goes = |name: &&SnapshotName| match name.kind {
        Kind::Full => gone.contains(&name.to_string()),
        Kind::Delta => name.last <= before,
    };
    names.iter().filter(goes).cloned().collect()
}

fn backup(full: &SnapshotName) -> Backup {
    let digest = Digest { revision: full.last, keys: 0, hash: String::new() };
    Backup {
        owner: String::new(),
        time: Time(u64::try_from(full.created).unwrap_or_default()),
        taking: Taking::Stored,
        verifying: Verifying::Sound(digest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Compression;

    fn name(kind: Kind, start: i64, last: i64, created: i64) -> SnapshotName {
        let (start, last) = (Revision(start), Revision(last));
        SnapshotName { kind, start, last, created, compression: Compression::Gzip, is_final: false }
    }

    fn full(last: i64, created: i64) -> SnapshotName {
        name(Kind::Full, 0, last, created)
    }

    fn delta(start: i64, last: i64) -> SnapshotName {
        name(Kind::Delta, start, last, last)
    }

    fn begins(names: &[SnapshotName], change: impl Fn(&mut Facts<'_>)) -> Start {
        let mut facts = Facts { names, ours: true, current: Revision(100), due: false, broken: false };
        change(&mut facts);
        start(&facts)
    }

    #[test]
    fn goes_on_from_the_newest_of_its_own_cluster() {
        let names = [full(10, 1), delta(11, 20), delta(15, 30)];
        assert_eq!(begins(&names, |_| ()), Start::Continue(Revision(30)));
        assert_eq!(begins(&[full(10, 1)], |_| ()), Start::Continue(Revision(10)));
        for (names, change) in [
            (&[][..], (|_| ()) as fn(&mut Facts<'_>)),
            (&names, |facts| facts.ours = false),
            (&names, |facts| facts.due = true),
            (&names, |facts| facts.broken = true),
            (&[full(10, 1), delta(12, 20)], |_| ()),
            (&[SnapshotName { is_final: true, ..full(10, 1) }], |_| ()),
        ] {
            let begins = begins(names, change);
            assert!(matches!(begins, Start::Full(_)), "{names:?}: {begins:?}");
        }
    }

    #[test]
    fn does_not_write_behind_another_history() {
        for names in [vec![full(101, 1)], vec![full(10, 1), delta(11, 101)]] {
            assert!(matches!(begins(&names, |facts| facts.broken = true), Start::Refuse(_)), "{names:?}");
        }
    }

    #[test]
    fn keeps_what_restores_from_the_two_newest() {
        let names = [full(10, 10), delta(11, 20), full(20, 20), delta(21, 30), full(30, 30), delta(31, 40)];
        let now = Time(50);
        assert_eq!(superfluous(&names, Retention::All, now), []);
        let gone = superfluous(&names, Retention::LimitBased(1), now);
        assert_eq!(gone, [full(10, 10), delta(11, 20)]);
        let left: Vec<SnapshotName> = names.iter().filter(|name| !gone.contains(name)).cloned().collect();
        for base in [full(20, 20), full(30, 30)] {
            assert_eq!(chain::plan(&left, Some(&base)).map(|plan| plan.reaches()), Ok(Revision(40)));
        }
        assert_eq!(superfluous(&names, Retention::LimitBased(9), now), [delta(11, 20)]);
        assert_eq!(superfluous(&[full(10, 10), delta(11, 20)], Retention::LimitBased(1), now), []);
        assert_eq!(superfluous(&[], Retention::Exponential, now), []);
    }
}
