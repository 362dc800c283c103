//! Ownership by DNS on real parts: agents with their etcd, a DNS server, stores, and clients that write on both sides all the time.

mod backlog;
mod caches;
mod drift;
mod epochs;
mod final_snapshots;
mod handovers;
mod hard_times;
mod held;
mod judge;
mod records;
mod silence;
mod standby;
mod wall_clock;
pub mod world;
