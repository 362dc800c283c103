//! Ownership by DNS on real parts: agents with their etcd, a DNS server, stores, and clients that write on both sides all the time.

mod caches;
mod epochs;
mod final_snapshots;
mod handovers;
mod hard_times;
mod held;
mod judge;
mod records;
mod silence;
mod standby;
pub mod world;
