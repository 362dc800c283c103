//! Everything that crosses crates, in one test program: linking is slow, modules are not.

mod house;
mod shootstate;
mod testbed;
