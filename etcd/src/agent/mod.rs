//! The agent of one member: it is the parent of etcd, fills an empty data directory, takes snapshots and says how things stand.

pub mod config;
