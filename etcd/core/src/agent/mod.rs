//! What an agent is told and what it tells: the types of its configuration file and of its HTTP, for both ends.

pub mod config;
pub mod http;
