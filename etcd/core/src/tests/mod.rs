//! Tests of decisions about many members, sides and passes.

mod members;
mod ownership;
mod rng;
mod two_sides;
