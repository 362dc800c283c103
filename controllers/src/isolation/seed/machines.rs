//! Machines of a zone. Pure.
//!
//! A MachineDeployment is named by the index of its zone in the pool, `<namespace>-<pool>-z<index>`, from 1 on (Gardener).

use std::time::Duration;

use jiff::Timestamp;
use kube::{ResourceExt, core::DynamicObject};
use repot_extension::kinds::{Worker, WorkerPool};
use repot_plan::isolation::capacity::{Pool, Zone};
use serde_json::Value;

/// Label of Machines with the name of their MachineDeployment (Gardener).
const DEPLOYMENT: &str = "name";
/// Label of Machines with the name of their Node (machine-controller-manager).
const NODE: &str = "node";

fn deployment_name(namespace: &str, pool: &WorkerPool, at: usize) -> String {
    format!("{namespace}-{}-z{}", pool.name, at + 1)
}

/// Pools of a Worker, with the machines that are wanted in each zone, and those that run.
pub fn pools(worker: &Worker, namespace: &str, deployments: &[DynamicObject]) -> Vec<Pool> {
    let number = |name: &str, path: &str| {
        let found = deployments.iter().find(|deployment| deployment.name_any() == name);
        let number = found.and_then(|found| found.data.pointer(path)?.as_u64()).unwrap_or_default();
        u32::try_from(number).unwrap_or(u32::MAX)
    };
    let zone = |pool: &WorkerPool, at: usize, code: &String| {
        let name = deployment_name(namespace, pool, at);
        let (wanted, available) = ("/spec/replicas", "/status/availableReplicas");
        Zone { code: code.clone(), wanted: number(&name, wanted), available: number(&name, available) }
    };
    let pool = |pool: &WorkerPool| Pool {
        name: pool.name.clone(),
        maximum: u32::try_from(pool.maximum).unwrap_or_default(),
        zones: pool.zones.iter().enumerate().map(|(at, code)| zone(pool, at, code)).collect(),
    };
    worker.spec.pools.iter().map(pool).collect()
}

/// Machines of the MachineDeployments of a zone.
pub fn of_zone<'a>(
    worker: &Worker,
    namespace: &str,
    code: &str,
    machines: &'a [DynamicObject],
) -> Vec<&'a DynamicObject> {
    let zones = worker.spec.pools.iter().flat_map(|pool| {
        pool.zones.iter().enumerate().map(move |(at, zone)| (deployment_name(namespace, pool, at), zone))
    });
    let names: Vec<String> = zones.filter(|(_, zone)| *zone == code).map(|(name, _)| name).collect();
    let is_one = |machine: &&DynamicObject| {
        machine.labels().get(DEPLOYMENT).is_some_and(|deployment| names.contains(deployment))
    };
    machines.iter().filter(is_one).collect()
}

/// The Node of a Machine, once it has one.
pub fn node_of(machine: &DynamicObject) -> Option<&String> {
    machine.labels().get(NODE).filter(|name| !name.is_empty())
}

/// Label by which machine-controller-manager ends a Machine without waiting for its Pods.
const FORCE: (&str, &str) = ("force-deletion", "True");

/// A patch that sets it.
pub fn force() -> Value {
    serde_json::json!({"metadata": {"labels": {FORCE.0: FORCE.1}}})
}

/// Whether it is set.
pub fn is_forced(machine: &DynamicObject) -> bool {
    machine.labels().get(FORCE.0).map(String::as_str) == Some(FORCE.1)
}

/// Names of Machines that have been ending for longer than this.
pub fn late(machines: &[DynamicObject], limit: Duration, now: Timestamp) -> Vec<String> {
    let is_late = |machine: &&DynamicObject| {
        let since = machine.metadata.deletion_timestamp.as_ref();
        let waited = since.and_then(|since| Duration::try_from(now.duration_since(since.0)).ok());
        waited.is_some_and(|waited| waited > limit)
    };
    machines.iter().filter(is_late).map(ResourceExt::name_any).collect()
}

/// Annotation by which machine-controller-manager chooses which Machines end first where there are too many: those with the smallest number.
/// It gives each the usual number itself. To others that know it, 1 means that somebody has asked for the end of this Machine.
const PRIORITY: &str = "machinepriority.machine.sapcloud.io";
const USUAL: &str = "3";
const LOW: &str = "2";

/// Machines that came to other zones than that of `of_zone` since a time, which API servers know in seconds. Those that end are left out,
/// and those to which somebody else has given a priority.
pub fn added(
    all: &[DynamicObject],
    of_zone: &[DynamicObject],
    since: Option<Timestamp>,
) -> Vec<DynamicObject> {
    let is_in_zone = |machine: &DynamicObject| of_zone.iter().any(|one| one.name_any() == machine.name_any());
    let is_newer = |machine: &DynamicObject| {
        let created = machine.creation_timestamp().map(|created| created.0.as_second());
        created.zip(since).is_some_and(|(created, since)| created >= since.as_second())
    };
    let is_added = |machine: &&DynamicObject| {
        let is_usual = machine.annotations().get(PRIORITY).is_none_or(|priority| priority == USUAL);
        let stays = machine.metadata.deletion_timestamp.is_none();
        stays && is_usual && is_newer(machine) && !is_in_zone(machine)
    };
    all.iter().filter(is_added).cloned().collect()
}

/// A patch that makes a Machine one of the first to end.
pub fn end_first() -> Value {
    serde_json::json!({"metadata": {"annotations": {PRIORITY: LOW}}})
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn worker() -> Worker {
        let pool = |name: &str, zones: &[&str]| {
            json!({
                "name": name, "machineType": "m", "minimum": 1, "maximum": 6, "maxSurge": 1,
                "maxUnavailable": 0, "userDataSecretRef": {"key": "k"}, "zones": zones,
            })
        };
        let pools = [pool("cpu", &["a", "b", "c"]), pool("mem", &["b"])];
        let spec = json!({"type": "local", "region": "r", "secretRef": {}, "pools": pools});
        serde_json::from_value(json!({"metadata": {"name": "w"}, "spec": spec})).expect("a Worker")
    }

    fn object(name: &str, labels: &Value, replicas: u32) -> DynamicObject {
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels}, "spec": {"replicas": replicas},
        }))
        .expect("an object")
    }

    #[test]
    fn machine_is_late_when_it_has_been_ending_for_too_long() {
        let machine = |name: &str, since: Value| -> DynamicObject {
            let metadata = json!({"name": name, "deletionTimestamp": since});
            serde_json::from_value(json!({"metadata": metadata})).expect("a Machine")
        };
        let all = [
            machine("stays", Value::Null),
            machine("late", json!("2026-01-01T09:59:59Z")),
            machine("drained", json!("2026-01-01T10:00:00Z")),
            machine("skewed", json!("2026-01-01T12:00:00Z")),
        ];
        let now: Timestamp = "2026-01-01T11:00:00Z".parse().expect("a time");
        assert_eq!(late(&all, Duration::from_secs(3_600), now), ["late"]);
    }

    #[test]
    fn machines_that_came_in_place_of_others_end_first() {
        let machine = |name: &str, created: &str, annotations: Value| -> DynamicObject {
            let metadata = json!({"name": name, "creationTimestamp": created, "annotations": annotations});
            serde_json::from_value(json!({"metadata": metadata})).expect("a Machine")
        };
        let since = "2026-01-01T10:00:01.9Z".parse::<Timestamp>().ok();
        let all = [
            machine("before", "2026-01-01T09:00:00Z", json!({})),
            machine("new", "2026-01-01T10:00:01Z", json!({})),
            machine("usual", "2026-01-01T10:00:01Z", json!({PRIORITY: "3"})),
            machine("marked", "2026-01-01T10:00:01Z", json!({PRIORITY: "2"})),
            machine("chosen", "2026-01-01T10:00:01Z", json!({PRIORITY: "5"})),
            machine("in-zone", "2026-01-01T10:00:01Z", json!({})),
        ];
        let found = |since| added(&all, &all[5..], since);
        assert_eq!(found(since).iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["new", "usual"]);
        assert!(found(None).is_empty());
        assert_eq!(end_first()["metadata"]["annotations"]["machinepriority.machine.sapcloud.io"], "2");
    }

    #[test]
    fn zone_of_a_machine_is_the_index_in_the_name_of_its_deployment() {
        let worker = worker();
        let deployments = [object("ns-cpu-z2", &json!({}), 2), object("ns-cpu-z3", &json!({}), 1)];
        let pools = pools(&worker, "ns", &deployments);
        let wanted = |pool: &Pool| pool.zones.iter().map(|zone| zone.wanted).collect::<Vec<_>>();
        assert_eq!((wanted(&pools[0]), wanted(&pools[1]), pools[0].maximum), (vec![0, 2, 1], vec![0], 6));
        let machines = [
            object("1", &json!({"name": "ns-cpu-z2", "node": "n1"}), 0),
            object("2", &json!({"name": "ns-cpu-z1"}), 0),
            object("3", &json!({"name": "ns-mem-z1"}), 0),
            object("4", &json!({"name": "ns-cpu-z21"}), 0),
        ];
        let found = of_zone(&worker, "ns", "b", &machines);
        assert_eq!(found.iter().map(|one| one.name_any()).collect::<Vec<_>>(), ["1", "3"]);
        assert_eq!(found.iter().filter_map(|one| node_of(one)).collect::<Vec<_>>(), ["n1"]);
    }
}
