//! Serving certificates of Repot's servers and the authorities that sign them, in Secrets; and the bundle of these authorities in
//! APIServices and webhook configurations.
//!
//! | file | does |
//! |---|---|
//! | `pass` | reads what is kept, asks [`repot_certs::rotation`] what comes next, and does it |
//! | `authorities` | the Secret of authorities, read and written |
//! | `serving` | the Secrets of serving certificates, read and written |
//! | `published` | bundles in APIServices and webhook configurations |
//! | `encryption` | the Secret with the first key of the API server's store |
//! | `status` | what a person asks |
//!
//! One of several processes does this: the one that holds the Lease. Each write names the version that it was decided on, so a
//! process that is late overwrites nothing.

mod authorities;
mod encryption;
mod error;
mod metrics;
mod pass;
mod published;
mod request;
mod secrets;
mod serving;
mod status;
#[cfg(test)]
mod tests;

use std::time::Duration;

use kube::Client;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

pub use self::{
    error::Error,
    metrics::CertificateMetrics,
    published::Target,
    request::{Rotation, request},
    status::{Status, status},
};
use crate::server::Readiness;

/// How often everything is looked at.
const PERIOD: Duration = Duration::from_secs(10);
/// How long one pass may take: an API server that does not answer must not hold it for ever.
const PASS: Duration = Duration::from_secs(60);

/// The Secret of a serving certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingSecret {
    /// Name of the Secret.
    pub name: String,
    /// DNS names and IP addresses that the certificate is for.
    pub names: Vec<String>,
}

/// What is kept, and where.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Namespace of the Secrets.
    pub namespace: String,
    /// Name of the Secret with authorities and their private keys.
    pub authorities: String,
    /// Serving certificates, a Secret each.
    pub serving: Vec<ServingSecret>,
    /// What has the bundle of authorities.
    pub targets: Vec<Target>,
}

/// How long certificates are valid.
#[derive(Clone, Copy, Debug)]
pub struct Lifetimes {
    /// Validity of an authority.
    pub authority: Duration,
    /// Validity of a serving certificate.
    pub serving: Duration,
    /// How long a change of a Secret or a bundle may take to reach everybody.
    pub overlap: Duration,
    /// Whether the overlap may be shorter than kubelets take to update a mounted Secret: for tests.
    pub is_short_allowed: bool,
}

/// How long kubelets take to update a mounted Secret, and servers to read it.
const LEAST_OVERLAP: Duration = Duration::from_secs(180);
/// Longer is no certificate valid: times beyond cannot be written.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

impl Lifetimes {
    /// Whether an authority lives long enough to sign, and a certificate to be replaced in time.
    ///
    /// # Errors
    /// [`Error::Lifetimes`].
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |what| Err(Error::Lifetimes(what));
        match self {
            Self { serving, .. } if serving.is_zero() => {
                wrong("a serving certificate needs some time to be valid")
            }
            Self { serving, overlap, .. } if *overlap > *serving / 6 => {
                wrong("the overlap may be a sixth of the validity of serving certificates at most")
            }
            Self { authority, serving, .. } if *serving > *authority / 6 => {
                wrong("serving certificates may be valid for a sixth of the validity of authorities at most")
            }
            Self { overlap, is_short_allowed: false, .. } if *overlap < LEAST_OVERLAP => wrong(
                "the overlap has to be three minutes at least: kubelets take so long to update mounted Secrets",
            ),
            Self { authority, .. } if *authority > LONGEST => {
                wrong("authorities may be valid for 876000 hours at most")
            }
            _ => Ok(()),
        }
    }
}

/// Makes the text of an encryption configuration with a new key.
pub type NewKey = fn() -> Result<String, String>;

/// The Secret with an encryption configuration, for a first start.
#[derive(Clone, Debug)]
pub struct EncryptionSecret {
    /// Name of the Secret.
    pub name: String,
    /// What is written into it where it was never made.
    pub new_key: NewKey,
}

/// Everything that one process is to keep.
#[derive(Clone)]
pub struct Keeper {
    /// The cluster with the Secrets.
    pub client: Client,
    /// The cluster with APIServices and webhook configurations.
    pub published: Client,
    /// Secrets, and who has their bundle.
    pub kept: Kept,
    /// How long certificates are valid.
    pub lifetimes: Lifetimes,
    /// The encryption key to make, if it is missing.
    pub encryption: Option<EncryptionSecret>,
    /// Metrics of the certificates.
    pub metrics: CertificateMetrics,
}

impl Keeper {
    /// Keeps certificates until `stop`. `readiness` says whether all of it is as it should be.
    pub async fn run(&self, readiness: &Readiness, stop: &CancellationToken) {
        let mut reported = None;
        let mut tick = tokio::time::interval(PERIOD);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.run_until_cancelled(tick.tick()).await.is_some() {
            // A pass that has begun comes to its end: a write may be the first of two.
            let failed = match tokio::time::timeout(PASS, self.pass()).await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(crate::errors::causes(&error)),
                Err(_) => Some(format!("a pass took more than {} s", PASS.as_secs())),
            };
            match &failed {
                None => readiness.set_ready(),
                Some(error) => {
                    self.metrics.count_error();
                    readiness.set_not_ready(
                        "certificates are not as they should be: see the log, or `repot certs status`",
                    );
                    // The same error every ten seconds would hide all others.
                    if reported.as_ref() != Some(error) {
                        tracing::warn!(error, "certificates are not as they should be");
                    }
                }
            }
            reported = failed;
        }
    }
}
