//! TLS to members.

use std::{io, sync::Arc};

use parking_lot::RwLock;
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        self, ClientConfig, RootCertStore,
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    },
};

use super::Error;
use crate::link;

/// Shakes hands with members.
pub(super) struct Dialer(RwLock<Access>);

#[derive(Clone)]
struct Access {
    connector: TlsConnector,
    server_name: Option<String>,
}

impl Dialer {
    /// # Errors
    /// Where a certificate or a key cannot be used.
    pub(super) fn new(access: &link::Options) -> Result<Self, Error> {
        Access::new(access).map(|access| Self(RwLock::new(access)))
    }

    /// Shakes hands like this from now on.
    ///
    /// # Errors
    /// Where a certificate or a key cannot be used; then nothing has changed.
    pub(super) fn set(&self, access: &link::Options) -> Result<(), Error> {
        *self.0.write() = Access::new(access)?;
        Ok(())
    }

    pub(super) async fn shake_hands(
        &self,
        stream: TcpStream,
        host: &str,
    ) -> io::Result<TlsStream<TcpStream>> {
        let Access { connector, server_name } = self.0.read().clone();
        let name = ServerName::try_from(server_name.unwrap_or_else(|| host.to_owned()));
        let name = name.map_err(|error: rustls::pki_types::InvalidDnsNameError| {
            io::Error::new(io::ErrorKind::InvalidInput, error)
        })?;
        connector.connect(name, stream).await
    }
}

impl Access {
    fn new(access: &link::Options) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(access.ca.as_deref().unwrap_or_default()) {
            roots.add(certificate.map_err(Error::Pem)?).map_err(Error::Tls)?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(Error::Tls)?
            .with_root_certificates(roots);
        let mut config = match &access.identity {
            None => config.with_no_client_auth(),
            Some((chain, key)) => {
                let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
                let key = PrivateKeyDer::from_pem_slice(key).map_err(Error::Pem)?;
                config.with_client_auth_cert(chain.map_err(Error::Pem)?, key).map_err(Error::Tls)?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self { connector: Arc::new(config).into(), server_name: access.server_name.clone() })
    }
}
