//! The Secret of authorities: `N.crt` and `N.key` for each, and `ca-bundle.crt` with all certificates.

use std::collections::{BTreeMap, BTreeSet};

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
#[derive(Clone)]
pub(super) struct Authorities {
    secret: Secret,
    all: BTreeMap<u32, Stored>,
    /// What is wrong with others, which stay in the Secret for a person to repair.
    damages: Vec<(u32, &'static str)>,
}

/// Nothing of the Secret is printed.
impl std::fmt::Debug for Authorities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authorities").field("all", &self.all).finish_non_exhaustive()
    }
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
    pub(super) fn read(name: &str, secret: Option<Secret>) -> Self {
        let secret = secret.unwrap_or_else(|| secrets::new(name, "Opaque"));
        let (mut all, mut damages) = (BTreeMap::new(), Vec::new());
        for number in numbers(&secret) {
            match stored(&secret, number) {
                Ok(stored) => drop(all.insert(number, stored)),
                Err(what) => damages.push((number, what)),
            }
        }
        Self { secret, all, damages }
    }

    /// What a person has to repair.
    pub(super) fn damages(&self) -> Vec<Error> {
        let secret = self.secret.name_any();
        let error = |(number, what): &(u32, &'static str)| Error::Damaged {
            secret: secret.clone(),
            number: *number,
            what,
        };
        self.damages.iter().map(error).collect()
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
        let number = self.next_number().ok_or(Error::Numbers)?;
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
            for key in [format!("{number}.crt"), format!("{number}.key")] {
                self.secret.data.get_or_insert_default().remove(&key);
            }
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
        let data = secrets::data(pairs.chain([(BUNDLE.to_owned(), bundle.as_str())]));
        // What is damaged stays.
        self.secret.data.get_or_insert_default().extend(data.unwrap_or_default());
    }

    /// A number that no authority has and none has had, as far as anything of it is left.
    fn next_number(&self) -> Option<u32> {
        let annotations = self.secret.annotations().keys();
        let trusted = annotations.filter_map(|key| canonical(key.strip_prefix(TRUSTED_SINCE)?));
        numbers(&self.secret).into_iter().chain(trusted).max().unwrap_or(0).checked_add(1)
    }
}

/// Numbers of authorities of which there is a certificate or a key.
fn numbers(secret: &Secret) -> BTreeSet<u32> {
    let keys = secret.data.iter().flatten().map(|(key, _)| key);
    keys.filter_map(|key| canonical(key.strip_suffix(".crt").or_else(|| key.strip_suffix(".key"))?)).collect()
}

fn canonical(text: &str) -> Option<u32> {
    text.parse::<u32>().ok().filter(|number| number.to_string() == text)
}

fn stored(secret: &Secret, number: u32) -> Result<Stored, &'static str> {
    let certificate = secrets::text(secret, &format!("{number}.crt")).to_owned();
    let key = secrets::text(secret, &format!("{number}.key")).to_owned();
    let inspected = inspect(&certificate).ok_or("its certificate cannot be read")?;
    if !is_key_of(&key, &certificate) {
        return Err("its key does not belong to its certificate");
    }
    Ok(Stored { certificate, key, validity: inspected.validity })
}
