//! Nodes of the Shoot, asked of its API at the destination: whether they have found the new address, and whether they are healthy.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    ByteString,
    api::{
        coordination::v1::Lease,
        core::v1::{Node, Secret},
    },
};
use kube::{
    Api, Client, Config, ResourceExt,
    config::{KubeConfigOptions, Kubeconfig},
};
use repot_certs::Authority;
use serde_json::json;
use time::OffsetDateTime;

use crate::{
    errors::causes,
    migration::{
        error::{Error, Result},
        names::API_SERVER,
        seed::read,
    },
};

/// Namespace of the Leases of nodes (Kubernetes).
const LEASES: &str = "kube-node-lease";
/// How long an answer of the API of the Shoot may take.
const ANSWER: Duration = Duration::from_secs(5);
/// How long the certificate of the client counts: it is made for one pass.
const LIFETIME: time::Duration = time::Duration::minutes(5);
/// A node that has not renewed its Lease for so long before the outage was lost already.
const LOST: SignedDuration = SignedDuration::from_secs(60);
/// The user that asks, and its group.
const USER: &str = "repot:migration";
const GROUP: &str = "system:masters";

/// A client of the API of the Shoot at its Service in this seed, with a certificate by the carried authority. The load balancer is for
/// clients outside of the seed: many do not lead Pods of the seed back into it.
///
/// # Errors
/// Where authorities are missing or cannot be used.
pub async fn client(seed: &Client, namespace: &str) -> Result<Client> {
    let secrets = read::list::<Secret>(seed, namespace, "persist=true").await?;
    let value = |name: &str, key: &str| {
        let is_it = |secret: &&Secret| secret.labels().get("name").map(String::as_str) == Some(name);
        let found = secrets.iter().find(is_it).and_then(|secret| secret.data.as_ref()?.get(key));
        let found = found.map(|ByteString(bytes)| String::from_utf8_lossy(bytes).into_owned());
        found.ok_or_else(|| Error::Missing(format!("key {key} of the Secret of authority {name}")))
    };
    let failed = |error: &dyn std::error::Error| Error::ShootClient(error.to_string());
    let authority = Authority::from_pem(&value("ca-client", "ca.crt")?, &value("ca-client", "ca.key")?);
    let authority = authority.map_err(|error| failed(&error))?;
    let leaf = authority.issue_client_for(USER, GROUP, OffsetDateTime::now_utc(), LIFETIME);
    let leaf = leaf.map_err(|error| failed(&error))?;
    let encode = |text: &str| STANDARD.encode(text);
    let kubeconfig = json!({
        "clusters": [{"name": "shoot", "cluster": {
            "server": format!("https://{API_SERVER}.{namespace}.svc"),
            "certificate-authority-data": encode(&value("ca", "ca.crt")?),
        }}],
        "users": [{"name": "shoot", "user": {
            "client-certificate-data": encode(&leaf.certificate_pem), "client-key-data": encode(&leaf.key_pem),
        }}],
        "contexts": [{"name": "shoot", "context": {"cluster": "shoot", "user": "shoot"}}],
        "current-context": "shoot",
    });
    let form = |source| Error::Form { what: "a kubeconfig".to_owned(), source };
    let kubeconfig: Kubeconfig = serde_json::from_value(kubeconfig).map_err(form)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|error| failed(&error))?;
    (config.connect_timeout, config.read_timeout) = (Some(ANSWER), Some(ANSWER));
    Client::try_from(config).map_err(|error| failed(&error))
}

/// Why the API of the Shoot does not answer at its Service; `None` where it is ready.
pub async fn reach(seed: &Client, namespace: &str) -> Option<String> {
    let asked = async {
        let shoot = client(seed, namespace).await?;
        let request = http::Request::get("/readyz").body(Vec::new());
        let request = request.map_err(|error| Error::ShootClient(error.to_string()))?;
        shoot.request_text(request).await.map_err(Error::read("the API of the Shoot"))
    };
    asked.await.err().map(|error| causes(&error))
}

/// Nodes whose Lease was fresh at the beginning of the outage and is not renewed since the API serves here. Where nobody knows when
/// the outage began, it is when the last Lease was renewed.
///
/// # Errors
/// Where the API of the Shoot does not answer.
pub async fn stale_leases(
    shoot: &Client,
    outage: Option<Timestamp>,
    served: Timestamp,
) -> Result<Vec<String>> {
    let leases = read::list::<Lease>(shoot, LEASES, "").await?;
    Ok(stale(&leases, outage, served))
}

fn stale(leases: &[Lease], outage: Option<Timestamp>, served: Timestamp) -> Vec<String> {
    let renewed = |lease: &Lease| lease.spec.as_ref()?.renew_time.as_ref().map(|time| time.0);
    let last = || leases.iter().filter_map(renewed).filter(|time| *time < served).max();
    let outage = outage.or_else(last).unwrap_or(served);
    let is_stale = |lease: &&Lease| renewed(lease).is_some_and(|time| time < served && time >= outage - LOST);
    leases.iter().filter(is_stale).map(ResourceExt::name_any).collect()
}

/// All Nodes of the Shoot.
///
/// # Errors
/// Where the API of the Shoot does not answer.
pub async fn all(shoot: &Client) -> Result<Vec<Node>> {
    read::pages(&Api::<Node>::all(shoot.clone()), "", "Nodes of the Shoot").await
}

/// Nodes that are not Ready.
///
/// # Errors
/// Where the API of the Shoot does not answer.
pub async fn unhealthy(shoot: &Client) -> Result<Vec<String>> {
    let nodes = all(shoot).await?;
    let is_ready = |node: &Node| {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True")
    };
    Ok(nodes.iter().filter(|node| !is_ready(node)).map(ResourceExt::name_any).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(name: &str, renewed: i64) -> Lease {
        let time = Timestamp::from_second(renewed).expect("a time").to_string();
        let time = format!("{}.000000Z", time.trim_end_matches('Z'));
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"renewTime": time}}))
            .expect("a Lease")
    }

    #[test]
    fn lease_is_stale_between_the_outage_and_the_new_api() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let leases = [lease("lost", 800), lease("stale", 950), lease("late", 1010), lease("fresh", 1021)];
        assert_eq!(stale(&leases, Some(at(1000)), at(1020)), ["stale", "late"]);
        assert_eq!(stale(&leases, None, at(1020)), ["stale", "late"]);
    }
}
