//! Extension resources of a control plane: which operation was requested of them, and how far it is.

use jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Preconditions},
    core::{DynamicObject, GroupVersionKind},
    discovery::ApiResource,
};
use repot_api::names::{CONFIRM_DELETION, EXTENSIONS_GROUP, TIMESTAMP, V1ALPHA1};
use repot_extension::{
    RawJson,
    annotations::Requested,
    kinds::{
        BackupEntry, ContainerRuntime, ControlPlane, DNSRecord, Extension, ExtensionObject, Infrastructure,
        Network, OperatingSystemConfig, Worker,
    },
    request::{Progress, Request, has_state},
    status::NamedResourceReference,
};
use repot_plan::migration::observed::{ExtensionOperation, Extensions};
use serde::Serialize;
use serde_json::{Value, json};

use super::{params, read::pages, under};
use crate::{
    errors::is_not_found,
    migration::{
        error::{Error, Result},
        names::{MANAGER, REQUESTED},
    },
};

/// An extension resource, and how far it is with the operation that this migration has requested.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Kind of the resource.
    pub kind: &'static str,
    /// Name of the resource.
    pub name: String,
    /// Purpose by which resources of one name are told apart.
    pub purpose: Option<String>,
    /// The operation that this migration has requested last.
    pub requested: Option<ExtensionOperation>,
    /// How far that is, in words; `None` where it is done.
    pub pending: Option<String>,
    /// Whether `status.state` has a value.
    pub has_state: bool,
    /// Whether the resource is being deleted.
    pub is_deleted: bool,
    has_status: bool,
    version: Option<String>,
    uid: Option<String>,
}

/// All extension resources of a namespace that follow the operation contract, but DNSRecords.
///
/// # Errors
/// [`Error::Read`].
pub async fn read(client: &Client, namespace: &str, migration: &str) -> Result<Vec<Seen>> {
    let (a, b, c, d, e, f, g) = futures::try_join!(
        of_kind::<Infrastructure>(client, namespace, migration),
        of_kind::<ControlPlane>(client, namespace, migration),
        of_kind::<Network>(client, namespace, migration),
        of_kind::<OperatingSystemConfig>(client, namespace, migration),
        of_kind::<ContainerRuntime>(client, namespace, migration),
        of_kind::<Extension>(client, namespace, migration),
        of_kind::<Worker>(client, namespace, migration),
    )?;
    Ok([a, b, c, d, e, f, g].concat())
}

/// The same where it is asked for; none otherwise.
///
/// # Errors
/// [`Error::Read`].
pub async fn read_if(is_asked: bool, client: &Client, namespace: &str, migration: &str) -> Result<Vec<Seen>> {
    if is_asked { read(client, namespace, migration).await } else { Ok(Vec::new()) }
}

async fn of_kind<K: ExtensionObject>(client: &Client, namespace: &str, migration: &str) -> Result<Vec<Seen>> {
    let all = K::api(client.clone(), Some(namespace));
    let what = format!("{}s of {namespace}", K::kind(&()));
    let found = pages(&all, "", &what).await?;
    Ok(found.iter().map(|object| seen(object, kind_of::<K>(), migration)).collect())
}

fn kind_of<K: ExtensionObject>() -> &'static str {
    let kind = K::kind(&());
    KINDS.into_iter().find(|(name, _)| *name == kind).map_or("", |(name, _)| name)
}

/// The kind that has no namespace.
const ENTRY: &str = "BackupEntry";
/// Kinds and their names in paths.
const KINDS: [(&str, &str); 9] = [
    ("Infrastructure", "infrastructures"),
    ("ControlPlane", "controlplanes"),
    ("Network", "networks"),
    ("OperatingSystemConfig", "operatingsystemconfigs"),
    ("ContainerRuntime", "containerruntimes"),
    ("Extension", "extensions"),
    ("Worker", "workers"),
    ("DNSRecord", "dnsrecords"),
    (ENTRY, "backupentries"),
];

/// A DNSRecord in the same form.
#[must_use]
pub fn of_record(record: &DNSRecord, migration: &str) -> Seen {
    seen(record, "DNSRecord", migration)
}

/// A BackupEntry in the same form.
#[must_use]
pub fn of_entry(entry: &BackupEntry, migration: &str) -> Seen {
    seen(entry, ENTRY, migration)
}

fn seen<K: ExtensionObject>(object: &K, kind: &'static str, migration: &str) -> Seen {
    let marker = object.annotations().get(REQUESTED).map(String::as_str).unwrap_or_default();
    let all = [ExtensionOperation::Migrate, ExtensionOperation::Restore];
    let requested = all.into_iter().find(|operation| marker == self::marker(migration, *operation));
    Seen {
        kind,
        name: object.name_any(),
        purpose: object.purpose().map(str::to_owned),
        requested,
        pending: requested.and_then(|operation| pending(object, operation)),
        has_state: has_state(object),
        is_deleted: object.meta().deletion_timestamp.is_some(),
        has_status: object.has_status(),
        version: object.resource_version(),
        uid: object.uid(),
    }
}

/// Which operation a migration has requested.
fn marker(migration: &str, operation: ExtensionOperation) -> String {
    format!("{migration}/{}", requested(operation).value())
}

fn requested(operation: ExtensionOperation) -> Requested {
    match operation {
        ExtensionOperation::Migrate => Requested::Migrate,
        ExtensionOperation::Restore => Requested::Restore,
    }
}

/// What a request waits for; `None` where it is done. The controllers of extensions set no other timestamp.
fn pending<K: ExtensionObject>(object: &K, operation: ExtensionOperation) -> Option<String> {
    let time = object.annotations().get(TIMESTAMP).map(String::as_str).unwrap_or_default();
    let progress = Request::recorded(requested(operation), time).map(|request| request.progress(object));
    match progress {
        Ok(Progress::Done) => None,
        Ok(Progress::Waiting(waiting)) => Some(waiting.to_string()),
        Ok(Progress::Failed { description, .. }) => Some(description),
        Err(error) => Some(error.to_string()),
    }
}

/// These resources as the plan sees them. Where they were not read, nothing was requested of them.
pub fn facts_if<'a>(
    is_asked: bool,
    seen: impl Iterator<Item = &'a Seen>,
    operation: ExtensionOperation,
) -> Extensions {
    match is_asked {
        true => facts(seen, operation),
        false => Extensions { requested: None, pending: vec!["resources that were not read yet".to_owned()] },
    }
}

/// These resources as the plan sees them; where there is none, nothing is left of `operation`.
pub fn facts<'a>(seen: impl Iterator<Item = &'a Seen>, operation: ExtensionOperation) -> Extensions {
    let (mut pending, mut all_asked) = (Vec::new(), true);
    for one in seen {
        let is_asked = one.requested == Some(operation);
        all_asked &= is_asked;
        if let (true, Some(why)) = (is_asked, &one.pending) {
            pending.push(format!("{} {} ({why})", one.kind, one.name));
        }
    }
    Extensions { requested: all_asked.then_some(operation), pending }
}

fn api(client: &Client, namespace: &str, kind: &str) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk(EXTENSIONS_GROUP, V1ALPHA1, kind);
    let plural = KINDS.into_iter().find(|(name, _)| *name == kind).map_or("", |(_, plural)| plural);
    let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
    match kind {
        ENTRY => Api::all_with(client.clone(), &resource),
        _ => Api::namespaced_with(client.clone(), namespace, &resource),
    }
}

/// Requests an operation of each of these resources of which it was not requested yet.
///
/// # Errors
/// [`Error::Write`]; the others are requested in the next pass.
pub async fn request<'a>(
    client: &Client,
    namespace: &str,
    seen: impl Iterator<Item = &'a Seen>,
    operation: ExtensionOperation,
    migration: &str,
) -> Result<()> {
    for one in seen.filter(|one| one.requested != Some(operation)) {
        let request = Request::new(requested(operation), Timestamp::now());
        let mut annotations = json!(request.annotations());
        annotations[REQUESTED] = marker(migration, operation).into();
        let patch = under(one.version.clone(), json!({"metadata": {"annotations": annotations}}));
        let outcome = api(client, namespace, one.kind).patch(&one.name, &params(), &patch).await;
        outcome.map_err(Error::write(format!("request {operation:?} of {} {}", one.kind, one.name)))?;
    }
    Ok(())
}

/// What a resource takes over from its former seed.
#[derive(Clone, Debug)]
pub struct CarriedState {
    /// `status.state`, kept byte for byte.
    pub state: Option<RawJson>,
    /// `status.resources`: objects that the state refers to.
    pub resources: Vec<NamedResourceReference>,
}

/// One operation of a JSON Patch whose value keeps its text.
#[derive(Serialize)]
struct PatchOperation {
    op: &'static str,
    path: &'static str,
    value: RawJson,
}

/// Writes the state of a resource that has none.
///
/// # Errors
/// [`Error::Write`], [`Error::Form`].
pub async fn write_state(client: &Client, namespace: &str, one: &Seen, carried: &CarriedState) -> Result<()> {
    let what = || format!("the state of {} {}", one.kind, one.name);
    let form = |source| Error::Form { what: what(), source };
    let operation = |op, path, value| PatchOperation { op, path, value };
    let mut patch =
        vec![operation("test", "/metadata/resourceVersion", RawJson::encode(&one.version).map_err(form)?)];
    if !one.has_status {
        patch.push(operation("add", "/status", RawJson::encode(&json!({})).map_err(form)?));
    }
    if let Some(state) = &carried.state {
        patch.push(operation("add", "/status/state", state.clone()));
    }
    if !carried.resources.is_empty() {
        let resources = RawJson::encode(&carried.resources).map_err(form)?;
        patch.push(operation("add", "/status/resources", resources));
    }
    let plural = KINDS.into_iter().find(|(name, _)| *name == one.kind).map_or("", |(_, plural)| plural);
    let path =
        format!("/apis/{EXTENSIONS_GROUP}/{V1ALPHA1}/namespaces/{namespace}/{plural}/{}/status", one.name);
    let request = http::Request::patch(format!("{path}?fieldManager={MANAGER}"))
        .header(http::header::CONTENT_TYPE, "application/json-patch+json")
        .body(serde_json::to_vec(&patch).map_err(form)?);
    let request = request.map_err(|error| Error::Missing(format!("a request that can be sent ({error})")))?;
    let outcome = client.request::<Value>(request).await;
    outcome.map(drop).map_err(Error::write(format!("write {}", what())))
}

/// Deletes these resources, with the confirmation that Gardener asks for.
///
/// # Errors
/// [`Error::Write`]; the others are deleted in the next pass.
pub async fn delete<'a>(
    client: &Client,
    namespace: &str,
    seen: impl Iterator<Item = &'a Seen>,
) -> Result<()> {
    for one in seen.filter(|one| !one.is_deleted) {
        let (all, task) = (api(client, namespace, one.kind), format!("delete {} {}", one.kind, one.name));
        let patch = json!({"metadata": {"annotations": {CONFIRM_DELETION: "true"}}});
        let confirmed = all.patch(&one.name, &params(), &under(one.version.clone(), patch)).await;
        let confirmed = confirmed.map_err(Error::write(task.clone()))?;
        let preconditions =
            Some(Preconditions { uid: one.uid.clone(), resource_version: confirmed.resource_version() });
        match all.delete(&one.name, &DeleteParams { preconditions, ..DeleteParams::default() }).await {
            Err(error) if is_not_found(&error) => {}
            outcome => drop(outcome.map_err(Error::write(task))?),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk(name: &str, requested: Option<ExtensionOperation>, pending: Option<&str>) -> Seen {
        Seen {
            kind: "Network",
            name: name.to_owned(),
            purpose: None,
            requested,
            pending: pending.map(str::to_owned),
            has_state: false,
            is_deleted: false,
            has_status: false,
            version: None,
            uid: None,
        }
    }

    #[test]
    fn operation_counts_as_requested_when_it_was_of_all() {
        use ExtensionOperation::{Migrate, Restore};
        let of = |all: &[Seen]| facts(all.iter(), Migrate);
        assert!(of(&[]).have_done(Migrate));
        assert!(of(&[mk("a", Some(Migrate), None)]).have_done(Migrate));
        assert!(!of(&[mk("a", Some(Migrate), None), mk("b", None, None)]).have_done(Migrate));
        assert!(!of(&[mk("a", Some(Restore), None)]).have_done(Migrate));
        let waits = of(&[mk("a", Some(Migrate), Some("NotServed"))]);
        assert_eq!(waits.pending, ["Network a (NotServed)"]);
    }
}
