//! Changes go to all pages in batches: an object that changes ten times in a moment is sent once.

use std::{collections::BTreeMap, mem, time::Duration};

use axum::body::Bytes;
use tokio_util::sync::CancellationToken;

use super::{Kind, Rows, State};
use crate::ui::events::event;

/// Changes within so long make a batch.
const PAUSE: Duration = Duration::from_millis(150);
/// Most rows of one message.
pub(in crate::ui) const MOST_ROWS: usize = 500;

/// Sends changes until `stop`.
pub(in crate::ui) async fn publish(state: &State, stop: &CancellationToken) {
    while stop.run_until_cancelled(state.wake.notified()).await.is_some() {
        if stop.run_until_cancelled(tokio::time::sleep(PAUSE)).await.is_none() {
            return;
        }
        for batch in state.batches() {
            state.send(batch);
        }
    }
}

impl State {
    /// Sends an event to all pages.
    pub(in crate::ui) fn send(&self, event: Bytes) {
        // Nobody may be listening.
        let _ = self.batches.send(event);
    }

    /// What has changed, as events.
    fn batches(&self) -> Vec<Bytes> {
        let mut inner = self.inner.lock();
        let (changed, told) = (mem::take(&mut inner.changed), mem::take(&mut inner.told));
        let mut by_kind: BTreeMap<Kind, Vec<String>> =
            told.into_iter().map(|kind| (kind, Vec::new())).collect();
        for (kind, key) in changed {
            by_kind.entry(kind).or_default().push(key);
        }
        let mut batches = Vec::new();
        for (kind, keys) in by_kind {
            let Some(table) = inner.tables.get(&kind) else { continue };
            // A kind of which only the availability has changed is one message without rows.
            for keys in keys.chunks(MOST_ROWS).chain(keys.is_empty().then_some(&[][..])) {
                let gone = |key: &&String| !table.rows.contains_key(*key);
                let rows = Rows {
                    kind,
                    availability: table.availability.clone(),
                    is_cut: table.is_cut,
                    is_first: false,
                    rows: keys.iter().filter_map(|key| table.rows.get(key).cloned()).collect(),
                    removed: keys.iter().filter(gone).cloned().collect(),
                };
                batches.push(event("rows", &rows));
            }
        }
        batches
    }
}

impl Rows {
    /// The same in parts that are not too large for a message.
    pub(in crate::ui) fn parts(self) -> Vec<Self> {
        let Self { kind, availability, is_cut, is_first, rows, removed } = self;
        let part = |(at, rows): (usize, &[super::Row])| Self {
            kind,
            availability: availability.clone(),
            is_cut,
            is_first: is_first && at == 0,
            rows: rows.to_vec(),
            removed: removed.clone(),
        };
        let parts = rows.chunks(MOST_ROWS).chain(rows.is_empty().then_some(&[][..]));
        parts.enumerate().map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json, value::to_raw_value};

    use super::*;
    use crate::ui::state::{Availability, MOST_OBJECTS, Row, kinds::Object};

    fn object(value: &Value) -> Object {
        Object { row: Row(to_raw_value(value).expect("JSON").into()), migration: None }
    }

    fn sent(state: &State) -> Vec<Value> {
        let of = |batch: Bytes| {
            let text = String::from_utf8(batch.to_vec()).expect("text");
            let data = text.lines().find_map(|line| line.strip_prefix("data: ")).expect("data");
            serde_json::from_str(data).expect("JSON")
        };
        state.batches().into_iter().map(of).collect()
    }

    #[test]
    fn object_that_changes_often_is_sent_once_as_it_is_then() {
        let state = State::new();
        for replica in 0..10 {
            state.apply(Kind::Shoots, "a/b".to_owned(), object(&json!({"at": replica})));
        }
        let sent = sent(&state);
        assert_eq!(sent.len(), 1);
        assert_eq!((&sent[0]["kind"], &sent[0]["rows"]), (&json!("shoots"), &json!([{"at": 9}])));
        state.apply(Kind::Shoots, "a/b".to_owned(), object(&json!({"at": 9})));
        assert!(state.batches().is_empty(), "what is the same is not sent");
    }

    #[test]
    fn object_that_is_gone_is_named() {
        let state = State::new();
        state.apply(Kind::Shoots, "a/b".to_owned(), object(&json!(1)));
        state.remove(Kind::Shoots, "a/b".to_owned());
        assert_eq!(sent(&state)[0]["removed"], json!(["a/b"]));
        state.remove(Kind::Shoots, "a/b".to_owned());
        assert!(state.batches().is_empty());
    }

    #[test]
    fn list_replaces_what_is_not_in_it() {
        let state = State::new();
        state.apply(Kind::Seeds, "/old".to_owned(), object(&json!("old")));
        state.apply(Kind::Seeds, "/same".to_owned(), object(&json!("same")));
        sent(&state);
        let listed = [("/same", "same"), ("/new", "new")];
        let listed = listed.map(|(key, row)| (key.to_owned(), object(&json!(row))));
        state.replace(Kind::Seeds, listed.into(), false);
        let sent = sent(&state);
        assert_eq!(sent[0]["availability"], json!({"state": "watched"}));
        assert_eq!((&sent[0]["rows"], &sent[0]["removed"]), (&json!(["new"]), &json!(["/old"])));
    }

    #[test]
    fn kind_that_is_not_served_any_more_shows_no_rows() {
        let state = State::new();
        state.replace(Kind::Shoots, [("a/b".to_owned(), object(&json!(1)))].into(), false);
        sent(&state);
        state.tell(Kind::Shoots, Availability::NotServed);
        let sent = sent(&state);
        assert_eq!(sent[0]["availability"], json!({"state": "notServed"}));
        assert_eq!(sent[0]["removed"], json!(["a/b"]));
    }

    #[test]
    fn number_of_objects_and_of_rows_of_a_message_is_bounded() {
        let state = State::new();
        for at in 0..MOST_OBJECTS + 5 {
            state.apply(Kind::Shoots, format!("a/{at:06}"), object(&json!(at)));
        }
        let sent = sent(&state);
        let rows: usize = sent.iter().map(|batch| batch["rows"].as_array().map_or(0, Vec::len)).sum();
        assert_eq!(rows, MOST_OBJECTS);
        assert!(
            sent.iter().all(|batch| batch["rows"].as_array().is_some_and(|rows| rows.len() <= MOST_ROWS))
        );
        assert_eq!(sent[0]["isCut"], json!(true));
        let parts = state.rows(Kind::Shoots).parts();
        assert_eq!(parts.len(), MOST_OBJECTS / MOST_ROWS);
        assert_eq!(parts.iter().filter(|part| part.is_first).count(), 1);
        assert_eq!(state.rows(Kind::Seeds).parts().len(), 1, "an empty kind is told as well");
    }
}
