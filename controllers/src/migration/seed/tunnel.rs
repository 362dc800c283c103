//! The tunnel by which kube-apiservers of a seed reach nodes, Pods and Services of their Shoot, as the seed has it: a Deployment of servers
//! in the namespace of the control plane. An annotation on it says by what clients in the Shoot reach these servers.

use k8s_openapi::api::apps::v1::Deployment;
use kube::{Client, ResourceExt};
use repot_plan::migration::observed::{TunnelClient, TunnelFacts};
use serde::Deserialize;

use super::{
    shoot_api,
    tunnel_client::{self, Clients},
    workloads::ControlPlane,
};
use crate::{errors::causes, migration::error::Error};

/// Annotation of the Deployment of servers, with a [`Tunnel`] in JSON.
pub const TUNNEL: &str = "migration.gardener.cloud/tunnel";

/// By what clients in the Shoot reach the servers of its tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tunnel {
    /// Name of the Service, of type LoadBalancer, through which clients reach the servers.
    pub service: String,
    /// The Deployment of clients in the Shoot.
    pub client: ClientName,
    /// The host that clients dial, as it stands in their commands, arguments or environment.
    pub host: String,
}

/// Name of a Deployment in the Shoot.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientName {
    /// Namespace in the Shoot.
    pub namespace: String,
    /// Name of the Deployment.
    pub name: String,
}

impl Tunnel {
    /// The tunnel of a control plane; `None` where it has none.
    ///
    /// # Errors
    /// What is wrong with the annotation, for people.
    pub fn of(plane: &ControlPlane) -> Result<Option<Self>, String> {
        let mut all = plane.tunnels();
        let Some(servers) = all.next() else { return Ok(None) };
        if let Some(other) = all.next() {
            let names = format!("{} and {}", servers.name_any(), other.name_any());
            return Err(format!("Deployments {names} both have the annotation {TUNNEL}; one may have it"));
        }
        Self::read(servers).map(Some)
    }

    fn read(servers: &Deployment) -> Result<Self, String> {
        let text = servers.annotations().get(TUNNEL).map(String::as_str).unwrap_or_default();
        let wrong =
            |why: &str| format!("the annotation {TUNNEL} of Deployment {}: {why}", servers.name_any());
        let tunnel: Self = serde_json::from_str(text).map_err(|error| wrong(&error.to_string()))?;
        let fields = [&tunnel.service, &tunnel.client.namespace, &tunnel.client.name, &tunnel.host];
        if fields.into_iter().any(String::is_empty) {
            return Err(wrong("service, client.namespace, client.name and host must not be empty"));
        }
        Ok(tunnel)
    }
}

/// Which facts a side asks for: those of the Shoot cost requests to its API.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// How far clients in the Shoot are.
    pub clients: bool,
    /// Whether kube-apiservers of this seed reach the Shoot.
    pub reach: bool,
}

/// The tunnel as a side sees it, but for whether it is exposed.
pub async fn facts(
    seed: &Client,
    namespace: &str,
    plane: &ControlPlane,
    migration: &str,
    asked: Asked,
) -> TunnelFacts {
    let mut facts = TunnelFacts { servers: plane.tunnel_servers(), ..TunnelFacts::default() };
    let tunnel = match Tunnel::of(plane) {
        Ok(Some(tunnel)) => tunnel,
        Ok(None) => return facts,
        Err(why) => {
            facts.invalid = Some(why);
            return facts;
        }
    };
    let Asked { clients, reach } = asked;
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
        let found = Clients::read(&shoot, &tunnel.client, migration).await;
        (facts.client, facts.temporary_client) = match &found {
            Ok(found) => (found.usual(), found.temporary()),
            Err(error) => {
                let why = causes(error);
                (TunnelClient::Unknown(why.clone()), TunnelClient::Unknown(why))
            }
        };
    }
    if reach {
        let reached = tunnel_client::read_log(&shoot, &tunnel.client.namespace, migration).await;
        facts.unreached = reached.err().map(|error| causes(&error));
    }
    facts
}

/// Deletes the temporary client that a migration has made in the Shoot.
///
/// # Errors
/// [`Error`]. The next pass goes on.
pub async fn remove_temporary_client(
    seed: &Client,
    namespace: &str,
    plane: &ControlPlane,
    migration: &str,
) -> Result<(), Error> {
    let Some(tunnel) = Tunnel::of(plane).map_err(Error::Missing)? else { return Ok(()) };
    let shoot = shoot_api::client(seed, namespace).await?;
    tunnel_client::remove(&shoot, &tunnel.client, migration).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(annotation: &str) -> Result<Tunnel, String> {
        let servers = json!({"metadata": {"name": "vpn-seed-server", "annotations": {TUNNEL: annotation}}});
        Tunnel::read(&serde_json::from_value(servers).expect("a Deployment"))
    }

    #[test]
    fn annotation_names_service_client_and_host() {
        let text = r#"{"service":"kube-apiserver","client":{"namespace":"kube-system","name":"vpn-shoot"},"host":"api.a.example.com"}"#;
        let tunnel = read(text).expect("a tunnel");
        assert_eq!((tunnel.service.as_str(), tunnel.host.as_str()), ("kube-apiserver", "api.a.example.com"));
        assert_eq!(
            (tunnel.client.namespace.as_str(), tunnel.client.name.as_str()),
            ("kube-system", "vpn-shoot")
        );
    }

    #[test]
    fn annotation_of_another_form_is_refused_with_what_is_wrong() {
        let client = r#""client":{"namespace":"n","name":"c"}"#;
        for (text, why) in [
            (String::new(), "EOF"),
            (format!(r#"{{"service":"s",{client}}}"#), "missing field `host`"),
            (format!(r#"{{"service":"s",{client},"host":"h","port":1}}"#), "unknown field `port`"),
            (format!(r#"{{"service":"s",{client},"host":""}}"#), "must not be empty"),
        ] {
            let error = read(&text).expect_err("an error");
            assert!(error.contains(why) && error.contains("Deployment vpn-seed-server"), "{error}");
        }
    }
}
