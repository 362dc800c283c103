//! Members behind one Gateway of the Gateway API: TLSRoutes tell connections apart by the name that they ask for (SNI), and the Gateway
//! passes TLS through. So members of all Etcds of a seed share one load balancer.

use kube::{
    Client, ResourceExt,
    core::{DynamicObject, ObjectMeta},
    discovery::ApiResource,
};
use serde::Deserialize;
use serde_json::json;

use super::{
    route::{GatewayName, Route},
    shared_gateway::{SharedGateway, find},
};
use crate::migration::error::Result;

const GROUP: &str = "gateway.networking.k8s.io";
const GATEWAY: &str = "Gateway";
const ROUTE: &str = "TLSRoute";

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GatewayStatus {
    addresses: Vec<Address>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Address {
    value: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RouteStatus {
    parents: Vec<Parent>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Parent {
    parent_ref: ParentRef,
    conditions: Vec<Condition>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ParentRef {
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    message: String,
    observed_generation: Option<i64>,
}

/// Reads the Gateway, in the most stable version that is served.
///
/// # Errors
/// [`Error::Read`](crate::migration::error::Error::Read).
pub async fn observe(client: &Client, gateway: &GatewayName) -> Result<SharedGateway> {
    let (found, kinds) = match find(client, GROUP, &[ROUTE], gateway).await? {
        Ok(found) => found,
        Err(missing) => return Ok(missing),
    };
    let status: GatewayStatus = part(&found, "status");
    let address = status.addresses.into_iter().map(|address| address.value).find(|one| !one.is_empty());
    Ok(SharedGateway { address, missing: None, kinds })
}

/// A TLSRoute for each route to a member.
#[must_use]
pub fn render(
    gateway: &GatewayName,
    kinds: &[ApiResource],
    metadata: &ObjectMeta,
    routes: &[Route<'_>],
) -> Vec<DynamicObject> {
    let GatewayName { namespace, name } = gateway;
    let render = |kind: &ApiResource, route: &Route<'_>| {
        let own_name = format!("{}-{}", metadata.name.as_deref().unwrap_or_default(), route.suffix);
        let mut object = DynamicObject::new(&own_name, kind);
        object.metadata.namespace.clone_from(&metadata.namespace);
        object.metadata.labels.clone_from(&metadata.labels);
        object.data = json!({"spec": {
            "parentRefs": [{"group": GROUP, "kind": GATEWAY, "namespace": namespace, "name": name, "port": route.gateway_port}],
            "hostnames": [route.host],
            "rules": [{"backendRefs": [{"name": route.service, "port": route.port}]}],
        }});
        object
    };
    kinds.iter().flat_map(|kind| routes.iter().map(move |route| render(kind, route))).collect()
}

/// Why connections of a route do not go to its Service yet; `None` where the Gateway says that they do.
#[must_use]
pub fn pending(gateway: &GatewayName, route: &DynamicObject) -> Option<String> {
    let (name, status) = (route.name_any(), part::<RouteStatus>(route, "status"));
    let parents = status.parents.iter().filter(|parent| parent.parent_ref.name == gateway.name);
    let says = |parent: &Parent, kind: &str| {
        let is_current = |condition: &&Condition| {
            condition.kind == kind && condition.observed_generation.unwrap_or_default() >= generation(route)
        };
        let condition = parent.conditions.iter().find(is_current);
        match condition {
            Some(condition) if condition.status == "True" => Ok(()),
            Some(condition) => Err(format!("{ROUTE} {name} is not {kind}: {}", condition.message)),
            None => Err(format!("{gateway} has not said whether {ROUTE} {name} is {kind}")),
        }
    };
    let said = parents.map(|parent| says(parent, "Accepted").and_then(|()| says(parent, "ResolvedRefs")));
    let nobody = || Some(format!("{gateway} has not said what it thinks of {ROUTE} {name}"));
    said.min_by_key(std::result::Result::is_err).map_or_else(nobody, std::result::Result::err)
}

fn generation(object: &DynamicObject) -> i64 {
    object.metadata.generation.unwrap_or_default()
}

/// A part of an object; the default where it is missing, or has another form.
fn part<T: Default + for<'de> Deserialize<'de>>(object: &DynamicObject, field: &str) -> T {
    object.data.get(field).and_then(|part| T::deserialize(part).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use kube::core::GroupVersionKind;
    use serde_json::Value;

    use super::*;

    const ROUTE_TO_PEER: Route<'_> =
        Route { suffix: "peer", host: "m.example.com", service: "s", gateway_port: 2480, port: 2380 };

    fn gateway() -> GatewayName {
        "edge/members".parse().expect("a name")
    }

    fn route() -> DynamicObject {
        let metadata = ObjectMeta { name: Some("etcd-main-0-1".to_owned()), ..ObjectMeta::default() };
        let kinds = [ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", ROUTE))];
        render(&gateway(), &kinds, &metadata, &[ROUTE_TO_PEER]).remove(0)
    }

    /// Why a route of generation 2 with these parents in its status is pending.
    fn pending_with(parents: &Value) -> Option<String> {
        let mut route = route();
        route.metadata.generation = Some(2);
        route.data["status"] = json!({"parents": parents});
        pending(&gateway(), &route)
    }

    #[test]
    fn route_leads_from_a_port_of_the_gateway_to_a_port_of_the_service() {
        let route = route();
        assert_eq!(route.name_any(), "etcd-main-0-1-peer");
        let parent =
            json!({"group": GROUP, "kind": "Gateway", "namespace": "edge", "name": "members", "port": 2480});
        assert_eq!(
            route.data["spec"],
            json!({
                "parentRefs": [parent], "hostnames": ["m.example.com"],
                "rules": [{"backendRefs": [{"name": "s", "port": 2380}]}],
            })
        );
    }

    #[test]
    fn route_leads_to_a_member_when_its_gateway_has_said_so_of_this_generation() {
        let condition = |kind: &str, status: &str, generation: i64| json!({"type": kind, "status": status, "message": "why", "observedGeneration": generation});
        let parent = |gateway: &str, conditions: Vec<Value>| json!({"parentRef": {"name": gateway}, "conditions": conditions});
        let good = vec![condition("Accepted", "True", 2), condition("ResolvedRefs", "True", 2)];
        let pending = |parents: Value| pending_with(&parents);
        assert_eq!(pending(json!([parent("members", good.clone())])), None);
        // Another controller of the same Gateway may be behind.
        let late = parent("members", vec![condition("Accepted", "True", 1)]);
        assert_eq!(pending(json!([late.clone(), parent("members", good.clone())])), None);
        assert!(pending(json!([late])).is_some_and(|why| why.contains("has not said whether")));
        let refused = vec![condition("Accepted", "True", 2), condition("ResolvedRefs", "False", 2)];
        let why = "TLSRoute etcd-main-0-1-peer is not ResolvedRefs: why";
        assert_eq!(pending(json!([parent("members", refused)])).as_deref(), Some(why));
        assert!(pending(json!([parent("others", good)])).is_some());
        assert!(pending(json!([])).is_some());
    }
}
