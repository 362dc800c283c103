//! The aggregated API server: all I/O of serving. It may not know how objects rest (no key of any backend).
//!
//! A request goes `listen` (connection, TLS) → `chain` (layers, in order) → `endpoints` (verbs) → the store. Errors become
//! answers in `status` and nowhere else.

pub mod admission;
pub mod answer;
pub mod audit;
mod body;
pub mod call;
pub mod chain;
pub mod compress;
pub mod connection_shares;
pub mod delegation;
pub mod early_response;
pub mod endpoints;
pub mod filters;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod heavy;
mod http2;
pub mod listen;
pub mod memory;
pub mod metrics;
mod needs;
pub mod negotiate;
pub mod openapi;
pub mod orphans;
pub mod peers;
pub mod pretty;
mod protobuf;
pub mod registry;
mod request_span;
pub mod resource;
pub mod server;
pub mod shares;
mod short_turns;
pub mod status;
mod trimmed;
mod unauthenticated;
pub use repot_certs::tls;
pub mod wire;
mod write_timeout;
