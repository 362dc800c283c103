//! What is made, signed and removed next.

use time::{Duration, OffsetDateTime};

use crate::inspect::Validity;

/// An authority, as far as it matters for what comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthorityState {
    /// Its number; newer ones have higher numbers.
    pub number: u32,
    /// How long it is valid.
    pub validity: Validity,
    /// Since when all who connect have had a bundle that names it.
    pub trusted_since: Option<OffsetDateTime>,
}

/// A serving certificate, as far as it matters for what comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateState {
    /// Which one it is: the name of its Secret.
    pub name: String,
    /// How long it is valid; `None` where there is none that can be used: it is missing, its key is that of another, or it is for
    /// other names than it has to be.
    pub validity: Option<Validity>,
    /// Number of the authority that has signed it; `None` where it is none of those that are kept.
    pub signer: Option<u32>,
    /// Whether somebody asks for a new one.
    pub is_requested: bool,
}

/// What is to be done now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Next {
    /// Make an authority, and decide again.
    pub make_authority: bool,
    /// Number of the authority that signs; `None` where one has to be made first.
    pub signer: Option<u32>,
    /// Names of the serving certificates that the signer signs anew.
    pub sign: Vec<String>,
    /// Numbers of authorities that nobody needs any more.
    pub remove: Vec<u32>,
    /// Whether no server can show a certificate any more that another authority has signed: nobody has to trust another one.
    pub is_settled: bool,
}

/// Decides what comes next, from what is kept.
///
/// `authorities` may be in any order. `is_requested` tells that somebody asks for a new authority. `overlap` is the time after which
/// a change of a Secret or of a bundle has reached everybody.
#[must_use]
pub fn decide(
    authorities: &[AuthorityState],
    certificates: &[CertificateState],
    is_requested: bool,
    overlap: Duration,
    now: OffsetDateTime,
) -> Next {
    let newest = authorities.iter().max_by_key(|authority| authority.number);
    let make_authority = newest.is_none_or(|newest| is_requested || newest.validity.renewal() <= now);
    let Some(signer) = signer(authorities, overlap, now) else {
        return Next { make_authority, ..Next::default() };
    };
    let sign = certificates.iter().filter(|certificate| is_due(certificate, signer, now));
    let sign: Vec<String> = sign.map(|certificate| certificate.name.clone()).collect();
    let is_settled = is_settled(certificates, signer, overlap, now);
    let remove = if is_settled {
        let older = authorities.iter().filter(|authority| authority.number < signer);
        older.map(|authority| authority.number).collect()
    } else {
        Vec::new()
    };
    Next { make_authority, signer: Some(signer), sign, remove, is_settled }
}

/// The newest one that everybody trusts; else the oldest one that is valid, which is the one that has signed so far.
fn signer(authorities: &[AuthorityState], overlap: Duration, now: OffsetDateTime) -> Option<u32> {
    let valid = || authorities.iter().filter(|authority| authority.validity.holds(now));
    let trusted =
        valid().filter(|authority| authority.trusted_since.is_some_and(|since| since + overlap <= now));
    let newest_trusted = trusted.map(|authority| authority.number).max();
    newest_trusted.or_else(|| valid().map(|authority| authority.number).min())
}

fn is_due(certificate: &CertificateState, signer: u32, now: OffsetDateTime) -> bool {
    let is_old = certificate.validity.is_none_or(|validity| validity.renewal() <= now);
    is_old || certificate.is_requested || certificate.signer != Some(signer)
}

/// Whether nothing that an older authority has signed can be shown to a client any more.
fn is_settled(
    certificates: &[CertificateState],
    signer: u32,
    overlap: Duration,
    now: OffsetDateTime,
) -> bool {
    certificates.iter().all(|certificate| {
        let since = certificate.validity.map(|validity| validity.issued);
        certificate.signer == Some(signer) && since.is_some_and(|since| since + overlap <= now)
    })
}
