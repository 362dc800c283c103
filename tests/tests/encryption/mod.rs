//! Keys: configurations, their rotation, and key management services.

mod configurations;
mod kms;
mod reload;
mod rotation;
mod world;
