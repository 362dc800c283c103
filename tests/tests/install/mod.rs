//! The charts on a real cluster: kube-apiserver, kube-controller-manager, kube-scheduler and helm are real, Pods are processes.

mod cert_manager;
mod fleet;
mod garden;
mod image;
mod node_loss;
mod seed;
mod upgrade;
