//! Which backups are not kept. The newest sound one always is, whatever the policy says.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use repot_apimachinery::time::Time;

use crate::backups::{Backup, Taking, Verifying};

/// `spec.retention` of an EtcdBackup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// The newest ones, so many.
    LimitBased(usize),
    /// All of the last hour, one an hour for a day, one a day for a week, one a week for four weeks.
    Exponential,
}

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);
const WEEK: Duration = Duration::from_secs(7 * 86_400);
const LONGEST: Duration = Duration::from_secs(28 * 86_400);

/// Names of backups that are not kept, in order. What is being taken or verified is left alone; what failed is not kept beyond
/// the next sound one.
#[must_use]
pub fn expendable(retention: Retention, backups: &BTreeMap<String, &Backup>, now: Time) -> Vec<String> {
    let mut sound: Vec<(Time, &str)> = backups
        .iter()
        .filter(|(_, backup)| matches!(backup.verifying, Verifying::Sound(_)))
        .map(|(name, backup)| (backup.time, name.as_str()))
        .collect();
    sound.sort_unstable();
    sound.reverse();
    let Some((newest, _)) = sound.first().copied() else { return Vec::new() };
    let kept: BTreeSet<&str> = match retention {
        Retention::LimitBased(limit) => sound.iter().take(limit.max(1)).map(|(_, name)| *name).collect(),
        Retention::Exponential => thinned(&sound, now),
    };
    let goes = |(name, backup): &(&String, &&Backup)| match (&backup.taking, &backup.verifying) {
        (_, Verifying::Sound(_)) => !kept.contains(name.as_str()),
        (Taking::Failed(..), _) | (_, Verifying::Corrupt(_)) => backup.time < newest,
        (Taking::Running | Taking::Stored, Verifying::Open) => false,
    };
    backups.iter().filter(goes).map(|(name, _)| name.clone()).collect()
}

/// The oldest of each hour, day or week: those stay the same from one look to the next. `sound`: the newest first.
fn thinned<'a>(sound: &[(Time, &'a str)], now: Time) -> BTreeSet<&'a str> {
    let mut kept: BTreeMap<(u64, u64), &str> = BTreeMap::new();
    for (at, (time, name)) in sound.iter().enumerate() {
        let age = now.since(*time);
        let width = match age {
            _ if at == 0 || age < HOUR => 1,
            _ if age < DAY => HOUR.as_secs(),
            _ if age < WEEK => DAY.as_secs(),
            _ if age < LONGEST => WEEK.as_secs(),
            _ => continue,
        };
        kept.insert((width, time.0 / width), name);
    }
    kept.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{digest::Digest, snapshot::Revision};

    fn mk_backup(time: u64, taking: Taking, sound: bool) -> Backup {
        let digest = Digest { revision: Revision(1), keys: 1, hash: "h".into() };
        let verifying = if sound { Verifying::Sound(digest) } else { Verifying::Open };
        Backup { owner: "u".into(), time: Time(time), taking, verifying }
    }

    fn goes(retention: Retention, backups: &[(&str, Backup)], now: u64) -> Vec<String> {
        let backups = backups.iter().map(|(name, backup)| ((*name).to_owned(), backup)).collect();
        expendable(retention, &backups, Time(now))
    }

    #[test]
    fn keeps_the_newest_sound_one_whatever_failed_after_it() {
        let failed = |time| mk_backup(time, Taking::Failed(3, "full".into()), false);
        let stored = |time| mk_backup(time, Taking::Stored, true);
        let unread = mk_backup(9, Taking::Stored, false);
        let backups = [("a", failed(1)), ("b", stored(2)), ("c", stored(3)), ("d", failed(4)), ("e", unread)];
        assert_eq!(goes(Retention::LimitBased(1), &backups, 10), ["a", "b"]);
        assert_eq!(goes(Retention::LimitBased(0), &backups, 10), ["a", "b"]);
        assert_eq!(goes(Retention::LimitBased(2), &backups, 10), ["a"]);
        // However old it is.
        assert_eq!(goes(Retention::Exponential, &backups, 400 * 86_400), ["a", "b"]);
        assert_eq!(goes(Retention::LimitBased(1), &backups[3..], 10), [""; 0]);
    }

    #[test]
    fn thins_out_by_age() {
        const NOW: u64 = 60 * 86_400;
        let names: Vec<String> = (0..60 * 24).map(|hours| format!("{hours:04}")).collect();
        let backups: Vec<(&str, Backup)> = names
            .iter()
            .enumerate()
            .map(|(at, name)| (name.as_str(), mk_backup(NOW - at as u64 * 3600, Taking::Stored, true)))
            .collect();
        let kept = backups.len() - goes(Retention::Exponential, &backups, NOW).len();
        // 24 of the last day (one of them in the last hour), 6 or 7 days, 3 or 4 weeks.
        assert!((24 + 6 + 3..=24 + 7 + 4 + 1).contains(&kept), "{kept} are kept");
        assert_eq!(goes(Retention::LimitBased(20), &backups, NOW).len(), backups.len() - 20);
    }
}
