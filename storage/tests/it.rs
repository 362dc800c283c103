//! Tests of the crate from outside, in one binary.

#![allow(clippy::unwrap_used)]
#![allow(clippy::duplicate_mod, reason = "backend and store both start etcd, each with its own idea of it")]

mod backend;
mod fuzz;
mod history;
mod mutations;
mod store;
