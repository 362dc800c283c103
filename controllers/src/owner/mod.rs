//! The owner record of an etcd, for a person: what it says, and how it is passed on by hand.
//!
//! | file | has |
//! |---|---|
//! | `report.rs` | [`Report`]: what the record, its servers and its DNSRecord say |
//! | `transfer.rs` | [`Transfer`]: the record names another owner, and those before it are fenced |

mod report;
mod transfer;

pub use report::{Report, Verdict};
pub use transfer::{Transfer, TransferError};
