//! Deployments of a control plane and their Pods: API servers, and all controllers.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::{Client, ResourceExt};
use repot_plan::migration::observed::{KUBE_CONTROLLERS, Workloads};

use super::{
    read::list,
    scale::FORMER_REPLICAS,
    tunnel::{TUNNEL, Tunnel},
};
use crate::{
    etcd::api::FENCE,
    migration::{
        error::Result,
        names::{API_SERVER, ROLE},
    },
};

/// Deployments of a control plane, and all Pods of its namespace.
#[derive(Clone, Debug, Default)]
pub struct ControlPlane {
    deployments: Vec<Deployment>,
    pods: Vec<Pod>,
}

impl ControlPlane {
    /// Reads them; without a namespace there are none.
    ///
    /// # Errors
    /// [`Error::Read`](crate::migration::Error::Read).
    pub async fn read(client: &Client, namespace: &str) -> Result<Self> {
        let labels = format!("{ROLE}=controlplane");
        let (deployments, pods) = futures::try_join!(
            list::<Deployment>(client, namespace, &labels),
            list::<Pod>(client, namespace, ""),
        )?;
        Ok(Self { deployments, pods })
    }

    /// The Deployment of the API servers, if there is one.
    pub fn api_servers(&self) -> impl Iterator<Item = &Deployment> {
        self.deployments.iter().filter(|deployment| deployment.name_any() == API_SERVER)
    }

    /// The Deployment of the servers of the tunnel to the Shoot, if there is one.
    pub fn tunnels(&self) -> impl Iterator<Item = &Deployment> {
        self.deployments.iter().filter(|deployment| is_tunnel(deployment))
    }

    /// By what clients in the Shoot reach them; `None` where there is no tunnel.
    ///
    /// # Errors
    /// What is wrong with the annotation, for people.
    pub fn tunnel(&self) -> Result<Option<Tunnel>, String> {
        Tunnel::of(self.tunnels())
    }

    /// Both of them: kube-apiservers need the tunnel as long as they run.
    pub fn api_servers_and_tunnels(&self) -> impl Iterator<Item = &Deployment> {
        self.api_servers().chain(self.tunnels())
    }

    /// Deployments of everything else.
    pub fn controllers(&self) -> impl Iterator<Item = &Deployment> {
        let is_other = |one: &&Deployment| one.name_any() != API_SERVER && !is_tunnel(one);
        self.deployments.iter().filter(is_other)
    }

    /// The API servers as the plan sees them, with the replicas of the tunnel.
    #[must_use]
    pub fn api(&self) -> Workloads {
        let Workloads { pods, ready, .. } = self.group(self.api_servers());
        Workloads { pods, ready, ..self.group(self.api_servers_and_tunnels()) }
    }

    /// The servers of the tunnel as the plan sees them.
    #[must_use]
    pub fn tunnel_servers(&self) -> Workloads {
        self.group(self.tunnels())
    }

    /// Pods of API servers that are ready.
    pub fn ready_api_servers(&self) -> impl Iterator<Item = &Pod> {
        let selectors: Vec<_> = self.api_servers().filter_map(|one| one.spec.as_ref()).collect();
        let is_api = move |pod: &&Pod| selectors.iter().any(|spec| selects(&spec.selector, pod));
        self.pods.iter().filter(is_api).filter(|pod| is_ready(pod))
    }

    /// Names of Pods of API servers that were created before `time`, and whose containers the kubelet does not start again yet.
    #[must_use]
    pub fn api_held_back(&self, time: Timestamp) -> Vec<String> {
        let selectors: Vec<_> = self.api_servers().filter_map(|one| one.spec.as_ref()).collect();
        let is_api = |pod: &&Pod| selectors.iter().any(|spec| selects(&spec.selector, pod));
        let is_older = |pod: &&Pod| pod.creation_timestamp().is_some_and(|created| created.0 < time);
        let held = self.pods.iter().filter(is_api).filter(is_older).filter(|pod| is_held_back(pod));
        held.map(ResourceExt::name_any).collect()
    }

    /// The controllers as the plan sees them.
    #[must_use]
    pub fn controller_group(&self) -> Workloads {
        self.group(self.controllers())
    }

    /// kube-controller-manager and kube-scheduler as the plan sees them.
    #[must_use]
    pub fn kube_controllers(&self) -> Workloads {
        self.group(self.controllers().filter(|one| is_kube_controller(one)))
    }

    /// The controllers that act on infrastructure, as the plan sees them.
    #[must_use]
    pub fn other_controllers(&self) -> Workloads {
        self.group(self.controllers().filter(|one| !is_kube_controller(one)))
    }

    fn group<'a>(&'a self, deployments: impl Iterator<Item = &'a Deployment>) -> Workloads {
        let mut group = Workloads::default();
        let mut fences: Vec<String> = Vec::new();
        for deployment in deployments {
            let spec = deployment.spec.as_ref();
            let wanted = spec.map_or(0, |spec| spec.replicas.unwrap_or(1).try_into().unwrap_or_default());
            let former = deployment.annotations().get(FORMER_REPLICAS).and_then(|text| text.parse().ok());
            let former = if wanted == 0 { former.unwrap_or_default() } else { wanted };
            group.wanted.insert(deployment.name_any(), wanted);
            group.former.insert(deployment.name_any(), former);
            fences.push(deployment.annotations().get(FENCE).cloned().unwrap_or_default());
            let selector = spec.map(|spec| &spec.selector);
            let pods = self.pods.iter().filter(|pod| selector.is_some_and(|one| selects(one, pod)));
            let (running, ready) = count(pods);
            group.pods += running;
            group.ready += ready;
        }
        fences.dedup();
        group.fence = if fences.len() == 1 { fences.remove(0) } else { String::new() };
        group
    }
}

fn is_tunnel(deployment: &Deployment) -> bool {
    deployment.name_any() != API_SERVER && deployment.annotations().contains_key(TUNNEL)
}

fn is_kube_controller(deployment: &Deployment) -> bool {
    KUBE_CONTROLLERS.contains(&deployment.name_any().as_str())
}

/// Whether a Pod has all labels that are asked for.
fn selects(selector: &LabelSelector, pod: &Pod) -> bool {
    let wanted: BTreeMap<String, String> = selector.match_labels.clone().unwrap_or_default();
    !wanted.is_empty() && wanted.iter().all(|(key, value)| pod.labels().get(key) == Some(value))
}

/// Pods that may run, and those that are ready.
pub(super) fn count<'a>(pods: impl Iterator<Item = &'a Pod>) -> (u32, u32) {
    pods.filter(|pod| may_run(pod))
        .fold((0, 0), |(running, ready), pod| (running + 1, ready + u32::from(is_ready(pod))))
}

/// Containers of a Pod that has ended do not start again.
fn may_run(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}

fn is_held_back(pod: &Pod) -> bool {
    let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    let waiting = containers.into_iter().flatten().filter_map(|one| one.state.as_ref()?.waiting.as_ref());
    waiting.filter_map(|waiting| waiting.reason.as_deref()).any(|reason| reason == "CrashLoopBackOff")
}

/// Whether a Pod is ready, and stays.
#[must_use]
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True");
    ready && pod.metadata.deletion_timestamp.is_none()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(name: &str, replicas: u32, fence: &str) -> Deployment {
        serde_json::from_value(json!({
            "metadata": {"name": name, "annotations": {FENCE: fence}},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": {}},
        }))
        .expect("a Deployment")
    }

    fn pod(app: &str, phase: &str, ready: bool, deleted: bool) -> Pod {
        let deleted = deleted.then_some("2026-01-01T00:00:00Z");
        let status = if ready { "True" } else { "False" };
        serde_json::from_value(json!({
            "metadata": {"labels": {"app": app}, "deletionTimestamp": deleted},
            "status": {"phase": phase, "conditions": [{"type": "Ready", "status": status}]},
        }))
        .expect("a Pod")
    }

    #[test]
    fn pods_count_until_they_are_gone_and_are_ready_while_they_stay() {
        let plane = ControlPlane {
            deployments: vec![deployment(API_SERVER, 2, "f"), deployment("scheduler", 1, "f")],
            pods: vec![
                pod(API_SERVER, "Running", true, false),
                pod(API_SERVER, "Running", true, true),
                pod(API_SERVER, "Failed", false, false),
                pod("scheduler", "Pending", false, false),
                pod("etcd", "Running", true, false),
            ],
        };
        let api = plane.api();
        assert_eq!((api.pods, api.ready, api.wanted.len(), api.fence.as_str()), (2, 1, 1, "f"));
        let controllers = plane.controller_group();
        assert_eq!((controllers.pods, controllers.ready), (1, 0));
        assert_eq!(controllers.wanted.get("scheduler"), Some(&1));
    }

    #[test]
    fn api_servers_older_than_the_etcd_are_held_back_by_the_kubelet() {
        let pod = |name: &str, app: &str, created: &str, reason: &str| -> Pod {
            let state = json!({"waiting": {"reason": reason}});
            let container = json!({
                "name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 1, "state": state,
            });
            serde_json::from_value(json!({
                "metadata": {"name": name, "labels": {"app": app}, "creationTimestamp": created},
                "status": {"containerStatuses": [container]},
            }))
            .expect("a Pod")
        };
        let (old, new) = ("2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z");
        let plane = ControlPlane {
            deployments: vec![deployment(API_SERVER, 4, "f")],
            pods: vec![
                pod("held", API_SERVER, old, "CrashLoopBackOff"),
                pod("starts", API_SERVER, old, "ContainerCreating"),
                pod("young", API_SERVER, new, "CrashLoopBackOff"),
                pod("other", "scheduler", old, "CrashLoopBackOff"),
            ],
        };
        let served = "2026-01-01T00:00:30Z".parse().expect("a time");
        assert_eq!(plane.api_held_back(served), ["held"]);
    }

    #[test]
    fn tunnel_is_scaled_with_the_api_servers_and_is_none_of_them() {
        let mut servers = deployment("a-tunnel", 1, "f");
        servers.annotations_mut().insert(TUNNEL.to_owned(), String::new());
        let pods = ["a-tunnel", API_SERVER].map(|app| pod(app, "Running", true, false));
        let deployments = vec![servers, deployment(API_SERVER, 2, "f"), deployment("scheduler", 1, "f")];
        let plane = ControlPlane { deployments, pods: pods.into() };
        let api = plane.api();
        assert_eq!((api.pods, api.ready, api.wanted.values().sum::<u32>()), (1, 1, 3));
        assert_eq!((plane.tunnel_servers().pods, plane.tunnel_servers().wanted.len()), (1, 1));
        assert_eq!(plane.controller_group().wanted.keys().collect::<Vec<_>>(), ["scheduler"]);
    }

    #[test]
    fn replicas_of_one_that_is_stopped_are_those_before() {
        let mut stopped = deployment("a", 0, "f");
        stopped.annotations_mut().insert(FORMER_REPLICAS.to_owned(), "2".to_owned());
        let plane = ControlPlane { deployments: vec![stopped, deployment("b", 1, "f")], pods: Vec::new() };
        let former = plane.controller_group().former;
        assert_eq!(former, [("a".to_owned(), 2), ("b".to_owned(), 1)].into());
    }

    #[test]
    fn group_has_a_fence_only_where_all_have_it() {
        let mut plane = ControlPlane {
            deployments: vec![deployment("a", 1, "f"), deployment("b", 1, "g")],
            pods: Vec::new(),
        };
        assert_eq!(plane.controller_group().fence, "");
        plane.deployments[1] = deployment("b", 1, "f");
        assert_eq!(plane.controller_group().fence, "f");
    }
}
