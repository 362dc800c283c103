//! What every backend must show, as functions to be run against it.
//!
//! A behaviour is named by the sentence it proves and panics where the sentence does not hold. A backend brings a
//! [`Lab`]; [`backend_conformance!`](crate::backend_conformance) makes a test of every behaviour.

#![allow(clippy::unwrap_used, missing_docs, reason = "tests, named by what they prove")]

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;

use super::{
    Backend, Compare, KeyEvent, KeyValue, Op, Outcome, Page, RangeRequest, Revision, Txn, WatchItem,
    WatchStream, prefix_range,
};

mod compaction;
mod ephemeral;
mod reads;
mod watches;
mod writes;

pub use compaction::*;
pub use ephemeral::*;
pub use reads::*;
pub use watches::*;
pub use writes::*;

/// How long one behaviour may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// One store, empty at first, of the backend under test.
#[async_trait]
pub trait Lab: Send + Sync {
    /// A new handle on the store. Behaviours close one before they open the next.
    async fn open(&self) -> Arc<dyn Backend>;
}

/// Makes a test of every behaviour; the argument is an async function that makes a [`Lab`].
#[macro_export]
macro_rules! backend_conformance {
    ($lab:path) => {
        $crate::backend_conformance!(@tests $lab;
            commits_all_or_nothing
            compares_existence
            two_writers_with_one_revision_have_one_winner
            revisions_grow_with_every_commit
            removing_an_absent_key_is_no_change
            a_key_that_comes_again_is_created_again
            any_value_and_any_byte_but_nul_in_a_key_survive
            a_hundred_operations_fit_one_transaction
            a_transaction_up_to_the_limit_survives
            what_is_over_the_limit_is_refused_whole
            malformed_transactions_are_refused
            what_was_acknowledged_is_there_after_reopening
            size_follows_what_is_written
            a_closed_handle_refuses_work
            reads_see_what_was_acknowledged_before
            reads_at_a_revision_never_change
            a_future_revision_is_refused
            keys_are_read_together_in_the_order_asked
            range_pages_meet_at_the_seam
            ranges_keep_to_their_bounds
            a_page_ends_after_the_value_that_fills_it
            a_page_of_keys_leaves_values_empty
            watch_replays_then_follows_without_gap_or_duplicate
            a_transaction_is_never_split_in_a_watch
            a_watch_tells_what_was_before
            a_watch_keeps_to_its_prefix
            a_watch_from_the_beginning_shows_everything
            a_slow_watch_misses_nothing_and_delays_nobody
            progress_comes_while_idle
            progress_follows_a_nudge
            compacted_revision_is_refused
            compaction_keeps_what_is_current
            compaction_may_be_repeated
            an_open_watch_outlives_compaction
            a_revision_is_held_still_while_compaction_runs
            ephemeral_keys_vanish_with_their_writer
            ephemeral_keys_stay_while_their_writer_does
            an_ephemeral_key_that_is_put_again_stays
        );
    };
    (@tests $lab:path; $($behaviour:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $behaviour() {
                let lab = $lab().await;
                let proof = $crate::backend::conformance::$behaviour(&lab);
                tokio::time::timeout($crate::backend::conformance::PATIENCE, proof)
                    .await
                    .expect("the behaviour shows in time");
            }
        )*
    };
}

fn key(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn put(name: &str, value: impl Into<Bytes>) -> Op {
    Op::Put(key(name), value.into())
}

fn delete(name: &str) -> Op {
    Op::Delete(key(name))
}

async fn commit(backend: &dyn Backend, ops: impl Into<Vec<Op>>) -> Revision {
    match backend.txn(Txn { compares: vec![], ops: ops.into() }).await.unwrap() {
        Outcome::Committed(revision) => revision,
        Outcome::Failed => panic!("a transaction without comparisons failed"),
    }
}

async fn read(backend: &dyn Backend, name: &str) -> Option<KeyValue> {
    backend.get(key(name), None).await.unwrap()
}

async fn value(backend: &dyn Backend, name: &str, at: Option<Revision>) -> Option<Bytes> {
    backend.get(key(name), at).await.unwrap().map(|found| found.value)
}

fn under(prefix: &str, at: Option<Revision>) -> RangeRequest {
    RangeRequest { keys: prefix_range(prefix.as_bytes()), at, limit: 0, max_bytes: 0, keys_only: false }
}

async fn page(backend: &dyn Backend, request: &RangeRequest) -> Page {
    backend.range(request.clone()).await.unwrap()
}

fn names(page: &Page) -> Vec<&str> {
    page.kvs.iter().map(|found| std::str::from_utf8(&found.key).unwrap()).collect()
}

async fn watch(backend: &dyn Backend, prefix: &str, after: Revision) -> WatchStream {
    backend.watch(key(prefix), after, Duration::from_millis(200)).await.unwrap()
}

/// All events up to a revision. Checks on the way that nothing goes back and that progress keeps its word.
async fn events_until(stream: &mut WatchStream, last: Revision) -> Vec<KeyEvent> {
    let (mut events, mut promised): (Vec<KeyEvent>, _) = (Vec::new(), Revision(0));
    loop {
        match stream.next().await.expect("the watch goes on").unwrap() {
            WatchItem::Events(batch) => {
                assert!(!batch.is_empty(), "a batch without events");
                for event in batch {
                    assert!(event.revision > promised, "an event after the progress that covered it");
                    assert!(
                        events.last().is_none_or(|seen| seen.revision <= event.revision),
                        "events go back"
                    );
                    assert!(event.now.as_ref().is_none_or(|now| now.modified == event.revision));
                    events.push(event);
                }
            }
            WatchItem::Progress(revision) => {
                assert!(revision >= promised, "progress goes back");
                assert!(events.last().is_none_or(|seen| seen.revision <= revision), "progress behind events");
                promised = revision;
            }
        }
        if promised >= last || events.last().is_some_and(|event| event.revision >= last) {
            return events;
        }
    }
}

/// Bytes that no compression makes smaller, different for every seed.
fn noise(seed: u64, len: usize) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    out.truncate(len);
    out.into()
}

fn modified_at(name: &str, revision: Revision) -> Compare {
    Compare::ModifiedAt(key(name), revision)
}
