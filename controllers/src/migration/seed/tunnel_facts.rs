//! The tunnel to the Shoot as a side of a migration sees it.

use kube::Client;
use repot_plan::migration::observed::{TunnelClient, TunnelFacts};

use super::{
    shoot_api,
    tunnel_client::{self, Clients, Maker},
    workloads::ControlPlane,
};
use crate::{errors::causes, migration::error::Error};

/// Which facts a side asks for: those of the Shoot cost requests to its API.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Whose temporary client it is.
    pub maker: Maker<'a>,
    /// How far clients in the Shoot are.
    pub clients: bool,
    /// Whether kube-apiservers of this seed reach the Shoot.
    pub reach: bool,
}

/// The tunnel as a side sees it, but for whether it is exposed.
pub async fn facts(seed: &Client, namespace: &str, plane: &ControlPlane, asked: Asked<'_>) -> TunnelFacts {
    let mut facts = TunnelFacts { servers: plane.tunnel_servers(), ..TunnelFacts::default() };
    let tunnel = match plane.tunnel() {
        Ok(Some(tunnel)) => tunnel,
        Ok(None) => return facts,
        Err(why) => {
            facts.invalid = Some(why);
            return facts;
        }
    };
    let Asked { maker, clients, reach } = asked;
    if !clients && !reach {
        return facts;
    }
    let shoot = match shoot_api::client(seed, namespace).await {
        Ok(shoot) => shoot,
        Err(error) => {
            let why = causes(&error);
            facts.client = TunnelClient::Unknown(why.clone());
            facts.temporary_client = TunnelClient::Unknown(why.clone());
            facts.unreached = Some(why);
            return facts;
        }
    };
    if clients {
        let found = Clients::read(&shoot, &tunnel.client, maker).await;
        (facts.client, facts.temporary_client) = match &found {
            Ok(found) => (found.usual(), found.temporary()),
            Err(error) => {
                let why = causes(error);
                (TunnelClient::Unknown(why.clone()), TunnelClient::Unknown(why))
            }
        };
    }
    if reach {
        let reached = tunnel_client::read_log(&shoot, &tunnel.client.namespace, maker).await;
        facts.unreached = reached.err().map(|error| causes(&error));
    }
    facts
}

/// Deletes the temporary clients that `maker` has made in the Shoot.
///
/// # Errors
/// [`Error`]. The next pass goes on.
pub async fn remove_temporary_client(
    seed: &Client,
    namespace: &str,
    plane: &ControlPlane,
    maker: Maker<'_>,
) -> Result<(), Error> {
    let Some(tunnel) = plane.tunnel().map_err(Error::Missing)? else { return Ok(()) };
    let shoot = shoot_api::client(seed, namespace).await?;
    tunnel_client::remove(&shoot, &tunnel.client, maker).await
}
