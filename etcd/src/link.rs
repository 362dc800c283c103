//! A connection to an etcd.

use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);

/// Where an etcd is and how to speak to it.
#[derive(Clone, Default)]
pub struct Options {
    /// URLs of the members to connect to.
    pub endpoints: Vec<String>,
    /// Who may have signed the servers' certificates, PEM; for `https`.
    pub ca: Option<Vec<u8>>,
    /// The client's certificate chain and private key, PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The name to look for in the servers' certificates, where it is not the host of the URL.
    pub server_name: Option<String>,
    /// User and password, for an etcd that asks for them.
    pub user: Option<(String, String)>,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}

/// A client. The connection is made when it is first used.
///
/// # Errors
/// Where a URL, a certificate or a key cannot be used.
pub async fn connect(options: &Options) -> Result<Client, etcd_client::Error> {
    let mut connect = ConnectOptions::new()
        .with_connect_timeout(CONNECT)
        // A dead peer would hold a watch for ever.
        .with_keep_alive(Duration::from_secs(5), Duration::from_secs(3))
        .with_keep_alive_while_idle(true);
    if options.endpoints.iter().any(|endpoint| endpoint.starts_with("https://")) {
        let mut tls = TlsOptions::new();
        if let Some(ca) = &options.ca {
            tls = tls.ca_certificate(Certificate::from_pem(ca));
        }
        if let Some((certificate, key)) = &options.identity {
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        if let Some(name) = &options.server_name {
            tls = tls.domain_name(name);
        }
        connect = connect.with_tls(tls);
    }
    if let Some((name, password)) = &options.user {
        connect = connect.with_user(name, password);
    }
    Client::connect(&options.endpoints, Some(connect)).await
}
