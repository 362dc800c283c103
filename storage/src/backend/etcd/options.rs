//! Where etcd is and how to speak to it.

use std::{path::PathBuf, time::Duration};

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use zeroize::Zeroizing;

use super::super::{Error, Result};

/// Where etcd is and how to speak to it.
#[derive(Clone, Debug)]
pub struct Options {
    /// URLs of members, such as `https://etcd-main-client:2379`.
    pub endpoints: Vec<String>,
    /// What all keys begin with in etcd, such as `/repot.dev`. No other prefix in use there may begin with it.
    pub prefix: String,
    /// Files with certificates, used where an endpoint is `https`.
    pub tls: Tls,
    /// How long one call may take before its outcome is taken for lost.
    pub deadline: Duration,
    /// How long ephemeral keys outlive a handle that did not say goodbye, in whole seconds.
    pub lease: Duration,
}

/// Files in PEM. They are read again while a handle is used: what replaces them is taken once etcd answers to it.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// Who may have signed the servers' certificates; without it, nobody is trusted.
    pub ca_file: Option<PathBuf>,
    /// The client's certificate chain and private key.
    pub client: Option<ClientFiles>,
    /// The name to look for in the servers' certificates, where it is not the host of the URL.
    pub server_name: Option<String>,
}

/// A certificate chain and its private key.
#[derive(Clone, Debug)]
pub struct ClientFiles {
    /// The chain, leaf first.
    pub certificate: PathBuf,
    /// File with the private key of the certificate, in PEM.
    pub key: PathBuf,
}

impl Options {
    /// Options for a cluster with the defaults that an etcd in the same region wants.
    #[must_use]
    pub fn new(endpoints: Vec<String>, prefix: impl Into<String>) -> Self {
        Self {
            endpoints,
            prefix: prefix.into(),
            tls: Tls::default(),
            deadline: Duration::from_secs(10),
            lease: Duration::from_secs(10),
        }
    }

    /// Whether certificates matter.
    pub(super) fn speaks_tls(&self) -> bool {
        self.endpoints.iter().any(|endpoint| endpoint.starts_with("https://"))
    }

    /// A client that connects when it is first used, with certificates where they matter.
    pub(super) async fn client(&self, certificates: Option<&Certificates>) -> Result<Client> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(Duration::from_secs(2).min(self.deadline))
            // A dead peer would hold a watch for ever.
            .with_keep_alive(Duration::from_secs(5), Duration::from_secs(3))
            .with_keep_alive_while_idle(true)
            .with_require_leader(true);
        if let Some(certificates) = certificates {
            options = options.with_tls(certificates.options(self.tls.server_name.as_deref()));
        }
        Client::connect(&self.endpoints, Some(options)).await.map_err(|error| {
            Error::Refused(format!("cannot speak to {}: {error}", self.endpoints.join(", ")))
        })
    }
}

/// What is in the files of [`Tls`].
pub(super) struct Certificates {
    ca: Option<Vec<u8>>,
    /// The client's chain and its key.
    client: Option<(Vec<u8>, Zeroizing<Vec<u8>>)>,
}

impl Tls {
    pub(super) async fn read(&self) -> Result<Certificates> {
        let ca = match &self.ca_file {
            Some(file) => Some(read(file).await?),
            None => None,
        };
        let client = match &self.client {
            Some(files) => Some((read(&files.certificate).await?, Zeroizing::new(read(&files.key).await?))),
            None => None,
        };
        Ok(Certificates { ca, client })
    }
}

impl Certificates {
    fn options(&self, server_name: Option<&str>) -> TlsOptions {
        let mut tls = TlsOptions::new();
        if let Some(ca) = &self.ca {
            tls = tls.ca_certificate(Certificate::from_pem(ca));
        }
        if let Some((chain, key)) = &self.client {
            tls = tls.identity(Identity::from_pem(chain, key.as_slice()));
        }
        if let Some(name) = server_name {
            tls = tls.domain_name(name);
        }
        tls
    }

    /// Other content has another hash; the key cannot be told from it.
    pub(super) fn hash(&self) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        let (chain, key) = self.client.as_ref().map_or((&[][..], &[][..]), |(chain, key)| (chain, key));
        for part in [self.ca.as_deref().unwrap_or_default(), chain, key] {
            hasher.update(&(part.len() as u64).to_be_bytes()).update(part);
        }
        hasher.finalize()
    }
}

async fn read(file: &PathBuf) -> Result<Vec<u8>> {
    tokio::fs::read(file)
        .await
        .map_err(|error| Error::Refused(format!("cannot read {}: {error}", file.display())))
}
