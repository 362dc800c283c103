//! What the two kinds of Gateways have in common: how they are observed, and the addresses of load balancers.

use k8s_openapi::api::core::v1::Service;
use kube::{
    Api, Client,
    core::DynamicObject,
    discovery::{self, ApiResource},
};

use super::route::GatewayName;
use crate::migration::error::{Error, Result};

/// A Gateway that members of a seed share, as it was observed.
#[derive(Clone, Debug, Default)]
pub struct SharedGateway {
    /// The address of the Gateway, or its host name; `None` while it has none.
    pub address: Option<String>,
    /// Why there can be no routes yet: there is no such Gateway, or no kind of routes.
    pub missing: Option<String>,
    /// The kinds of objects that are made for routes.
    pub kinds: Vec<ApiResource>,
}

impl SharedGateway {
    /// One behind which there can be no routes yet.
    pub fn missing(why: String) -> Self {
        Self { missing: Some(why), ..Self::default() }
    }
}

const GATEWAY: &str = "Gateway";

/// The Gateway of this name, and the kinds of routes, in the most stable version of a group that is served. [`SharedGateway::missing`] where
/// there is no such Gateway, or where one of the kinds is not served.
///
/// # Errors
/// [`Error::Read`].
pub async fn find(
    client: &Client,
    group: &str,
    routes: &[&str],
    name: &GatewayName,
) -> Result<std::result::Result<(DynamicObject, Vec<ApiResource>), SharedGateway>> {
    let served: Vec<_> = match discovery::group(client, group).await {
        Ok(group) => group.resources_by_stability().into_iter().map(|(resource, _)| resource).collect(),
        Err(kube::Error::Discovery(_)) => Vec::new(),
        Err(error) => return Err(Error::read(format!("API group {group}"))(error)),
    };
    let of = |kind: &str| served.iter().find(|resource| resource.kind == kind).cloned();
    let kinds: Vec<_> = routes.iter().filter_map(|kind| of(kind)).collect();
    let Some(gateways) = of(GATEWAY).filter(|_| kinds.len() == routes.len()) else {
        let wanted = [&[GATEWAY], routes].concat().join(", ");
        let why = format!("not all of kinds {wanted} of group {group} are served");
        // Of those that are served, routes that were made before are found and removed.
        return Ok(Err(SharedGateway { kinds, ..SharedGateway::missing(why) }));
    };
    let all = Api::<DynamicObject>::namespaced_with(client.clone(), &name.namespace, &gateways);
    let found = all.get_opt(&name.name).await.map_err(Error::read(name.to_string()))?;
    Ok(match found {
        Some(found) => Ok((found, kinds)),
        None => {
            let why = format!("there is no {name} of group {group}");
            Err(SharedGateway { kinds, ..SharedGateway::missing(why) })
        }
    })
}

/// The address of the load balancer of a Service, or its host name.
#[must_use]
pub fn load_balancer(service: &Service) -> Option<String> {
    let ingress = service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?.first()?;
    ingress.ip.clone().or_else(|| ingress.hostname.clone())
}
