//! Tests of the crate from outside, in one binary.

#![allow(clippy::unwrap_used)]

mod backend;
mod store;
