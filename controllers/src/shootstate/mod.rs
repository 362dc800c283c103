//! ShootStates: what of a control plane has to survive its seed, read there and kept in the garden.
//!
//! | module | does |
//! |---|---|
//! | [`model`] | a ShootState as types; opaque parts keep their text |
//! | [`kinds`] | which kinds are read in a seed |
//! | [`parts`] | what of a state is read and compared on its own |
//! | `list`, [`collect`] | reads everything that has to survive |
//! | [`secrets`], [`machines`], [`carried`] | objects as entries of a ShootState |
//! | `compare`, [`difference`] | what differs, as a JSON Patch |
//! | [`write`] | the ShootState in the garden |
//! | [`decide`] | whether a seed may write it, and how |
//! | [`queue`], `seen`, `watches` | which Shoot is due |
//! | [`load`] | how many are synchronized at a time |
//! | [`controller`] | keeps all ShootStates of a seed up to date |
//! | [`metrics`] | how far it is behind, and how much it writes |
//! | [`error`] | why one of these failed |

pub mod carried;
pub mod certificates;
pub mod collect;
mod compare;
pub mod controller;
pub mod decide;
pub mod difference;
pub mod error;
pub mod kinds;
mod list;
pub mod load;
pub mod machines;
pub mod metrics;
pub mod model;
pub mod parts;
pub mod queue;
pub mod secrets;
mod seen;
mod watches;
pub mod write;

pub use collect::collect;
pub use difference::{Mode, difference};
pub use error::Error;
pub use model::State;
pub use write::{ShootKey, Synced, read, sync, unsynced};
