//! What clients of k8s.io/apiserver rely on, line by line of the ledger, over plain HTTP.
//!
//! Tests share two servers: `repot dev`, where each works in a namespace of its own, and one behind a real kube-apiserver. What
//! stops or reconfigures a server starts its own.

mod alike;
mod availability;
mod connections;
mod deletes;
mod discovery;
mod identity;
mod lists;
mod namespace;
mod negotiation;
mod openapi;
mod parameters;
mod selectors;
mod statuses;
mod tables;
mod watches;
mod writes;
