//! The ShootState in the garden: read, compared with the seed, and brought to it by single entries.

use std::collections::BTreeMap;

use http::{Method, Request, header};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Client,
    core::{ApiResource, DynamicObject, ObjectMeta, PartialObjectMeta, Resource},
};
use repot_api::names::{CORE_GROUP, FINALIZER_SHOOT_STATE, MIGRATION_GROUP, TIMESTAMP, V1ALPHA1};
use serde::Serialize;

use super::{
    collect::collect,
    difference::{Change, Mode, Operation, difference, difference_of},
    error::{Error, Result},
    list::get,
    model::{ShootStateObject, Spec, State},
    parts::Parts,
};
use crate::errors::is_not_found;

/// Who wrote a field, in `metadata.managedFields`.
const FIELD_MANAGER: &str = "repot-shootstate";
/// Values of one patch have at most so many bytes, unless one entry alone has more: servers refuse requests that are much larger
/// than objects may be.
const PATCH_BYTES: usize = 4 << 20;
/// API servers refuse a JSON Patch of more than 10,000 operations; a change has at most five.
const PATCH_CHANGES: usize = 1_500;

/// A Shoot and where its control plane is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShootKey {
    /// Namespace in the garden.
    pub namespace: String,
    /// Name in the garden.
    pub name: String,
    /// `metadata.uid` in the garden.
    pub uid: String,
    /// Namespace of the control plane in the seed.
    pub seed_namespace: String,
}

/// What a synchronization did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Synced {
    /// Entries of the ShootState that differed from the seed.
    pub differing: u32,
    /// Entries that were written.
    pub written: u32,
    /// Bytes of the requests that wrote them.
    pub sent_bytes: u64,
}

/// The ShootStates of a garden, in the group in which it serves them.
#[derive(Clone)]
pub struct ShootStates {
    client: Client,
    resource: ApiResource,
}

/// What is written of `metadata` and `spec` when a ShootState is created.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NewShootState {
    api_version: String,
    kind: &'static str,
    metadata: ObjectMeta,
    spec: Spec,
}

/// Creates or patches the ShootState of a Shoot so that it has what the seed has. Only entries that differ are written, and nothing
/// where none does.
///
/// # Errors
/// Of [`collect`] and of the garden. [`is_conflict`](crate::reconciler::ReconcileError::is_conflict) tells whether somebody else has
/// written meanwhile; then nothing, or a part of the entries, was written, and a repetition ends it.
pub async fn sync(garden: &Client, seed: &Client, shoot: &ShootKey, mode: Mode) -> Result<Synced> {
    let wanted = collect(seed, &shoot.seed_namespace).await?;
    ShootStates::discover(garden).await?.write(shoot, wanted, mode, Parts::ALL).await
}

/// Counts the entries of the ShootState that differ from the seed. Both are read now; nothing is written.
///
/// # Errors
/// Of [`collect`] and of the garden.
pub async fn unsynced(garden: &Client, seed: &Client, shoot: &ShootKey, mode: Mode) -> Result<u32> {
    let wanted = collect(seed, &shoot.seed_namespace).await?;
    let stored = ShootStates::discover(garden).await?.get(shoot).await?.unwrap_or_default();
    Ok(count(&difference(&stored, &wanted, mode)))
}

/// Reads the ShootState of a Shoot from the garden; `None` where there is none.
///
/// # Errors
/// [`Error::Read`], [`Error::Malformed`], [`Error::Duplicate`], [`Error::NotServed`].
pub async fn read(garden: &Client, shoot: &ShootKey) -> Result<Option<State>> {
    let stored = ShootStates::discover(garden).await?.get(shoot).await?;
    stored.map(|object| State::read(&object.spec.unwrap_or_default())).transpose()
}

impl ShootStates {
    /// Finds the group in which the garden serves ShootStates. Repot's own comes first: there the paper's group belongs to Gardener.
    ///
    /// # Errors
    /// [`Error::NotServed`], [`Error::Read`].
    pub async fn discover(client: &Client) -> Result<Self> {
        for group in [MIGRATION_GROUP, CORE_GROUP] {
            let api_version = format!("{group}/{V1ALPHA1}");
            let served = match client.list_api_group_resources(&api_version).await {
                Ok(list) => list.resources.iter().any(|resource| resource.name == "shootstates"),
                Err(error) if is_not_found(&error) => false,
                Err(source) => return Err(Error::Read { what: api_version, source }),
            };
            if served {
                let (group, version) = (group.to_owned(), V1ALPHA1.to_owned());
                let (kind, plural) = ("ShootState".to_owned(), "shootstates".to_owned());
                let resource = ApiResource { group, version, api_version, kind, plural };
                return Ok(Self { client: client.clone(), resource });
            }
        }
        Err(Error::NotServed(MIGRATION_GROUP, CORE_GROUP))
    }

    /// Reads a ShootState whole.
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::Malformed`].
    pub async fn get(&self, shoot: &ShootKey) -> Result<Option<ShootStateObject>> {
        let object = get(&self.client, &self.resource, Some(&shoot.namespace), &shoot.name).await?;
        object
            .map(|object| {
                object.decode().map_err(|_| Error::Malformed(format!("ShootState {}", title(shoot))))
            })
            .transpose()
    }

    /// Brings parts of the ShootState to `wanted`, see [`sync`].
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::Malformed`], [`Error::Write`], [`Error::OtherShoot`], and [`Error::Deleted`] where there is no
    /// ShootState and `wanted` has some parts only.
    pub async fn write(&self, shoot: &ShootKey, wanted: State, mode: Mode, parts: Parts) -> Result<Synced> {
        let Some(stored) = self.get(shoot).await? else {
            if parts != Parts::ALL {
                return Err(Error::Deleted(title(shoot)));
            }
            let empty =
                ShootStateObject { spec: Some(State::default().write()), ..ShootStateObject::default() };
            let differing = count(&difference(&empty, &wanted, mode));
            let bytes = self.create(shoot, wanted, mode).await?;
            return Ok(Synced { differing, written: differing, sent_bytes: bytes });
        };
        ensure_owner(&stored.metadata, shoot)?;
        let changes = difference_of(&stored, &wanted, mode, parts);
        drop(wanted);
        let mut synced = Synced { differing: count(&changes), ..Synced::default() };
        let mut version = stored.metadata.resource_version.clone().unwrap_or_default();
        let mut head = metadata_operations(&stored.metadata, shoot, mode, !changes.is_empty());
        if changes.is_empty() && !head.is_empty() {
            synced.sent_bytes += self.patch(shoot, &version, &head).await?.1;
        }
        let mut changes = changes.into_iter().peekable();
        while changes.peek().is_some() {
            let (mut bytes, mut written, mut operations) = (0, 0, std::mem::take(&mut head));
            while let Some(change) = changes.next_if(|next| fits(bytes, written, next)) {
                bytes += change.bytes;
                written += 1;
                operations.extend(change.operations);
            }
            let sent;
            (version, sent) = self.patch(shoot, &version, &operations).await?;
            synced.written = synced.written.saturating_add(written);
            synced.sent_bytes += sent;
        }
        Ok(synced)
    }

    /// Gives the bytes that were sent.
    async fn create(&self, shoot: &ShootKey, wanted: State, mode: Mode) -> Result<u64> {
        let metadata = ObjectMeta {
            name: Some(shoot.name.clone()),
            namespace: Some(shoot.namespace.clone()),
            annotations: Some(BTreeMap::from([(TIMESTAMP.to_owned(), now())])),
            finalizers: (mode == Mode::Upsert).then(|| vec![FINALIZER_SHOOT_STATE.to_owned()]),
            owner_references: Some(vec![owner(shoot)]),
            ..ObjectMeta::default()
        };
        let api_version = self.resource.api_version.clone();
        let object = NewShootState { api_version, kind: "ShootState", metadata, spec: wanted.write() };
        let path = DynamicObject::url_path(&self.resource, Some(&shoot.namespace));
        Ok(self.send(shoot, Method::POST, &path, "application/json", &object).await?.1)
    }

    /// Applies operations unless the object has changed since `version`; gives its new version, and the bytes that were sent.
    async fn patch(
        &self,
        shoot: &ShootKey,
        version: &str,
        operations: &[Operation],
    ) -> Result<(String, u64)> {
        // API servers answer 409 where the version of a patched object is not the stored one.
        let mut guarded: Vec<_> =
            Operation::replace("/metadata/resourceVersion", version).into_iter().collect();
        guarded.extend_from_slice(operations);
        let path = DynamicObject::url_path(&self.resource, Some(&shoot.namespace));
        let path = format!("{path}/{}", shoot.name);
        self.send(shoot, Method::PATCH, &path, "application/json-patch+json", &guarded).await
    }

    /// Sends a write and gives the new version of the object, and the bytes that were sent. The answer has metadata alone: a ShootState may have many MiB.
    async fn send(
        &self,
        shoot: &ShootKey,
        method: Method,
        path: &str,
        content_type: &str,
        body: &impl Serialize,
    ) -> Result<(String, u64)> {
        let failed = |source| Error::Write { name: title(shoot), source };
        let body = serde_json::to_vec(body).map_err(|error| failed(kube::Error::SerdeError(error)))?;
        let sent = body.len() as u64;
        let request = Request::builder()
            .method(method)
            .uri(format!("{path}?fieldManager={FIELD_MANAGER}"))
            .header(header::ACCEPT, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
            .header(header::CONTENT_TYPE, content_type)
            .body(body)
            .map_err(|error| failed(kube::Error::HttpError(error)))?;
        let written: PartialObjectMeta<DynamicObject> = self.client.request(request).await.map_err(failed)?;
        Ok((written.metadata.resource_version.unwrap_or_default(), sent))
    }
}

fn fits(bytes: usize, changes: u32, next: &Change) -> bool {
    changes == 0 || (bytes + next.bytes <= PATCH_BYTES && (changes as usize) < PATCH_CHANGES)
}

fn count(changes: &[Change]) -> u32 {
    u32::try_from(changes.len()).unwrap_or(u32::MAX)
}

fn title(shoot: &ShootKey) -> String {
    format!("{}/{}", shoot.namespace, shoot.name)
}

fn now() -> String {
    jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).unwrap_or_default().to_string()
}

fn owner(shoot: &ShootKey) -> OwnerReference {
    OwnerReference {
        api_version: format!("{CORE_GROUP}/v1beta1"),
        block_owner_deletion: Some(true),
        controller: Some(true),
        kind: "Shoot".to_owned(),
        name: shoot.name.clone(),
        uid: shoot.uid.clone(),
    }
}

/// The owner that is a Shoot.
fn shoot_owner(metadata: &ObjectMeta) -> Option<(usize, &OwnerReference)> {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    owners
        .iter()
        .enumerate()
        .find(|(_, owner)| owner.kind == "Shoot" && owner.api_version.starts_with(CORE_GROUP))
}

fn ensure_owner(metadata: &ObjectMeta, shoot: &ShootKey) -> Result<()> {
    match shoot_owner(metadata) {
        Some((_, owner)) if owner.uid != shoot.uid => {
            Err(Error::OtherShoot { name: title(shoot), owner: owner.uid.clone() })
        }
        _ => Ok(()),
    }
}

/// Operations that bring owner, finalizer and time to what they should be; the time alone is no reason to write.
///
/// The finalizer is there while the Shoot moves, as in Gardener: then the ShootState is the last copy of what it holds.
fn metadata_operations(
    metadata: &ObjectMeta,
    shoot: &ShootKey,
    mode: Mode,
    is_written: bool,
) -> Vec<Operation> {
    let mut operations = Vec::new();
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    match shoot_owner(metadata) {
        Some((_, present)) if *present == owner(shoot) => {}
        Some((at, _)) => {
            operations.extend(Operation::replace(&format!("/metadata/ownerReferences/{at}"), &owner(shoot)))
        }
        None => append(&mut operations, "/metadata/ownerReferences", owners.is_empty(), &owner(shoot)),
    }
    let finalizers = metadata.finalizers.as_deref().unwrap_or_default();
    let present = finalizers.iter().position(|finalizer| finalizer == FINALIZER_SHOOT_STATE);
    match (present, mode) {
        // API servers accept no new finalizer on an object that is being deleted.
        (None, Mode::Upsert) if metadata.deletion_timestamp.is_none() => {
            append(&mut operations, "/metadata/finalizers", finalizers.is_empty(), FINALIZER_SHOOT_STATE);
        }
        (Some(at), Mode::Overwrite) => {
            operations.push(Operation::Remove { path: format!("/metadata/finalizers/{at}") })
        }
        _ => {}
    }
    if is_written {
        if metadata.annotations.is_none() {
            operations.extend(Operation::add("/metadata/annotations", &BTreeMap::<String, String>::new()));
        }
        let path = format!("/metadata/annotations/{}", TIMESTAMP.replace('/', "~1"));
        operations.extend(Operation::add(&path, &now()));
    }
    operations
}

/// Adds an element to a list, which is missing where it `is_empty`.
fn append(operations: &mut Vec<Operation>, list: &str, is_empty: bool, element: &(impl Serialize + ?Sized)) {
    match is_empty {
        true => operations.extend(Operation::add(list, &[element])),
        false => operations.extend(Operation::add(&format!("{list}/-"), element)),
    }
}
