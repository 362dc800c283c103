//! Machine states: what is kept of objects, and what a merge keeps.

use serde_json::{Value, json};

use super::*;

fn raw(value: &Value) -> RawJson {
    RawJson::encode(value).expect("JSON")
}

fn machine(name: &str, owner: Option<&str>, provider_id: &str) -> RawJson {
    let owners =
        owner.map(|name| json!([{"apiVersion": "v1", "kind": "MachineSet", "name": name, "uid": "u"}]));
    raw(&json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": {
            "name": name, "namespace": "n", "uid": "u", "resourceVersion": "1", "generation": 3, "finalizers": ["f"],
            "labels": {"name": "pool"}, "annotations": {"priority": "3"}, "ownerReferences": owners.unwrap_or_default(),
        },
        "spec": {"providerID": provider_id, "class": {"name": "c"}}, "status": {"currentStatus": {"phase": "Running"}},
    }))
}

fn set(name: &str, deployment: &str) -> RawJson {
    let owner = json!([{"apiVersion": "v1", "kind": "MachineDeployment", "name": deployment, "uid": "u"}]);
    raw(&json!({"metadata": {"name": name, "ownerReferences": owner}, "spec": {"replicas": 2}, "status": {}}))
}

fn deployment(name: &str, replicas: i32) -> RawJson {
    raw(&json!({"metadata": {"name": name}, "spec": {"replicas": replicas}}))
}

fn objects(machines: Vec<RawJson>) -> MachineObjects {
    let deployments = vec![deployment("pool", 2), deployment("without-sets", 1)];
    MachineObjects { deployments, sets: vec![set("set", "pool")], machines }
}

fn names(machines: &[RawJson]) -> Vec<String> {
    machines
        .iter()
        .map(|machine| listed(machine).expect("a machine").metadata.name.unwrap_or_default())
        .collect()
}

fn pool(state: &MachineState) -> Vec<String> {
    names(&state.machine_deployments["pool"].machines)
}

#[test]
fn machines_are_kept_without_what_belongs_to_their_api_server() {
    let all = [
        machine("b", Some("set"), "p/b"),
        machine("a", None, "p/a"),
        machine("new", Some("set"), ""),
        machine("other", Some("unknown"), "p/o"),
    ];
    let state = MachineState::of(&objects(all.to_vec())).expect("a state");
    assert_eq!(state.machine_deployments.keys().collect::<Vec<_>>(), ["pool"]);
    // The one without provider id and node is none yet, and one that nobody owns belongs to no pool.
    assert_eq!(pool(&state), ["a", "b"]);
    let kept: Value = state.machine_deployments["pool"].machines[1].decode().expect("JSON");
    let metadata =
        json!({"name": "b", "namespace": "n", "labels": {"name": "pool"}, "annotations": {"priority": "3"}});
    assert_eq!(kept, json!({"metadata": metadata, "spec": {"providerID": "p/b", "class": {"name": "c"}}}));
}

#[test]
fn state_is_in_the_form_of_gardener_and_comes_back() {
    let state = MachineState::of(&objects(vec![machine("a", Some("set"), "p/a")])).expect("a state");
    let entry = state.entry().expect("an entry").expect("machines");
    assert_eq!((entry.name.as_str(), entry.kind.as_str()), ("machine-state", "machine-state"));
    let data: Value = entry.data.decode().expect("JSON");
    let bytes = STANDARD.decode(data["state"].as_str().expect("a string")).expect("base64");
    assert_eq!(bytes[..2], [0x1f, 0x8b], "gzip");
    assert_eq!(MachineState::read(&entry).expect("a state"), state);
    assert_eq!(state.entry().expect("an entry").expect("machines").data, entry.data);
    assert_eq!(MachineState::default().entry().expect("no entry"), None);
}

#[test]
fn other_compression_is_the_same_state() {
    let state = MachineState::of(&objects(vec![machine("a", Some("set"), "p/a")])).expect("a state");
    let entry = state.entry().expect("an entry").expect("machines");
    let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
    encoder.write_all(&serde_json::to_vec(&state).expect("JSON")).expect("gzip");
    let other = raw(&json!({"state": STANDARD.encode(encoder.finish().expect("gzip"))}));
    assert_ne!(other, entry.data);
    assert!(is_same_state(&other, &entry.data));
    assert!(is_same_state(
        &raw(&serde_json::to_value(&state).expect("JSON")),
        &raw(&serde_json::to_value(&state).expect("JSON"))
    ));
    let damaged = raw(&json!({"state": "H4sI"}));
    assert!(!is_same_state(&damaged, &entry.data));
}

#[test]
fn states_before_compression_are_read() {
    let data = raw(
        &json!({"machineDeployments": {"pool": {"replicas": 1, "machines": [{"metadata": {"name": "a"}}]}}}),
    );
    let name = "machine-state".to_owned();
    let entry = GardenerEntry { data, labels: BTreeMap::new(), kind: name.clone(), name };
    assert_eq!(pool(&MachineState::read(&entry).expect("a state")), ["a"]);
}

#[test]
fn merge_keeps_what_the_newer_state_lacks() {
    let old = [machine("a", Some("set"), "p/old"), machine("b", Some("set"), "p/b")];
    let old = MachineState::of(&objects(old.to_vec())).expect("a state");
    let mut new = MachineState::of(&objects(vec![
        machine("a", Some("set"), "p/new"),
        machine("c", Some("set"), "p/c"),
    ]))
    .expect("a state");
    new.merge(old.clone()).expect("a merge");
    assert_eq!(pool(&new), ["a", "b", "c"]);
    assert!(new.machine_deployments["pool"].machines[0].get().contains("p/new"));
    let mut nothing = MachineState::default();
    nothing.merge(old.clone()).expect("a merge");
    assert_eq!(nothing, old);
}

#[test]
fn state_lacks_machines_only_where_some_are_wanted() {
    let of = |replicas, machines| {
        let deployments = vec![deployment("pool", replicas)];
        MachineState::of(&MachineObjects { deployments, sets: vec![set("set", "pool")], machines })
            .expect("a state")
    };
    assert!(of(1, vec![]).lacks_machines());
    assert!(!of(0, vec![]).lacks_machines(), "hibernated");
    assert!(!of(1, vec![machine("a", Some("set"), "p")]).lacks_machines());
}
