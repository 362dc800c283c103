//! The charts on a real cluster: kube-apiserver, kube-controller-manager, kube-scheduler and helm are real, Pods are processes.

mod controller_registration;
mod fleet;
mod garden;
mod gardener;
mod page;
mod seed;
