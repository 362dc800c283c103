//! What may happen to a control plane, as pure functions of a change and of facts about the world around it.
//!
//! Nothing here meets a clock, a client or a file: a caller reads off [`facts::RequiredFacts`] what has to be known, gathers it, and
//! asks [`judge`]. [`table::RULES`] lists every rule; webhook configurations, the catalogue in the docs and metrics come
//! from that table and from [`watch::WATCHES`].

pub mod catalogue;
pub mod change;
pub mod distance;
pub mod facts;
pub mod finding;
pub mod judge;
pub mod opening;
pub mod preflight;
pub mod region_config;
pub mod table;
pub mod watch;
pub mod zones;

mod conditions;
mod default;
mod force;
mod forced;
mod isolation;
mod live;
mod migration;
mod state;
mod who;

#[cfg(test)]
mod tests;
