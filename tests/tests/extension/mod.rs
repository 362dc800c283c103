//! The library for extension controllers, against real API servers: a small provider of kind Infrastructure in a cloud that counts.

mod contract;
mod interruptions;
mod kept_networks;
mod migration;
mod ownership;
mod world;
