//! The namespace of a control plane.

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Preconditions},
};

use crate::{
    errors::{is_conflict, is_not_found},
    migration::error::{Error, Result},
};

/// A namespace; `None` where it does not exist.
///
/// # Errors
/// [`Error::Read`].
pub async fn find(seed: &Client, name: &str) -> Result<Option<Namespace>> {
    let found = Api::<Namespace>::all(seed.clone()).get_opt(name).await;
    found.map_err(Error::read(format!("Namespace {name}")))
}

/// Deletes a namespace that is not being deleted yet.
///
/// # Errors
/// [`Error`].
pub async fn delete(seed: &Client, found: &Namespace) -> Result<()> {
    let name = &found.name_any();
    if found.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let preconditions = Some(Preconditions { uid: found.uid(), resource_version: None });
    let params = DeleteParams { preconditions, ..DeleteParams::default() };
    match Api::<Namespace>::all(seed.clone()).delete(name, &params).await {
        // One that was made under its name since is another one.
        Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(()),
        outcome => outcome.map(drop).map_err(Error::write(format!("delete Namespace {name}"))),
    }
}
