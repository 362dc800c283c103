//! The simulated world of hosted etcds, and what is checked in it.

mod backup;
mod check;
mod cluster;
mod deletion;
mod members;
mod ownership;
mod planted;
mod rng;
mod sim;
mod table;
mod two_sides;
mod worlds;
