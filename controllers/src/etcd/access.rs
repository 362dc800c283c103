//! How members of an Etcd and their agents are reached: with the certificates that the Etcd names.

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use repot_etcd::link;

use super::{
    Error, Result,
    api::{Etcd, SecretKey, Tls},
};

/// Options of connections to members, without endpoints, and the versions of the Secrets that they were made of.
///
/// # Errors
/// [`Error::Read`]; [`Error::Certificate`] where a Secret lacks a key.
pub async fn access(client: &Client, etcd: &Etcd) -> Result<(Vec<String>, link::Options)> {
    let Some(tls) = &etcd.spec.etcd.client_url_tls else { return Ok((Vec::new(), link::Options::default())) };
    let namespace = etcd.namespace().unwrap_or_default();
    let secrets = Api::<Secret>::namespaced(client.clone(), &namespace);
    let ca = read(&secrets, &tls.ca).await?;
    let leaf = read(&secrets, client_of(tls)).await?;
    let versions = [&ca, &leaf].map(|secret| secret.resource_version().unwrap_or_default());
    let authority = tls.ca.data_key.as_deref().unwrap_or("ca.crt");
    let options = link::Options {
        ca: Some(value(&ca, authority)?),
        identity: Some((value(&leaf, "tls.crt")?, value(&leaf, "tls.key")?)),
        ..link::Options::default()
    };
    Ok((versions.into(), options))
}

/// A client of the agents of these members.
///
/// # Errors
/// [`Error::Certificate`] where the certificates cannot be used.
pub fn agent_client(access: &link::Options) -> Result<reqwest::Client> {
    let refused = |error: reqwest::Error| Error::Certificate { why: error.to_string() };
    let mut builder = reqwest::Client::builder().no_proxy();
    if let Some(ca) = &access.ca {
        builder = builder.tls_certs_only(reqwest::Certificate::from_pem_bundle(ca).map_err(refused)?);
    }
    if let Some((certificate, key)) = &access.identity {
        let both = [certificate.as_slice(), b"\n", key.as_slice()].concat();
        builder = builder.identity(reqwest::Identity::from_pem(&both).map_err(refused)?);
    }
    builder.build().map_err(refused)
}

fn client_of(tls: &Tls) -> &SecretKey {
    tls.client.as_ref().unwrap_or(&tls.server)
}

async fn read(secrets: &Api<Secret>, of: &SecretKey) -> Result<Secret> {
    let failed = |source| Error::Read { kind: "Secret".to_owned(), name: of.name.clone(), source };
    secrets.get(&of.name).await.map_err(failed)
}

fn value(secret: &Secret, key: &str) -> Result<Vec<u8>> {
    let found = secret.data.as_ref().and_then(|data| data.get(key));
    let missing = || Error::Certificate { why: format!("Secret {} has no key {key}", secret.name_any()) };
    found.map(|value| value.0.clone()).ok_or_else(missing)
}
