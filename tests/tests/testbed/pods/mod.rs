//! The pod runner under the real kube-controller-manager and kube-scheduler.

mod containers;
mod etcd;
mod firewall;
mod lost;
mod security;
mod volumes;
mod workloads;
pub(crate) mod world;
