//! Whom we believe about client certificates.

use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime, pem::PemObject};

/// Certificate authorities for client certificates; at least one.
#[derive(Clone, Debug)]
pub struct Roots {
    certificates: Vec<CertificateDer<'static>>,
}

/// The text is not a bundle of certificates.
#[derive(Debug, thiserror::Error)]
pub enum RootsError {
    /// Not PEM.
    #[error("not a PEM bundle of certificates")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// No certificate in it.
    #[error("the bundle holds no certificate")]
    Empty,
    /// Not X.509.
    #[error("certificate {0} of the bundle cannot be used as an authority")]
    Unusable(usize),
}

impl Roots {
    /// Reads a PEM bundle.
    ///
    /// # Errors
    /// [`RootsError`].
    pub fn from_pem(pem: &[u8]) -> Result<Self, RootsError> {
        let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>()?;
        if certificates.is_empty() {
            return Err(RootsError::Empty);
        }
        match certificates.iter().position(|der| webpki::anchor_from_trusted_cert(der).is_err()) {
            Some(at) => Err(RootsError::Unusable(at)),
            None => Ok(Self { certificates }),
        }
    }

    /// Whether the chain leads to one of these authorities, is valid now and is meant for clients.
    #[must_use]
    pub fn trusts(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> bool {
        let Some((leaf, intermediates)) = chain.split_first() else { return false };
        let Ok(leaf) = webpki::EndEntityCert::try_from(leaf) else { return false };
        let anchors: Vec<TrustAnchor<'_>> =
            self.certificates.iter().filter_map(|der| webpki::anchor_from_trusted_cert(der).ok()).collect();
        leaf.verify_for_usage(
            webpki::ALL_VERIFICATION_ALGS,
            &anchors,
            intermediates,
            now,
            webpki::KeyUsage::client_auth(),
            None,
            None,
        )
        .is_ok()
    }
}
