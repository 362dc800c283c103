//! Promises that a backend breaks are found: a checker that lets these pass would prove nothing.

use super::{chaos::Wrong, runs};
use crate::store::Lab;

/// How often a run is made again that happened to meet no wrong.
const TRIES: u64 = 5;

/// Works over a backend that breaks one promise, until that is found.
async fn finds(wrong: Wrong) {
    for seed in 0..TRIES {
        let lab = Lab::embedded().await;
        let (wrongs, found) = runs::found(&lab, wrong, seed).await;
        eprintln!("{wrong:?}: {wrongs} times, {} faults, such as {:?}", found.len(), found.first());
        if !found.is_empty() {
            return;
        }
    }
    panic!("{wrong:?} was not found");
}

macro_rules! finds {
    ($($test:ident $wrong:ident)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            finds(Wrong::$wrong).await;
        })*
    };
}

finds! {
    finds_a_write_that_was_acknowledged_and_not_done DroppedWrite
    finds_a_transaction_that_does_not_compare SkippedCompare
    finds_a_write_that_was_done_by_half HalfWrite
    finds_a_read_that_is_stale StaleRead
    finds_a_write_that_was_said_to_have_failed FalseFailure
    finds_a_list_that_is_of_two_versions TornPage
    finds_an_event_that_was_left_out LostEvent
    finds_an_event_that_was_told_twice RepeatedEvent
    finds_events_in_the_wrong_order SwappedEvents
}
