//! Differences, applied as the API server applies them.

use std::collections::BTreeMap;

use bytes::Bytes;
use repot_apimachinery::json::{Node, Raw, patch::Patch};
use serde_json::{Value, json};

use super::*;
use crate::shootstate::{
    machines::MachineDeploymentState,
    model::{ExtensionEntry, ResourceEntry},
};

/// JSON that a parser would spell differently.
const ODD: &str = r#"{"z":1.0,"a":1e400,"\u0041":-0.0,"z":12345678901234567890123}"#;

fn raw(text: impl Into<String>) -> RawJson {
    RawJson::parse(text).expect("JSON")
}

fn secret(name: &str, data: &str) -> GardenerEntry {
    let labels = BTreeMap::from([("persist".to_owned(), "true".to_owned())]);
    GardenerEntry { data: raw(data), labels, name: name.into(), kind: "secret".into() }
}

fn extension(kind: &str, name: &str, state: &str) -> ExtensionEntry {
    let (name, state) = (Some(name.to_owned()), Some(raw(state)));
    ExtensionEntry { kind: kind.into(), name, purpose: None, resources: Vec::new(), state }
}

fn resource(name: &str, data: &str) -> ResourceEntry {
    ResourceEntry { api_version: "v1".into(), data: raw(data), kind: "ConfigMap".into(), name: name.into() }
}

/// A pool that wants `replicas` and has these machines.
fn machine_state(replicas: i32, names: &[&str]) -> Option<GardenerEntry> {
    let machines = names.iter().map(|name| raw(json!({"metadata": {"name": name}}).to_string())).collect();
    let pool = MachineDeploymentState { replicas, machine_sets: Vec::new(), machines };
    let machine_deployments = BTreeMap::from([("pool".to_owned(), pool)]);
    MachineState { machine_deployments }.entry().expect("an entry")
}

fn stored(spec: &str) -> ShootStateObject {
    serde_json::from_str(&format!(r#"{{"metadata":{{}},"spec":{spec}}}"#)).expect("a ShootState")
}

/// The object after all changes, each in a patch of its own.
fn applied(current: &ShootStateObject, changes: &[Change]) -> ShootStateObject {
    let spec = current.spec.as_ref().map(|spec| serde_json::to_string(spec).expect("JSON"));
    let text =
        spec.map_or(r#"{"metadata":{}}"#.to_owned(), |spec| format!(r#"{{"metadata":{{}},"spec":{spec}}}"#));
    let mut node = Node::Raw(Raw::from_valid(Bytes::from(text)).expect("JSON"));
    for change in changes {
        let operations = Bytes::from(serde_json::to_vec(&change.operations).expect("JSON"));
        Patch::parse(&operations).expect("a patch").apply(&mut node, 0).expect("it applies");
    }
    serde_json::from_slice(node.to_raw().bytes()).expect("a ShootState")
}

fn state(object: &ShootStateObject) -> State {
    State::read(object.spec.as_ref().unwrap_or(&Spec::default())).expect("a state")
}

fn machine_names(state: &State) -> Vec<String> {
    let Some(entry) = &state.machines else { return Vec::new() };
    let state = MachineState::read(entry).expect("machines");
    let machines = state.machine_deployments.values().flat_map(|pool| &pool.machines);
    let name = |machine: &RawJson| {
        let machine: Value = machine.decode().expect("JSON");
        machine["metadata"]["name"].as_str().unwrap_or_default().to_owned()
    };
    machines.map(name).collect()
}

#[test]
fn equal_states_give_nothing() {
    let wanted = State {
        secrets: vec![secret("ca", ODD)],
        machines: machine_state(1, &["a"]),
        extensions: vec![extension("Worker", "w", ODD)],
        resources: vec![resource("c", ODD)],
    };
    let object = ShootStateObject { spec: Some(wanted.clone().write()), ..ShootStateObject::default() };
    for mode in [Mode::Upsert, Mode::Overwrite] {
        assert!(difference(&object, &wanted, mode).is_empty());
    }
}

#[test]
fn changed_entry_alone_is_written_and_tested() {
    let object = stored(&format!(
        r#"{{"gardener":[{{"name":"ca","type":"secret","labels":{{"persist":"true"}},"data":{ODD}}},
            {{"name":"ssh","type":"secret","labels":{{"persist":"true"}},"data":{{"old":1}}}}]}}"#
    ));
    let wanted =
        State { secrets: vec![secret("ca", ODD), secret("ssh", r#"{"new":2.0}"#)], ..State::default() };
    let changes = difference(&object, &wanted, Mode::Overwrite);
    let operations = serde_json::to_string(&changes[0].operations).expect("JSON");
    assert_eq!(
        operations,
        r#"[{"op":"test","path":"/spec/gardener/1/name","value":"ssh"},{"op":"test","path":"/spec/gardener/1/data","value":{"old":1}},{"op":"replace","path":"/spec/gardener/1","value":{"data":{"new":2.0},"labels":{"persist":"true"},"name":"ssh","type":"secret"}}]"#
    );
    assert_eq!(changes.len(), 1);
}

#[test]
fn labels_count_as_a_difference() {
    let object = stored(r#"{"gardener":[{"name":"ca","type":"secret","data":{}}]}"#);
    let wanted = State { secrets: vec![secret("ca", "{}")], ..State::default() };
    let after = applied(&object, &difference(&object, &wanted, Mode::Upsert));
    assert_eq!(state(&after), wanted);
}

#[test]
fn large_old_value_is_not_sent() {
    let large = format!(r#"{{"k":"{}"}}"#, "x".repeat(MAX_TESTED));
    let object = ShootStateObject {
        spec: Some(State { secrets: vec![secret("ca", &large)], ..State::default() }.write()),
        ..ShootStateObject::default()
    };
    let wanted = State { secrets: vec![secret("ca", "{}")], ..State::default() };
    let changes = difference(&object, &wanted, Mode::Overwrite);
    assert!(serde_json::to_string(&changes[0].operations).expect("JSON").len() < 1000);
    assert!(changes[0].bytes < MAX_TESTED + 1000);
}

#[test]
fn missing_lists_and_spec_are_added() {
    let wanted = State {
        secrets: vec![secret("ca", ODD)],
        machines: machine_state(1, &["a"]),
        extensions: vec![extension("Worker", "w", ODD)],
        resources: vec![resource("c", ODD)],
    };
    for object in [stored("null"), stored("{}"), stored(r#"{"extensions":[]}"#), stored(r#"{"gardener":[]}"#)]
    {
        let changes = difference(&object, &wanted, Mode::Overwrite);
        assert_eq!((changes.len(), state(&applied(&object, &changes))), (4, wanted.clone()));
    }
}

#[test]
fn entries_of_unknown_types_stay() {
    let object = stored(
        r#"{"gardener":[{"name":"x","type":"of-others","data":1},{"name":"y","type":"secret","data":1}]}"#,
    );
    let wanted = State { secrets: vec![secret("ca", "{}")], ..State::default() };
    let after = state(&applied(&object, &difference(&object, &wanted, Mode::Overwrite)));
    let names: Vec<_> = after.secrets.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["x", "ca"]);
}

#[test]
fn seed_without_secrets_removes_nothing() {
    let full = State {
        secrets: vec![secret("ca", "{}")],
        machines: machine_state(1, &["a"]),
        extensions: vec![extension("Worker", "w", "1")],
        resources: vec![resource("c", "{}")],
    };
    let object = ShootStateObject { spec: Some(full.write()), ..ShootStateObject::default() };
    assert!(difference(&object, &State::default(), Mode::Overwrite).is_empty());
}

#[test]
fn machines_are_not_lost() {
    let old = machine_state(2, &["a", "b"]);
    let after = |wanted: Option<GardenerEntry>, mode| {
        let before = State { machines: old.clone(), ..State::default() }.write();
        let object = ShootStateObject { spec: Some(before), ..ShootStateObject::default() };
        let wanted = State { secrets: vec![secret("ca", "{}")], machines: wanted, ..State::default() };
        machine_names(&state(&applied(&object, &difference(&object, &wanted, mode))))
    };
    for mode in [Mode::Upsert, Mode::Overwrite] {
        assert_eq!(after(None, mode), ["a", "b"]);
        // MachineDeployments want machines, and have none.
        assert_eq!(after(machine_state(2, &[]), mode), ["a", "b"]);
    }
    assert_eq!(after(machine_state(2, &["b", "c"]), Mode::Upsert), ["a", "b", "c"]);
    assert_eq!(after(machine_state(2, &["b", "c"]), Mode::Overwrite), ["b", "c"]);
    assert_eq!(after(machine_state(0, &[]), Mode::Overwrite), [""; 0], "the Shoot hibernates");
}

#[test]
fn damaged_machine_state_is_replaced() {
    let object =
        stored(r#"{"gardener":[{"name":"machine-state","type":"machine-state","data":{"state":"%"}}]}"#);
    let wanted = State { machines: machine_state(1, &["a"]), ..State::default() };
    assert_eq!(machine_names(&state(&applied(&object, &difference(&object, &wanted, Mode::Upsert)))), ["a"]);
}

/// A sequence that always comes out the same.
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// A state of some of a few entries, each with one of a few values, in any order.
    fn state(&mut self) -> State {
        let mut secrets = vec![secret("always", "{}")];
        let (mut extensions, mut resources) = (Vec::new(), Vec::new());
        for at in 0..self.below(6) {
            let value = [ODD, "{}", r#"[1,{"a":2}]"#][usize::try_from(self.below(3)).expect("small")];
            let name = format!("n{}", (at * 5 + self.below(3)) % 8);
            match self.below(3) {
                0 if secrets.iter().all(|entry| entry.name != name) => secrets.push(secret(&name, value)),
                1 if extensions.iter().all(|e: &ExtensionEntry| e.name.as_deref() != Some(&name)) => {
                    extensions.push(extension("Network", &name, value));
                }
                2 if resources.iter().all(|e: &ResourceEntry| e.name != name) => {
                    resources.push(resource(&name, value));
                }
                _ => {}
            }
        }
        let names = ["a", "b", "c"];
        let count = usize::try_from(self.below(4)).expect("small");
        let machines = if self.below(3) == 0 { None } else { machine_state(1, &names[..count]) };
        State { secrets, machines, extensions, resources }
    }
}

fn sorted(mut state: State) -> State {
    state.secrets.sort_by(|one, other| one.key().cmp(&other.key()));
    state.extensions.sort_by(|one, other| one.key().cmp(&other.key()));
    state.resources.sort_by(|one, other| one.key().cmp(&other.key()));
    state
}

fn keys(state: &State) -> BTreeSet<(&'static str, String)> {
    let key = |list, (a, b, c): (&str, &str, &str)| (list, format!("{a}/{b}/{c}"));
    let secrets = state.secrets.iter().map(|entry| key("gardener", entry.key()));
    let extensions = state.extensions.iter().map(|entry| key("extensions", entry.key()));
    let resources = state.resources.iter().map(|entry| key("resources", entry.key()));
    secrets.chain(extensions).chain(resources).collect()
}

#[test]
fn applied_difference_gives_what_is_wanted() {
    let mut sequence = Sequence(7);
    let mut with_changes = 0;
    for _ in 0..500 {
        let (old, wanted) = (sequence.state(), sequence.state());
        let object = ShootStateObject { spec: Some(old.clone().write()), ..ShootStateObject::default() };
        for mode in [Mode::Overwrite, Mode::Upsert] {
            let changes = difference(&object, &wanted, mode);
            with_changes += usize::from(!changes.is_empty());
            let after = applied(&object, &changes);
            assert!(difference(&after, &wanted, mode).is_empty(), "a second pass writes nothing");
            let after = state(&after);
            assert!(machine_names(&after).len() >= machine_names(&wanted).len());
            assert!(after.machines.is_some() || old.machines.is_none(), "a machine state is never lost");
            match mode {
                Mode::Overwrite => {
                    let (mut after, mut wanted) = (sorted(after), sorted(wanted.clone()));
                    (after.machines, wanted.machines) = (None, None);
                    assert_eq!(after, wanted);
                }
                Mode::Upsert => {
                    assert_eq!(keys(&after), &keys(&old) | &keys(&wanted));
                    assert!(wanted.secrets.iter().all(|entry| after.secrets.contains(entry)));
                    assert!(machine_names(&old).iter().all(|name| machine_names(&after).contains(name)));
                }
            }
        }
    }
    assert!(with_changes > 500, "only {with_changes} of 1000");
}
