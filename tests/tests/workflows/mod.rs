//! Workflows of a hosted etcd on real parts: kube-apiserver, kube-controller-manager, the aggregated API server, the controllers as
//! a Deployment of the garden with the permissions of `deploy/`, and etcd in Pods.

mod backup;
pub mod control_plane;
mod deletion;
mod failover;
mod faults;
mod front;
mod migration;
mod outage;
mod soundness;
mod sources;
mod table;
mod tls;
pub mod world;
