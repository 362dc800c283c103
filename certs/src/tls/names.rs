//! Which certificate a client gets: by the name it asks for, or by the address it came to where it asks for none.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use rustls::{ServerConfig, pki_types::CertificateDer};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::{Error, Options, ServingFiles, server_config};

/// A certificate for certain names.
#[derive(Clone, Debug)]
pub struct NamedFiles {
    /// Files with the certificate chain and its private key.
    pub files: ServingFiles,
    /// Names, also `*.example.com`; empty: those of the certificate.
    pub names: Vec<String>,
}

impl std::str::FromStr for NamedFiles {
    type Err = String;

    /// `certificate,key` or `certificate,key:name,name`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (files, names) = text.split_once(':').unwrap_or((text, ""));
        let wrong = || "must be CERTIFICATE,KEY or CERTIFICATE,KEY:NAME,NAME".to_owned();
        let (certificate, key) = files.split_once(',').ok_or_else(wrong)?;
        if certificate.is_empty() || key.is_empty() || key.contains(',') {
            return Err(wrong());
        }
        let names = names.split(',').map(|name| name.trim().to_ascii_lowercase());
        let files = ServingFiles { certificate: certificate.into(), key: key.into() };
        Ok(Self { files, names: names.filter(|name| !name.is_empty()).collect() })
    }
}

/// The configurations for new connections.
#[derive(Debug)]
pub(super) struct Choice {
    default: Arc<ServerConfig>,
    /// When the default certificate ends, in seconds since 1970.
    pub(super) until: Option<i64>,
    by_name: HashMap<String, Arc<ServerConfig>>,
    by_address: HashMap<IpAddr, Arc<ServerConfig>>,
}

impl Choice {
    pub(super) fn load(options: &Options) -> Result<Self, Error> {
        let (chain, default) = server_config(&options.files, &options.protocol)?;
        let (by_name, by_address) = (HashMap::new(), HashMap::new());
        let mut choice =
            Self { default: Arc::new(default), until: chain.first().and_then(ends), by_name, by_address };
        // Names that an operator wrote down come before those that merely stand in a certificate.
        let (written, read): (Vec<_>, Vec<_>) =
            options.by_name.iter().partition(|named| !named.names.is_empty());
        for named in written.into_iter().chain(read) {
            let (chain, config) = server_config(&named.files, &options.protocol)?;
            choice.add(named, &chain, &Arc::new(config));
        }
        Ok(choice)
    }

    /// The first pair for a name keeps it.
    fn add(&mut self, named: &NamedFiles, chain: &[CertificateDer<'_>], config: &Arc<ServerConfig>) {
        let (names, addresses) = chain.first().map(names_of).unwrap_or_default();
        for name in if named.names.is_empty() { &names } else { &named.names } {
            self.by_name.entry(name.clone()).or_insert_with(|| config.clone());
        }
        for address in addresses {
            self.by_address.entry(address).or_insert_with(|| config.clone());
        }
    }

    pub(super) fn pick(&self, name: Option<&str>, local: Option<IpAddr>) -> Arc<ServerConfig> {
        let found = match name {
            Some(name) => {
                let name = name.to_ascii_lowercase();
                let name = name.trim_end_matches('.');
                let wildcard = name.split_once('.').map(|(_, rest)| format!("*.{rest}"));
                // A certificate for this very name is better than one for all of its domain.
                self.by_name.get(name).or_else(|| self.by_name.get(&wildcard?))
            }
            None => local.and_then(|local| self.by_address.get(&local.to_canonical())),
        };
        found.unwrap_or(&self.default).clone()
    }
}

/// When a certificate ends, in seconds since 1970.
fn ends(leaf: &CertificateDer<'_>) -> Option<i64> {
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    Some(certificate.validity().not_after.timestamp())
}

/// Names and addresses that a certificate is for.
fn names_of(leaf: &CertificateDer<'_>) -> (Vec<String>, Vec<IpAddr>) {
    let Ok((_, certificate)) = X509Certificate::from_der(leaf) else { return Default::default() };
    let (mut names, mut addresses) = (Vec::new(), Vec::new());
    let alternatives = certificate.subject_alternative_name().ok().flatten();
    for name in alternatives.iter().flat_map(|extension| &extension.value.general_names) {
        match name {
            GeneralName::DNSName(name) => names.push(name.to_ascii_lowercase()),
            GeneralName::IPAddress(bytes) => {
                let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from).ok();
                addresses.extend(v4.or_else(|| <[u8; 16]>::try_from(*bytes).map(IpAddr::from).ok()));
            }
            _ => {}
        }
    }
    (names, addresses)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Authority;
    use time::OffsetDateTime;

    fn files(dir: &std::path::Path, ca: &Authority, name: &str, names: &[&str]) -> ServingFiles {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let leaf = ca.issue_server(name, &names, OffsetDateTime::now_utc()).expect("issued");
        let files = ServingFiles {
            certificate: dir.join(format!("{name}.crt")),
            key: dir.join(format!("{name}.key")),
        };
        std::fs::write(&files.certificate, leaf.certificate_pem).expect("written");
        std::fs::write(&files.key, leaf.key_pem).expect("written");
        files
    }

    #[test]
    fn an_exact_name_beats_a_wildcard_and_the_address_counts_without_a_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let ca = Authority::generate("ca", OffsetDateTime::now_utc()).expect("made");
        let of = |name: &str, names: &[&str]| files(dir.path(), &ca, name, names);
        let named = |files, names: &[&str]| NamedFiles {
            files,
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        let mut options = Options::from(of("default", &["localhost"]));
        options.by_name = vec![
            named(of("read", &["api.example.com", "127.0.0.9", "other.example.org"]), &[]),
            named(of("wildcard", &["x"]), &["*.example.com"]),
            named(of("exact", &["y"]), &["api.example.com"]),
        ];
        let choice = Choice::load(&options).expect("loaded");
        let same = |a: &Arc<ServerConfig>, b: &Arc<ServerConfig>| Arc::ptr_eq(a, b);
        let (exact, wildcard) = (&choice.by_name["api.example.com"], &choice.by_name["*.example.com"]);
        let read = &choice.by_name["other.example.org"];
        assert!(!same(exact, wildcard) && !same(exact, read), "a written name gave way to a read one");
        let local: Option<IpAddr> = Some("127.0.0.9".parse().expect("an address"));
        for (name, local, expected) in [
            (Some("API.example.com"), None, exact),
            (Some("other.example.com"), None, wildcard),
            (Some("a.b.example.com"), None, &choice.default),
            (Some("example.com"), local, &choice.default),
            (None, local, read),
            (None, Some("127.0.0.1".parse().expect("an address")), &choice.default),
        ] {
            assert!(same(&choice.pick(name, local), expected), "{name:?} {local:?}");
        }
    }

    #[test]
    fn reads_the_flag() {
        let named: NamedFiles = "a.crt,a.key:Example.com,*.example.com".parse().expect("good");
        assert_eq!(named.names, ["example.com", "*.example.com"]);
        assert_eq!(named.files.key, std::path::Path::new("a.key"));
        assert!("a.crt,a.key".parse::<NamedFiles>().expect("good").names.is_empty());
        for wrong in ["", "a.crt", "a.crt,", ",a.key", "a,b,c"] {
            assert!(wrong.parse::<NamedFiles>().is_err(), "{wrong}");
        }
    }
}
