//! Which versions of TLS and which cipher suites are spoken, by the names that kube-apiserver's flags have for them.

use rustls::{
    SupportedCipherSuite, SupportedProtocolVersion,
    crypto::{CryptoProvider, aws_lc_rs},
    version::{TLS12, TLS13},
};

/// The oldest version that is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinVersion {
    /// `VersionTLS12`.
    #[default]
    Tls12,
    /// `VersionTLS13`.
    Tls13,
}

impl std::str::FromStr for MinVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "VersionTLS12" => Ok(Self::Tls12),
            "VersionTLS13" => Ok(Self::Tls13),
            "VersionTLS10" | "VersionTLS11" => Err(format!("{text} is not secure and not supported")),
            _ => Err("must be VersionTLS12 or VersionTLS13".to_owned()),
        }
    }
}

/// Versions and cipher suites.
#[derive(Clone, Debug, Default)]
pub struct Protocol {
    min: MinVersion,
    /// Of TLS 1.2; empty: all that are good. Those of TLS 1.3 cannot be chosen, as in Go.
    suites: Vec<String>,
}

impl Protocol {
    /// # Errors
    /// The first suite that is not known or not good, and which there are.
    pub fn new(min: MinVersion, suites: Vec<String>) -> Result<Self, String> {
        let known: Vec<String> = aws_lc_rs::ALL_CIPHER_SUITES.iter().map(name).collect();
        let suites: Vec<String> = suites.into_iter().map(|suite| full_name(&suite)).collect();
        match suites.iter().find(|suite| !known.contains(suite)) {
            Some(unknown) => {
                Err(format!("cipher suite {unknown} is not supported; there are {}", known.join(", ")))
            }
            None => Ok(Self { min, suites }),
        }
    }

    pub(super) fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        const BOTH: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];
        match self.min {
            MinVersion::Tls12 => BOTH,
            MinVersion::Tls13 => &BOTH[..1],
        }
    }

    pub(super) fn provider(&self) -> CryptoProvider {
        let mut provider = aws_lc_rs::default_provider();
        if !self.suites.is_empty() {
            provider
                .cipher_suites
                .retain(|suite| suite.tls13().is_some() || self.suites.contains(&name(suite)));
        }
        provider
    }
}

/// Go names the suites of TLS 1.3 without the version, and has short names for two older ones.
fn name(suite: &SupportedCipherSuite) -> String {
    suite.suite().as_str().unwrap_or_default().replace("TLS13_", "TLS_")
}

fn full_name(suite: &str) -> String {
    match suite.strip_suffix("_CHACHA20_POLY1305") {
        Some(start) => format!("{start}_CHACHA20_POLY1305_SHA256"),
        None => suite.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_names_of_kube_apiserver() {
        let new = |suites: &[&str]| {
            Protocol::new(MinVersion::Tls12, suites.iter().map(|suite| (*suite).to_owned()).collect())
        };
        let one = new(&["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"]).expect("known");
        let left: Vec<String> = one.provider().cipher_suites.iter().map(name).collect();
        assert_eq!(left.iter().filter(|suite| suite.contains("ECDHE")).count(), 1, "{left:?}");
        assert_eq!(left.iter().filter(|suite| !suite.contains("ECDHE")).count(), 3, "{left:?}");
        assert!(new(&["TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305"]).is_ok());
        assert!(new(&["TLS_RSA_WITH_AES_128_CBC_SHA"]).is_err());
        assert_eq!("VersionTLS13".parse(), Ok(MinVersion::Tls13));
        assert!("VersionTLS11".parse::<MinVersion>().is_err());
    }
}
