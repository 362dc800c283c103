//! Objects of Gardener that rules and flows read: Shoots, Seeds, and how far a live migration has come.

pub mod progress;
pub mod seed_change;
pub mod shoot;
pub mod time;
