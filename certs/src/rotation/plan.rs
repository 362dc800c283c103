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

/// What a decision is made on, beside authorities and certificates.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances {
    /// Whether somebody asks for a new authority.
    pub is_requested: bool,
    /// Whether all who connect have the bundle of authorities as it is now.
    pub is_published: bool,
    /// The time after which a change of a Secret or of a bundle has reached everybody.
    pub overlap: Duration,
    /// The time at which it is decided.
    pub now: OffsetDateTime,
}

/// The authority that signs.
#[derive(Clone, Copy, Debug)]
struct Signer {
    number: u32,
    /// Whether everybody trusts what it signs.
    is_trusted: bool,
}

/// Decides what comes next, from what is kept. `authorities` may be in any order.
#[must_use]
pub fn decide(
    authorities: &[AuthorityState],
    certificates: &[CertificateState],
    given: &Circumstances,
) -> Next {
    let newest = authorities.iter().max_by_key(|authority| authority.number);
    let make_authority = newest.is_none_or(|newest| {
        // A request waits until the last one that was made is known to all.
        let is_requested = given.is_requested && newest.trusted_since.is_some();
        is_requested || newest.validity.renewal() <= given.now || !newest.validity.holds(given.now)
    });
    let Some(signer) = signer(authorities, given) else {
        return Next { make_authority, ..Next::default() };
    };
    let sign = certificates.iter().filter(|certificate| is_due(certificate, authorities, signer, given));
    let sign: Vec<String> = sign.map(|certificate| certificate.name.clone()).collect();
    let is_settled = is_settled(certificates, signer.number, given);
    let remove = if is_settled {
        let older = authorities.iter().filter(|authority| authority.number < signer.number);
        older.map(|authority| authority.number).collect()
    } else {
        Vec::new()
    };
    Next { make_authority, signer: Some(signer.number), sign, remove, is_settled }
}

/// The newest one that everybody trusts; else the oldest one that is valid for some time, which is the one that has signed so far.
fn signer(authorities: &[AuthorityState], given: &Circumstances) -> Option<Signer> {
    let Circumstances { overlap, now, is_published, .. } = *given;
    let valid = || authorities.iter().filter(|authority| authority.validity.holds(now));
    let lasting = || valid().filter(|authority| !is_ending(&authority.validity, given));
    let trusted =
        lasting().filter(|authority| authority.trusted_since.is_some_and(|since| since + overlap <= now));
    if let Some(number) = trusted.map(|authority| authority.number).max() {
        return Some(Signer { number, is_trusted: is_published });
    }
    let oldest = lasting().map(|authority| authority.number).min();
    let number = oldest.or_else(|| valid().map(|authority| authority.number).max())?;
    Some(Signer { number, is_trusted: false })
}

/// Whether it ends before another one could reach everybody.
fn is_ending(validity: &Validity, given: &Circumstances) -> bool {
    validity.until <= given.now + given.overlap * 2
}

/// A certificate that clients trust for some more time is replaced by one of another authority only where they trust that one, too.
fn is_due(
    certificate: &CertificateState,
    authorities: &[AuthorityState],
    signer: Signer,
    given: &Circumstances,
) -> bool {
    let now = given.now;
    let of = |number| authorities.iter().find(|authority| Some(authority.number) == number);
    let Some(validity) = certificate.validity.filter(|validity| validity.holds(now)) else { return true };
    let own = of(certificate.signer).map_or(validity.until, |own| own.validity.until.min(validity.until));
    let longest = of(Some(signer.number)).map_or(own, |signer| signer.validity.until);
    if is_ending(&Validity { until: own, ..validity }, given) && own < longest {
        return true;
    }
    let has_its_signer = certificate.signer == Some(signer.number);
    let is_wanted = validity.renewal() <= now || certificate.is_requested || !has_its_signer;
    is_wanted && (signer.is_trusted || has_its_signer)
}

/// Whether nothing that an older authority has signed can be shown to a client any more.
fn is_settled(certificates: &[CertificateState], signer: u32, given: &Circumstances) -> bool {
    certificates.iter().all(|certificate| {
        let since = certificate.validity.map(|validity| validity.issued);
        certificate.signer == Some(signer) && since.is_some_and(|since| since + given.overlap <= given.now)
    })
}
