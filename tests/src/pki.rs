//! Certificate authorities and leaf certificates, made afresh for each test.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SerialNumber,
};

/// How long certificates are valid, counted from five minutes ago.
const LIFETIME: Duration = Duration::from_secs(24 * 3600);
const CLOCK_SKEW: Duration = Duration::from_secs(300);
/// The object identifier of the attribute `O` of a subject.
const ORGANIZATION: &[u64] = &[2, 5, 4, 10];

/// A certificate authority with its private key.
pub struct Ca {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its private key, both PEM.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// The certificate, without its issuer.
    pub cert_pem: String,
    /// The private key, PKCS #8.
    pub key_pem: String,
}

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// TLS client authentication.
    Client,
    /// TLS server authentication.
    Server,
    /// Both, as etcd wants for its own members.
    Peer,
}

impl Ca {
    /// Makes an authority with an ECDSA P-256 key.
    pub fn new(common_name: &str) -> Result<Self> {
        let mut params = params(common_name, &[], Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        Ok(Self { issuer })
    }

    /// The certificate of the authority, as PEM.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Its private key, PEM (PKCS #8).
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// A client certificate: Kubernetes reads the common name as the user and the organisations as groups (two at most).
    pub fn client(&self, user: &str, groups: &[&str]) -> Result<Leaf> {
        self.leaf(user, groups, &[], Usage::Client)
    }

    /// A serving certificate for DNS names and IP addresses.
    pub fn server(&self, names: &[&str]) -> Result<Leaf> {
        self.leaf(names.first().unwrap_or(&"server"), &[], names, Usage::Server)
    }

    /// A leaf with all of subject, names and usage chosen.
    pub fn leaf(&self, common_name: &str, groups: &[&str], names: &[&str], usage: Usage) -> Result<Leaf> {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = params(common_name, groups, names)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = match usage {
            Usage::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
            Usage::Server => vec![ExtendedKeyUsagePurpose::ServerAuth],
            Usage::Peer => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        };
        self.sign(params)
    }

    /// Signs a certificate with parameters of the test's own, such as one that has expired.
    pub fn sign(&self, params: CertificateParams) -> Result<Leaf> {
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &self.issuer)?;
        Ok(Leaf { cert_pem: cert.pem(), key_pem: key.serialize_pem() })
    }

    /// Writes its certificate to `<dir>/<name>.crt`.
    pub fn write(&self, dir: &Path, name: &str) -> Result<PathBuf> {
        write_private(dir.join(format!("{name}.crt")), &self.pem())
    }
}

impl Leaf {
    /// Writes `<dir>/<name>.crt` and `<dir>/<name>.key`, and gives both paths in this order.
    pub fn write(&self, dir: &Path, name: &str) -> Result<(PathBuf, PathBuf)> {
        let cert = write_private(dir.join(format!("{name}.crt")), &self.cert_pem)?;
        let key = write_private(dir.join(format!("{name}.key")), &self.key_pem)?;
        Ok((cert, key))
    }
}

/// A key pair for signing tokens, written as `<dir>/<name>.key` and `<dir>/<name>.pub`; gives both paths in this order.
pub fn write_signing_key(dir: &Path, name: &str) -> Result<(PathBuf, PathBuf)> {
    let key = KeyPair::generate()?;
    let private = write_private(dir.join(format!("{name}.key")), &key.serialize_pem())?;
    let public = write_private(dir.join(format!("{name}.pub")), &key.public_key_pem())?;
    Ok((private, public))
}

/// Writes a file that only its owner can read.
pub fn write_private(path: PathBuf, text: &str) -> Result<PathBuf> {
    fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
    Ok(path)
}

/// What all certificates here have in common: validity, key identifiers and a random serial number.
pub fn params(common_name: &str, groups: &[&str], names: Vec<String>) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(names)?;
    let start = SystemTime::now() - CLOCK_SKEW;
    params.not_before = start.into();
    params.not_after = (start + LIFETIME).into();
    params.use_authority_key_identifier_extension = true;
    params.serial_number = Some(random_serial()?);
    params.distinguished_name.push(DnType::CommonName, common_name);
    // The library keeps one value of each kind, so a second group goes in under the number of the same attribute.
    let kinds = [DnType::OrganizationName, DnType::CustomDnType(ORGANIZATION.to_vec())];
    ensure!(groups.len() <= kinds.len(), "a certificate here carries two groups at most, not {groups:?}");
    for (kind, &group) in kinds.into_iter().zip(groups) {
        params.distinguished_name.push(kind, group);
    }
    Ok(params)
}

/// A serial number; its first bit is clear, because serial numbers are positive.
fn random_serial() -> Result<SerialNumber> {
    let mut bytes: [u8; 16] = random_bytes()?;
    bytes[0] &= 0x7f;
    Ok(SerialNumber::from_slice(&bytes))
}

/// Random bytes, fit for keys.
pub fn random_bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let source = rustls::crypto::aws_lc_rs::default_provider().secure_random;
    source.fill(&mut bytes).ok().context("no random numbers are to be had")?;
    Ok(bytes)
}
