//! Workflows of a hosted etcd on real parts: kube-apiserver, kube-controller-manager, the aggregated API server, the controllers as
//! a Deployment of the garden with the permissions of `deploy/`, and etcd in Pods.

mod backup;
mod deletion;
mod failover;
mod faults;
mod migration;
mod plant;
mod sources;
mod table;
mod world;
