//! What a transaction demands to find, so that it is never done before those before it.

use repot_etcd_core::snapshot::Revision;

use crate::snapshot::codec::{Event, EventKind};

/// Something that has to be so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Demand {
    /// A key was last written at a revision.
    Written(Vec<u8>, Revision),
    /// A key is not there.
    Absent(Vec<u8>),
}

/// What is known of the revisions so far.
///
/// That a key was last written at a revision is so from then on and never before. That it is not there may have been so before as
/// well; but after the last revision that wrote anything, what a later one deletes is there until then.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// Of the last revision that wrote something, unless that was deleted since.
    written: Option<(Vec<u8>, Revision)>,
    /// Of the last revision, where it only deleted.
    deleted: Option<Vec<u8>>,
}

impl Evidence {
    /// What is so once all revisions so far are there, and not before; `None` where nothing tells.
    pub(super) fn demands(&self) -> Option<Vec<Demand>> {
        let (key, revision) = self.written.clone()?;
        let deleted = self.deleted.clone().map(Demand::Absent);
        Some([Demand::Written(key, revision)].into_iter().chain(deleted).collect())
    }

    /// Goes on to the events of the next revision.
    pub(super) fn add(&mut self, events: &[Event]) {
        let of = |kind| events.iter().rfind(move |event| event.kind == kind);
        if let Some(put) = of(EventKind::Put) {
            (self.written, self.deleted) = (Some((put.key.clone(), put.mod_revision)), None);
            return;
        }
        let is_deleted = |key: &[u8]| events.iter().any(|event| event.key == key);
        self.written = self.written.take().filter(|(key, _)| !is_deleted(key));
        self.deleted = of(EventKind::Delete).map(|event| event.key.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    type State = BTreeMap<Vec<u8>, Revision>;

    /// Events as an etcd makes them: only what is there is deleted, and each key changes once in a revision.
    fn history(choices: &[Vec<(u8, bool)>]) -> Vec<Vec<Event>> {
        let mut state = State::new();
        let mut history: Vec<Vec<Event>> = Vec::new();
        for choice in choices {
            let revision = Revision(2 + i64::try_from(history.len()).expect("few"));
            let mut events: Vec<Event> = Vec::new();
            for (key, put) in choice {
                let key = vec![*key];
                let kind = if *put { EventKind::Put } else { EventKind::Delete };
                let there = state.contains_key(&key);
                if (*put || there) && events.iter().all(|other| other.key != key) {
                    events.push(Event {
                        kind,
                        key,
                        value: Vec::new(),
                        create_revision: revision,
                        mod_revision: revision,
                        version: 1,
                        lease: 0,
                    });
                }
            }
            if !events.is_empty() {
                events.iter().for_each(|event| change(&mut state, event));
                history.push(events);
            }
        }
        history
    }

    fn change(state: &mut State, event: &Event) {
        match event.kind {
            EventKind::Put => drop(state.insert(event.key.clone(), event.mod_revision)),
            EventKind::Delete => drop(state.remove(&event.key)),
        }
    }

    fn holds(state: &State, demand: &Demand) -> bool {
        match demand {
            Demand::Written(key, revision) => state.get(key) == Some(revision),
            Demand::Absent(key) => !state.contains_key(key),
        }
    }

    proptest! {
        #[test]
        fn demands_are_met_by_the_last_revision_and_by_none_before(
            choices in proptest::collection::vec(proptest::collection::vec((0_u8..4, any::<bool>()), 1..3), 0..60),
        ) {
            let history = history(&choices);
            let (mut evidence, mut state, mut states) = (Evidence::default(), State::new(), vec![State::new()]);
            for events in &history {
                events.iter().for_each(|event| change(&mut state, event));
                evidence.add(events);
                if let Some(demands) = evidence.demands() {
                    let met = |state: &State| demands.iter().all(|demand| holds(state, demand));
                    prop_assert!(met(&state), "{demands:?} after {events:?}");
                    prop_assert!(!states.iter().any(met), "{demands:?} before {events:?}");
                }
                states.push(state.clone());
            }
        }
    }

    #[test]
    fn nothing_tells_once_the_last_write_was_deleted() {
        let history =
            history(&[vec![(1, true)], vec![(2, true)], vec![(1, false)], vec![(2, false)], vec![(1, true)]]);
        let mut evidence = Evidence::default();
        assert_eq!(evidence.demands(), None);
        let after: Vec<_> = history
            .iter()
            .map(|events| {
                evidence.add(events);
                evidence.demands()
            })
            .collect();
        let written = |key, revision| Demand::Written(vec![key], Revision(revision));
        assert_eq!(
            after,
            [
                Some(vec![written(1, 2)]),
                Some(vec![written(2, 3)]),
                Some(vec![written(2, 3), Demand::Absent(vec![1])]),
                None,
                Some(vec![written(1, 6)]),
            ]
        );
    }
}
