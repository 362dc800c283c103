//! Secrets of serving certificates: `tls.crt`, `tls.key`, and `ca.crt` with the bundle of authorities.

use std::{collections::BTreeSet, net::IpAddr};

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use repot_api::names::ROTATED_FOR;
use repot_certs::{
    Authority, Leaf, LeafRequest,
    inspect::{inspect, is_key_of},
    rotation::CertificateState,
};
use time::OffsetDateTime;

use super::{ServingSecret, authorities::Authorities, error::Error, secrets};

/// A serving certificate as it was read.
#[derive(Clone)]
pub(super) struct Serving {
    wanted: ServingSecret,
    secret: Option<Secret>,
}

impl Serving {
    /// What is wanted, and the Secret if there is one.
    pub(super) fn new(mut wanted: ServingSecret, secret: Option<Secret>) -> Self {
        let names: BTreeSet<String> = wanted.names.iter().map(|name| canonical(name)).collect();
        wanted.names = names.into_iter().collect();
        Self { wanted, secret }
    }

    /// Name of the Secret.
    pub(super) fn name(&self) -> &str {
        &self.wanted.name
    }

    /// What the rotation has to know; `request` is the last one for new certificates.
    pub(super) fn state(&self, authorities: &Authorities, request: Option<&String>) -> CertificateState {
        let certificate = self.text("tls.crt");
        let usable = inspect(certificate).filter(|inspected| {
            inspected.names == self.wanted.names && is_key_of(self.text("tls.key"), certificate)
        });
        let done = self.secret.as_ref().and_then(|secret| secret.annotations().get(ROTATED_FOR));
        CertificateState {
            name: self.wanted.name.clone(),
            validity: usable.map(|inspected| inspected.validity),
            signer: authorities.signer_of(certificate),
            is_requested: request.is_some() && request != done,
        }
    }

    /// The Secret with a new certificate.
    ///
    /// # Errors
    /// [`Error::Issue`].
    pub(super) fn sign(
        &self,
        authority: &Authority,
        request: Option<&String>,
        now: OffsetDateTime,
        lifetime: time::Duration,
    ) -> Result<Secret, Error> {
        let ServingSecret { name, names } = &self.wanted;
        let common_name = names.first().map_or(name.as_str(), String::as_str);
        // The name of a subject has 64 characters at most; clients go by the alternative names.
        let common_name = if common_name.len() > 64 { name.as_str() } else { common_name };
        let asked = LeafRequest { common_name, organization: None, names, server: true, client: false };
        let Leaf { certificate_pem, key_pem } = authority.issue_for(&asked, now, lifetime)?;
        let mut secret = self.secret.clone().unwrap_or_else(|| secrets::new(name, "kubernetes.io/tls"));
        let bundle = secrets::text(&secret, "ca.crt").to_owned();
        let values = [("tls.crt", &certificate_pem), ("tls.key", &key_pem), ("ca.crt", &bundle)];
        secret.data = secrets::data(values.map(|(key, value)| (key.to_owned(), value.as_str())));
        if let Some(request) = request {
            secret.annotations_mut().insert(ROTATED_FOR.to_owned(), request.clone());
        }
        Ok(secret)
    }

    /// Takes over what has been written.
    pub(super) fn written(&mut self, secret: Secret) {
        self.secret = Some(secret);
    }

    /// The Secret with another bundle; `None` where it has this one, or where there is no Secret.
    pub(super) fn with_bundle(&self, bundle: &str) -> Option<Secret> {
        let mut secret = self.secret.clone().filter(|_| self.text("ca.crt") != bundle)?;
        let (certificate, key) = (self.text("tls.crt"), self.text("tls.key"));
        let values = [("tls.crt", certificate), ("tls.key", key), ("ca.crt", bundle)];
        secret.data = secrets::data(values.map(|(key, value)| (key.to_owned(), value)));
        Some(secret)
    }

    fn text(&self, key: &str) -> &str {
        self.secret.as_ref().map(|secret| secrets::text(secret, key)).unwrap_or_default()
    }
}

/// A name as it is read from a certificate.
fn canonical(name: &str) -> String {
    match name.parse::<IpAddr>() {
        Ok(address) => address.to_string(),
        Err(_) => name.to_ascii_lowercase(),
    }
}
