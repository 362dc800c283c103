//! Sides and steps of an isolation.

use crate::named_enum;

named_enum! {
    /// Who works on an isolation.
    pub enum IsolationSide {
        /// The garden, with the Shoot and the ZoneIsolation.
        Garden = "garden",
        /// The seed that hosts the control plane of the Shoot.
        Seed = "seed",
    }
}

named_enum! {
    /// Steps of an isolation. The table says what each of them does.
    pub enum Step {
        /// The isolation is recorded, and no other one is in its way.
        IsolationRecorded,
        /// It is known which zone of the Shoot has this ID.
        ZoneKnown,
        /// Other zones can take the machines.
        CapacitySuffices,
        /// No node of the zone takes new Pods.
        NodesCordoned,
        /// The Worker leaves the zone out.
        WorkerUpdated,
        /// No machine is left in the zone.
        MachinesGone,
        /// The networks of the zone are cut off.
        SubnetIsolated,
        /// Nothing comes back to the zone while it is isolated.
        ZoneKeptEmpty,
        /// The isolation is called off.
        IsolationEnds,
        /// A SubnetIsolation of a seed that the control plane has left is known here.
        SubnetFound,
        /// The networks of the zone are as before.
        SubnetReleased,
        /// The Worker uses the zone again.
        WorkerRestored,
        /// Nodes that the isolation has cordoned take Pods again.
        NodesUncordoned,
        /// The Shoot tells that the failback is done.
        IsolationClosed,
    }
}
