//! The admission server: reviews come in over TLS, facts are gathered, the rules of `repot-rules` judge, and answers go out.
//!
//! A request goes `listen` (connection, TLS) → `server` (paths, limits, time) → `review` (AdmissionReview in and out) → `facts`
//! (what the rules have to know) → the rules. No rule lives here, and nothing here writes to a cluster: every review is free
//! of side effects.

pub mod facts;
pub mod garden;
mod lean;
pub mod listen;
pub mod manifests;
pub mod metrics;
pub mod review;
#[cfg(test)]
mod scripted;
pub mod server;

pub use repot_certs::clients;
