//! For whom answers are compressed: gzip pays where the network is slower than the codec, which inside of a data centre it is not.

use std::{net::IpAddr, str::FromStr};

use http::HeaderMap;

use crate::negotiate;

/// When long answers are compressed for clients that take gzip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Where the request came from, or through, an address outside of private networks.
    #[default]
    Auto,
    /// For every client that takes gzip, wherever it is.
    Always,
    /// Not even for a client that takes gzip.
    Never,
}

/// It is none of the values of [`Compression`].
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is none of auto, always, never")]
pub struct UnknownCompression(String);

impl FromStr for Compression {
    type Err = UnknownCompression;

    /// `true` and `false` are accepted too, for always and never.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "always" | "true" => Ok(Self::Always),
            "never" | "false" => Ok(Self::Never),
            _ => Err(UnknownCompression(text.to_owned())),
        }
    }
}

impl std::fmt::Display for Compression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        })
    }
}

impl Compression {
    /// Whether the answer to a request with these headers is compressed. `peer`: the other end of the connection.
    ///
    /// A kube-apiserver in front asks for gzip whatever its own client takes; who its client is, `X-Forwarded-For` says. A client
    /// can put addresses into that header, which decides about its own answers only.
    pub(super) fn applies(self, headers: &HeaderMap, peer: Option<IpAddr>) -> bool {
        match self {
            Self::Always => negotiate::gzip(headers),
            Self::Never => false,
            Self::Auto => negotiate::gzip(headers) && !came_all_the_way_inside(headers, peer),
        }
    }
}

/// Whether every address that the request passed is known, and is one of a private network.
fn came_all_the_way_inside(headers: &HeaderMap, peer: Option<IpAddr>) -> bool {
    let forwarded = headers.get_all("x-forwarded-for").iter();
    let mut forwarded = forwarded.flat_map(|value| value.to_str().unwrap_or("unreadable").split(','));
    peer.is_some_and(is_inside) && forwarded.all(|address| address.trim().parse().is_ok_and(is_inside))
}

/// Whether an address is of this machine, of a private network (RFC 1918, RFC 4193), of one shared behind a carrier's NAT, which
/// clouds give to Pods (RFC 6598), or of the link.
fn is_inside(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let [first, second, ..] = address.octets();
            let shared = first == 100 && second & 0xc0 == 64;
            address.is_loopback() || address.is_private() || address.is_link_local() || shared
        }
        IpAddr::V6(address) => {
            address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applies(choice: Compression, peer: Option<&str>, forwarded: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::ACCEPT_ENCODING, http::HeaderValue::from_static("gzip"));
        for value in forwarded {
            headers.append("x-forwarded-for", value.parse().expect("a value"));
        }
        choice.applies(&headers, peer.map(|address| address.parse().expect("an address")))
    }

    #[test]
    fn answers_that_stay_inside_are_not_compressed() {
        for (peer, forwarded, expected) in [
            (Some("10.1.2.3"), &[][..], false),
            (Some("10.1.2.3"), &["192.168.0.7"][..], false),
            (Some("172.16.0.1"), &["100.64.3.3, 10.0.0.1"][..], false),
            (Some("::1"), &["fd00::7"][..], false),
            (Some("::ffff:10.0.0.1"), &["127.0.0.1", "169.254.1.1"][..], false),
            (Some("10.1.2.3"), &["203.0.113.9"][..], true),
            (Some("10.1.2.3"), &["10.0.0.1", "203.0.113.9, 10.0.0.2"][..], true),
            (Some("10.1.2.3"), &["2001:db8::1"][..], true),
            (Some("10.1.2.3"), &["nonsense"][..], true),
            (Some("10.1.2.3"), &[""][..], true),
            (Some("100.128.0.1"), &[][..], true),
            (Some("203.0.113.9"), &["10.0.0.1"][..], true),
            (None, &[][..], true),
        ] {
            assert_eq!(applies(Compression::Auto, peer, forwarded), expected, "{peer:?} {forwarded:?}");
            assert!(applies(Compression::Always, peer, forwarded));
            assert!(!applies(Compression::Never, peer, forwarded));
        }
    }

    #[test]
    fn nobody_gets_gzip_who_does_not_take_it() {
        for choice in [Compression::Auto, Compression::Always, Compression::Never] {
            assert!(!choice.applies(&HeaderMap::new(), None), "{choice}");
        }
    }

    #[test]
    fn is_read_as_it_is_shown() {
        for choice in [Compression::Auto, Compression::Always, Compression::Never] {
            assert_eq!(choice.to_string().parse::<Compression>().expect("a value"), choice);
        }
        assert_eq!("true".parse::<Compression>().expect("as before"), Compression::Always);
        assert_eq!("false".parse::<Compression>().expect("as before"), Compression::Never);
        let error = "gzip".parse::<Compression>().expect_err("no value").to_string();
        assert!(error.contains("\"gzip\"") && error.contains("auto, always, never"), "{error}");
    }
}
