//! Writes. Each may be made twice.

use std::fmt::Debug;

use k8s_openapi::api::{
    apps::v1::StatefulSet,
    batch::v1::Job,
    core::v1::{ConfigMap, PersistentVolumeClaim, Service, ServiceAccount},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy},
    core::NamespaceResourceScope,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::errors::{is_conflict, is_not_found};

use super::{
    Error, Result,
    api::{Etcd, MEMBERSHIP},
    names::MANAGER,
    observe::Observed,
    render::{Kind, Layout, Rendered, service_account, stateful_set, surroundings},
    status::Status,
};

/// Makes everything that a number of members needs, the StatefulSet last.
///
/// # Errors
/// [`Error::Apply`]; [`Error::Changed`] where somebody was quicker.
pub async fn run(client: &Client, observed: &Observed, layout: &Layout) -> Result<()> {
    let etcd = &observed.etcd;
    for rendered in surroundings(etcd, layout) {
        apply(client, etcd, &rendered).await?;
    }
    let mut set = stateful_set(etcd, layout);
    match &observed.set {
        // What was decided on an older state of it is refused.
        Some(exists) => {
            set["metadata"]["uid"] = json!(exists.uid());
            set["metadata"]["resourceVersion"] = json!(exists.resource_version());
        }
        None => still(client, etcd).await?,
    }
    apply(client, etcd, &Rendered { kind: Kind::StatefulSet, object: set }).await
}

/// Makes the Job that copies snapshots, and who it runs as.
///
/// # Errors
/// [`Error::Apply`], [`Error::Changed`].
pub async fn run_job(client: &Client, etcd: &Etcd, job: &Rendered) -> Result<()> {
    apply(client, etcd, &service_account(etcd)).await?;
    still(client, etcd).await?;
    apply(client, etcd, job).await
}

/// Applies an object.
///
/// # Errors
/// [`Error::Apply`], [`Error::Changed`].
pub async fn apply(client: &Client, etcd: &Etcd, rendered: &Rendered) -> Result<()> {
    let object = &rendered.object;
    match rendered.kind {
        Kind::ServiceAccount => apply_as::<ServiceAccount>(client, etcd, object).await,
        Kind::DisruptionBudget => apply_as::<PodDisruptionBudget>(client, etcd, object).await,
        Kind::Service => apply_as::<Service>(client, etcd, object).await,
        Kind::ConfigMap => apply_as::<ConfigMap>(client, etcd, object).await,
        Kind::StatefulSet => apply_as::<StatefulSet>(client, etcd, object).await,
        Kind::Job => apply_as::<Job>(client, etcd, object).await,
    }
}

/// Applies an object of a kind.
///
/// # Errors
/// [`Error::Apply`], [`Error::Changed`].
pub async fn apply_as<K>(client: &Client, etcd: &Etcd, object: &Value) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Serialize
        + DeserializeOwned
        + Debug,
{
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let api = Api::<K>::namespaced(client.clone(), &etcd.namespace().unwrap_or_default());
    let applied = api.patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(object)).await;
    applied.map(drop).map_err(|source| {
        let (kind, name) = (K::kind(&()).into_owned(), name.to_owned());
        if is_conflict(&source) { Error::Changed { kind, name } } else { Error::Apply { kind, name, source } }
    })
}

/// Keeps the Etcd until its members have left the etcd that goes on elsewhere, or lets it go.
///
/// # Errors
/// [`Error::Apply`], [`Error::Changed`].
pub async fn hold(client: &Client, etcd: &Etcd, held: bool) -> Result<()> {
    let mut finalizers = etcd.finalizers().to_vec();
    finalizers.retain(|finalizer| finalizer != MEMBERSHIP);
    if held {
        finalizers.push(MEMBERSHIP.to_owned());
    }
    let name = etcd.name_any();
    let api = Api::<Etcd>::namespaced(client.clone(), &etcd.namespace().unwrap_or_default());
    // The finalizers of others are in the list, too, so it has to be the newest.
    let version = fresh_version(&api, etcd).await?;
    let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": version}});
    match api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
        Ok(_) => Ok(()),
        Err(error) if is_not_found(&error) || is_conflict(&error) => {
            Err(Error::Changed { kind: "Etcd".to_owned(), name })
        }
        Err(source) => Err(Error::Apply { kind: "finalizers of Etcd".to_owned(), name, source }),
    }
}

/// The version of the Etcd, where only its status has changed since it was read.
async fn fresh_version(api: &Api<Etcd>, etcd: &Etcd) -> Result<Option<String>> {
    let name = etcd.name_any();
    let now = api.get_opt(&name).await;
    let now = now.map_err(|source| Error::Read { kind: "Etcd".to_owned(), name: name.clone(), source })?;
    let now = now.filter(|now| is_same(now, etcd) && now.finalizers() == etcd.finalizers());
    now.map(|now| now.resource_version()).ok_or(Error::Changed { kind: "Etcd".to_owned(), name })
}

/// Whether an Etcd still asks for the same.
fn is_same(now: &Etcd, before: &Etcd) -> bool {
    now.uid() == before.uid()
        && now.metadata.generation == before.metadata.generation
        && now.annotations() == before.annotations()
        && now.metadata.deletion_timestamp == before.metadata.deletion_timestamp
}

/// Deletes the StatefulSet that was seen, and its Pods behind it; volumes stay.
///
/// # Errors
/// [`Error::Delete`], [`Error::Changed`].
pub async fn stop(client: &Client, observed: &Observed) -> Result<()> {
    let Some(set) = &observed.set else { return Ok(()) };
    still(client, &observed.etcd).await?;
    delete::<StatefulSet>(client, set).await
}

/// Deletes a claim that was seen.
///
/// # Errors
/// [`Error::Delete`], [`Error::Changed`].
pub async fn delete_claim(client: &Client, claim: &PersistentVolumeClaim) -> Result<()> {
    delete::<PersistentVolumeClaim>(client, claim).await
}

/// Deletes what was seen.
///
/// # Errors
/// [`Error::Delete`], [`Error::Changed`].
pub async fn delete<K>(client: &Client, object: &K) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    let name = object.name_any();
    let api = Api::<K>::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    let preconditions = Preconditions { uid: object.uid(), resource_version: object.resource_version() };
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        preconditions: Some(preconditions),
        ..DeleteParams::default()
    };
    match api.delete(&name, &params).await {
        Ok(_) => Ok(()),
        Err(error) if is_not_found(&error) => Ok(()),
        Err(error) if is_conflict(&error) => Err(Error::Changed { kind: K::kind(&()).into_owned(), name }),
        Err(source) => Err(Error::Delete { kind: K::kind(&()).into_owned(), name, source }),
    }
}

/// Looks once more whether the Etcd still asks for what was decided on: what is created or deleted now cannot be taken back.
async fn still(client: &Client, etcd: &Etcd) -> Result<()> {
    let name = etcd.name_any();
    let api = Api::<Etcd>::namespaced(client.clone(), &etcd.namespace().unwrap_or_default());
    let now = api.get_opt(&name).await;
    let now = now.map_err(|source| Error::Read { kind: "Etcd".to_owned(), name: name.clone(), source })?;
    if now.is_some_and(|now| is_same(&now, etcd)) {
        Ok(())
    } else {
        Err(Error::Changed { kind: "Etcd".to_owned(), name })
    }
}

/// Writes the status, unless it is the one that was read.
///
/// # Errors
/// [`Error::Apply`], [`Error::Changed`].
pub async fn record(client: &Client, etcd: &Etcd, status: &Status) -> Result<()> {
    if etcd.status.as_ref() == Some(status) {
        return Ok(());
    }
    let name = etcd.name_any();
    let api = Api::<Etcd>::namespaced(client.clone(), &etcd.namespace().unwrap_or_default());
    // The UID keeps the status of one that is gone off another of its name.
    let object = json!({
        "apiVersion": Etcd::api_version(&()), "kind": Etcd::kind(&()),
        "metadata": {"name": name, "uid": etcd.uid()}, "status": status,
    });
    let written = api.patch_status(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&object)).await;
    match written {
        Ok(_) => Ok(()),
        Err(error) if is_not_found(&error) || is_conflict(&error) => {
            Err(Error::Changed { kind: "Etcd".to_owned(), name })
        }
        Err(source) => Err(Error::Apply { kind: "status of Etcd".to_owned(), name, source }),
    }
}
