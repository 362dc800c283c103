//! The gateway in front of real members.

mod api_server;
mod auth;
mod calls;
mod failures;
mod holding;
pub mod world;
