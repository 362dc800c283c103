//! What a certificate in PEM says about itself.

use rcgen::{KeyPair, PublicKeyData};
use time::OffsetDateTime;
use x509_parser::prelude::{GeneralName, Pem, X509Certificate};

use crate::authority::CLOCK_SKEW;

/// From when to when a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// When it was issued, for certificates of [`crate::Authority`]: it says itself a little earlier, for clocks that are late.
    pub issued: OffsetDateTime,
    /// When the certificate ends.
    pub until: OffsetDateTime,
}

impl Validity {
    /// Whether it has begun and has not ended.
    #[must_use]
    pub fn holds(&self, now: OffsetDateTime) -> bool {
        self.issued <= now.saturating_add(CLOCK_SKEW) && now < self.until
    }

    /// When it is to be replaced: two thirds of its life are over.
    #[must_use]
    pub fn renewal(&self) -> OffsetDateTime {
        self.issued + (self.until - self.issued) * 2 / 3
    }
}

/// A certificate that could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspected {
    /// How long it is valid.
    pub validity: Validity,
    /// DNS names and IP addresses that it is for, sorted.
    pub names: Vec<String>,
}

/// Reads the first certificate of a PEM text; `None` where there is none.
#[must_use]
pub fn inspect(pem: &str) -> Option<Inspected> {
    with_first(pem, |certificate| {
        let at =
            |time: x509_parser::time::ASN1Time| OffsetDateTime::from_unix_timestamp(time.timestamp()).ok();
        let (from, until) = (certificate.validity().not_before, certificate.validity().not_after);
        let (from, until) = (at(from)?, at(until)?);
        let validity = Validity { issued: from.checked_add(CLOCK_SKEW)?.min(until), until };
        Some(Inspected { validity, names: names(certificate) })
    })
}

/// Whether the first certificate of one PEM text is signed by the first one of another, and names it as its issuer.
#[must_use]
pub fn is_signed_by(pem: &str, authority: &str) -> bool {
    let signed = with_first(pem, |certificate| {
        with_first(authority, |authority| {
            let names = certificate.issuer() == authority.subject();
            Some(names && certificate.verify_signature(Some(authority.public_key())).is_ok())
        })
    });
    signed == Some(true)
}

/// Whether a private key in PEM is that of the first certificate of a PEM text.
#[must_use]
pub fn is_key_of(key: &str, pem: &str) -> bool {
    let Ok(key) = KeyPair::from_pem(key) else { return false };
    let public = key.subject_public_key_info();
    with_first(pem, |certificate| Some(certificate.public_key().raw == public)) == Some(true)
}

fn with_first<T>(pem: &str, read: impl FnOnce(&X509Certificate<'_>) -> Option<T>) -> Option<T> {
    let pem: Pem = Pem::iter_from_buffer(pem.as_bytes()).next()?.ok()?;
    read(&pem.parse_x509().ok()?)
}

fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let alternatives = certificate.subject_alternative_name().ok().flatten();
    let all = alternatives.iter().flat_map(|extension| &extension.value.general_names);
    let mut names: Vec<String> = all.filter_map(name).collect();
    names.sort_unstable();
    names
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(std::net::IpAddr::from).ok();
            let address = v4.or_else(|| <[u8; 16]>::try_from(*bytes).map(std::net::IpAddr::from).ok())?;
            Some(address.to_string())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use time::Duration;

    use super::*;
    use crate::{Authority, LeafRequest};

    fn now() -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_795_000_000).expect("a time")
    }

    #[test]
    fn certificate_says_how_long_it_is_valid_and_for_whom() {
        let authority = Authority::generate_for("a", now(), Duration::days(90)).expect("an authority");
        let names = ["b.example".to_owned(), "10.0.0.1".to_owned()];
        let request =
            LeafRequest { common_name: "b", organization: None, names: &names, server: true, client: false };
        let leaf = authority.issue_for(&request, now(), Duration::days(30)).expect("a certificate");
        let read = inspect(&leaf.certificate_pem).expect("readable");
        assert_eq!(read.names, ["10.0.0.1", "b.example"]);
        assert_eq!(read.validity, Validity { issued: now(), until: now() + Duration::days(30) });
        assert_eq!(read.validity.renewal(), now() + Duration::days(20));
        assert!(
            read.validity.holds(now() + Duration::days(29))
                && !read.validity.holds(now() + Duration::days(30))
        );
    }

    #[test]
    fn issuer_and_key_are_told_from_others_of_the_same_name() {
        let (one, other) = (Authority::generate("a", now()), Authority::generate("a", now()));
        let (one, other) = (one.expect("an authority"), other.expect("an authority"));
        let leaf = one.issue_server("b", &[], now()).expect("a certificate");
        assert!(is_signed_by(&leaf.certificate_pem, one.certificate_pem()));
        assert!(!is_signed_by(&leaf.certificate_pem, other.certificate_pem()));
        assert!(is_key_of(&leaf.key_pem, &leaf.certificate_pem));
        assert!(!is_key_of(other.key_pem(), &leaf.certificate_pem));
    }

    #[test]
    fn what_is_no_certificate_says_nothing() {
        for text in ["", "x", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert_eq!(inspect(text), None, "{text}");
            assert!(!is_signed_by(text, text) && !is_key_of(text, text));
        }
    }
}
