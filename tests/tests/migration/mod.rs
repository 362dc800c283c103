//! The migration of whole control planes between two seeds of a landscape, by the controllers of all three sides.

mod beside_gardenlet;
mod classic;
pub mod departure;
mod early;
mod equality;
pub mod faults;
pub mod faulty_seed;
pub mod forced;
mod gardenlet;
pub mod owner;
mod partitions;
pub mod prober;
mod quarantine;
mod real_gardenlet;
mod retries;
mod rounds;
mod steered;
mod takeover;
mod traffic;
pub mod writer;

pub use repot_tests::landscape::{story, world};
