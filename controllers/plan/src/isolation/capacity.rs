//! Whether other zones can take over what a zone has, and whether they have. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// A pool of machines, and where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Name of the pool.
    pub name: String,
    /// The greatest number of machines in all zones together.
    pub maximum: u32,
    /// Its zones in the order of the Shoot, each with its machines.
    pub zones: Vec<Zone>,
}

/// A zone of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Code of the zone.
    pub code: String,
    /// Machines that are wanted there.
    pub wanted: u32,
    /// Machines that run there.
    pub available: u32,
}

impl Pool {
    fn wanted(&self) -> u32 {
        sum(self.zones.iter().map(|zone| zone.wanted))
    }

    fn wanted_in(&self, code: &str) -> u32 {
        sum(self.zones.iter().filter(|zone| zone.code == code).map(|zone| zone.wanted))
    }

    fn available_beside(&self, code: &str) -> u32 {
        sum(self.zones.iter().filter(|zone| zone.code != code).map(|zone| zone.available))
    }

    fn problem(&self, code: &str) -> Option<String> {
        let name = &self.name;
        let is_used = self.zones.iter().any(|zone| zone.code == code);
        let has_other = self.zones.iter().any(|zone| zone.code != code);
        if is_used && !has_other {
            return Some(format!("pool {name} has no other zone; add one"));
        }
        let (all, most) = (self.wanted(), self.maximum);
        (self.wanted_in(code) > 0 && all > most)
            .then(|| format!("pool {name} has {all} machines and may have {most}; raise its maximum"))
    }
}

/// Numbers are what objects of the seed say, however large.
fn sum(numbers: impl Iterator<Item = u32>) -> u32 {
    numbers.fold(0, u32::saturating_add)
}

/// Machines that zones can still take by the quotas of the account, by the codes of zones. One that is missing takes as many as are asked for.
pub type FreeQuota = BTreeMap<String, u32>;

/// Why machines of this zone cannot move to other zones; empty where they can.
#[must_use]
pub fn problems(pools: &[Pool], code: &str, free: &FreeQuota) -> Vec<String> {
    pools.iter().filter_map(|pool| pool.problem(code)).chain(quota_problem(pools, code, free)).collect()
}

/// Pools share the quotas of an account.
fn quota_problem(pools: &[Pool], code: &str, free: &FreeQuota) -> Option<String> {
    let needed = sum(pools.iter().map(|pool| pool.wanted_in(code)));
    let leaving = pools.iter().filter(|pool| pool.wanted_in(code) > 0);
    let others = leaving.flat_map(|pool| &pool.zones).map(|zone| &zone.code).filter(|other| *other != code);
    let others: BTreeSet<&String> = others.collect();
    let told: Option<Vec<u32>> = others.iter().map(|other| free.get(*other).copied()).collect();
    let left = sum(told?.into_iter());
    (!others.is_empty() && left < needed).then(|| {
        let others: Vec<&str> = others.into_iter().map(String::as_str).collect();
        let others = others.join(", ");
        format!("{needed} machines are to move, and the quotas of the account allow {left} more in {others}; raise them")
    })
}

/// Machines of each pool that uses this zone.
#[must_use]
pub fn machines(pools: &[Pool], code: &str) -> BTreeMap<String, u32> {
    let using = pools.iter().filter(|pool| pool.zones.iter().any(|zone| zone.code == code));
    using.map(|pool| (pool.name.clone(), pool.wanted())).collect()
}

/// Pools whose other zones have not taken over what the pool had in all zones, in words.
#[must_use]
pub fn missing(pools: &[Pool], code: &str, before: &BTreeMap<String, u32>) -> Vec<String> {
    let missing = |pool: &Pool| {
        let (name, left) = (&pool.name, pool.wanted_in(code));
        if left > 0 {
            return Some(format!("pool {name}: {left} machines are wanted in the zone"));
        }
        // A pool that was made smaller meanwhile needs fewer.
        let needed = before.get(name).copied().unwrap_or_default().min(pool.wanted());
        let available = pool.available_beside(code);
        (available < needed).then(|| format!("pool {name}: {available} of {needed} machines"))
    };
    pools.iter().filter_map(missing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(maximum: u32, zones: &[(&str, u32)]) -> Pool {
        let zone = |(code, machines): &(&str, u32)| Zone {
            code: (*code).to_owned(),
            wanted: *machines,
            available: *machines,
        };
        Pool { name: "cpu".to_owned(), maximum, zones: zones.iter().map(zone).collect() }
    }

    #[test]
    fn machines_need_another_zone_and_a_maximum() {
        assert_eq!(problems(&[pool(3, &[("a", 1), ("b", 1), ("c", 1)])], "b", &FreeQuota::new()), [""; 0]);
        assert_eq!(
            problems(&[pool(3, &[("b", 1)])], "b", &FreeQuota::new()),
            ["pool cpu has no other zone; add one"]
        );
        assert_eq!(
            problems(&[pool(1, &[("a", 1), ("b", 1)])], "b", &FreeQuota::new()),
            ["pool cpu has 2 machines and may have 1; raise its maximum"]
        );
        // A pool that has nothing there is left as it is.
        assert_eq!(
            problems(&[pool(1, &[("a", 2), ("b", 0)]), pool(0, &[("c", 1)])], "b", &FreeQuota::new()),
            [""; 0]
        );
    }

    #[test]
    fn quotas_of_the_account_allow_more_in_all_other_zones_together() {
        let pools = [pool(9, &[("a", 1), ("b", 2), ("c", 1)]), pool(9, &[("b", 1), ("c", 0)])];
        let free = |told: &[(&str, u32)]| -> FreeQuota {
            told.iter().map(|(code, number)| ((*code).to_owned(), *number)).collect()
        };
        let full = "3 machines are to move, and the quotas of the account allow 2 more in a, c; raise them";
        assert_eq!(problems(&pools, "b", &free(&[("a", 0), ("c", 2)])), [full]);
        assert_eq!(problems(&pools, "b", &free(&[("a", 1), ("c", 2)])), [""; 0]);
        assert_eq!(problems(&pools, "b", &free(&[("a", u32::MAX), ("c", u32::MAX)])), [""; 0]);
        // What the provider does not tell, it does not limit.
        assert_eq!(problems(&pools, "b", &free(&[("c", 0)])), [""; 0]);
        assert_eq!(problems(&pools, "d", &free(&[("a", 0), ("b", 0), ("c", 0)])), [""; 0]);
    }

    #[test]
    fn other_zones_have_grown_when_they_have_what_all_zones_had() {
        let before = machines(&[pool(6, &[("a", 2), ("b", 2), ("c", 2)])], "b");
        assert_eq!(before, BTreeMap::from([("cpu".to_owned(), 6)]));
        let half = pool(6, &[("a", 3), ("b", 2), ("c", 2)]);
        assert_eq!(missing(&[half], "b", &before), ["pool cpu: 2 machines are wanted in the zone"]);
        let mut late = pool(6, &[("a", 3), ("b", 0), ("c", 3)]);
        late.zones[0].available = 2;
        assert_eq!(missing(&[late], "b", &before), ["pool cpu: 5 of 6 machines"]);
        assert_eq!(missing(&[pool(6, &[("a", 3), ("b", 0), ("c", 3)])], "b", &before), [""; 0]);
        assert_eq!(missing(&[pool(4, &[("a", 2), ("b", 0), ("c", 2)])], "b", &before), [""; 0]);
    }
}
