//! Traces and profiles of running servers.

mod cost;
mod failing_collector;
mod profiles;
mod traces;
mod trust;
mod world;
