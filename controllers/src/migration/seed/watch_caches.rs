//! Watch caches of the kube-apiservers of a Shoot. Those of kinds that are built in are filled before a kube-apiserver is ready. Those of custom
//! resources begin with the first request for them, so each kube-apiserver is asked for one object of each.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, TryStreamExt, stream};
use http::StatusCode;
use k8s_openapi::{
    api::core::v1::{Pod, Service},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::{Api, Client, ResourceExt, api::ListParams, client::Body, discovery};

use super::{read::list, shoot_api, workloads::ControlPlane};
use crate::{
    errors::causes,
    migration::{
        error::{Error, Result},
        names::API_SERVER,
    },
};

/// Port of the Service of the API servers.
const PORT: i32 = 443;
/// Requests to one kube-apiserver at a time.
const AT_ONCE: usize = 8;

/// Starts what is missing. Why not all of them were started; `None` where all kube-apiservers have them.
pub async fn start(seed: &Client, namespace: &str, plane: &ControlPlane) -> Option<String> {
    start_all(seed, namespace, plane).await.unwrap_or_else(|error| Some(causes(&error)))
}

async fn start_all(seed: &Client, namespace: &str, plane: &ControlPlane) -> Result<Option<String>> {
    let services = list::<Service>(seed, namespace, "").await?;
    let service = services.iter().find(|service| service.name_any() == API_SERVER);
    let service = service.ok_or_else(|| Error::Missing(format!("Service {API_SERVER}")))?;
    let paths = custom_kinds(&shoot_api::client(seed, namespace).await?).await?;
    let pods: Vec<&Pod> = plane.ready_api_servers().collect();
    if pods.is_empty() {
        return Ok(Some("no kube-apiserver is ready".to_owned()));
    }
    for pod in pods {
        let name = pod.name_any();
        let Some(server) = server(service, pod) else {
            return Ok(Some(format!("Pod {name} has no address")));
        };
        let api = shoot_api::client_at(seed, namespace, &server).await?;
        let all = stream::iter(paths.clone()).map(|path| begin(api.clone(), path)).buffer_unordered(AT_ONCE);
        let problems: Vec<_> = all.try_filter_map(async |problem| Ok(problem)).try_collect().await?;
        if let Some(problem) = problems.first() {
            return Ok(Some(format!("{name}: {problem}")));
        }
    }
    Ok(None)
}

/// Where a Pod serves the API.
fn server(service: &Service, pod: &Pod) -> Option<String> {
    let ports = service.spec.as_ref()?.ports.as_ref()?;
    let port = ports.iter().find(|port| port.port == PORT)?;
    let number = match &port.target_port {
        None => port.port,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(name)) => {
            let containers = &pod.spec.as_ref()?.containers;
            let mut ports = containers.iter().flat_map(|one| one.ports.iter().flatten());
            ports.find(|port| port.name.as_ref() == Some(name))?.container_port
        }
    };
    let ip = pod.status.as_ref()?.pod_ip.as_deref()?;
    Some(if ip.contains(':') { format!("https://[{ip}]:{number}") } else { format!("https://{ip}:{number}") })
}

/// The path of each CustomResourceDefinition, in a version that is served.
async fn custom_kinds(shoot: &Client) -> Result<Vec<String>> {
    let what = "CustomResourceDefinitions of the Shoot";
    let all = Api::<CustomResourceDefinition>::all(shoot.clone());
    let names = all.list_metadata(&ListParams::default()).await.map_err(Error::read(what))?;
    let mut by_group = BTreeMap::<String, BTreeSet<String>>::new();
    for name in names.items.iter().map(ResourceExt::name_any) {
        if let Some((plural, group)) = name.split_once('.') {
            by_group.entry(group.to_owned()).or_default().insert(plural.to_owned());
        }
    }
    let mut paths = Vec::new();
    for (group, plurals) in by_group {
        let served = match discovery::group(shoot, &group).await {
            // None of its definitions is served yet.
            Err(kube::Error::Discovery(_)) => continue,
            served => served.map_err(Error::read(format!("group {group} of the Shoot")))?,
        };
        let found = served.resources_by_stability().into_iter().map(|(kind, _)| kind);
        let found = found.filter(|kind| plurals.contains(&kind.plural));
        paths.extend(found.map(|kind| format!("/apis/{}/{}?limit=1", kind.api_version, kind.plural)));
    }
    Ok(paths)
}

/// Asks for one object of a kind; gives what is wrong. Any other answer than that the server is busy comes from behind the watch cache: an
/// object that cannot be converted is no reason to wait.
async fn begin(api: Client, path: String) -> Result<Option<String>> {
    let request = http::Request::get(&path).body(Body::empty());
    let request = request.map_err(|error| Error::ShootClient(error.to_string()))?;
    let answer = api.send(request).await.map_err(Error::read(path.as_str()))?;
    let status = answer.status();
    let is_busy = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    Ok(is_busy.then(|| format!("{path}: {status}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_serves_at_the_port_to_which_the_service_leads() {
        let pod = |ip: &str| -> Pod {
            let ports = json!([{"name": "https", "containerPort": 6443}]);
            serde_json::from_value(json!({
                "spec": {"containers": [{"name": "kube-apiserver", "ports": ports}]}, "status": {"podIP": ip},
            }))
            .expect("a Pod")
        };
        let service = |target: serde_json::Value| -> Service {
            let ports = json!([{"port": 8132, "targetPort": 1}, {"port": 443, "targetPort": target}]);
            serde_json::from_value(json!({"spec": {"ports": ports}})).expect("a Service")
        };
        for (target, ip, url) in [
            (json!(443), "10.1.2.3", "https://10.1.2.3:443"),
            (json!("https"), "10.1.2.3", "https://10.1.2.3:6443"),
            (json!(null), "fd00::1", "https://[fd00::1]:443"),
        ] {
            assert_eq!(server(&service(target), &pod(ip)).as_deref(), Some(url));
        }
        assert_eq!(server(&service(json!("other")), &pod("10.1.2.3")), None);
    }
}
