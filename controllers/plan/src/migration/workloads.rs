//! Workloads of a control plane, as one side sees them.

use std::collections::BTreeMap;

/// Replicas of workloads by name.
pub type Replicas = BTreeMap<String, u32>;

/// A group of workloads: controllers of the control plane, or its API servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workloads {
    /// Replicas that are wanted, by name of the workload.
    pub wanted: Replicas,
    /// Replicas before the workload was stopped, or carried without replicas; those that are wanted where it runs.
    pub former: Replicas,
    /// Pods that exist, those that are being deleted included.
    pub pods: u32,
    /// Pods that are ready.
    pub ready: u32,
    /// Who set the replicas last: see [`Effect`](super::effect::Effect).
    pub fence: String,
}

/// Controllers that act on nothing but the API of the Shoot: the etcd fences them, so they need not wait for Machines. All others act on
/// infrastructure.
pub const KUBE_CONTROLLERS: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];

impl Workloads {
    /// No replicas of each of them.
    #[must_use]
    pub fn none(&self) -> Replicas {
        self.wanted.keys().map(|name| (name.clone(), 0)).collect()
    }

    /// Whether none is wanted and none is left.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.pods == 0 && self.wanted.values().all(|replicas| *replicas == 0)
    }
}
