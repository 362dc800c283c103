//! The tunnel by which kube-apiservers of a seed reach nodes, Pods and Services of their Shoot, as the seed has it: a Deployment of servers
//! in the namespace of the control plane. An annotation on it says by what clients in the Shoot reach these servers.

use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use serde::Deserialize;

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
    /// The tunnel of a control plane that has these servers; `None` where it has none.
    ///
    /// # Errors
    /// What is wrong with the annotation, for people.
    pub fn of<'a>(mut servers: impl Iterator<Item = &'a Deployment>) -> Result<Option<Self>, String> {
        let (first, second) = (servers.next(), servers.next());
        let Some(servers) = first else { return Ok(None) };
        if let Some(other) = second {
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
