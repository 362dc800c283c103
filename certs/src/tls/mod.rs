//! TLS as servers behind a kube-apiserver need it: the client's certificate is asked for but judged per request, and the
//! server's own certificates can change while connections live.

mod linger;
mod names;
mod protocol;

use std::{io, net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use rustls::{
    DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms},
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject},
    server::{
        Acceptor,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use tokio::net::TcpStream;
use tokio_rustls::{LazyConfigAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;

use self::names::Choice;
pub use self::{
    linger::Lingering,
    names::NamedFiles,
    protocol::{MinVersion, Protocol},
};

/// How often the files of the serving certificate are looked at.
const RELOAD_INTERVAL: Duration = Duration::from_secs(10);

/// The serving certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read as PEM.
    #[error("failed to read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// Certificate and key do not fit each other or are unusable.
    #[error("certificate {certificate} and key {key} cannot be used together")]
    Pair {
        /// The certificate file.
        certificate: PathBuf,
        /// The key file.
        key: PathBuf,
        /// Why.
        #[source]
        source: rustls::Error,
    },
}

/// Where a serving certificate is.
#[derive(Clone, Debug)]
pub struct ServingFiles {
    /// The certificate chain, PEM.
    pub certificate: PathBuf,
    /// The private key, PEM.
    pub key: PathBuf,
}

/// What the TLS side of a server is made of.
#[derive(Clone, Debug)]
pub struct Options {
    /// The certificate for everybody who asks for none of the others.
    pub files: ServingFiles,
    /// Certificates for certain names.
    pub by_name: Vec<NamedFiles>,
    /// Versions and cipher suites.
    pub protocol: Protocol,
}

impl From<ServingFiles> for Options {
    fn from(files: ServingFiles) -> Self {
        Self { files, by_name: Vec::new(), protocol: Protocol::default() }
    }
}

/// The TLS side of the server; the configuration for the next connection.
#[derive(Debug)]
pub struct Serving {
    options: Options,
    current: ArcSwap<Choice>,
}

impl Serving {
    /// Reads certificates and keys.
    ///
    /// # Errors
    /// [`Error`].
    pub fn load(options: Options) -> Result<Self, Error> {
        let current = ArcSwap::from_pointee(Choice::load(&options)?);
        Ok(Self { options, current })
    }

    /// Shakes hands on a new connection, with the certificate for the name that the client wants and the address that it came to.
    ///
    /// # Errors
    /// When the client breaks off, or does not agree on a protocol.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let local = stream.local_addr().map(|address| address.ip()).ok();
        let start = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let config = self.pick(start.client_hello().server_name(), local);
        start.into_stream(config).await
    }

    /// When the certificate ends that clients get who ask for none of the others, in seconds since 1970; `None` where it cannot be read.
    pub fn not_after(&self) -> Option<i64> {
        self.current.load().until
    }

    fn pick(&self, name: Option<&str>, local: Option<IpAddr>) -> Arc<ServerConfig> {
        self.current.load().pick(name, local)
    }

    /// Follows changes of the files until `stop`. By content, because mounted Secrets change by a swap of links; a pair
    /// that does not fit (one file is new, the other not yet) leaves the old ones in place.
    pub async fn follow(&self, stop: CancellationToken) {
        let mut seen = self.contents().await;
        let mut tick = tokio::time::interval(RELOAD_INTERVAL);
        while stop.run_until_cancelled(tick.tick()).await.is_some() {
            let contents = self.contents().await;
            if contents == seen {
                continue;
            }
            match Choice::load(&self.options) {
                Ok(choice) => {
                    self.current.store(Arc::new(choice));
                    tracing::info!("serving certificates reloaded");
                    seen = contents;
                }
                Err(error) => {
                    tracing::warn!(%error, "new serving certificate is unusable, keeping the old one")
                }
            }
        }
    }

    async fn contents(&self) -> Vec<Option<Vec<u8>>> {
        let named = self.options.by_name.iter().map(|named| &named.files);
        let mut contents = Vec::new();
        for files in std::iter::once(&self.options.files).chain(named) {
            contents.push(tokio::fs::read(&files.certificate).await.ok());
            contents.push(tokio::fs::read(&files.key).await.ok());
        }
        contents
    }
}

fn server_config(
    files: &ServingFiles,
    protocol: &Protocol,
) -> Result<(Vec<CertificateDer<'static>>, ServerConfig), Error> {
    let unreadable = |path: &PathBuf| {
        let path = path.clone();
        move |source| Error::Read { path, source }
    };
    let chain = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(unreadable(&files.certificate))?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(unreadable(&files.key))?;
    let unusable =
        |source| Error::Pair { certificate: files.certificate.clone(), key: files.key.clone(), source };
    let provider = Arc::new(protocol.provider());
    let verifier = Arc::new(PossessionOnly { algorithms: provider.signature_verification_algorithms });
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(protocol.versions())
        .map_err(unusable)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain.clone(), key)
        .map_err(unusable)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((chain, config))
}

/// Accepts any certificate whose key the client holds, or none. Who issued it is judged at each request with the
/// authorities of that moment: a handshake would freeze them for the life of the connection. No names of authorities
/// are sent either, since clients withhold certificates of authorities that a stale list does not name.
#[derive(Debug)]
struct PossessionOnly {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for PossessionOnly {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Installs the one crypto provider of the process. Call once, first.
pub fn install_crypto_provider() {
    // An error means that it is installed already.
    let _ = CryptoProvider::install_default(rustls::crypto::aws_lc_rs::default_provider());
}
