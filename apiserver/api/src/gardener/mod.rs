//! Objects of Gardener that rules and flows read: Shoots, Seeds, how far a live migration has come, and what a gardenlet does next.

pub mod gardenlet;
pub mod progress;
pub mod seed_change;
pub mod shoot;
pub mod time;
