//! A person asks for new certificates.

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use repot_api::names::{ROTATE_AUTHORITIES, ROTATE_CERTIFICATES};
use serde_json::json;

use super::{Kept, error::Error, secrets};

/// What is to be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// Serving certificates, by the authority that signs now.
    Certificates,
    /// The authority, and then what older ones have signed.
    Authorities,
}

/// Asks whoever keeps the certificates, by a word on the Secret of authorities. It is done within seconds; an authority takes two
/// overlaps more until the old one is gone.
///
/// # Errors
/// Those of requests, and [`Error::Foreign`].
pub async fn request(client: &Client, kept: &Kept, rotation: Rotation) -> Result<(), Error> {
    let annotation = match rotation {
        Rotation::Certificates => ROTATE_CERTIFICATES,
        Rotation::Authorities => ROTATE_AUTHORITIES,
    };
    let api: Api<Secret> = Api::namespaced(client.clone(), &kept.namespace);
    secrets::read(&api, &kept.authorities).await?;
    let word = uuid::Uuid::new_v4().to_string();
    let patch = json!({"metadata": {"annotations": {annotation: word}}});
    let patched = api.patch(&kept.authorities, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.map(|_| ()).map_err(Error::of("write", format!("Secret {}", kept.authorities)))
}
