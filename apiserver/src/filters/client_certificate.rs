//! Who a client certificate stands for, judged with the authorities of this moment.

use std::{
    net::IpAddr,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
pub use repot_certs::Roots;
use rustls::pki_types::{CertificateDer, UnixTime};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{connection::Connection, user::User};

/// How long a verdict about the certificate of a connection stays good: one signature check per connection and interval
/// instead of one per request, and an expired certificate is out soon.
const VERDICT_LIFETIME: Duration = Duration::from_secs(10);

/// The other end of a connection.
#[derive(Debug, Default)]
pub struct Peer {
    /// The certificates it showed, leaf first; possession of the leaf's key is proved.
    pub chain: Vec<CertificateDer<'static>>,
    /// IP address of the peer, where it is known.
    pub address: Option<IpAddr>,
    /// Whether it is still needed.
    pub connection: Connection,
    verdict: Mutex<Option<Verdict>>,
}

#[derive(Clone, Debug)]
struct Verdict {
    trust: u64,
    at: Instant,
    standing: Standing,
}

/// What a peer's certificate amounts to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Common name of the subject.
    pub common_name: String,
    /// Organizations of the subject.
    pub organizations: Vec<String>,
    /// Issued by an authority for front proxies.
    pub front_proxy: bool,
    /// Issued by an authority for clients.
    pub client: bool,
}

impl Standing {
    /// The user whose name is the common name, where the certificate is one of a client.
    pub(crate) fn user(&self) -> Option<User> {
        let known = self.client && !self.common_name.is_empty();
        let (name, groups) = (self.common_name.clone(), self.organizations.clone());
        known.then(|| User { name, groups, ..User::default() }.known())
    }
}

impl Peer {
    /// A peer that showed these certificates.
    #[must_use]
    pub fn new(chain: Vec<CertificateDer<'static>>) -> Self {
        Self { chain, ..Self::default() }
    }

    /// The same at an address.
    #[must_use]
    pub fn at(address: Option<IpAddr>, chain: Vec<CertificateDer<'static>>) -> Self {
        Self { chain, address, ..Self::default() }
    }

    /// The same on a connection.
    #[must_use]
    pub fn on(self, connection: Connection) -> Self {
        Self { connection, ..self }
    }

    /// What the certificate amounts to; `None`: there is none. `trust` numbers the set of authorities.
    pub fn standing(
        &self,
        trust: u64,
        front_proxy: Option<&Roots>,
        client: Option<&Roots>,
    ) -> Option<Standing> {
        let leaf = self.chain.first()?;
        if let Some(verdict) = self.verdict.lock().as_ref()
            && verdict.trust == trust
            && verdict.at.elapsed() < VERDICT_LIFETIME
        {
            return Some(verdict.standing.clone());
        }
        let now =
            UnixTime::since_unix_epoch(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        let trusted = |roots: Option<&Roots>| roots.is_some_and(|roots| roots.trusts(&self.chain, now));
        let (common_name, organizations) = subject(leaf);
        let standing = Standing {
            common_name,
            organizations,
            front_proxy: trusted(front_proxy),
            client: trusted(client),
        };
        *self.verdict.lock() = Some(Verdict { trust, at: Instant::now(), standing: standing.clone() });
        Some(standing)
    }
}

fn subject(leaf: &CertificateDer<'_>) -> (String, Vec<String>) {
    let Ok((_, certificate)) = X509Certificate::from_der(leaf) else { return Default::default() };
    let subject = certificate.subject();
    let common_name = subject.iter_common_name().next().and_then(|cn| cn.as_str().ok()).unwrap_or_default();
    let organizations = subject.iter_organization().filter_map(|o| o.as_str().ok()).map(str::to_owned);
    (common_name.to_owned(), organizations.collect())
}
