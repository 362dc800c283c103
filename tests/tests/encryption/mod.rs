//! Keys: configurations, their rotation, and key management services.

mod configurations;
mod kms;
mod reload;
mod rewrite;
mod rotation;
mod upkeep;
mod world;
