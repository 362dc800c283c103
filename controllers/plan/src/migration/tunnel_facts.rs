//! What one side sees of the tunnel by which kube-apiservers of a seed reach nodes, Pods and Services of their Shoot.

use super::workloads::Workloads;

/// Of facts that were not asked for in a pass.
const NOT_ASKED: &str = "it was not asked yet";

/// The tunnel, as one side sees it. A control plane may have none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelFacts {
    /// The servers of the tunnel at this side.
    pub servers: Workloads,
    /// Why the servers cannot be moved live: their annotation has another form. `None` where all is well.
    pub invalid: Option<String>,
    /// Destination: why a temporary client does not find the servers, or that it was not asked. `None` where it does.
    pub unexposed: Option<String>,
    /// Destination: why its kube-apiservers do not reach the Shoot, or that it was not asked. `None` where they do.
    pub unreached: Option<String>,
    /// The client that the Shoot has all the time.
    pub client: TunnelClient,
    /// The client that the Shoot has during a live migration.
    pub temporary_client: TunnelClient,
}

/// What was not asked does not look like a good answer.
impl Default for TunnelFacts {
    fn default() -> Self {
        Self {
            servers: Workloads::default(),
            invalid: None,
            unexposed: Some(NOT_ASKED.to_owned()),
            unreached: Some(NOT_ASKED.to_owned()),
            client: TunnelClient::default(),
            temporary_client: TunnelClient::default(),
        }
    }
}

/// A client of the tunnel, which is a Deployment in the Shoot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TunnelClient {
    /// It could not be read, or was not asked for; with the reason.
    Unknown(String),
    /// The Shoot has no such Deployment.
    Absent,
    /// Not all of its Pods are ready.
    Starting,
    /// All of its Pods are ready: they are connected.
    Ready,
}

impl Default for TunnelClient {
    fn default() -> Self {
        Self::Unknown(NOT_ASKED.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_asked_for_is_no_good_answer() {
        let facts = TunnelFacts::default();
        assert!(facts.unexposed.is_some() && facts.unreached.is_some());
        assert!(matches!(
            (&facts.client, &facts.temporary_client),
            (TunnelClient::Unknown(_), TunnelClient::Unknown(_))
        ));
    }
}
