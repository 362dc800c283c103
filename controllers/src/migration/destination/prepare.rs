//! Objects of the destination, created once: what exists in a namespace of this migration is left as it is.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt, api::PostParams, core::DynamicObject};
use serde_json::{Value, json};

use super::carried::NewObject;
use crate::{
    migration::{
        error::{Error, Result},
        names::{MADE_BY, MANAGER, ROLE},
        seed::read,
    },
    shootstate::kinds::SeedKind,
};

/// Whether a migration made an object.
#[must_use]
pub fn is_made_by(object: &impl kube::Resource, migration: &str) -> bool {
    object.labels().get(MADE_BY).map(String::as_str) == Some(migration)
}

/// Creates the namespace of the control plane.
///
/// # Errors
/// [`Error::Foreign`] where one exists that this migration did not make.
pub async fn ensure_namespace(
    seed: &Client,
    name: &str,
    found: Option<&Namespace>,
    migration: &str,
) -> Result<()> {
    match found {
        Some(found) if found.metadata.deletion_timestamp.is_some() => {
            return Err(Error::Foreign(format!("Namespace {name}, which is being deleted,")));
        }
        Some(found) if is_made_by(found, migration) => return Ok(()),
        Some(_) => return Err(Error::Foreign(format!("Namespace {name}"))),
        None => {}
    }
    let new: Namespace = decode(json!({
        "metadata": {"name": name, "labels": {ROLE: "shoot", MADE_BY: migration}},
    }))?;
    let outcome = Api::<Namespace>::all(seed.clone()).create(&create_params(), &new).await;
    outcome.map(drop).map_err(Error::write(format!("create Namespace {name}")))
}

fn decode<T: serde::de::DeserializeOwned>(object: Value) -> Result<T> {
    serde_json::from_value(object).map_err(|source| Error::Form { what: "an object".to_owned(), source })
}

/// Parameters with which objects are created.
pub(super) fn create_params() -> PostParams {
    PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() }
}

fn api(seed: &Client, namespace: &str, kind: &SeedKind) -> Api<DynamicObject> {
    Api::namespaced_with(seed.clone(), namespace, &kind.resource())
}

/// Those of the objects that do not exist, by one list for each kind.
///
/// # Errors
/// [`Error::Read`].
pub async fn missing<'a>(
    seed: &Client,
    namespace: &str,
    wanted: &'a [NewObject],
) -> Result<Vec<&'a NewObject>> {
    let kinds: BTreeSet<_> = wanted.iter().map(|one| (one.kind.plural, one.kind.kind)).collect();
    let mut existing = BTreeSet::new();
    for (plural, _) in kinds {
        let Some(kind) = wanted.iter().map(|one| one.kind).find(|kind| kind.plural == plural) else {
            continue;
        };
        let found = api(seed, namespace, &kind).list_metadata(&kube::api::ListParams::default()).await;
        let found = match found {
            Err(error) if crate::errors::is_not_found(&error) => continue,
            found => found.map_err(Error::read(format!("{plural} of {namespace}")))?,
        };
        existing.extend(found.items.iter().map(|one| (plural, one.name_any())));
    }
    Ok(wanted.iter().filter(|one| !existing.contains(&(one.kind.plural, one.name.clone()))).collect())
}

/// Creates objects in a namespace that this migration made. One that exists by now is left as it is.
///
/// # Errors
/// The first object that cannot be created; those before it exist.
pub async fn create(seed: &Client, namespace: &str, wanted: &[&NewObject]) -> Result<()> {
    for one in wanted {
        let object: DynamicObject = decode(one.object.clone())?;
        match api(seed, namespace, &one.kind).create(&create_params(), &object).await {
            Err(error) if crate::errors::is_conflict(&error) => {}
            outcome => {
                let task = format!("create {} {}", one.kind.kind, one.name);
                outcome.map_err(Error::write(task))?;
            }
        }
    }
    Ok(())
}

/// The Service of the API servers: its address, once the seed has given it one.
///
/// # Errors
/// [`Error::Read`].
pub async fn api_address(seed: &Client, namespace: &str, name: &str) -> Result<Option<String>> {
    let services = read::list::<k8s_openapi::api::core::v1::Service>(seed, namespace, "").await?;
    let service = services.into_iter().find(|service| service.name_any() == name);
    let ingress = service.and_then(|service| service.status?.load_balancer?.ingress?.into_iter().next());
    Ok(ingress.and_then(|ingress| ingress.ip.or(ingress.hostname)))
}
