//! How many classic and live migrations one seed has at once: a machine that starts many control planes at the same time starves the
//! etcds that it runs already. Others wait, in the order in which they were created.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    sync::{Mutex, PoisonError},
};

use kube::{ResourceExt, runtime::reflector::Store};
use repot_plan::migration::{Side, observed::MigrationMode};

use super::api::ControlPlaneMigration;

/// How many migrations a message names.
const NAMED: usize = 3;

/// The migrations of the garden, and how many a seed may have at once.
#[derive(Default)]
pub struct Turns {
    /// `None` on a seed, which lets nobody wait.
    limit: Option<NonZeroUsize>,
    all: Option<Store<ControlPlaneMigration>>,
    /// UIDs of those whose turn it was: the cache may show that later than another one asks.
    granted: Mutex<BTreeSet<String>>,
}

impl Turns {
    /// Lets this many migrations of one seed be under way at once.
    #[must_use]
    pub fn new(limit: NonZeroUsize) -> Self {
        Self { limit: Some(limit), ..Self::default() }
    }

    /// Counts the migrations of this cache from now on. One that has not arrived there was created later than those that have.
    pub fn follow(&mut self, all: Store<ControlPlaneMigration>) {
        self.all = Some(all);
    }

    /// Why a migration does not begin yet, in words; `None` where it is its turn, or has been.
    #[must_use]
    pub fn why_queued(&self, own: &ControlPlaneMigration) -> Option<String> {
        if own.mode() == Some(MigrationMode::Forced) || own.has_taken_turn() {
            return None;
        }
        let (limit, all) = (self.limit?, self.all.as_ref()?.state());
        let all: Vec<&ControlPlaneMigration> = all.iter().map(AsRef::as_ref).collect();
        self.ask(own, &all, limit)
    }

    fn ask(
        &self,
        own: &ControlPlaneMigration,
        all: &[&ControlPlaneMigration],
        limit: NonZeroUsize,
    ) -> Option<String> {
        if !may_begin(own) {
            return Some("it is paused, or goes back".to_owned());
        }
        let mut granted = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        granted.retain(|uid| all.iter().any(|one| one.uid().as_ref() == Some(uid)));
        let queued = why_queued(own, all, limit, &granted);
        if queued.is_none() {
            granted.extend(own.uid());
        }
        queued
    }
}

/// Those that are under way come first, and then the oldest ones that both of their seeds have room for.
fn why_queued(
    own: &ControlPlaneMigration,
    all: &[&ControlPlaneMigration],
    limit: NonZeroUsize,
    granted: &BTreeSet<String>,
) -> Option<String> {
    let is_other = |other: &&&ControlPlaneMigration| other.uid() != own.uid() && is_counted(other, granted);
    let mut all: Vec<_> = all.iter().filter(is_other).copied().chain([own]).collect();
    all.sort_by_key(|one| (!has_begun(one, granted), age(one)));
    let mut used = BTreeMap::<&str, Vec<String>>::new();
    for one in all {
        let seeds = [&*one.spec.source_seed, &*one.spec.destination_seed];
        let names = |seed: &str| used.get(seed).map(Vec::as_slice).unwrap_or_default();
        let full = seeds.into_iter().find(|seed| names(seed).len() >= limit.get());
        match full {
            _ if one.uid() == own.uid() => return full.map(|seed| words(seed, names(seed), limit)),
            Some(_) if !has_begun(one, granted) => {}
            _ => seeds.into_iter().for_each(|seed| used.entry(seed).or_default().push(title(one))),
        }
    }
    None
}

fn words(seed: &str, names: &[String], limit: NonZeroUsize) -> String {
    let (named, rest) = names.split_at(names.len().min(NAMED));
    let others = match rest.len() {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    format!(
        "seed {seed} has at most {limit} migrations at once, and these go first: {}{others}",
        named.join(", ")
    )
}

fn title(one: &ControlPlaneMigration) -> String {
    format!("{}/{}", one.namespace().unwrap_or_default(), one.name_any())
}

/// Whether a migration is under way, or may begin.
fn is_counted(one: &ControlPlaneMigration, granted: &BTreeSet<String>) -> bool {
    let is_paced = one.mode().or(one.gardenlet_mode()).is_some_and(|mode| mode != MigrationMode::Forced);
    let is_left = one.superseded_by().is_some() || one.continued_by().is_some();
    // A seed that is dead moves nothing, and its part may never end.
    let is_dead = [Side::Source, Side::Destination].into_iter().any(|side| one.is_silent(side));
    let is_over = one.has_ended() || is_left || is_dead;
    is_paced && !is_over && (has_begun(one, granted) || may_begin(one))
}

/// What is paused, being deleted or aborted holds nobody up before it has begun.
fn may_begin(one: &ControlPlaneMigration) -> bool {
    let is_aborted = one.spec.abort.is_some() || one.phase() == Some("RollingBack");
    one.spec.paused != Some(true) && one.metadata.deletion_timestamp.is_none() && !is_aborted
}

fn has_begun(one: &ControlPlaneMigration, granted: &BTreeSet<String>) -> bool {
    one.has_taken_turn() || one.uid().is_some_and(|uid| granted.contains(&uid))
}

fn age(one: &ControlPlaneMigration) -> (Option<String>, Option<String>) {
    (one.creation_timestamp().map(|created| created.0.to_string()), one.uid())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// One that was created at `second`.
    fn migration(name: &str, (from, to): (&str, &str), second: u32) -> ControlPlaneMigration {
        let created = format!("2026-01-01T00:00:{second:02}Z");
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "n", "uid": name, "creationTimestamp": created},
            "spec": {"shootRef": {"name": name}, "sourceSeed": from, "destinationSeed": to, "mode": "Live"},
        }))
        .expect("a migration")
    }

    fn begun(mut one: ControlPlaneMigration) -> ControlPlaneMigration {
        let steps = json!([{"name": "TurnTaken", "state": "Succeeded"}]);
        one.status.insert("garden".to_owned(), json!({"steps": steps}));
        one
    }

    fn with(mut one: ControlPlaneMigration, field: &str, value: Value) -> ControlPlaneMigration {
        one.status.insert(field.to_owned(), value);
        one
    }

    fn queued(own: &ControlPlaneMigration, all: &[ControlPlaneMigration], limit: usize) -> Option<String> {
        let limit = NonZeroUsize::new(limit).expect("a limit");
        why_queued(own, &all.iter().collect::<Vec<_>>(), limit, &BTreeSet::new())
    }

    const SEEDS: (&str, &str) = ("a", "b");

    #[test]
    fn so_many_begin_at_once_and_the_first_created_are_first() {
        let all = [0, 1, 2].map(|second| migration(&format!("m{second}"), SEEDS, second));
        let held_up = |all: &[ControlPlaneMigration], limit| {
            all.iter().map(|own| queued(own, all, limit).is_some()).collect::<Vec<_>>()
        };
        assert_eq!(held_up(&all, 2), [false, false, true]);
        assert_eq!(held_up(&all, 3), [false, false, false]);
        let words = queued(&all[2], &all, 1).expect("it waits");
        assert_eq!(words, "seed a has at most 1 migrations at once, and these go first: n/m0");
    }

    #[test]
    fn one_that_has_begun_goes_on_before_an_older_one() {
        let (old, young) = (migration("old", SEEDS, 0), begun(migration("young", SEEDS, 1)));
        assert!(queued(&old, &[old.clone(), young.clone()], 1).is_some());
        assert_eq!(queued(&old, &[old.clone(), with(young, "phase", "Succeeded".into())], 1), None);
    }

    #[test]
    fn each_seed_counts_for_itself_in_both_directions() {
        let (there, back) = (begun(migration("there", ("a", "b"), 0)), migration("back", ("b", "c"), 1));
        assert!(queued(&back, &[there.clone(), back.clone()], 1).is_some_and(|why| why.contains("seed b")));
        let apart = migration("apart", ("c", "d"), 2);
        assert_eq!(queued(&apart, &[there.clone(), apart.clone()], 1), None);
        // One that waits for another seed does not take the place at this one.
        assert_eq!(queued(&apart, &[there, back, apart.clone()], 1), None);
    }

    #[test]
    fn nobody_waits_for_what_does_not_go_on_or_is_forced() {
        let own = migration("own", SEEDS, 5);
        let other = || begun(migration("other", SEEDS, 0));
        assert!(queued(&own, &[other()], 1).is_some());
        for over in [
            with(other(), "supersededBy", "f".into()),
            with(other(), "continuedBy", "f".into()),
            with(other(), "phase", "Failed".into()),
            dead(other()),
        ] {
            assert_eq!(queued(&own, &[over], 1), None);
        }
        let mut forced = other();
        forced.spec.mode = "Forced".to_owned();
        assert_eq!(queued(&own, &[forced], 1), None);
        let mut paused = migration("other", SEEDS, 0);
        paused.spec.paused = Some(true);
        assert_eq!(queued(&own, &[paused], 1), None);
        let aborted = with(migration("other", SEEDS, 0), "phase", "RollingBack".into());
        assert_eq!(queued(&own, &[aborted], 1), None);
    }

    /// Its source has recorded nothing for an hour, and its garden has.
    fn dead(one: ControlPlaneMigration) -> ControlPlaneMigration {
        let mut garden = one.status["garden"].clone();
        garden["observedTime"] = "2026-01-01T01:00:00Z".into();
        let one = with(one, "garden", garden);
        with(one, "source", json!({"observedTime": "2026-01-01T00:00:00Z"}))
    }

    #[test]
    fn turn_that_is_not_in_the_cache_yet_counts() {
        let limit = NonZeroUsize::MIN;
        let (young, old) = (migration("young", SEEDS, 1), migration("old", SEEDS, 0));
        let turns = Turns::new(limit);
        assert_eq!(turns.ask(&young, &[&young], limit), None);
        assert!(turns.ask(&old, &[&young, &old], limit).is_some());
        // Once it is gone, it holds nobody up.
        assert_eq!(turns.ask(&old, &[&old], limit), None);
        let mut paused = migration("paused", ("c", "d"), 0);
        paused.spec.paused = Some(true);
        assert!(turns.ask(&paused, &[&paused], limit).is_some_and(|why| why.contains("paused")));
        let other = migration("other", ("c", "d"), 1);
        assert_eq!(turns.ask(&other, &[&paused, &other], limit), None);
    }
}
