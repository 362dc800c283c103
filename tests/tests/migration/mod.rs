//! The migration of whole control planes between two seeds of a landscape, by the controllers of all three sides.

mod classic;
mod faults;
mod forced;
mod gardenlet;
mod owner;
mod partitions;
mod prober;
mod quarantine;
mod story;
mod takeover;
mod world;
mod writer;
