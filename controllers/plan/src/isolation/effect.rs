//! What an isolation can request. Effects are states: asking for one twice changes nothing.

use super::{observed::SeedNamespace, shown::Shown};

/// A request to the outside of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Garden: our finalizer is on the ZoneIsolation, or is not.
    EnsureFinalizer {
        /// Whether the finalizer is there.
        present: bool,
    },
    /// Garden: an isolation of the same zone that fails back is told that this one goes on from there.
    TakeOver,
    /// Garden: the Shoot has the annotation with this zone, and says that this isolation has set it.
    EnsureAnnotation {
        /// ID of the zone.
        zone: String,
    },
    /// Garden: the Shoot has neither the annotation nor the word that this isolation has set it.
    RemoveAnnotation,
    /// Garden: the ZoneIsolation says where the control plane is.
    TellPlace {
        /// Seed and namespace of the control plane.
        place: SeedNamespace,
    },
    /// Garden: `status.zoneIsolation` of the Shoot.
    Tell {
        /// What the status is to say.
        shown: Shown,
    },
    /// Seed: nodes of the zone take no new Pods, and are marked as cordoned by this isolation.
    Cordon {
        /// Code of the zone.
        zone: String,
    },
    /// Seed: nodes that this isolation has marked take Pods again.
    Uncordon,
    /// Seed: the Worker leaves the zone out, and its controller was asked for that once.
    LeaveZone {
        /// ID of the zone.
        zone: String,
    },
    /// Seed: the Worker uses all zones, and its controller was asked for that once. Machines that came to other zones meanwhile end first.
    UseZone,
    /// Seed: machines of the zone are deleted without waiting for their Pods.
    ForceMachines {
        /// Names of Machines of the zone.
        machines: Vec<String>,
    },
    /// Seed: the SubnetIsolation for this zone exists.
    IsolateSubnet {
        /// ID of the zone.
        zone: String,
    },
    /// Seed: no SubnetIsolation exists.
    ReleaseSubnet,
}
