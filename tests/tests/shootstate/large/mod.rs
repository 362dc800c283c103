//! States of more than 15 MiB: what lists and watches show of them, how much memory they take, where they wait, where they rest.

mod blob;
mod hostile;
pub mod memory;
mod rest;
mod spool;
mod trimmed;

/// Whether it is `make soak`, with the full sizes.
fn is_soak() -> bool {
    std::env::var_os("REPOT_SOAK").is_some()
}
