//! The watchdog proxy between real clients, a real kube-apiserver and a real DNS server.

mod bounds;
mod clients;
mod exceptions;
mod ownership;
mod world;
