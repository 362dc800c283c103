//! How other seeds reach the members of an etcd: a Service and a DNS name for each of them. The name leads to the load balancer of the
//! Service, or to a Gateway that all members of the seed share.
//!
//! Members are known by these names alone while an etcd spans two seeds. A name is `<pod>-<id>.<namespace>.<seed>.<internal domain>`, as in
//! Gardener's live migration (GEP-39) but for the beginning of the UID of the migration: resolvers may keep for an hour what an earlier
//! migration has left behind, be it an address or that there is none. The internal domain is that of the owner record,
//! `owner.<shoot>.<project>.<internal domain>`.

mod exposing;
mod fields;
mod gateway_api;
mod istio;
mod route;
mod routes;
mod shared_gateway;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use k8s_openapi::api::core::v1::Service;
use kube::{Api, Client, ResourceExt, api::PostParams};
use repot_api::names::{OPERATION, OPERATION_RECONCILE};
use repot_extension::kinds::DNSRecord;
use repot_plan::migration::observed::Exposure;
use serde_json::json;

pub use exposing::{EXPOSES, Exposer, Exposing, short, tunnel_host};
pub use fields::{advertise, advertised, annotations, forget, hide, is_advertised, is_exposed, relaxed};
pub use route::GatewayName;
pub use routes::GatewayKind;

use exposing::MemberAddress;
use routes::Routes;
use shared_gateway::load_balancer;

use super::{api_record, delete_all, extensions, params, read::list, under};
use crate::migration::{
    error::{Error, Result},
    names::{MADE_BY, MANAGER},
};

/// Objects of an exposure, as they were observed.
#[derive(Clone, Debug, Default)]
pub struct Exposed {
    services: Vec<Service>,
    records: Vec<DNSRecord>,
    routes: Option<Routes>,
}

/// Whether a DNSRecord is part of an exposure.
#[must_use]
pub fn is_one(record: &DNSRecord) -> bool {
    record.labels().contains_key(EXPOSES)
}

impl Exposed {
    /// Reads those of a namespace, whichever migration has made them.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub async fn read(client: &Client, namespace: &str, exposer: &Exposer) -> Result<Self> {
        let routes = async {
            Ok(match exposer {
                Exposer::LoadBalancers => None,
                Exposer::Gateway(kind, gateway) => {
                    Some(Routes::read(client, (namespace, EXPOSES), *kind, gateway).await?)
                }
            })
        };
        let (services, records, routes) =
            futures::try_join!(list(client, namespace, EXPOSES), list(client, namespace, EXPOSES), routes)?;
        Ok(Self { services, records, routes })
    }

    /// The same where it is asked for; none otherwise.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub async fn read_if(
        is_asked: bool,
        client: &Client,
        namespace: &str,
        exposer: &Exposer,
    ) -> Result<Self> {
        if is_asked { Self::read(client, namespace, exposer).await } else { Ok(Self::default()) }
    }

    /// The DNSRecords, in the form of other extension resources.
    fn records(&self, migration: &str) -> Vec<extensions::Seen> {
        self.records.iter().map(|record| extensions::of_record(record, migration)).collect()
    }

    fn service(&self, pod: &str) -> Option<&Service> {
        self.services.iter().find(|service| service.labels().get(EXPOSES).map(String::as_str) == Some(pod))
    }

    fn record(&self, pod: &str) -> Option<&DNSRecord> {
        self.records.iter().find(|record| record.labels().get(EXPOSES).map(String::as_str) == Some(pod))
    }

    /// Those that a migration has made. Another one of the same Shoot may need the others.
    #[must_use]
    pub fn of(&self, migration: &str) -> Self {
        let services = self.services.iter().filter(|service| is_made_by(*service, migration));
        let records = self.records.iter().filter(|record| is_made_by(*record, migration));
        let routes = self.routes.as_ref().map(|routes| routes.only(|route| is_made_by(route, migration)));
        Self { services: services.cloned().collect(), records: records.cloned().collect(), routes }
    }

    /// How far the exposure of these members is.
    pub async fn facts(&self, exposing: &Exposing<'_>) -> Exposure {
        let own = self.of(exposing.migration);
        let left = own.services.iter().map(|one| format!("Service {}", one.name_any()));
        let left = left.chain(own.records.iter().map(|one| format!("DNSRecord {}", one.name_any())));
        let left = left.chain(own.routes.iter().flat_map(Routes::names)).collect();
        let found = async { Ok::<_, Error>((exposing.exposed_members()?, own.missing(exposing).await?)) };
        match found.await {
            Ok((members, missing)) => Exposure { members, missing, left },
            Err(error) => Exposure { members: Vec::new(), missing: vec![error.to_string()], left },
        }
    }

    async fn missing(&self, exposing: &Exposing<'_>) -> Result<Vec<String>> {
        let (mut missing, mut names) = (Vec::new(), BTreeMap::new());
        for place in exposing.places()? {
            let address = match self.address(exposing, &place) {
                Ok(address) => address,
                Err(why) => {
                    missing.push(why);
                    continue;
                }
            };
            let record = self.record(&place.pod).filter(|record| record.spec.values == [address.clone()]);
            if !record.is_some_and(api_record::is_written) {
                missing.push(format!("the DNSRecord of {} is not written", place.pod));
            } else if let Ok(ip) = address.parse::<IpAddr>() {
                names.insert(place.host, BTreeSet::from([ip]));
            }
        }
        if missing.is_empty() {
            missing.extend(exposing.unresolved(&names).await?);
        }
        Ok(missing)
    }

    /// The address to which the name of a member leads, or a host name; else why there is none yet.
    fn address(&self, exposing: &Exposing<'_>, place: &MemberAddress) -> std::result::Result<String, String> {
        let service = self.service(&place.pod);
        let service = service.ok_or_else(|| format!("there is no Service of {}", place.pod))?;
        let Some(routes) = &self.routes else {
            return load_balancer(service)
                .ok_or_else(|| format!("the Service of {} has no address", place.pod));
        };
        let (metadata, name) = (exposing.metadata(place), service.name_any());
        match routes.pending(&metadata, &exposing.routes(place, &name)) {
            Some(why) => Err(why),
            None => routes.address().ok_or_else(|| "the Gateway has no address".to_owned()),
        }
    }

    /// Makes what is missing: Services first, and the record of each as soon as it has an address.
    ///
    /// # Errors
    /// [`Error::Write`]; [`Error::OwnerCheck`] where members cannot be named.
    pub async fn ensure(&self, client: &Client, exposing: &Exposing<'_>, like: &DNSRecord) -> Result<()> {
        let own = self.of(exposing.migration);
        let namespace = exposing.etcd.namespace().unwrap_or_default();
        let services = Api::<Service>::namespaced(client.clone(), &namespace);
        let made_by = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        for place in exposing.places()? {
            let task = || format!("expose {}", place.pod);
            let Some(service) = own.service(&place.pod) else {
                let made = services.create(&made_by, &exposing.service(&place)).await;
                made.map_err(Error::write(task()))?;
                continue;
            };
            if let Some(routes) = &own.routes {
                exposing.ensure_tls()?;
                let (metadata, name) = (exposing.metadata(&place), service.name_any());
                routes.ensure(client, &metadata, &exposing.routes(&place, &name)).await?;
            }
            let Ok(address) = own.address(exposing, &place) else { continue };
            own.ensure_record(client, exposing, (&place, &address), like).await?;
        }
        Ok(())
    }

    /// Makes the record of a name, or writes its address.
    async fn ensure_record(
        &self,
        client: &Client,
        exposing: &Exposing<'_>,
        (place, address): (&MemberAddress, &str),
        like: &DNSRecord,
    ) -> Result<()> {
        let namespace = exposing.etcd.namespace().unwrap_or_default();
        let records = Api::<DNSRecord>::namespaced(client.clone(), &namespace);
        let task = || format!("expose {}", place.pod);
        match self.record(&place.pod) {
            None => {
                let made_by = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
                let record = exposing.record(place, address, like);
                records.create(&made_by, &record).await.map(drop).map_err(Error::write(task()))
            }
            Some(record) if record.spec.values != [address] => {
                let annotations = json!({OPERATION: OPERATION_RECONCILE});
                let patch = json!({"metadata": {"annotations": annotations}, "spec": {"values": [address]}});
                let patch = under(record.resource_version(), patch);
                let written = records.patch(&record.name_any(), &params(), &patch).await;
                written.map(drop).map_err(Error::write(task()))
            }
            Some(_) => Ok(()),
        }
    }

    /// Lets the temporary name of the tunnel lead to this address.
    ///
    /// # Errors
    /// [`Error::Write`]; [`Error::OwnerCheck`] where there can be no name.
    pub async fn ensure_tunnel(
        &self,
        client: &Client,
        exposing: &Exposing<'_>,
        address: &str,
        like: &DNSRecord,
    ) -> Result<()> {
        let own = self.of(exposing.migration);
        own.ensure_record(client, exposing, (&exposing.tunnel()?, address), like).await
    }

    /// Why the temporary name of the tunnel does not lead to this address; `None` where it does.
    ///
    /// # Errors
    /// [`Error::OwnerCheck`] where there can be no name.
    pub async fn tunnel_missing(&self, exposing: &Exposing<'_>, address: &str) -> Result<Option<String>> {
        let (own, place) = (self.of(exposing.migration), exposing.tunnel()?);
        let record = own.record(&place.pod).filter(|record| record.spec.values == [address]);
        if !record.is_some_and(api_record::is_written) {
            return Ok(Some("the DNSRecord of the tunnel is not written".to_owned()));
        }
        match address.parse::<IpAddr>() {
            Ok(ip) => exposing.unresolved(&[(place.host, [ip].into())].into()).await,
            Err(_) => Ok(None),
        }
    }

    /// Deletes all of it. With its DNSRecords the names in the zone go.
    ///
    /// # Errors
    /// [`Error::Write`]; the next pass goes on.
    pub async fn remove(&self, client: &Client, namespace: &str, migration: &str) -> Result<()> {
        let records = self.records(migration);
        extensions::delete(client, namespace, records.iter()).await?;
        if let Some(routes) = &self.routes {
            routes.remove(client, namespace).await?;
        }
        let services = Api::<Service>::namespaced(client.clone(), namespace);
        delete_all(&services, "Service", self.services.iter()).await
    }

    /// Whether nothing of it exists.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        let has_routes = self.routes.as_ref().is_some_and(|routes| !routes.is_empty());
        self.services.is_empty() && self.records.is_empty() && !has_routes
    }
}

fn is_made_by(object: &impl ResourceExt, migration: &str) -> bool {
    object.labels().get(MADE_BY).map(String::as_str) == Some(migration)
}
