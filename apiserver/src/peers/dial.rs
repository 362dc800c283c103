//! Whether a server answers: a new connection each time, with a TLS handshake, which the kernel cannot answer alone.
//!
//! There is no HTTP request. So a check is no audit event, needs no storage, and says nothing about the health of a server, which
//! its kubelet judges. The certificate is not verified: nothing is sent that a foreign server may not see.

use std::{
    io::{Error, ErrorKind},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use futures::future::join_all;
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::aws_lc_rs::default_provider,
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

/// How long a server may take to answer.
const DEADLINE: Duration = Duration::from_secs(1);

/// Connects to servers.
pub(super) struct Dialer(TlsConnector);

impl Dialer {
    /// Makes one. It keeps no connection and no TLS session.
    ///
    /// # Errors
    /// When the cryptographic library supports no version of TLS.
    pub(super) fn new() -> Result<Self, rustls::Error> {
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config.with_safe_default_protocol_versions()?.dangerous();
        let mut config =
            config.with_custom_certificate_verifier(Arc::new(AnyCertificate)).with_no_client_auth();
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// Whether something answers at one of the addresses within a second.
    pub(super) async fn answers(&self, addresses: &[SocketAddr]) -> bool {
        join_all(addresses.iter().map(|address| self.answers_at(*address))).await.contains(&true)
    }

    async fn answers_at(&self, address: SocketAddr) -> bool {
        let connect = async {
            let stream = TcpStream::connect(address).await?;
            self.0.connect(ServerName::IpAddress(address.ip().into()), stream).await.map(drop)
        };
        match timeout(DEADLINE, connect).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => !is_silence(&error),
            Err(_) => false,
        }
    }
}

/// Whether an error says that nothing answers. A connection that is refused or closed was answered by the kernel of the node:
/// its kubelet then notices by itself, within a second or so, that the process is gone. Errors of this process say nothing.
fn is_silence(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable)
}

#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn connection_that_nobody_serves_is_silence_and_one_that_is_refused_is_not() {
        let dialer = Dialer::new().expect("a dialer");
        // The kernel accepts connections as for a process that is paused.
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let address = listener.local_addr().expect("an address");
        assert!(!dialer.answers(&[address]).await);
        drop(listener);
        assert!(dialer.answers(&[address]).await);
    }

    #[tokio::test]
    async fn one_address_that_answers_is_enough() {
        let dialer = Dialer::new().expect("a dialer");
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let closing = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let addresses = [&silent, &closing].map(|listener| listener.local_addr().expect("an address"));
        let server = tokio::spawn(async move { closing.accept().await.map(drop) });
        assert!(dialer.answers(&addresses).await);
        server.await.expect("it ends").expect("it accepts");
    }
}
