//! What others wrote says whether Repot is right: real clients and controllers, and the suites of protocols.
//!
//! `make test` runs the short forms; `make soak` sets `REPOT_SOAK` and runs the long ones.

use std::time::Duration;

mod clients;
mod controllers;
mod forms;
mod http2;
pub mod informers;
mod kube_rs;
mod openapi;
mod replicas;

/// How long something goes on: `short` in `make test`, `long` in `make soak`.
fn span(short: u64, long: u64) -> Duration {
    Duration::from_secs(rounds(short, long))
}

/// How often something is done: `short` in `make test`, `long` in `make soak`.
fn rounds(short: u64, long: u64) -> u64 {
    if std::env::var_os("REPOT_SOAK").is_some() { long } else { short }
}
