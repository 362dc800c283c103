//! The commands of operators, on a garden with the real gardener-apiserver.

mod commands;
mod drain;
mod world;
