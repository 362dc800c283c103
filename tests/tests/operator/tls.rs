//! Certificates of Etcds, in Secrets of their namespaces: each namespace has leaf certificates of its own, all have the authorities.

use std::path::PathBuf;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repot_etcd::link;
use repot_tests::TestEnv;
use repot_tests::pki::{Ca, Leaf, Usage};
use serde_json::{Value, json};

use super::world::TestNamespace;

/// Authorities for clients and for members.
pub struct Authorities {
    clients: Ca,
    peers: Ca,
    client: Leaf,
    files: ClientFiles,
}

/// The files with which a client reaches members.
#[derive(Clone)]
pub struct ClientFiles {
    pub ca: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Authorities {
    pub fn make(env: &TestEnv) -> Result<Self> {
        let (clients, peers) = (Ca::new("etcd-ca")?, Ca::new("etcd-peer-ca")?);
        let (client, dir) = (clients.client("etcd-client", &[])?, env.make_dir("etcd-tls")?);
        let (certificate, key) = client.write(&dir, "client")?;
        let files = ClientFiles { ca: clients.write(&dir, "ca")?, certificate, key };
        Ok(Self { clients, peers, client, files })
    }

    /// A namespace with certificates for the members of its Etcd `main`.
    pub async fn place(&self, namespace: &str) -> Result<TestNamespace> {
        let names = hosts(namespace);
        self.place_with(namespace, &names.iter().map(String::as_str).collect::<Vec<_>>()).await
    }

    /// The same, where members show each other these names.
    pub async fn place_with(&self, namespace: &str, peer_names: &[&str]) -> Result<TestNamespace> {
        let mut place = TestNamespace::make(namespace).await?;
        let mut names = hosts(namespace);
        // Tests reach Pods by ports of their own machine.
        names.extend([format!("main-client.{namespace}.svc"), "localhost".into(), "127.0.0.1".into()]);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        place
            .pods
            .apply(&[
                secret("ca", &[("bundle.crt", &self.clients.pem())]),
                secret("peer-ca", &[("ca.crt", &self.peers.pem())]),
                of_leaf("server", &self.clients.leaf("etcd", &[], &names, Usage::Peer)?),
                of_leaf("client", &self.client),
                of_leaf("peer", &self.peers.leaf("etcd-peer", &[], peer_names, Usage::Peer)?),
            ])
            .await?;
        place.tls = Some(self.files.clone());
        Ok(place)
    }

    /// How a client reaches what is at a port of this machine.
    pub fn access(&self, port: u16) -> link::Options {
        link::Options {
            endpoints: vec![format!("https://localhost:{port}")],
            ca: Some(self.clients.pem().into_bytes()),
            identity: Some((self.client.cert_pem.clone().into(), self.client.key_pem.clone().into())),
            ..link::Options::default()
        }
    }

    /// A client of agents, which are asked at `localhost`.
    pub fn http(&self) -> Result<reqwest::Client> {
        let identity = format!("{}{}", self.client.cert_pem, self.client.key_pem);
        let client = reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only([reqwest::Certificate::from_pem(self.clients.pem().as_bytes())?])
            .identity(reqwest::Identity::from_pem(identity.as_bytes())?);
        Ok(client.build()?)
    }
}

/// Has an Etcd use the certificates of its namespace; `skips`: members take each other's from any address.
pub fn with_tls(mut spec: Value, skips: bool) -> Value {
    spec["etcd"]["clientUrlTls"] = json!({
        "tlsCASecretRef": {"name": "ca", "dataKey": "bundle.crt"}, "serverTLSSecretRef": {"name": "server"},
        "clientTLSSecretRef": {"name": "client"},
    });
    spec["etcd"]["peerUrlTls"] = json!({
        "tlsCASecretRef": {"name": "peer-ca"}, "serverTLSSecretRef": {"name": "peer"},
        "skipClientSANVerification": skips,
    });
    spec
}

fn hosts(namespace: &str) -> Vec<String> {
    (0..3).map(|at| format!("main-{at}.main-peer.{namespace}.svc")).collect()
}

fn secret(name: &str, data: &[(&str, &str)]) -> Value {
    let data: serde_json::Map<_, _> =
        data.iter().map(|(key, value)| ((*key).to_owned(), STANDARD.encode(value).into())).collect();
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data})
}

fn of_leaf(name: &str, leaf: &Leaf) -> Value {
    secret(name, &[("tls.crt", &leaf.cert_pem), ("tls.key", &leaf.key_pem)])
}
