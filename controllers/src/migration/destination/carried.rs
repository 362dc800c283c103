//! Carried objects as they are made at the destination. Pure.

use jiff::Timestamp;
use repot_api::names::{DRUID_GROUP, EXTENSIONS_GROUP, OPERATION, OPERATION_WAIT_FOR_STATE, TIMESTAMP};
use serde_json::{Value, json};

use super::{
    bindings::{self, BindingError, MEMBER_NAME_PREFIX, SeedFacts, resolve},
    certificates,
};
use crate::{
    migration::{
        error::{Error, Result},
        names::{API_SERVER, MAIN_ETCD},
        seed::{api_record, exposure, scale::FORMER_REPLICAS},
    },
    shootstate::{
        State,
        kinds::{SECRET, SeedKind, find},
        model::{GardenerEntry, ResourceEntry, TYPE_SECRET},
        secrets::content,
    },
};

/// An object to be made, and its kind.
#[derive(Clone, Debug)]
pub struct NewObject {
    /// Kind of the object.
    pub kind: SeedKind,
    /// Name of the object.
    pub name: String,
    /// The object as it is created.
    pub object: Value,
}

/// Where the address of a DNSRecord is.
const VALUES: &str = "/spec/values";
/// Kinds that others refer to come first; Pods are made last, and by Deployments without replicas at that.
const ORDER: [&str; 6] = ["ServiceAccount", "Role", "RoleBinding", "Secret", "ConfigMap", "Service"];

/// All objects that are made before the outage, in the order in which they are made.
///
/// # Errors
/// The first object that cannot be made for this seed.
pub fn objects(state: &State, namespace: &str, facts: &SeedFacts) -> Result<Vec<NewObject>> {
    let secrets = state.secrets.iter().filter(|entry| entry.kind == TYPE_SECRET);
    let mut all = secrets.map(|entry| secret(entry, namespace)).collect::<Result<Vec<_>>>()?;
    let carried = state.resources.iter().map(|entry| carried(entry, state, namespace, facts));
    all.extend(carried.collect::<Result<Vec<_>>>()?);
    let rank = |one: &NewObject| ORDER.iter().position(|kind| *kind == one.kind.kind).unwrap_or(ORDER.len());
    all.sort_by_key(rank);
    Ok(all)
}

/// What keeps carried objects from being made at this seed, in words.
#[must_use]
pub fn unresolved(state: &State, namespace: &str, facts: &SeedFacts) -> Vec<String> {
    let errors = state.resources.iter().filter_map(|entry| carried(entry, state, namespace, facts).err());
    errors.map(|error| error.to_string()).collect()
}

/// The Service of the API servers, which gives them an address; `None` where none is carried.
///
/// # Errors
/// Where it cannot be made for this seed.
pub fn exposure(state: &State, namespace: &str, facts: &SeedFacts) -> Result<Option<NewObject>> {
    let is_it = |entry: &&ResourceEntry| entry.kind == "Service" && entry.name == API_SERVER;
    state.resources.iter().find(is_it).map(|entry| carried(entry, state, namespace, facts)).transpose()
}

/// The main Etcd as it was carried; `None` where none is.
///
/// # Errors
/// [`Error::Form`].
pub fn main_etcd(state: &State) -> Result<Option<crate::etcd::api::Etcd>> {
    let is_it = |entry: &&ResourceEntry| is_main_etcd(entry);
    let form = |source| Error::Form { what: format!("Etcd {MAIN_ETCD} in the ShootState"), source };
    state.resources.iter().find(is_it).map(|entry| entry.data.decode().map_err(form)).transpose()
}

fn is_main_etcd(entry: &ResourceEntry) -> bool {
    entry.kind == "Etcd" && entry.name == MAIN_ETCD
}

fn secret(entry: &GardenerEntry, namespace: &str) -> Result<NewObject> {
    let content = content(entry)?;
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "type": content.kind, "immutable": content.immutable,
        "data": content.data,
        "metadata": {"name": entry.name, "namespace": namespace, "labels": entry.labels},
    });
    Ok(NewObject { kind: SECRET, name: entry.name.clone(), object })
}

fn carried(entry: &ResourceEntry, state: &State, namespace: &str, facts: &SeedFacts) -> Result<NewObject> {
    let title = || format!("{} {} in the ShootState", entry.kind, entry.name);
    let kind = find(&entry.api_version, &entry.kind)
        .ok_or_else(|| Error::Missing(format!("a way to make {}", title())))?;
    let form = |source| Error::Form { what: title(), source };
    let mut object: Value = entry.data.decode().map_err(form)?;
    if entry.kind == "DNSRecord" {
        api_record_is_bound(&object)?;
    }
    resolve(&mut object, facts)?;
    if kind == SECRET {
        certificates::issue(&mut object, state, facts)?;
    }
    if let Some(Some(prefix)) = facts.get(MEMBER_NAME_PREFIX).filter(|_| is_main_etcd(entry)) {
        object["spec"]["memberNamePrefix"] = prefix.as_str().into();
    }
    object["metadata"]["namespace"] = namespace.into();
    stop(&kind, &mut object);
    Ok(NewObject { kind, name: entry.name.clone(), object })
}

/// A record of the API that keeps the address of the source would send all clients into the void.
fn api_record_is_bound(object: &Value) -> Result<(), BindingError> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    if !api_record::is_of_api(text("/spec/name"), text("/spec/recordType")) {
        return Ok(());
    }
    let title = format!("DNSRecord {}", text("/metadata/name"));
    let is_bound = bindings::declared(object, &title)?.keys().any(|pointer| pointer.starts_with(VALUES));
    is_bound.then_some(()).ok_or(BindingError::Undeclared { object: title, pointer: VALUES })
}

/// Nothing runs and no extension works before the outage.
fn stop(kind: &SeedKind, object: &mut Value) {
    match (kind.group, kind.kind) {
        ("apps" | DRUID_GROUP, _) => {
            if let Some(replicas) = object["spec"]["replicas"].as_u64().filter(|replicas| *replicas > 0) {
                object["metadata"]["annotations"][FORMER_REPLICAS] = replicas.to_string().into();
            }
            object["spec"]["replicas"] = 0.into();
            forget_former_move(object);
        }
        (EXTENSIONS_GROUP, _) => {
            let annotations = &mut object["metadata"]["annotations"];
            annotations[OPERATION] = OPERATION_WAIT_FOR_STATE.into();
            annotations[TIMESTAMP] = Timestamp::now().to_string().into();
        }
        _ => {}
    }
}

/// What an earlier migration has written into an Etcd says where its data came from then, and what this one has written into that of the
/// source says where its members are.
fn forget_former_move(object: &mut Value) {
    exposure::forget(object);
    if let Some(backup) = object.pointer_mut("/spec/backup").and_then(Value::as_object_mut) {
        for field in ["standby", "sourceStore", "sourceSnapshots", "waitForFinalSnapshot"] {
            backup.remove(field);
        }
    }
}

#[cfg(test)]
mod tests {
    use repot_extension::RawJson;

    use super::*;

    fn entry(api_version: &str, kind: &str, object: &Value) -> ResourceEntry {
        ResourceEntry {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            name: "x".to_owned(),
            data: RawJson::encode(object).expect("JSON"),
        }
    }

    fn made(api_version: &str, kind: &str, spec: Value) -> Value {
        let object = json!({
            "apiVersion": api_version, "kind": kind, "spec": spec, "metadata": {"name": "x", "namespace": "old"},
        });
        let made = carried(&entry(api_version, kind, &object), &State::default(), "new", &SeedFacts::new());
        made.expect("an object").object
    }

    #[test]
    fn nothing_runs_before_the_outage() {
        let deployment = made("apps/v1", "Deployment", json!({"replicas": 2}));
        assert_eq!(
            (&deployment["spec"]["replicas"], &deployment["metadata"]["namespace"]),
            (&json!(0), &json!("new"))
        );
        assert_eq!(deployment["metadata"]["annotations"][FORMER_REPLICAS], "2");
        let etcd = made("druid.gardener.cloud/v1alpha1", "Etcd", json!({"replicas": 3}));
        assert_eq!(etcd["spec"]["replicas"], 0);
        assert_eq!(etcd["metadata"]["annotations"][FORMER_REPLICAS], "3");
        let backup = json!({"standby": true, "sourceStore": {}, "store": {"container": "b"}});
        let moved = made("druid.gardener.cloud/v1alpha1", "Etcd", json!({"replicas": 3, "backup": backup}));
        assert_eq!(moved["spec"]["backup"], json!({"store": {"container": "b"}}));
        let network = made("extensions.gardener.cloud/v1alpha1", "Network", json!({}));
        assert_eq!(network["metadata"]["annotations"][OPERATION], OPERATION_WAIT_FOR_STATE);
    }

    #[test]
    fn record_of_the_api_needs_a_binding_of_its_address_and_keeps_it() {
        let record = |name: &str, annotations: Value| {
            let object = json!({
                "kind": "DNSRecord", "metadata": {"name": "x", "annotations": annotations},
                "spec": {"name": name, "recordType": "A", "values": ["10.0.0.1"]},
            });
            let facts = SeedFacts::from([("apiServer.address", Some("10.0.0.2".to_owned()))]);
            let entry = entry("extensions.gardener.cloud/v1alpha1", "DNSRecord", &object);
            carried(&entry, &State::default(), "new", &facts)
        };
        let bindings =
            json!({"migration.gardener.cloud/bindings": r#"{"/spec/values/0":"${apiServer.address}"}"#});
        let bound = record("api.a.example.org", bindings.clone()).expect("an object").object;
        assert_eq!(bound["spec"]["values"][0], "10.0.0.2");
        let annotations = &bound["metadata"]["annotations"];
        assert_eq!(annotations[bindings::BINDINGS], bindings[bindings::BINDINGS]);
        let unbound = record("api.a.example.org", json!({})).expect_err("no binding").to_string();
        assert!(unbound.contains("no binding says what /spec/values is"), "{unbound}");
        assert!(record("ingress.a.example.org", json!({})).is_ok());
    }

    #[test]
    fn objects_come_in_the_order_in_which_they_refer_to_each_other() {
        let object = json!({"metadata": {"name": "x"}, "spec": {}});
        let state = State {
            resources: vec![
                entry("apps/v1", "Deployment", &object),
                entry("v1", "Secret", &object),
                entry("rbac.authorization.k8s.io/v1", "RoleBinding", &object),
                entry("v1", "ServiceAccount", &object),
            ],
            ..State::default()
        };
        let all = objects(&state, "n", &SeedFacts::new()).expect("objects");
        let kinds: Vec<_> = all.iter().map(|one| one.kind.kind).collect();
        assert_eq!(kinds, ["ServiceAccount", "RoleBinding", "Secret", "Deployment"]);
    }

    #[test]
    fn kind_that_nobody_knows_is_refused() {
        let unknown = entry("example.com/v1", "Thing", &json!({"metadata": {}}));
        let state = State { resources: vec![unknown], ..State::default() };
        let why = unresolved(&state, "n", &SeedFacts::new());
        assert_eq!(why, ["a way to make Thing x in the ShootState is missing"]);
    }
}
