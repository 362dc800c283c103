//! Members behind one Gateway of the Gateway API: TLSRoutes tell connections apart by the name that they ask for (SNI), and the Gateway
//! passes TLS through. So members of all Etcds of a seed share one load balancer.

use std::str::FromStr;

use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PostParams},
    core::{DynamicObject, GroupVersionKind, ObjectMeta},
    discovery::{self, ApiResource},
};
use serde::Deserialize;
use serde_json::json;

use crate::migration::{
    error::{Error, Result},
    names::MANAGER,
    seed::delete_all,
};

const GROUP: &str = "gateway.networking.k8s.io";
const GATEWAY: &str = "Gateway";
const ROUTE: &str = "TLSRoute";

/// Name of a Gateway, with its namespace. Its listeners have protocol TLS in mode Passthrough, at a port for the peers of each member of
/// an etcd and at one for clients, and allow routes from the namespaces of control planes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayName {
    namespace: String,
    name: String,
}

impl FromStr for GatewayName {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err(format!("{text:?} is not <namespace>/<name> of a Gateway")),
        }
    }
}

/// A route that is wanted: connections to a port of the Gateway that ask for a host go to a port of a Service.
#[derive(Clone, Copy, Debug)]
pub struct Route<'a> {
    /// What the name of the object ends with.
    pub suffix: &'a str,
    /// The host that connections ask for.
    pub host: &'a str,
    /// Name of the Service.
    pub service: &'a str,
    /// Port of the Gateway.
    pub gateway_port: u16,
    /// Port of the Service.
    pub port: u16,
}

/// The Gateway and the routes of a namespace, as they were observed.
#[derive(Clone, Debug)]
pub struct Routes {
    gateway: GatewayName,
    /// The address of the Gateway, or its host name; `None` while it has none.
    pub address: Option<String>,
    /// Why there can be no routes yet: there is no such Gateway, or no kind of routes.
    missing: Option<String>,
    kind: ApiResource,
    all: Vec<DynamicObject>,
}

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

impl Routes {
    /// Reads the Gateway, and the routes of a namespace with this label, in the most stable version of TLSRoute that is served. A Gateway
    /// that is not there is observed as such.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub async fn read(client: &Client, namespace: &str, label: &str, gateway: &GatewayName) -> Result<Self> {
        let served = match discovery::group(client, GROUP).await {
            Ok(group) => group.resources_by_stability().into_iter().map(|(resource, _)| resource).collect(),
            Err(kube::Error::Discovery(_)) => Vec::new(),
            Err(error) => return Err(Error::read("the Gateway API")(error)),
        };
        let kind_of = |kind: &str| served.iter().find(|resource| resource.kind == kind).cloned();
        let (Some(gateways), Some(kind)) = (kind_of(GATEWAY), kind_of(ROUTE)) else {
            let why = format!("kinds {GATEWAY} and {ROUTE} of group {GROUP} are not served");
            return Ok(Self::without(gateway, why));
        };
        let all = Api::<DynamicObject>::namespaced_with(client.clone(), &gateway.namespace, &gateways);
        let found = all.get_opt(&gateway.name).await.map_err(Error::read(gateway.to_string()))?;
        let missing = found.is_none().then(|| format!("there is no {gateway}"));
        let status: GatewayStatus = found.map(|found| part(&found, "status")).unwrap_or_default();
        let address = status.addresses.into_iter().map(|address| address.value).find(|one| !one.is_empty());
        let routes = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &kind);
        let all = routes.list(&ListParams::default().labels(label)).await;
        let all = all.map_err(Error::read(format!("TLSRoutes of {namespace}")))?.items;
        Ok(Self { gateway: gateway.clone(), address, missing, kind, all })
    }

    fn without(gateway: &GatewayName, why: String) -> Self {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", ROUTE));
        Self { gateway: gateway.clone(), address: None, missing: Some(why), kind, all: Vec::new() }
    }

    /// Those of the objects that `keep` names.
    #[must_use]
    pub fn only(&self, keep: impl Fn(&DynamicObject) -> bool) -> Self {
        let all = self.all.iter().filter(|route| keep(route)).cloned().collect();
        Self { all, ..self.clone() }
    }

    /// Names of all objects.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.all.iter().map(|route| format!("{ROUTE} {}", route.name_any()))
    }

    /// Why connections of a route do not go to its Service yet; `None` where the Gateway says that they do.
    #[must_use]
    pub fn pending(&self, metadata: &ObjectMeta, route: Route<'_>) -> Option<String> {
        if let Some(why) = &self.missing {
            return Some(why.clone());
        }
        let name = object_name(metadata, route);
        let Some(found) = self.all.iter().find(|one| one.name_any() == name) else {
            return Some(format!("there is no {ROUTE} {name}"));
        };
        let status: RouteStatus = part(found, "status");
        let parents = status.parents.iter().filter(|parent| parent.parent_ref.name == self.gateway.name);
        let says = |parent: &Parent, kind: &str| {
            let is_current = |condition: &&Condition| {
                condition.kind == kind
                    && condition.observed_generation.unwrap_or_default() >= generation(found)
            };
            let condition = parent.conditions.iter().find(is_current);
            match condition {
                Some(condition) if condition.status == "True" => Ok(()),
                Some(condition) => Err(format!("{ROUTE} {name} is not {kind}: {}", condition.message)),
                None => Err(format!("{} has not said whether {ROUTE} {name} is {kind}", self.gateway)),
            }
        };
        let said = parents.map(|parent| says(parent, "Accepted").and_then(|()| says(parent, "ResolvedRefs")));
        let nobody = || Some(format!("{} has not said what it thinks of {ROUTE} {name}", self.gateway));
        said.min_by_key(std::result::Result::is_err).map_or_else(nobody, std::result::Result::err)
    }

    /// Makes a route that is missing.
    ///
    /// # Errors
    /// [`Error::Write`]; [`Error::Missing`] where there can be no routes yet.
    pub async fn ensure(&self, client: &Client, metadata: &ObjectMeta, route: Route<'_>) -> Result<()> {
        if let Some(why) = &self.missing {
            return Err(Error::Missing(why.clone()));
        }
        let name = object_name(metadata, route);
        if self.all.iter().any(|one| one.name_any() == name) {
            return Ok(());
        }
        let namespace = metadata.namespace.clone().unwrap_or_default();
        let routes = Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &self.kind);
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let made = routes.create(&params, &self.render(metadata, route)).await;
        made.map(drop).map_err(Error::write(format!("create {ROUTE} {name}")))
    }

    fn render(&self, metadata: &ObjectMeta, route: Route<'_>) -> DynamicObject {
        let GatewayName { namespace, name } = &self.gateway;
        let mut object = DynamicObject::new(&object_name(metadata, route), &self.kind);
        object.metadata.namespace.clone_from(&metadata.namespace);
        object.metadata.labels.clone_from(&metadata.labels);
        object.data = json!({"spec": {
            "parentRefs": [{"group": GROUP, "kind": GATEWAY, "namespace": namespace, "name": name, "port": route.gateway_port}],
            "hostnames": [route.host],
            "rules": [{"backendRefs": [{"name": route.service, "port": route.port}]}],
        }});
        object
    }

    /// Deletes all of them.
    ///
    /// # Errors
    /// [`Error::Write`]; the next pass goes on.
    pub async fn remove(&self, client: &Client, namespace: &str) -> Result<()> {
        let all = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &self.kind);
        delete_all(&all, ROUTE, self.all.iter()).await
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

impl std::fmt::Display for GatewayName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{GATEWAY} {}/{}", self.namespace, self.name)
    }
}

fn object_name(metadata: &ObjectMeta, route: Route<'_>) -> String {
    format!("{}-{}", metadata.name.as_deref().unwrap_or_default(), route.suffix)
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
    use serde_json::Value;

    use super::*;

    const ROUTE_TO_PEER: Route<'_> =
        Route { suffix: "peer", host: "m.example.com", service: "s", gateway_port: 2480, port: 2380 };

    fn metadata() -> ObjectMeta {
        ObjectMeta { name: Some("etcd-main-0-1".to_owned()), ..ObjectMeta::default() }
    }

    fn routes(all: Vec<DynamicObject>) -> Routes {
        let gateway = "edge/members".parse().expect("a name");
        let kind = ApiResource::from_gvk_with_plural(
            &kube::core::GroupVersionKind::gvk(GROUP, "v1", ROUTE),
            "tlsroutes",
        );
        Routes { gateway, address: None, missing: None, kind, all }
    }

    /// A route of generation 2 with these parents in its status.
    fn route(parents: &Value) -> Routes {
        let mut route = routes(Vec::new()).render(&metadata(), ROUTE_TO_PEER);
        route.metadata.generation = Some(2);
        route.data["status"] = json!({"parents": parents});
        routes(vec![route])
    }

    #[test]
    fn name_of_a_gateway_has_a_namespace() {
        assert!("edge/members".parse::<GatewayName>().is_ok());
        for bad in ["members", "/members", "edge/", "a/b/c", ""] {
            assert!(bad.parse::<GatewayName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn route_leads_to_a_member_when_its_gateway_has_said_so_of_this_generation() {
        let condition = |kind: &str, status: &str, generation: i64| json!({"type": kind, "status": status, "message": "why", "observedGeneration": generation});
        let parent = |gateway: &str, conditions: Vec<Value>| json!({"parentRef": {"name": gateway}, "conditions": conditions});
        let good = vec![condition("Accepted", "True", 2), condition("ResolvedRefs", "True", 2)];
        let pending = |parents: Value| route(&parents).pending(&metadata(), ROUTE_TO_PEER);
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
        assert!(routes(Vec::new()).pending(&metadata(), ROUTE_TO_PEER).is_some());
    }
}
