//! What a person asks about certificates.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use repot_certs::inspect::Validity;
use serde::Serialize;
use time::OffsetDateTime;

use super::{
    Kept,
    error::Error,
    pass::{Observed, now, observe},
    published::{Published, Target},
};

/// The certificates of an installation, and who has their bundle.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Authorities, oldest first, then serving certificates.
    pub certificates: Vec<CertificateStatus>,
    /// What has the bundle of authorities.
    pub targets: Vec<TargetStatus>,
}

/// One authority or serving certificate.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateStatus {
    /// Name of its Secret; of authorities with their number.
    pub name: String,
    /// What it is: `authority`, `serving`, or `secret` for one that cannot be used.
    pub kind: &'static str,
    /// Number of the authority that has signed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed_by: Option<u32>,
    /// When it was issued, in RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issued: Option<String>,
    /// When it is going to be replaced, in RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewal: Option<String>,
    /// When it ends, in RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// What is wrong with it; absent where nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// What is under way; absent where nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// An APIService or a webhook configuration.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetStatus {
    /// Kind and name, as KIND/NAME.
    pub name: String,
    /// What is wrong with it; absent where nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// What is under way; absent where nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Status {
    /// Whether there is nothing to repair.
    #[must_use]
    pub fn is_well(&self) -> bool {
        let certificates = self.certificates.iter().all(|certificate| certificate.problem.is_none());
        certificates && self.targets.iter().all(|target| target.problem.is_none())
    }
}

/// Reads all Secrets and what has their bundle, and changes nothing.
///
/// # Errors
/// Those of requests for Secrets, [`Error::Foreign`] and [`Error::Damaged`].
pub async fn status(client: &Client, published: &Client, kept: &Kept) -> Result<Status, Error> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &kept.namespace);
    let (observed, damages) = observe(&secrets, kept).await?;
    let bundle = observed.authorities.bundle();
    let mut targets = Vec::new();
    for target in &kept.targets {
        targets.push(target_status(target, published, &bundle).await);
    }
    if bundle.is_empty() {
        // An empty bundle is in everything.
        for target in &mut targets {
            target.problem.get_or_insert_with(|| "there is no authority yet".to_owned());
        }
    }
    let mut certificates = certificates(&kept.authorities, &observed, now());
    certificates.extend(damages.iter().map(damage));
    Ok(Status { certificates, targets })
}

async fn target_status(target: &Target, client: &Client, bundle: &str) -> TargetStatus {
    let (problem, note) = match target.is_published(client, bundle).await {
        Ok(Published::Exactly) => (None, None),
        Ok(Published::WithOthers) => (None, Some("it has authorities of others, too".to_owned())),
        Ok(Published::No) => (Some("it lacks an authority of the bundle".to_owned()), None),
        Err(error) => (Some(crate::errors::causes(&error)), None),
    };
    TargetStatus { name: target.to_string(), problem, note }
}

/// A Secret that cannot be used.
fn damage(error: &Error) -> CertificateStatus {
    CertificateStatus {
        name: "-".to_owned(),
        kind: "secret",
        signed_by: None,
        issued: None,
        renewal: None,
        expires: None,
        problem: Some(error.to_string()),
        note: None,
    }
}

fn certificates(secret: &str, observed: &Observed, now: OffsetDateTime) -> Vec<CertificateStatus> {
    let Observed { authorities, serving } = observed;
    let of_authority = authorities.states().into_iter().map(|authority| {
        let name = format!("{secret}/{}", authority.number);
        with_validity(name, "authority", None, Some(authority.validity), now)
    });
    let of_serving = serving.iter().map(|one| {
        let state = one.state(authorities, observed.request());
        let note = state.is_requested.then(|| "a new one is asked for".to_owned());
        let mut status = with_validity(state.name, "serving", state.signer, state.validity, now);
        status.note = note;
        if state.signer.is_none() && status.problem.is_none() {
            status.problem = Some("none of the authorities has signed it".to_owned());
        }
        status
    });
    let mut all: Vec<CertificateStatus> = of_authority.chain(of_serving).collect();
    // Older ones may end, where nothing is signed by them any more.
    let signer = serving.iter().filter_map(|one| one.state(authorities, None).signer).min();
    for (status, authority) in all.iter_mut().zip(authorities.states()) {
        if signer.is_some_and(|signer| authority.number < signer) {
            status.problem = None;
        }
        if authority.trusted_since.is_none() {
            status.note = Some("not trusted by all yet".to_owned());
        }
    }
    all
}

fn with_validity(
    name: String,
    kind: &'static str,
    signed_by: Option<u32>,
    validity: Option<Validity>,
    now: OffsetDateTime,
) -> CertificateStatus {
    let text = |time: OffsetDateTime| {
        Timestamp::from_second(time.unix_timestamp()).ok().map(|time| time.to_string())
    };
    let problem = match validity {
        None => Some("it is missing, or it is for other names, or its key is that of another one"),
        Some(validity) if !validity.holds(now) => Some("it is not valid now"),
        Some(validity) if validity.renewal() + (validity.until - validity.renewal()) / 2 < now => {
            Some("it should have been replaced by now")
        }
        Some(_) => None,
    };
    CertificateStatus {
        name,
        kind,
        signed_by,
        issued: validity.and_then(|validity| text(validity.issued)),
        renewal: validity.and_then(|validity| text(validity.renewal())),
        expires: validity.and_then(|validity| text(validity.until)),
        problem: problem.map(str::to_owned),
        note: None,
    }
}
