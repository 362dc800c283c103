//! The routes to the members of an etcd behind a Gateway, of either kind.

use futures::future::try_join_all;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PostParams},
    core::{DynamicObject, ObjectMeta},
    discovery::ApiResource,
};

use super::{
    gateway_api, istio,
    route::{GatewayName, Route},
    shared_gateway::SharedGateway,
};
use crate::migration::{
    error::{Error, Result},
    names::MANAGER,
    seed::delete_all,
};

/// Of which kind a Gateway is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayKind {
    /// Of the Gateway API, with TLSRoutes.
    GatewayApi,
    /// Of Istio, with VirtualServices and DestinationRules.
    Istio,
}

/// The Gateway and the routes of a namespace, as they were observed.
#[derive(Clone, Debug)]
pub struct Routes {
    kind: GatewayKind,
    name: GatewayName,
    gateway: SharedGateway,
    all: Vec<RouteObject>,
}

/// An object that leads to a member.
#[derive(Clone, Debug)]
struct RouteObject {
    kind: ApiResource,
    object: DynamicObject,
}

impl Routes {
    /// Reads the Gateway, and the routes of a namespace with this label. A Gateway that is not there is observed as such.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub async fn read(
        client: &Client,
        (namespace, label): (&str, &str),
        kind: GatewayKind,
        name: &GatewayName,
    ) -> Result<Self> {
        let gateway = match kind {
            GatewayKind::GatewayApi => gateway_api::observe(client, name).await?,
            GatewayKind::Istio => istio::observe(client, name).await?,
        };
        let list = async |kind: &ApiResource| {
            let objects = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, kind);
            let found = objects.list(&ListParams::default().labels(label)).await;
            let found = found.map_err(Error::read(format!("{}s of {namespace}", kind.kind)))?.items;
            let objects = found.into_iter().map(|object| RouteObject { kind: kind.clone(), object });
            Ok::<_, Error>(objects.collect::<Vec<_>>())
        };
        let all = try_join_all(gateway.kinds.iter().map(list)).await?.into_iter().flatten().collect();
        Ok(Self { kind, name: name.clone(), gateway, all })
    }

    /// Those of the objects that `keep` names.
    #[must_use]
    pub fn only(&self, keep: impl Fn(&DynamicObject) -> bool) -> Self {
        let all = self.all.iter().filter(|route| keep(&route.object)).cloned().collect();
        Self { all, ..self.clone() }
    }

    /// The address of the Gateway, or its host name; `None` while it has none.
    #[must_use]
    pub fn address(&self) -> Option<String> {
        self.gateway.address.clone()
    }

    /// Kinds and names of all objects.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.all.iter().map(|route| format!("{} {}", route.kind.kind, route.object.name_any()))
    }

    fn render(&self, metadata: &ObjectMeta, routes: &[Route<'_>]) -> Vec<RouteObject> {
        let kinds = &self.gateway.kinds;
        let objects = match self.kind {
            GatewayKind::GatewayApi => gateway_api::render(&self.name, kinds, metadata, routes),
            GatewayKind::Istio => istio::render(&self.name, kinds, metadata, routes),
        };
        let with_kind = |object: DynamicObject| {
            let name = object.types.as_ref().map(|types| types.kind.as_str());
            let kind = kinds.iter().find(|kind| Some(kind.kind.as_str()) == name)?.clone();
            Some(RouteObject { kind, object })
        };
        objects.into_iter().filter_map(with_kind).collect()
    }

    fn found(&self, wanted: &RouteObject) -> Option<&DynamicObject> {
        let is_it = |one: &&RouteObject| {
            one.kind.kind == wanted.kind.kind && one.object.name_any() == wanted.object.name_any()
        };
        self.all.iter().find(is_it).map(|route| &route.object)
    }

    /// Why connections to a member do not go to its Service yet; `None` where they do, as far as the Gateway says that.
    #[must_use]
    pub fn pending(&self, metadata: &ObjectMeta, routes: &[Route<'_>]) -> Option<String> {
        if let Some(why) = &self.gateway.missing {
            return Some(why.clone());
        }
        let pending = |wanted: &RouteObject| match (self.found(wanted), self.kind) {
            (None, _) => Some(format!("there is no {} {}", wanted.kind.kind, wanted.object.name_any())),
            (Some(found), GatewayKind::GatewayApi) => gateway_api::pending(&self.name, found),
            (Some(_), GatewayKind::Istio) => None,
        };
        self.render(metadata, routes).iter().find_map(pending)
    }

    /// Makes what is missing of the routes to a member.
    ///
    /// # Errors
    /// [`Error::Write`]; [`Error::Missing`] where there can be no routes yet.
    pub async fn ensure(&self, client: &Client, metadata: &ObjectMeta, routes: &[Route<'_>]) -> Result<()> {
        if let Some(why) = &self.gateway.missing {
            return Err(Error::Missing(why.clone()));
        }
        let namespace = metadata.namespace.clone().unwrap_or_default();
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        for wanted in self.render(metadata, routes) {
            if self.found(&wanted).is_some() {
                continue;
            }
            let all = Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &wanted.kind);
            let task = format!("create {} {}", wanted.kind.kind, wanted.object.name_any());
            all.create(&params, &wanted.object).await.map_err(Error::write(task))?;
        }
        Ok(())
    }

    /// Deletes all of them.
    ///
    /// # Errors
    /// [`Error::Write`]; the next pass goes on.
    pub async fn remove(&self, client: &Client, namespace: &str) -> Result<()> {
        for kind in &self.gateway.kinds {
            let all = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, kind);
            let own = self.all.iter().filter(|route| route.kind.kind == kind.kind);
            delete_all(&all, &kind.kind, own.map(|route| &route.object)).await?;
        }
        Ok(())
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use kube::core::GroupVersionKind;

    use super::*;

    const ROUTE: Route<'_> =
        Route { suffix: "peer", host: "m.example.com", service: "s", gateway_port: 2480, port: 2380 };

    fn routes(kind: GatewayKind, kinds: &[&str]) -> Routes {
        let resource = |kind: &&str| ApiResource::from_gvk(&GroupVersionKind::gvk("group", "v1", kind));
        let kinds = kinds.iter().map(resource).collect();
        let gateway = SharedGateway { kinds, ..SharedGateway::default() };
        Routes { kind, name: "edge/members".parse().expect("a name"), gateway, all: Vec::new() }
    }

    #[test]
    fn member_is_pending_until_each_object_is_there_and_the_gateway_exists() {
        let metadata = ObjectMeta { name: Some("m".to_owned()), ..ObjectMeta::default() };
        let mut istio = routes(GatewayKind::Istio, &["VirtualService", "DestinationRule"]);
        assert_eq!(istio.pending(&metadata, &[ROUTE]).as_deref(), Some("there is no VirtualService m"));
        istio.all = istio.render(&metadata, &[ROUTE]);
        assert_eq!(istio.pending(&metadata, &[ROUTE]), None);
        istio.all.pop();
        assert_eq!(istio.pending(&metadata, &[ROUTE]).as_deref(), Some("there is no DestinationRule m"));
        istio.gateway.missing = Some("there is no Gateway".to_owned());
        assert_eq!(istio.pending(&metadata, &[ROUTE]).as_deref(), Some("there is no Gateway"));
        let mut gateway = routes(GatewayKind::GatewayApi, &["TLSRoute"]);
        gateway.all = gateway.render(&metadata, &[ROUTE]);
        assert!(gateway.pending(&metadata, &[ROUTE]).is_some_and(|why| why.contains("has not said")));
    }
}
