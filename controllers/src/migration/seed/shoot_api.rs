//! The API of the Shoot, asked at its Service in a seed.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Client, Config, ResourceExt,
    config::{KubeConfigOptions, Kubeconfig},
};
use repot_certs::Authority;
use serde_json::json;
use time::OffsetDateTime;

use super::read;
use crate::{
    errors::causes,
    migration::{
        error::{Error, Result},
        names::API_SERVER,
    },
};

/// How long an answer of the API of the Shoot may take.
const ANSWER: Duration = Duration::from_secs(5);
/// How long the certificate of the client counts.
const LIFETIME: time::Duration = time::Duration::minutes(5);
/// The user that asks, and its group.
const USER: &str = "repot:migration";
const GROUP: &str = "system:masters";

/// A client of the API of the Shoot at its Service in this seed, with a certificate by the carried authority. The load balancer is for
/// clients outside of the seed: many do not lead Pods of the seed back into it.
///
/// # Errors
/// Where authorities are missing or cannot be used.
pub async fn client(seed: &Client, namespace: &str) -> Result<Client> {
    let name = service_name(namespace);
    client_at(seed, namespace, &format!("https://{name}")).await
}

fn service_name(namespace: &str) -> String {
    format!("{API_SERVER}.{namespace}.svc")
}

/// The same at another address, such as that of a Pod.
///
/// # Errors
/// Where authorities are missing or cannot be used.
pub async fn client_at(seed: &Client, namespace: &str, server: &str) -> Result<Client> {
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
            "server": server,
            "tls-server-name": service_name(namespace),
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
    let asked = async { ask(&client(seed, namespace).await?, "/readyz").await };
    asked.await.err().map(|error| causes(&error))
}

/// Asks the API of the Shoot for a path, and drops the answer.
///
/// # Errors
/// Where it does not answer, or refuses.
pub async fn ask(shoot: &Client, path: &str) -> Result<()> {
    let request = http::Request::get(path).body(Vec::new());
    let request = request.map_err(|error| Error::ShootClient(error.to_string()))?;
    shoot.request_text(request).await.map(drop).map_err(Error::read("the API of the Shoot"))
}
