//! Histories of several clients against a store, while its backend fails in every way it may: whatever was answered has
//! to be explained by one order of all operations, and watches and lists have to tell that order.
//!
//! `record` is what happened, as data; `linear` and `agree` judge it; `judged` proves them on histories written by hand.
//! `chaos` makes faults, `clients` work, `runs`, `killed`, `cluster`, `etcd_errors` and `partition` are the tests, and `planted` shows that
//! promises which a backend breaks are found. `REPOT_SOAK` makes each run last minutes.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use repot_storage::{Store, StoreOptions, backend::Backend};

mod agree;
mod chaos;
mod clients;
mod cluster;
mod etcd_errors;
mod judged;
mod killed;
mod linear;
mod lines;
mod partition;
mod planted;
mod record;
mod runs;
mod watcher;

/// How long clients work: seconds, or minutes where there is time for it.
fn period(seconds: u64) -> Duration {
    let factor = if std::env::var_os("REPOT_SOAK").is_some() { 40 } else { 1 };
    Duration::from_secs(seconds * factor)
}

/// Numbers that follow from a seed (SplitMix64).
#[derive(Clone, Debug)]
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
