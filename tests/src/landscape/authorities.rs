//! The authorities and keys of a Shoot. They are made once, carried from seed to seed, and everything else is issued from them.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::dns::Resolver;
use super::shoot::ShootName;
use crate::access::{Access, Credential};
use crate::http::Api;
use crate::pki::{self, Ca, Leaf};

/// Label of Secrets that have to come along when a control plane moves.
const PERSIST: &str = "persist";

/// The authorities and keys of one Shoot.
pub struct Authorities {
    /// Signs the serving certificate of kube-apiserver.
    pub cluster: Ca,
    /// Signs client certificates of users.
    pub client: Ca,
    /// Signs the certificate of kube-apiserver as a front proxy.
    pub front_proxy: Ca,
    /// Signs certificates of etcd's servers and clients.
    pub etcd: Ca,
    /// Signs certificates of etcd's members for each other.
    pub etcd_peer: Ca,
    /// Signs tokens of service accounts, PEM.
    pub service_account_key: String,
    /// Verifies tokens of service accounts, PEM.
    pub service_account_public: String,
    /// Encrypts Secrets of the Shoot in its etcd, base64.
    encryption_key: String,
    /// The end of the names of the Secrets, which in Gardener is a hash.
    suffix: String,
}

impl Authorities {
    /// Makes new ones; `dir` gets the key pair of service accounts.
    pub fn make(dir: &Path) -> Result<Self> {
        let (private, public) = pki::write_signing_key(dir, "service-account")?;
        Ok(Self {
            cluster: Ca::new("kubernetes")?,
            client: Ca::new("kubernetes-client")?,
            front_proxy: Ca::new("front-proxy")?,
            etcd: Ca::new("etcd")?,
            etcd_peer: Ca::new("etcd-peer")?,
            service_account_key: std::fs::read_to_string(private)?,
            service_account_public: std::fs::read_to_string(public)?,
            encryption_key: STANDARD.encode(pki::random_bytes::<32>()?),
            suffix: pki::random_bytes::<4>()?.iter().map(|byte| format!("{byte:02x}")).collect(),
        })
    }

    /// The Secrets that a move has to carry, with the labels that Gardener's secrets manager gives them.
    pub fn secrets(&self) -> Vec<Value> {
        let ca = |ca: &Ca| json!({"ca.crt": ca.pem(), "ca.key": ca.key_pem()});
        let key = json!({"key": "key1", "secret": self.encryption_key});
        let kept = [
            ("ca", ca(&self.cluster)),
            ("ca-client", ca(&self.client)),
            ("ca-front-proxy", ca(&self.front_proxy)),
            ("ca-etcd", ca(&self.etcd)),
            ("ca-etcd-peer", ca(&self.etcd_peer)),
            ("service-account-key", json!({"id_rsa": self.service_account_key})),
            ("kube-apiserver-etcd-encryption-key", key),
        ];
        kept.into_iter().map(|(name, data)| self.secret(name, data)).collect()
    }

    fn secret(&self, name: &str, data: Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": true, "stringData": data,
            "metadata": {"name": format!("{name}-{}", self.suffix), "labels": {
                "name": name, PERSIST: "true", "managed-by": "secrets-manager", "manager-identity": "gardenlet",
                "checksum-of-config": "1", "issued-at-time": "1767225600", "last-rotation-initiation-time": "",
            }},
        })
    }

    /// The configuration by which kube-apiserver encrypts Secrets.
    pub fn encryption_configuration(&self) -> String {
        let key = json!({"name": "key1", "secret": self.encryption_key});
        let providers = json!([{"aescbc": {"keys": [key]}}, {"identity": {}}]);
        json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
            "resources": [{"resources": ["secrets"], "providers": providers}],
        })
        .to_string()
    }

    /// A way in to the API of the Shoot at `server` as a user with a client certificate of two groups at most.
    pub fn access(&self, server: &str, user: &str, groups: &[&str]) -> Result<Access> {
        let credential = Credential::Certificate(self.client.client(user, groups)?);
        Ok(Access { server: server.to_owned(), ca_pem: self.cluster.pem(), credential })
    }

    /// A client of the API of a Shoot through its DNS name. Connections are not kept from one second to the next, so that the
    /// client follows the record of the name.
    pub fn api(&self, shoot: &ShootName, resolver: Resolver, user: &str, groups: &[&str]) -> Result<Api> {
        let access = self.access(&format!("https://{}", shoot.api_domain()), user, groups)?;
        let builder = reqwest::Client::builder()
            .dns_resolver(Arc::new(resolver))
            .pool_idle_timeout(std::time::Duration::from_millis(500));
        Api::build(&access, builder)
    }

    /// A certificate of a client of etcd.
    pub fn etcd_client(&self) -> Result<Leaf> {
        self.etcd.client("etcd-client", &[])
    }
}
