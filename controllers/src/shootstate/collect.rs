//! Reads everything of a control plane that has to survive its seed.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use futures::{StreamExt, TryStreamExt, stream};
use kube::{
    Client,
    core::{ApiResource, GroupVersionKind, ObjectMeta},
    discovery::pinned_kind,
};
use repot_api::names::{CARRY, PERSIST};
use repot_extension::{
    RawJson,
    status::{CrossVersionObjectReference, NamedResourceReference},
};
use serde::Deserialize;

use super::{
    carried,
    error::{Error, Result},
    kinds::{
        BACKUP_ENTRY, CARRIED_KINDS, CLUSTER, EXTENSION_KINDS, MACHINE, MACHINE_DEPLOYMENT, MACHINE_SET,
        SECRET, SeedKind, find,
    },
    list::{get, list},
    machines::{MachineObjects, MachineState},
    model::{ExtensionEntry, GardenerEntry, ResourceEntry, State},
    parts::Parts,
    secrets,
};
use crate::errors::is_not_found;

/// Lists that are read at once: bounds memory and the load of the seed's kube-apiserver.
const AT_ONCE: usize = 4;
/// Type of Secrets that are issued anew in each cluster.
const SERVICE_ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";

/// A seed, and how many bytes of objects were read there.
#[derive(Clone, Copy)]
struct Seed<'a> {
    client: &'a Client,
    bytes: &'a AtomicUsize,
}

impl Seed<'_> {
    async fn list(&self, kind: &SeedKind, namespace: &str, labels: Option<&str>) -> Result<Vec<RawJson>> {
        let objects = list(self.client, kind, namespace, labels).await?;
        let bytes = objects.iter().map(|object| object.get().len()).sum();
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(objects)
    }

    async fn get(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<RawJson>> {
        let object = get(self.client, resource, namespace, name).await?;
        self.bytes.fetch_add(object.as_ref().map_or(0, |object| object.get().len()), Ordering::Relaxed);
        Ok(object)
    }
}

/// What is read of every object.
#[derive(Deserialize)]
struct Head {
    metadata: ObjectMeta,
    /// The type of a Secret.
    #[serde(rename = "type", default)]
    kind: Option<RawJson>,
}

/// What is read of extension objects.
#[derive(Deserialize)]
struct Extension {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: ExtensionSpec,
    #[serde(default)]
    status: ExtensionStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ExtensionSpec {
    purpose: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ExtensionStatus {
    state: Option<RawJson>,
    resources: Vec<NamedResourceReference>,
}

/// Entries of extension objects, and the objects among them that are carried.
#[derive(Default)]
struct Extensions {
    entries: Vec<ExtensionEntry>,
    carried: Vec<ResourceEntry>,
}

/// Reads all that has to survive from the API server of the seed, never from a cache: one paged list for each kind.
///
/// Entries are in a fixed order, so that equal objects give an equal state.
///
/// # Errors
/// [`Error::Read`], [`Error::Malformed`], and [`Error::DanglingReference`] where a state refers to an object that is not there.
pub async fn collect(seed: &Client, namespace: &str) -> Result<State> {
    Ok(collect_parts(seed, namespace, Parts::ALL).await?.0)
}

/// The same for parts of the state; the others are empty. Gives also how many bytes of objects were read.
///
/// # Errors
/// As [`collect`].
pub async fn collect_parts(seed: &Client, namespace: &str, parts: Parts) -> Result<(State, usize)> {
    let bytes = AtomicUsize::new(0);
    let seed = Seed { client: seed, bytes: &bytes };
    let mut state = State { secrets: persistent_secrets(seed, namespace).await?, ..State::default() };
    if parts.machines {
        state.machines = machines(seed, namespace).await?;
    }
    if parts.objects {
        (state.extensions, state.resources) = objects(seed, namespace).await?;
    }
    Ok((state, bytes.into_inner()))
}

/// States of extension objects, and objects as a whole.
async fn objects(seed: Seed<'_>, namespace: &str) -> Result<(Vec<ExtensionEntry>, Vec<ResourceEntry>)> {
    let Extensions { entries: extensions, carried } = extensions(seed, namespace).await?;
    let mut resources = referenced(seed, namespace, &extensions).await?;
    let more = stream::iter(CARRIED_KINDS).map(|kind| carried_of(seed, namespace, kind)).buffered(AT_ONCE);
    let more: Vec<Vec<ResourceEntry>> = more.try_collect().await?;
    for entry in carried.into_iter().chain(more.into_iter().flatten()) {
        let key = (entry.kind.clone(), entry.name.clone(), entry.api_version.clone());
        resources.entry(key).or_insert(entry);
    }
    Ok((extensions, resources.into_values().collect()))
}

async fn persistent_secrets(seed: Seed<'_>, namespace: &str) -> Result<Vec<GardenerEntry>> {
    let all = seed.list(&SECRET, namespace, Some(&format!("{PERSIST}=true"))).await?;
    all.iter().map(secrets::entry).collect()
}

async fn machines(seed: Seed<'_>, namespace: &str) -> Result<Option<GardenerEntry>> {
    let objects = MachineObjects {
        deployments: seed.list(&MACHINE_DEPLOYMENT, namespace, None).await?,
        sets: seed.list(&MACHINE_SET, namespace, None).await?,
        machines: seed.list(&MACHINE, namespace, None).await?,
    };
    MachineState::of(&objects)?.entry()
}

async fn extensions(seed: Seed<'_>, namespace: &str) -> Result<Extensions> {
    let lists = stream::iter(EXTENSION_KINDS)
        .map(|kind| async move { seed.list(&kind, namespace, None).await.map(|objects| (kind, objects)) })
        .buffered(AT_ONCE);
    let mut lists = std::pin::pin!(lists);
    let mut found = Extensions::default();
    while let Some((kind, objects)) = lists.try_next().await? {
        for object in &objects {
            found.entries.extend(extension(&kind, object)?);
            found.carried.extend(carry(&kind, object)?);
        }
    }
    if let Some(object) = backup_entry(seed, namespace).await? {
        found.entries.extend(extension(&BACKUP_ENTRY, &object)?);
    }
    Ok(found)
}

/// The entry of an extension object; `None` for one that goes away or has neither state nor references.
fn extension(kind: &SeedKind, object: &RawJson) -> Result<Option<ExtensionEntry>> {
    let read: Extension =
        object.decode().map_err(|_| Error::Malformed(format!("an object of kind {}", kind.kind)))?;
    let state = read.status.state.filter(|state| !state.is_null());
    if read.metadata.deletion_timestamp.is_some() || (state.is_none() && read.status.resources.is_empty()) {
        return Ok(None);
    }
    Ok(Some(ExtensionEntry {
        kind: kind.kind.to_owned(),
        name: read.metadata.name,
        purpose: read.spec.purpose,
        resources: read.status.resources,
        state,
    }))
}

/// The BackupEntry of the control plane has no namespace; it is named by the namespace and by `status.uid` of the Shoot.
async fn backup_entry(seed: Seed<'_>, namespace: &str) -> Result<Option<RawJson>> {
    #[derive(Deserialize)]
    struct Cluster {
        spec: ClusterSpec,
    }
    #[derive(Deserialize)]
    struct ClusterSpec {
        shoot: Shoot,
    }
    #[derive(Deserialize)]
    struct Shoot {
        #[serde(default)]
        status: Status,
    }
    #[derive(Default, Deserialize)]
    struct Status {
        #[serde(default)]
        uid: Option<String>,
    }
    let Some(cluster) = seed.get(&CLUSTER.resource(), None, namespace).await? else { return Ok(None) };
    let cluster: Cluster = cluster.decode().map_err(|_| Error::Malformed(format!("Cluster {namespace}")))?;
    let Some(uid) = cluster.spec.shoot.status.uid else { return Ok(None) };
    seed.get(&BACKUP_ENTRY.resource(), None, &format!("{namespace}--{uid}")).await
}

type Resources = BTreeMap<(String, String, String), ResourceEntry>;

/// Objects that states refer to, by their reference.
async fn referenced(seed: Seed<'_>, namespace: &str, extensions: &[ExtensionEntry]) -> Result<Resources> {
    let mut found = Resources::new();
    for extension in extensions {
        for CrossVersionObjectReference { api_version, kind, name } in
            extension.resources.iter().map(|resource| &resource.resource_ref)
        {
            let api_version = api_version.clone().unwrap_or_else(|| "v1".to_owned());
            let key = (kind.clone(), name.clone(), api_version.clone());
            if found.contains_key(&key) {
                continue;
            }
            let Some(entry) = reference(seed, namespace, &api_version, kind, name).await? else {
                let referrer =
                    format!("{} {}", extension.kind, extension.name.as_deref().unwrap_or_default());
                let (reference, namespace) = (format!("{kind} {name}"), namespace.to_owned());
                return Err(Error::DanglingReference { referrer, reference, namespace });
            };
            found.insert(key, entry);
        }
    }
    Ok(found)
}

async fn reference(
    seed: Seed<'_>,
    namespace: &str,
    api_version: &str,
    kind: &str,
    name: &str,
) -> Result<Option<ResourceEntry>> {
    let resource = match find(api_version, kind) {
        Some(kind) => kind.resource(),
        None => {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            let wanted = GroupVersionKind::gvk(group, version, kind);
            match pinned_kind(seed.client, &wanted).await {
                Ok((resource, _)) => resource,
                Err(error) if is_not_found(&error) => return Ok(None),
                Err(kube::Error::Discovery(_)) => return Ok(None),
                Err(source) => return Err(Error::Read { what: format!("{api_version} {kind}"), source }),
            }
        }
    };
    let object = seed.get(&resource, Some(namespace), name).await?;
    object.map(|object| carried::entry(&resource, name, &object)).transpose()
}

/// Objects of a kind that are carried.
async fn carried_of(seed: Seed<'_>, namespace: &str, kind: SeedKind) -> Result<Vec<ResourceEntry>> {
    let objects = seed.list(&kind, namespace, Some(&format!("{CARRY}=true"))).await?;
    let entries = objects.iter().map(|object| carry(&kind, object));
    entries.filter_map(Result::transpose).collect()
}

/// The entry of an object with the label [`CARRY`]. Secrets that persist are entries of their own, and tokens are issued anew.
fn carry(kind: &SeedKind, object: &RawJson) -> Result<Option<ResourceEntry>> {
    let head: Head =
        object.decode().map_err(|_| Error::Malformed(format!("an object of kind {}", kind.kind)))?;
    let is_true = |label| {
        let labels = head.metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(label)).is_some_and(|value| value == "true")
    };
    let is_token = || {
        let secret_type = head.kind.as_ref().and_then(|kind| kind.decode::<String>().ok());
        secret_type.as_deref() == Some(SERVICE_ACCOUNT_TOKEN)
    };
    if !is_true(CARRY) || head.metadata.deletion_timestamp.is_some() {
        return Ok(None);
    }
    if *kind == SECRET && (is_true(PERSIST) || is_token()) {
        return Ok(None);
    }
    let name = head.metadata.name.as_deref().unwrap_or_default();
    carried::entry(&kind.resource(), name, object).map(Some)
}
