//! How objects rest: a store of sealed, chunked objects over small backends.
//!
//! This crate may not know kinds, HTTP or JSON. An object is a key, a uid, a small head (`meta`, `summary`) and a payload
//! of bytes. Everything but the key is compressed and sealed; `record` says what is bound to what.
//!
//! ```text
//! /registry/<group>/<resource>/<namespace>/<name>   record: head, small payload, or the map of chunks
//! /chunks/<uid>/<chunk id>                          chunk: a piece of payload, about 256 KiB
//! /chunks/<uid>/-/registry/...                      owner: says which record may name chunks of this uid
//! /manifests/<number>/<uid>                         manifest: names chunks that perhaps no record names
//! /intents/<number>                                 intent: "chunks that carry this number are being written"
//! /quarantine/<number>/registry/...                 record that did not open, or whose chunks did not; nothing serves it
//! /meta/epoch                                       epoch: format of the store, offset of its versions
//! /meta/collector                                   collector: which server collects chunks, while it lives
//! /meta/collection                                  collection: put by each pass that removes something
//! /meta/audit                                       audit: how far the last count of all chunks got
//! ```

pub mod backend;
mod chunk;
mod compress;
mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
pub mod keyring;
mod record;
mod seal;
pub mod spool;
pub mod store;
pub mod stream;
mod trace;

pub use error::{Error, Result};
pub use keyring::Keyring;
pub use spool::Spool;
pub use store::{
    Checked, CollectReport, Damage, Finding, KeyUse, Lost, Missing, Quarantined, Remedy, Rewritten, Store,
    StoreOptions, Usage,
    types::{Draft, Event, Key, List, ListRequest, Object, ResourceVersion, Scope, Segmented, WatchItem},
};
