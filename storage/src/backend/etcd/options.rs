//! Where etcd is and how to speak to it.

use std::{path::PathBuf, time::Duration};

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};

use super::super::{Error, Result};

/// Where etcd is and how to speak to it.
#[derive(Clone, Debug)]
pub struct Options {
    /// URLs of members, such as `https://etcd-main-client:2379`.
    pub endpoints: Vec<String>,
    /// What all keys begin with in etcd, such as `/repot.dev`. No other prefix in use there may begin with it.
    pub prefix: String,
    /// Certificates, for `https`.
    pub tls: Tls,
    /// How long one call may take before its outcome is taken for lost.
    pub deadline: Duration,
    /// How long ephemeral keys outlive a handle that did not say goodbye, in whole seconds.
    pub lease: Duration,
}

/// Files in PEM.
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
    /// The private key.
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

    /// A client that connects when it is first used.
    pub(super) async fn client(&self) -> Result<Client> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(Duration::from_secs(2).min(self.deadline))
            // A dead peer would hold a watch for ever.
            .with_keep_alive(Duration::from_secs(5), Duration::from_secs(3))
            .with_keep_alive_while_idle(true)
            .with_require_leader(true);
        if self.endpoints.iter().any(|endpoint| endpoint.starts_with("https://")) {
            options = options.with_tls(self.tls.load().await?);
        }
        Client::connect(&self.endpoints, Some(options)).await.map_err(|error| {
            Error::Refused(format!("cannot speak to {}: {error}", self.endpoints.join(", ")))
        })
    }
}

impl Tls {
    async fn load(&self) -> Result<TlsOptions> {
        let mut tls = TlsOptions::new();
        if let Some(file) = &self.ca_file {
            tls = tls.ca_certificate(Certificate::from_pem(read(file).await?));
        }
        if let Some(client) = &self.client {
            tls =
                tls.identity(Identity::from_pem(read(&client.certificate).await?, read(&client.key).await?));
        }
        if let Some(name) = &self.server_name {
            tls = tls.domain_name(name);
        }
        Ok(tls)
    }
}

async fn read(file: &PathBuf) -> Result<Vec<u8>> {
    tokio::fs::read(file)
        .await
        .map_err(|error| Error::Refused(format!("cannot read {}: {error}", file.display())))
}
