//! The Secret of authorities: `N.crt` and `N.key` for each, and `ca-bundle.crt` with all certificates.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use repot_api::names::{ROTATE_AUTHORITIES, ROTATED_FOR, TRUSTED_SINCE};
use repot_certs::{
    Authority,
    inspect::{Validity, inspect, is_key_of},
    rotation::{self, AuthorityState},
};
use time::OffsetDateTime;

use super::{error::Error, secrets};

/// Key of the bundle in the Secret.
const BUNDLE: &str = "ca-bundle.crt";
/// Common name of authorities.
const COMMON_NAME: &str = "repot";

/// The authorities of an installation, by number.
#[derive(Clone, Debug)]
pub(super) struct Authorities {
    secret: Secret,
    all: BTreeMap<u32, Stored>,
}

#[derive(Clone)]
struct Stored {
    certificate: String,
    key: String,
    validity: Validity,
}

/// Nothing of a private key is printed.
impl std::fmt::Debug for Stored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stored").field("validity", &self.validity).finish_non_exhaustive()
    }
}

impl Authorities {
    /// Reads the Secret; where there is none, there are no authorities.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub(super) fn read(name: &str, secret: Option<Secret>) -> Result<Self, Error> {
        let secret = secret.unwrap_or_else(|| secrets::new(name, "Opaque"));
        let mut all = BTreeMap::new();
        for key in secret.data.iter().flatten().map(|(key, _)| key) {
            let Some(number) = key.strip_suffix(".crt").and_then(|number| number.parse().ok()) else {
                continue;
            };
            all.insert(number, stored(name, &secret, number)?);
        }
        Ok(Self { secret, all })
    }

    /// The Secret as it is to be written.
    pub(super) fn secret(&self) -> &Secret {
        &self.secret
    }

    /// The same authorities, in the Secret as it has been written.
    pub(super) fn written(&mut self, secret: Secret) {
        self.secret = secret;
    }

    /// What the rotation has to know of each.
    pub(super) fn states(&self) -> Vec<AuthorityState> {
        let state = |(number, stored): (&u32, &Stored)| AuthorityState {
            number: *number,
            validity: stored.validity,
            trusted_since: self.trusted_since(*number),
        };
        self.all.iter().map(state).collect()
    }

    /// Whether somebody has asked for a new one since the last one was made.
    pub(super) fn is_requested(&self) -> bool {
        let annotations = self.secret.annotations();
        let request = annotations.get(ROTATE_AUTHORITIES).filter(|request| !request.is_empty());
        !self.all.is_empty() && request.is_some() && request != annotations.get(ROTATED_FOR)
    }

    /// Adds a new one.
    ///
    /// # Errors
    /// [`Error::Issue`].
    pub(super) fn add(&mut self, now: OffsetDateTime, lifetime: time::Duration) -> Result<u32, Error> {
        let number = self.all.last_key_value().map_or(1, |(number, _)| number.saturating_add(1));
        let made = Authority::generate_for(&format!("{COMMON_NAME}-{number}"), now, lifetime)?;
        let certificate = made.certificate_pem().to_owned();
        let validity = Validity { issued: now, until: now + lifetime };
        self.all.insert(number, Stored { certificate, key: made.key_pem().to_owned(), validity });
        if let Some(request) = self.secret.annotations().get(ROTATE_AUTHORITIES).cloned() {
            self.secret.annotations_mut().insert(ROTATED_FOR.to_owned(), request);
        }
        self.render();
        Ok(number)
    }

    /// Removes some.
    pub(super) fn remove(&mut self, numbers: &[u32]) {
        for number in numbers {
            self.all.remove(number);
            self.secret.annotations_mut().remove(&format!("{TRUSTED_SINCE}{number}"));
        }
        self.render();
    }

    /// Records that everybody has had all of them since now; whether that is new for any of them.
    pub(super) fn trust(&mut self, now: OffsetDateTime) -> bool {
        let unknown: Vec<u32> =
            self.all.keys().copied().filter(|number| self.trusted_since(*number).is_none()).collect();
        let now = Timestamp::from_second(now.unix_timestamp()).unwrap_or_default().to_string();
        for number in &unknown {
            self.secret.annotations_mut().insert(format!("{TRUSTED_SINCE}{number}"), now.clone());
        }
        !unknown.is_empty()
    }

    /// The one that signs.
    ///
    /// # Errors
    /// [`Error::Issue`].
    pub(super) fn signer(&self, number: u32) -> Result<Option<Authority>, Error> {
        let stored = self.all.get(&number);
        Ok(stored.map(|stored| Authority::from_pem(&stored.certificate, &stored.key)).transpose()?)
    }

    /// How long the one of that number is valid.
    pub(super) fn until(&self, number: u32) -> Option<OffsetDateTime> {
        self.all.get(&number).map(|stored| stored.validity.until)
    }

    /// Number of the one that has signed a certificate.
    pub(super) fn signer_of(&self, certificate: &str) -> Option<u32> {
        let signed = |stored: &Stored| repot_certs::inspect::is_signed_by(certificate, &stored.certificate);
        self.all.iter().rev().find(|(_, stored)| signed(stored)).map(|(number, _)| *number)
    }

    /// All certificates, newest first.
    pub(super) fn bundle(&self) -> String {
        rotation::bundle(self.all.values().rev().map(|stored| stored.certificate.as_str()))
    }

    fn trusted_since(&self, number: u32) -> Option<OffsetDateTime> {
        let since = self.secret.annotations().get(&format!("{TRUSTED_SINCE}{number}"))?;
        let since: Timestamp = since.parse().ok()?;
        OffsetDateTime::from_unix_timestamp(since.as_second()).ok()
    }

    fn render(&mut self) {
        let bundle = self.bundle();
        let pairs = self.all.iter().flat_map(|(number, stored)| {
            [(format!("{number}.crt"), stored.certificate.as_str()), (format!("{number}.key"), &*stored.key)]
        });
        self.secret.data = secrets::data(pairs.chain([(BUNDLE.to_owned(), bundle.as_str())]));
    }
}

fn stored(name: &str, secret: &Secret, number: u32) -> Result<Stored, Error> {
    let damaged = |what| Error::Damaged { secret: name.to_owned(), number, what };
    let certificate = secrets::text(secret, &format!("{number}.crt")).to_owned();
    let key = secrets::text(secret, &format!("{number}.key")).to_owned();
    let inspected = inspect(&certificate).ok_or_else(|| damaged("its certificate cannot be read"))?;
    if !is_key_of(&key, &certificate) {
        return Err(damaged("its key does not belong to its certificate"));
    }
    Ok(Stored { certificate, key, validity: inspected.validity })
}
