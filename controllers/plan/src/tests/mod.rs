//! Simulations of flows and planners, and what is checked in them.

mod backup;
mod check;
mod classic;
mod cluster;
mod deletion;
mod example;
mod forced;
mod gardenlet;
mod isolation;
mod live;
mod planted;
mod published;
mod rng;
mod schedules;
mod sim;
mod table;
mod versions;
