//! The status of a Pod, from what its containers have come to. No I/O and no clock here.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// What a container has come to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Seen {
    pub state: State,
    /// How it ended before its latest start.
    pub last: Option<End>,
    pub restarts: u32,
    /// How often the container was started.
    pub starts: u32,
    pub ready: bool,
    pub started: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    Waiting { reason: &'static str, message: String },
    Running { since: Timestamp },
    Ended(End),
}

impl Default for State {
    fn default() -> Self {
        Self::Waiting { reason: "ContainerCreating", message: String::new() }
    }
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct End {
    pub code: i32,
    pub message: String,
    pub began: Timestamp,
    pub ended: Timestamp,
}

/// What has been seen of a whole Pod.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    pub containers: BTreeMap<String, Seen>,
    pub host_ip: Ipv4Addr,
    /// Once it has a network.
    pub pod_ip: Option<Ipv4Addr>,
    pub since: Timestamp,
    /// Whether its init containers are done.
    pub initialized: bool,
    /// Whether nothing of it will run any more.
    pub over: bool,
}

/// When each condition came to its present status.
pub(super) type Transitions = BTreeMap<String, (bool, Timestamp)>;

/// Whether a container is one that runs beside the others though it is listed among the init containers.
pub(super) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Renders the status for a strategic merge patch, so that conditions of other writers stay.
pub(super) fn render(pod: &Pod, seen: &Observed, now: Timestamp, transitions: &mut Transitions) -> Value {
    let nothing = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&nothing);
    let phase = phase(spec, seen);
    let ips: Vec<Value> = seen.pod_ip.iter().map(|ip| json!({"ip": ip})).collect();
    let init = spec.init_containers.as_deref().unwrap_or_default();
    json!({
        "phase": phase, "hostIP": seen.host_ip, "hostIPs": [{"ip": seen.host_ip}], "podIP": seen.pod_ip, "podIPs": ips,
        "startTime": time(seen.since),
        "conditions": conditions(pod, spec, phase, seen, now, transitions),
        "initContainerStatuses": init.iter().map(|c| container_status(c, seen)).collect::<Vec<_>>(),
        "containerStatuses": spec.containers.iter().map(|c| container_status(c, seen)).collect::<Vec<_>>(),
    })
}

/// Whether the API has the conditions of a rendered status, as far as it knows them.
pub(super) fn is_written(pod: &Pod, rendered: &Value) -> bool {
    let stored = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let mut ours = rendered["conditions"].as_array().into_iter().flatten();
    ours.all(|our| stored.iter().all(|theirs| our["type"] != theirs.type_ || our["status"] == theirs.status))
}

fn phase(spec: &PodSpec, seen: &Observed) -> &'static str {
    let all: Vec<&Seen> = spec.containers.iter().filter_map(|c| seen.containers.get(&c.name)).collect();
    let failed =
        seen.containers.values().any(|seen| matches!(&seen.state, State::Ended(end) if end.code != 0));
    let succeeded = all.len() == spec.containers.len()
        && all.iter().all(|seen| matches!(&seen.state, State::Ended(end) if end.code == 0));
    match seen.over {
        true if succeeded => "Succeeded",
        // A Pod that ended before all was started has failed, too.
        true => "Failed",
        false if !seen.initialized => "Pending",
        false if all.iter().all(|seen| seen.starts == 0) && !failed => "Pending",
        false => "Running",
    }
}

/// Status, reason and message of each condition.
fn conditions(
    pod: &Pod,
    spec: &PodSpec,
    phase: &str,
    seen: &Observed,
    now: Timestamp,
    transitions: &mut Transitions,
) -> Vec<Value> {
    let done = match phase {
        "Succeeded" => Some("PodCompleted"),
        "Failed" => Some("PodFailed"),
        _ => None,
    };
    let sidecars = spec.init_containers.iter().flatten().filter(|c| is_sidecar(c));
    let unready: Vec<&str> = sidecars
        .chain(&spec.containers)
        .map(|container| container.name.as_str())
        .filter(|name| !seen.containers.get(*name).is_some_and(|seen| seen.ready))
        .collect();
    let containers_ready = unready.is_empty() && done.is_none() && seen.initialized;
    let missing = missing_gates(pod, spec);
    let why_unready =
        (done.unwrap_or("ContainersNotReady"), format!("containers with unready status: {unready:?}"));
    let why_gated = ("ReadinessGatesNotReady", format!("conditions that are not True: {missing:?}"));
    let why = if containers_ready { why_gated } else { why_unready.clone() };
    let scheduled = spec.node_name.is_some();
    let rows = [
        ("PodScheduled", scheduled, ("", String::new())),
        ("PodReadyToStartContainers", seen.pod_ip.is_some() && !seen.over, ("", String::new())),
        ("Initialized", seen.initialized, ("ContainersNotInitialized", String::new())),
        ("ContainersReady", containers_ready, why_unready),
        ("Ready", containers_ready && missing.is_empty(), why),
    ];
    let mut rendered = Vec::new();
    for (kind, holds, (reason, message)) in rows {
        let entry = transitions.entry(kind.to_owned()).or_insert((holds, now));
        if entry.0 != holds {
            *entry = (holds, now);
        }
        let (reason, message) = if holds { ("", String::new()) } else { (reason, message) };
        rendered.push(json!({
            "type": kind, "status": if holds { "True" } else { "False" }, "reason": reason, "message": message,
            "lastTransitionTime": time(entry.1),
        }));
    }
    rendered
}

/// Readiness gates whose conditions nobody has set to True.
fn missing_gates(pod: &Pod, spec: &PodSpec) -> Vec<String> {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let is_true =
        |kind: &str| conditions.into_iter().flatten().any(|c| c.type_ == kind && c.status == "True");
    let gates = spec.readiness_gates.iter().flatten().map(|gate| gate.condition_type.clone());
    gates.filter(|kind| !is_true(kind)).collect()
}

fn container_status(container: &Container, seen: &Observed) -> Value {
    let nothing = Seen::default();
    let one = seen.containers.get(&container.name).unwrap_or(&nothing);
    let id = (one.starts > 0).then(|| format!("testbed://{}-{}", container.name, one.starts));
    json!({
        "name": container.name, "image": container.image, "imageID": container.image, "containerID": id,
        "ready": one.ready, "started": one.started, "restartCount": one.restarts,
        "state": render_state(&one.state),
        "lastState": one.last.as_ref().map_or_else(|| json!({}), render_end),
    })
}

fn render_state(state: &State) -> Value {
    match state {
        State::Waiting { reason, message } => json!({"waiting": {"reason": reason, "message": message}}),
        State::Running { since } => json!({"running": {"startedAt": time(*since)}}),
        State::Ended(end) => render_end(end),
    }
}

fn render_end(end: &End) -> Value {
    let reason = if end.code == 0 { "Completed" } else { "Error" };
    json!({"terminated": {
        "exitCode": end.code, "reason": reason, "message": end.message, "startedAt": time(end.began), "finishedAt": time(end.ended),
    }})
}

/// In whole seconds, as Kubernetes has them.
pub(super) fn time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Pod {
        let pod = json!({"metadata": {"name": "p"}, "spec": {
            "nodeName": "n", "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}], "containers": [{"name": "a"}, {"name": "b"}],
        }});
        serde_json::from_value(pod).expect("a pod")
    }

    fn running(ready: bool) -> Seen {
        let state = State::Running { since: Timestamp::UNIX_EPOCH };
        Seen { state, starts: 1, ready, started: true, ..Seen::default() }
    }

    fn ended(code: i32) -> Seen {
        let (began, ended) = (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
        Seen {
            state: State::Ended(End { code, message: String::new(), began, ended }),
            starts: 1,
            ..Seen::default()
        }
    }

    fn observed(containers: &[(&str, Seen)]) -> Observed {
        Observed {
            containers: containers.iter().map(|(name, seen)| ((*name).to_owned(), seen.clone())).collect(),
            host_ip: Ipv4Addr::LOCALHOST,
            pod_ip: Some(Ipv4Addr::LOCALHOST),
            since: Timestamp::UNIX_EPOCH,
            initialized: true,
            over: false,
        }
    }

    fn rendered(seen: &Observed) -> (String, BTreeMap<String, String>) {
        let status = render(&pod(), seen, Timestamp::UNIX_EPOCH, &mut Transitions::new());
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let conditions = status["conditions"].as_array().expect("a list").iter();
        let conditions = conditions.map(|c| (text(&c["type"]), text(&c["status"]))).collect();
        (text(&status["phase"]), conditions)
    }

    #[test]
    fn pod_is_ready_when_all_containers_and_sidecars_are() {
        for (sidecar, b, expected) in [(true, true, "True"), (false, true, "False"), (true, false, "False")] {
            let seen = observed(&[
                ("i", ended(0)),
                ("s", running(sidecar)),
                ("a", running(true)),
                ("b", running(b)),
            ]);
            let (phase, conditions) = rendered(&seen);
            assert_eq!((phase.as_str(), conditions["Ready"].as_str()), ("Running", expected));
        }
    }

    #[test]
    fn phase_follows_the_containers() {
        let crashed = Seen { state: State::default(), starts: 3, ..Seen::default() };
        let pending = Observed { initialized: false, ..observed(&[("i", running(false))]) };
        let over = |a: i32, b: i32| Observed { over: true, ..observed(&[("a", ended(a)), ("b", ended(b))]) };
        let never_started = Observed { over: true, initialized: false, ..observed(&[("i", ended(1))]) };
        for (seen, expected) in [
            (pending, "Pending"),
            (observed(&[("a", Seen::default()), ("b", Seen::default())]), "Pending"),
            (observed(&[("a", running(true)), ("b", Seen::default())]), "Running"),
            (observed(&[("a", crashed), ("b", ended(0))]), "Running"),
            (over(0, 0), "Succeeded"),
            (over(0, 3), "Failed"),
            (never_started, "Failed"),
        ] {
            assert_eq!(rendered(&seen).0, expected, "{seen:?}");
        }
    }

    #[test]
    fn condition_keeps_the_time_of_its_change() {
        let mut transitions = Transitions::new();
        let mut at = |second: i64, ready: bool| {
            let seen = observed(&[("s", running(ready)), ("a", running(true)), ("b", running(true))]);
            let now = Timestamp::from_second(second).expect("a time");
            let status = render(&pod(), &seen, now, &mut transitions);
            status["conditions"][4]["lastTransitionTime"].as_str().expect("text").to_owned()
        };
        assert_eq!(
            [at(1, false), at(2, false), at(3, true), at(4, true)].map(|t| t[17..19].to_owned()),
            ["01", "01", "03", "03"]
        );
    }

    #[test]
    fn condition_that_somebody_else_changed_is_not_written() {
        let seen = observed(&[("s", running(true)), ("a", running(true)), ("b", running(true))]);
        let status = render(&pod(), &seen, Timestamp::UNIX_EPOCH, &mut Transitions::new());
        let stored = |kind: &str, status: &str| {
            let mut pod = pod();
            let condition = json!({"conditions": [{"type": kind, "status": status}]});
            pod.status = serde_json::from_value(condition).expect("a status");
            pod
        };
        assert!(is_written(&pod(), &status) && is_written(&stored("Ready", "True"), &status));
        assert!(is_written(&stored("of/others", "False"), &status));
        assert!(!is_written(&stored("Ready", "False"), &status));
    }

    #[test]
    fn gates_of_others_hold_readiness_back() {
        let mut pod = pod();
        let seen = observed(&[("s", running(true)), ("a", running(true)), ("b", running(true))]);
        let gates = serde_json::from_value(json!([{"conditionType": "x/y"}])).expect("a gate");
        pod.spec.as_mut().expect("a spec").readiness_gates = gates;
        let ready = |pod: &Pod| {
            let status = render(pod, &seen, Timestamp::UNIX_EPOCH, &mut Transitions::new());
            [3, 4].map(|index| status["conditions"][index]["status"] == "True")
        };
        assert_eq!(ready(&pod), [true, false]);
        pod.status =
            serde_json::from_value(json!({"conditions": [{"type": "x/y", "status": "True"}]})).expect("one");
        assert_eq!(ready(&pod), [true, true]);
    }
}
