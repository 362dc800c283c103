//! What one side sees of the tunnel by which kube-apiservers of a seed reach nodes, Pods and Services of their Shoot.

use super::workloads::Workloads;

/// The tunnel, as one side sees it. A control plane may have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TunnelFacts {
    /// The servers of the tunnel at this side.
    pub servers: Workloads,
    /// Why the servers cannot be moved live: their annotation has another form. `None` where all is well.
    pub invalid: Option<String>,
    /// Destination: why a temporary client does not find the servers. `None` where it does, or where it is not asked.
    pub unexposed: Option<String>,
    /// Destination: why its kube-apiservers do not reach the Shoot. `None` where they do, or where it is not asked.
    pub unreached: Option<String>,
    /// The client that the Shoot has all the time.
    pub client: TunnelClient,
    /// The client that the Shoot has during a live migration.
    pub temporary_client: TunnelClient,
}

/// A client of the tunnel, which is a Deployment in the Shoot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TunnelClient {
    /// It could not be read, or was not asked for; with the reason.
    Unknown(String),
    /// There is none.
    Absent,
    /// Not all of its Pods are ready.
    Starting,
    /// All of its Pods are ready: they are connected.
    Ready,
}

impl Default for TunnelClient {
    fn default() -> Self {
        Self::Unknown("it was not asked for".to_owned())
    }
}
