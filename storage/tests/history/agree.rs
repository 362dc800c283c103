//! Whether versions, lists and watches tell one story: the one that the first watch tells from beginning to end.
//! Nothing in here does I/O.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{
    linear,
    record::{Answer, Call, History, Listing, Name, State, Tag, Told, Watched},
};

/// Everything that is wrong with a history; empty where nothing is.
pub fn faults(history: &History) -> Vec<String> {
    let mut found = history.breaches.clone();
    for name in history.names() {
        if let Err(stuck) = linear::check(&history.of(name)) {
            found.push(format!(
                "object {name}: no order of its operations found that explains the answers: {stuck}"
            ));
        }
    }
    found.extend(time(history));
    let Some((whole, others)) = history.watches.split_first() else {
        found.push("nobody watched".into());
        return found;
    };
    found.extend(order(whole, &BTreeMap::new()));
    found.extend(writes(history, whole));
    for other in others {
        found.extend(same(whole, other));
    }
    for listing in &history.listings {
        found.extend(snapshot(whole, listing));
    }
    found
}

/// Versions never go back: what is asked after something was answered is not older.
fn time(history: &History) -> Vec<String> {
    let mut found = Vec::new();
    let mut answered = Vec::new();
    let mut asked = Vec::new();
    let shared = history.shared();
    for operation in &history.operations {
        if let Answer::Done(version) = operation.answer {
            answered.push((operation.answered, version));
            if let Call::Delete { from } = operation.call
                && shared.contains(&(operation.name, from))
            {
                continue; // It may be told of a removal that was before it.
            }
            asked.push((operation.asked, version, true));
        }
    }
    for listing in &history.listings {
        if listing.version < listing.at_least {
            found.push(format!("a list asked for {} shows {}", listing.at_least, listing.version));
        }
        answered.push((listing.answered, listing.version));
        if listing.fresh {
            asked.push((listing.asked, listing.version, false));
        }
    }
    answered.sort_unstable();
    asked.sort_unstable();
    let (mut answered, mut newest) = (answered.into_iter().peekable(), 0);
    for (moment, version, writes) in asked {
        while let Some((_, known)) = answered.next_if(|(when, _)| *when < moment) {
            newest = newest.max(known);
        }
        if version < newest || (writes && version == newest) {
            found.push(format!("version {version} at {moment} although {newest} was known before"));
        }
    }
    found
}

/// A watch tells rising versions, and each state as the one that follows the one before.
fn order(watched: &Watched, start: &BTreeMap<Name, Tag>) -> Vec<String> {
    let mut found = Vec::new();
    let (mut last, mut states) = (watched.after, start.clone());
    for told in &watched.told {
        if told.version <= last {
            found.push(format!("a watch tells {told:?} after version {last}"));
        }
        last = told.version;
        let before = match told.now {
            Some(now) => states.insert(told.name, now),
            None => states.remove(&told.name),
        };
        if before != told.before || (before.is_none() && told.now.is_none()) {
            found.push(format!("a watch tells {told:?} where {before:?} was the state before"));
        }
    }
    found
}

/// Every write that was acknowledged is told at its version, and nothing else is told but what may have happened.
fn writes(history: &History, whole: &Watched) -> Vec<String> {
    let mut found = Vec::new();
    let told: HashMap<u64, &Told> = whole.told.iter().map(|told| (told.version, told)).collect();
    let (mut left, mut removed) = (HashMap::new(), HashSet::new());
    for operation in &history.operations {
        let may_have = matches!(operation.answer, Answer::Done(_) | Answer::Unknown(_));
        match operation.call {
            Call::Create(tag) | Call::Update { tag, .. } if may_have => drop(left.insert(tag, operation)),
            Call::Delete { from } if may_have => drop(removed.insert((operation.name, from))),
            _ => {}
        }
        let fits = match (operation.answer, operation.call) {
            (Answer::Done(version), call) => told.get(&version).is_some_and(|told| {
                let from = match call {
                    Call::Update { from, .. } | Call::Delete { from } => Some(from),
                    Call::Get | Call::Create(_) => None,
                };
                (told.name, told.now, told.before) == (operation.name, call.tag(), from)
            }),
            (Answer::Seen(Some(State { tag, version })), _) => {
                told.get(&version).is_some_and(|told| (told.name, told.now) == (operation.name, Some(tag)))
            }
            _ => true,
        };
        if !fits {
            found.push(format!("{operation:?} is not what the watch tells"));
        }
    }
    for told in &whole.told {
        let known = match (told.now, told.before) {
            (Some(now), _) => left.get(&now).is_some_and(|operation| operation.name == told.name),
            (None, before) => before.is_some_and(|before| removed.contains(&(told.name, before))),
        };
        if !known {
            let asked = history.operations.iter().find(|operation| operation.call.tag() == told.now);
            found.push(format!("nobody did what the watch tells: {told:?} of {asked:?}"));
        }
    }
    found
}

/// A watch tells what the whole one tells between where it began and where it ended.
fn same(whole: &Watched, other: &Watched) -> Vec<String> {
    let expected: Vec<_> =
        (whole.told.iter()).filter(|told| (other.after + 1..=other.until).contains(&told.version)).collect();
    let told: Vec<_> = other.told.iter().collect();
    if told == expected {
        return Vec::new();
    }
    let at = told.iter().zip(&expected).take_while(|(told, expected)| told == expected).count();
    vec![format!(
        "a watch after {} tells {:?} where another tells {:?}",
        other.after,
        told.get(at),
        expected.get(at)
    )]
}

/// A list shows every object as it was at its version.
fn snapshot(whole: &Watched, listing: &Listing) -> Vec<String> {
    let mut states = BTreeMap::new();
    for told in whole.told.iter().take_while(|told| told.version <= listing.version) {
        match told.now {
            Some(tag) => states.insert(told.name, State { tag, version: told.version }),
            None => states.remove(&told.name),
        };
    }
    if states == listing.states {
        return Vec::new();
    }
    vec![format!("a list at {} shows {:?} instead of {states:?}", listing.version, listing.states)]
}
