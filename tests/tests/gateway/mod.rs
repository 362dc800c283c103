//! The gateway in front of real members.

mod api_server;
mod calls;
mod failures;
mod holding;
pub mod world;
