//! Certificates of an etcd, its members and its clients: each side shows one, and asks for one.

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repot_etcd::link;
use repot_tests::access::{Access, Credential};
use repot_tests::http::Api;
use repot_tests::pki::{Ca, Leaf, Usage};
use serde_json::{Value, json};

/// The key of the authority in its Secret; not the usual one, so that whoever reads it has to ask the Etcd for it.
const CA_KEY: &str = "bundle.crt";
/// Certificates are good for so many members.
const MOST_MEMBERS: u32 = 3;

/// Where containers find the authority of the members, and a certificate of clients with its key.
pub const CA_FILE: &str = "/etc/etcd/ca/bundle.crt";
pub const CERT_FILE: &str = "/etc/etcd/client/tls.crt";
pub const KEY_FILE: &str = "/etc/etcd/client/tls.key";

/// Authorities of one etcd, and how a test enters.
pub struct Certificates {
    clients: String,
    client: Leaf,
    secrets: Vec<Value>,
}

fn secret(name: &str, data: &[(&str, &str)]) -> Value {
    let data: serde_json::Map<_, _> =
        data.iter().map(|(key, value)| ((*key).to_owned(), STANDARD.encode(value).into())).collect();
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data})
}

fn leaf(name: &str, leaf: &Leaf) -> Value {
    secret(name, &[("tls.crt", &leaf.cert_pem), ("tls.key", &leaf.key_pem)])
}

impl Certificates {
    /// Makes those of the Etcd `main` in a namespace. Ports that lead to its Pods are on 127.0.0.1.
    pub fn make(namespace: &str) -> Result<Self> {
        let (clients, peers) = (Ca::new("etcd-ca")?, Ca::new("etcd-peer-ca")?);
        let mut names: Vec<String> =
            (0..MOST_MEMBERS).map(|at| format!("main-{at}.main-peer.{namespace}.svc")).collect();
        names.extend([format!("main-client.{namespace}.svc"), "localhost".to_owned()]);
        let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
        let peer = peers.leaf("etcd-peer", &[], &names, Usage::Peer)?;
        names.push("127.0.0.1");
        let server = clients.leaf("etcd", &[], &names, Usage::Peer)?;
        let client = clients.client("etcd-client", &[])?;
        let secrets = vec![
            secret("etcd-ca", &[(CA_KEY, &clients.pem())]),
            secret("etcd-peer-ca", &[("ca.crt", &peers.pem())]),
            leaf("etcd-server", &server),
            leaf("etcd-client", &client),
            leaf("etcd-peer", &peer),
        ];
        Ok(Self { clients: clients.pem(), client, secrets })
    }

    /// What an Etcd refers to.
    pub fn secrets(&self) -> &[Value] {
        &self.secrets
    }

    /// Adds the fields of `spec.etcd` that refer to them.
    pub fn refer(etcd: &mut Value) {
        etcd["clientUrlTls"] = json!({
            "tlsCASecretRef": {"name": "etcd-ca", "dataKey": CA_KEY}, "serverTLSSecretRef": {"name": "etcd-server"},
            "clientTLSSecretRef": {"name": "etcd-client"},
        });
        etcd["peerUrlTls"] =
            json!({"tlsCASecretRef": {"name": "etcd-peer-ca"}, "serverTLSSecretRef": {"name": "etcd-peer"}});
    }

    /// Volumes and mounts by which a client in a Pod finds [`CA_FILE`], [`CERT_FILE`] and [`KEY_FILE`].
    pub fn mounted() -> (Vec<Value>, Vec<Value>) {
        let all = [("etcd-ca", "/etc/etcd/ca"), ("etcd-client", "/etc/etcd/client")];
        let volumes = all.map(|(name, _)| json!({"name": name, "secret": {"secretName": name}}));
        let mounts = all.map(|(name, path)| json!({"name": name, "mountPath": path, "readOnly": true}));
        (volumes.into(), mounts.into())
    }

    /// How a test reaches etcd at a port of 127.0.0.1.
    pub fn etcd(&self, port: u16) -> link::Options {
        let (cert, key) =
            (self.client.cert_pem.clone().into_bytes(), self.client.key_pem.clone().into_bytes());
        link::Options {
            endpoints: vec![format!("https://127.0.0.1:{port}")],
            ca: Some(self.clients.clone().into_bytes()),
            identity: Some((cert, key)),
            ..link::Options::default()
        }
    }

    /// The HTTP of an agent at a port of 127.0.0.1.
    pub fn agent(&self, port: u16) -> Result<Api> {
        Api::new(&Access {
            server: format!("https://127.0.0.1:{port}"),
            ca_pem: self.clients.clone(),
            credential: Credential::Certificate(self.client.clone()),
        })
    }
}
