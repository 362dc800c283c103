//! The commands of operators, on a garden with the real gardener-apiserver.

mod commands;
mod completion;
mod drain;
mod world;
