//! Members behind one Gateway of Istio: a VirtualService for each member tells connections apart by the name that they ask for (SNI), and
//! a DestinationRule lets them last for as long as peers and clients need them.
//!
//! Istio writes no address into a Gateway, and does not say whether it obeys a VirtualService. The address is that of the Service of the
//! Gateway's Pods.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use kube::{
    Client,
    core::{DynamicObject, ObjectMeta},
    discovery::ApiResource,
};
use serde_json::{Value, json};

use super::{
    route::{GatewayName, Route},
    shared_gateway::{SharedGateway, find, load_balancer},
};
use crate::migration::{error::Result, seed::read::list};

const GROUP: &str = "networking.istio.io";
const VIRTUAL_SERVICE: &str = "VirtualService";
const DESTINATION_RULE: &str = "DestinationRule";

/// Reads the Gateway in the most stable version that is served, and the Service of type LoadBalancer in its namespace that selects the
/// Pods which the Gateway selects.
///
/// # Errors
/// [`Error::Read`](crate::migration::error::Error::Read).
pub async fn observe(client: &Client, gateway: &GatewayName) -> Result<SharedGateway> {
    // Made in this order: until there is a rule, Istio may add TLS of its own to that of members.
    let (found, kinds) = match find(client, GROUP, &[DESTINATION_RULE, VIRTUAL_SERVICE], gateway).await? {
        Ok(found) => found,
        Err(missing) => return Ok(missing),
    };
    let services = list::<Service>(client, &gateway.namespace, "").await?;
    let Some(service) = services.iter().find(|service| leads_to(service, &found)) else {
        let what = "Service of type LoadBalancer that selects the Pods of";
        let missing =
            SharedGateway::missing(format!("namespace {} has no {what} {gateway}", gateway.namespace));
        return Ok(SharedGateway { kinds, ..missing });
    };
    Ok(SharedGateway { address: load_balancer(service), missing: None, kinds })
}

/// Whether a Service is a load balancer and selects no other Pods than a Gateway does.
fn leads_to(service: &Service, gateway: &DynamicObject) -> bool {
    let Some(spec) = &service.spec else { return false };
    let selected = spec.selector.clone().unwrap_or_default();
    let wanted = gateway.data.pointer("/spec/selector").and_then(Value::as_object);
    let wanted: BTreeMap<&str, &str> = wanted
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
        .collect();
    spec.type_.as_deref() == Some("LoadBalancer")
        && !wanted.is_empty()
        && wanted.iter().all(|(key, value)| selected.get(*key).map(String::as_str) == Some(value))
}

/// A VirtualService with all routes to a member, and a DestinationRule for its Service.
#[must_use]
pub fn render(
    gateway: &GatewayName,
    kinds: &[ApiResource],
    metadata: &ObjectMeta,
    routes: &[Route<'_>],
) -> Vec<DynamicObject> {
    let render = |kind: &ApiResource| {
        let mut object = DynamicObject::new(metadata.name.as_deref().unwrap_or_default(), kind);
        object.metadata.namespace.clone_from(&metadata.namespace);
        object.metadata.labels.clone_from(&metadata.labels);
        let spec = match kind.kind.as_str() {
            VIRTUAL_SERVICE => virtual_service(gateway, routes),
            _ => destination_rule(routes),
        };
        object.data = json!({"spec": spec});
        object
    };
    kinds.iter().map(render).collect()
}

fn virtual_service(gateway: &GatewayName, routes: &[Route<'_>]) -> Value {
    let tls = |route: &Route<'_>| {
        json!({
            "match": [{"port": route.gateway_port, "sniHosts": [route.host]}],
            "route": [{"destination": {"host": route.service, "port": {"number": route.port}}}],
        })
    };
    json!({
        "exportTo": ["*"],
        "gateways": [format!("{}/{}", gateway.namespace, gateway.name)],
        "hosts": [routes.first().map(|route| route.host)],
        "tls": routes.iter().map(tls).collect::<Vec<_>>(),
    })
}

/// A year: some versions of Istio refuse a limit of zero, which would be none.
const IDLE_TIMEOUT: &str = "8760h";

/// Members have TLS of their own. By default Istio ends a connection that was idle for an hour, as watches of clients may be.
fn destination_rule(routes: &[Route<'_>]) -> Value {
    json!({
        "exportTo": ["*"],
        "host": routes.first().map(|route| route.service),
        "trafficPolicy": {
            "connectionPool": {"tcp": {"idleTimeout": IDLE_TIMEOUT}},
            "tls": {"mode": "DISABLE"},
        },
    })
}

#[cfg(test)]
mod tests {
    use kube::core::GroupVersionKind;

    use super::*;

    fn kind(kind: &str) -> ApiResource {
        ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", kind))
    }

    #[test]
    fn each_member_has_a_virtual_service_and_a_destination_rule() {
        let gateway = "edge/members".parse().expect("a name");
        let metadata = ObjectMeta { name: Some("etcd-main-1-7".to_owned()), ..ObjectMeta::default() };
        let route = |suffix, gateway_port, port| Route {
            suffix,
            host: "m.example.com",
            service: "etcd-main-1-7",
            gateway_port,
            port,
        };
        let routes = [route("peer", 2480, 2380), route("client", 2379, 2379)];
        let kinds = [kind(VIRTUAL_SERVICE), kind(DESTINATION_RULE)];
        let objects = render(&gateway, &kinds, &metadata, &routes);
        let spec = &objects[0].data["spec"];
        assert_eq!(
            (&spec["gateways"], &spec["hosts"]),
            (&json!(["edge/members"]), &json!(["m.example.com"]))
        );
        assert_eq!(spec["tls"][0]["match"], json!([{"port": 2480, "sniHosts": ["m.example.com"]}]));
        let destination = json!({"host": "etcd-main-1-7", "port": {"number": 2380}});
        assert_eq!(spec["tls"][0]["route"], json!([{"destination": destination}]));
        assert_eq!(spec["tls"][1]["match"][0]["port"], 2379);
        assert_eq!(objects[1].data["spec"]["host"], "etcd-main-1-7");
        assert_eq!(objects[1].data["spec"]["trafficPolicy"]["tls"]["mode"], "DISABLE");
    }

    #[test]
    fn service_of_a_gateway_is_the_load_balancer_that_selects_its_pods() {
        let mut gateway = DynamicObject::new("members", &kind("Gateway"));
        gateway.data = json!({"spec": {"selector": {"istio": "ingress"}}});
        let service = |kind: &str, selector: Value| -> Service {
            serde_json::from_value(json!({"spec": {"type": kind, "selector": selector}})).expect("a Service")
        };
        let pods = json!({"app": "gateway", "istio": "ingress"});
        assert!(leads_to(&service("LoadBalancer", pods.clone()), &gateway));
        assert!(!leads_to(&service("ClusterIP", pods.clone()), &gateway));
        assert!(!leads_to(&service("LoadBalancer", json!({"istio": "egress"})), &gateway));
        gateway.data = json!({"spec": {}});
        assert!(!leads_to(&service("LoadBalancer", pods), &gateway));
    }
}
