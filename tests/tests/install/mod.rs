//! The charts on a real cluster: kube-apiserver, kube-controller-manager, kube-scheduler and helm are real, Pods are processes.

mod cert_manager;
mod controller_registration;
mod fleet;
mod garden;
mod gardener;
mod gardenlet;
mod image;
mod node_loss;
mod page;
mod seed;
mod upgrade;
