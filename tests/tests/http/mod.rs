//! The server as HTTP clients meet it: connections, forms of answers, health, the audit log, and the end of serving.

mod audit;
mod audit_modes;
mod connection_shares;
pub mod connections;
mod early;
mod early_clients;
mod forms;
mod heads;
mod idle;
mod limits;
mod slow_readers;
mod starvation;
mod stop;
mod tls;
mod watches;
mod whole_lists;
