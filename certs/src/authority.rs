//! An authority of our own: for `repot dev`, and for everything that signs its own serving certificate.

use std::{fs, net::IpAddr, path::Path};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use time::{Duration, OffsetDateTime};

use crate::{Error, Result, write_private};

const AUTHORITY_LIFETIME: Duration = Duration::days(3650);
const LEAF_LIFETIME: Duration = Duration::days(365);
/// Clocks of clients may be late by this much.
pub(crate) const CLOCK_SKEW: Duration = Duration::minutes(5);

/// A certificate authority that signs certificates for servers and clients.
pub struct Authority {
    certificate_pem: String,
    issuer: Issuer<'static, KeyPair>,
    key_pem: String,
}

/// A certificate with its key, both PEM.
pub struct Leaf {
    /// The certificate in PEM, without that of the authority.
    pub certificate_pem: String,
    /// Its private key, PKCS #8.
    pub key_pem: String,
}

/// What a certificate is for.
#[derive(Clone, Copy, Debug)]
pub struct LeafRequest<'a> {
    /// Common name of the subject: the user, for clients.
    pub common_name: &'a str,
    /// Organization of the subject: the group, for clients.
    pub organization: Option<&'a str>,
    /// DNS names and IP addresses.
    pub names: &'a [String],
    /// Whether servers may show it.
    pub server: bool,
    /// Whether clients may show it.
    pub client: bool,
}

impl Authority {
    /// A new authority.
    ///
    /// # Errors
    /// [`Error::Issue`].
    pub fn generate(common_name: &str, now: OffsetDateTime) -> Result<Self> {
        Self::generate_for(common_name, now, AUTHORITY_LIFETIME)
    }

    /// A new authority that is valid for so long.
    ///
    /// # Errors
    /// [`Error::Issue`].
    pub fn generate_for(common_name: &str, now: OffsetDateTime, lifetime: Duration) -> Result<Self> {
        let failed = |source| Error::Issue { subject: common_name.to_owned(), source };
        let mut params = base(common_name, None, now, lifetime);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().map_err(failed)?;
        let certificate_pem = params.self_signed(&key).map_err(failed)?.pem();
        let key_pem = key.serialize_pem();
        Ok(Self { certificate_pem, issuer: Issuer::new(params, key), key_pem })
    }

    /// The authority kept in `<dir>/<name>.crt` and `<dir>/<name>.key`, which is made where it is missing.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::ReadAuthority`], [`Error::Expired`], [`Error::Issue`].
    pub fn load_or_generate(dir: &Path, name: &str, common_name: &str, now: OffsetDateTime) -> Result<Self> {
        let (certificate, key) = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
        if certificate.exists() && key.exists() {
            return Self::load(&certificate, &key, now);
        }
        let authority = Self::generate(common_name, now)?;
        write_private(&key, authority.key_pem.as_bytes())?;
        write_private(&certificate, authority.certificate_pem.as_bytes())?;
        Ok(authority)
    }

    fn load(certificate: &Path, key: &Path, now: OffsetDateTime) -> Result<Self> {
        let read = |path: &Path| {
            fs::read_to_string(path).map_err(|source| Error::File { path: path.to_owned(), source })
        };
        let unusable = |source| Error::ReadAuthority { path: certificate.to_owned(), source };
        let (certificate_pem, key_pem) = (read(certificate)?, read(key)?);
        let pair = KeyPair::from_pem(&key_pem).map_err(unusable)?;
        let issuer = Issuer::from_ca_cert_pem(&certificate_pem, pair).map_err(unusable)?;
        if expires(&certificate_pem).is_none_or(|end| end < now.unix_timestamp()) {
            return Err(Error::Expired { path: certificate.to_owned() });
        }
        Ok(Self { certificate_pem, issuer, key_pem })
    }

    /// The authority of a certificate and its key, both PEM.
    ///
    /// # Errors
    /// [`Error::AuthorityPem`].
    pub fn from_pem(certificate_pem: &str, key_pem: &str) -> Result<Self> {
        let pair = KeyPair::from_pem(key_pem).map_err(Error::AuthorityPem)?;
        let issuer = Issuer::from_ca_cert_pem(certificate_pem, pair).map_err(Error::AuthorityPem)?;
        Ok(Self { certificate_pem: certificate_pem.to_owned(), issuer, key_pem: key_pem.to_owned() })
    }

    /// The authority's certificate, for those who are to trust it.
    #[must_use]
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The authority's private key, PKCS #8 in PEM, for the one Secret in which it is kept.
    #[must_use]
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    /// A certificate for a server at these names and addresses.
    ///
    /// # Errors
    /// [`Error::Issue`].
    pub fn issue_server(&self, common_name: &str, names: &[String], now: OffsetDateTime) -> Result<Leaf> {
        self.issue(&LeafRequest { common_name, organization: None, names, server: true, client: false }, now)
    }

    /// A certificate for what a request says.
    ///
    /// # Errors
    /// [`Error::Issue`].
    pub fn issue(&self, request: &LeafRequest<'_>, now: OffsetDateTime) -> Result<Leaf> {
        self.issue_for(request, now, LEAF_LIFETIME)
    }

    /// The same, for so long.
    ///
    /// # Errors
    /// [`Error::Issue`].
    pub fn issue_for(
        &self,
        request: &LeafRequest<'_>,
        now: OffsetDateTime,
        lifetime: Duration,
    ) -> Result<Leaf> {
        let LeafRequest { common_name, organization, names, server, client } = *request;
        let mut params = base(common_name, organization, now, lifetime);
        params.subject_alt_names = alternative_names(common_name, names)?;
        let server = server.then_some(ExtendedKeyUsagePurpose::ServerAuth);
        let client = client.then_some(ExtendedKeyUsagePurpose::ClientAuth);
        params.extended_key_usages = server.into_iter().chain(client).collect();
        self.sign(common_name, params)
    }

    /// A certificate for a client: the user is `common_name`, the group is `organization`. (The issuing library keeps one
    /// value a type in a subject, hence one group.)
    ///
    /// # Errors
    /// [`Error::Issue`].
    pub fn issue_client(&self, common_name: &str, organization: &str, now: OffsetDateTime) -> Result<Leaf> {
        self.issue_client_for(common_name, organization, now, LEAF_LIFETIME)
    }

    /// The same, for so long.
    ///
    /// # Errors
    /// [`Error::Issue`].
    pub fn issue_client_for(
        &self,
        common_name: &str,
        organization: &str,
        now: OffsetDateTime,
        lifetime: Duration,
    ) -> Result<Leaf> {
        let mut params = base(common_name, Some(organization), now, lifetime);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(common_name, params)
    }

    fn sign(&self, subject: &str, mut params: CertificateParams) -> Result<Leaf> {
        let failed = |source| Error::Issue { subject: subject.to_owned(), source };
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(Leaf { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }
}

fn alternative_names(subject: &str, names: &[String]) -> Result<Vec<SanType>> {
    let failed = |source| Error::Issue { subject: subject.to_owned(), source };
    let of = |name: &String| match name.parse::<IpAddr>() {
        Ok(address) => Ok(SanType::IpAddress(address)),
        Err(_) => Ok(SanType::DnsName(name.as_str().try_into().map_err(failed)?)),
    };
    names.iter().map(of).collect()
}

fn base(
    common_name: &str,
    organization: Option<&str>,
    now: OffsetDateTime,
    lifetime: Duration,
) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    if let Some(organization) = organization {
        subject.push(DnType::OrganizationName, organization);
    }
    subject.push(DnType::CommonName, common_name);
    params.distinguished_name = subject;
    params.not_before = now - CLOCK_SKEW;
    params.not_after = now + lifetime;
    params
}

/// When a certificate ends, in seconds since the epoch.
fn expires(pem: &str) -> Option<i64> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).ok()?;
    let certificate = pem.parse_x509().ok()?;
    Some(certificate.validity().not_after.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let now = OffsetDateTime::now_utc();
        let first = Authority::load_or_generate(dir.path(), "ca", "test", now).expect("made");
        let second = Authority::load_or_generate(dir.path(), "ca", "test", now).expect("read");
        assert_eq!(first.certificate_pem(), second.certificate_pem());
        let late = now + AUTHORITY_LIFETIME + Duration::days(1);
        let expired = Authority::load_or_generate(dir.path(), "ca", "test", late);
        assert!(matches!(expired, Err(Error::Expired { .. })));
    }

    #[test]
    fn leaves_name_their_subject_and_verify() {
        let now = OffsetDateTime::now_utc();
        let authority = Authority::generate("test", now).expect("made");
        let leaf = authority.issue_client("alice", "admins", now).expect("issued");
        let (_, pem) = x509_parser::pem::parse_x509_pem(leaf.certificate_pem.as_bytes()).expect("PEM");
        let certificate = pem.parse_x509().expect("X.509");
        let (_, ca) = x509_parser::pem::parse_x509_pem(authority.certificate_pem().as_bytes()).expect("PEM");
        let ca = ca.parse_x509().expect("X.509");
        certificate.verify_signature(Some(ca.public_key())).expect("signed by the authority");
        let groups: Vec<_> =
            certificate.subject().iter_organization().map(|o| o.as_str().expect("text").to_owned()).collect();
        assert_eq!(groups, ["admins"]);
        assert_eq!(certificate.validity().not_after.timestamp(), (now + LEAF_LIFETIME).unix_timestamp());
    }

    #[test]
    fn servers_have_addresses_and_dns_names() {
        let now = OffsetDateTime::now_utc();
        let authority = Authority::generate("test", now).expect("made");
        assert!(authority.issue_server("s", &["127.0.0.1".into(), "localhost".into()], now).is_ok());
        assert!(authority.issue_server("s", &["b\u{e4}d".into()], now).is_err());
    }
}
