//! How other seeds reach the members of an etcd: a Service of type LoadBalancer and a DNS name for each of them.
//!
//! Members are known by these names alone while an etcd spans two seeds. A name is `<pod>-<id>.<namespace>.<seed>.<internal domain>`, as in
//! Gardener's live migration (GEP-39) but for the beginning of the UID of the migration: resolvers may keep for an hour what an earlier
//! migration has left behind, be it an address or that there is none. The internal domain is that of the owner record,
//! `owner.<shoot>.<project>.<internal domain>`.

mod fields;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, PostParams, Preconditions},
    core::ObjectMeta,
};
use repot_api::names::{OPERATION, OPERATION_RECONCILE};
use repot_extension::kinds::{DNSRecord, DNSRecordSpec};
use repot_plan::migration::{
    LOW_TTL,
    observed::{ExposedMember, Exposure},
};
use serde_json::json;

pub use fields::{advertise, advertised, annotations, forget, hide, is_advertised, is_exposed, relaxed};

use super::{api_record, extensions, owner::OwnerRecordOf, params, read::list, under};
use crate::{
    errors::is_not_found,
    etcd::{api::Etcd, names},
    migration::{
        error::{Error, Result},
        names::{MADE_BY, MANAGER},
    },
};

/// Label of Services and DNSRecords of an exposure, with the name of the Pod of the member.
pub const EXPOSES: &str = "migration.gardener.cloud/exposes-member";
/// Label of Pods of a StatefulSet (Kubernetes).
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
/// Labels of the owner record before the internal domain: `owner`, the Shoot and its Project.
const LABELS_OF_SHOOT: usize = 3;

/// Objects of an exposure, as they were observed.
#[derive(Clone, Debug, Default)]
pub struct Exposed {
    services: Vec<Service>,
    records: Vec<DNSRecord>,
}

/// Whether a DNSRecord is part of an exposure.
#[must_use]
pub fn is_one(record: &DNSRecord) -> bool {
    record.labels().contains_key(EXPOSES)
}

/// A member as other seeds reach it.
struct MemberAddress {
    pod: String,
    host: String,
}

/// What the members of an Etcd are exposed by.
pub struct Exposing<'a> {
    /// The Etcd whose members they are.
    pub etcd: &'a Etcd,
    /// Name of the seed.
    pub seed: &'a str,
    /// Members that it has, or is to have.
    pub members: u32,
    /// UID of the migration.
    pub migration: &'a str,
}

/// So much of the UID of a migration tells it from others of the same Shoot.
const ID: usize = 8;

/// The beginning of the UID of a migration, for names.
#[must_use]
pub fn short(migration: &str) -> String {
    migration.chars().filter(char::is_ascii_alphanumeric).take(ID).collect()
}

impl Exposing<'_> {
    fn places(&self) -> Result<Vec<MemberAddress>> {
        let owner = OwnerRecordOf::new(self.etcd)?;
        let name = owner.name().trim_end_matches('.');
        let internal = name.splitn(LABELS_OF_SHOOT + 1, '.').nth(LABELS_OF_SHOOT);
        let internal = internal.filter(|domain| !domain.is_empty()).ok_or_else(|| {
            let form = "a record owner.<shoot>.<project>.<internal domain>, by which members are named";
            Error::OwnerCheck(format!("{name} is not {form}"))
        })?;
        let namespace = self.etcd.namespace().unwrap_or_default();
        let place = |at| {
            let pod = names::pod(&self.etcd.name_any(), at);
            let id = short(self.migration);
            MemberAddress { host: format!("{pod}-{id}.{namespace}.{}.{internal}", self.seed), pod }
        };
        Ok((0..self.members).map(place).collect())
    }

    fn member(&self, at: u32, place: &MemberAddress) -> ExposedMember {
        let members = &self.etcd.spec.etcd;
        let url = |tls: bool, port: u16| format!("{}://{}:{port}", names::scheme(tls), place.host);
        ExposedMember {
            name: names::member(self.etcd, at),
            peer_url: url(members.peer_url_tls.is_some(), members.peer_port()),
            client_url: url(members.client_url_tls.is_some(), members.client_port()),
        }
    }

    fn exposed_members(&self) -> Result<Vec<ExposedMember>> {
        let places = self.places()?;
        Ok((0..).zip(&places).map(|(at, place)| self.member(at, place)).collect())
    }

    fn service(&self, place: &MemberAddress) -> Service {
        let members = &self.etcd.spec.etcd;
        let port = |name: &str, port: u16| ServicePort {
            name: Some(name.to_owned()),
            port: i32::from(port),
            target_port: Some(IntOrString::Int(i32::from(port))),
            ..ServicePort::default()
        };
        Service {
            metadata: self.metadata(place),
            spec: Some(ServiceSpec {
                type_: Some("LoadBalancer".to_owned()),
                // Members reach each other before they are ready.
                publish_not_ready_addresses: Some(true),
                selector: Some([(POD_NAME.to_owned(), place.pod.clone())].into()),
                ports: Some(vec![port("peer", members.peer_port()), port("client", members.client_port())]),
                ..ServiceSpec::default()
            }),
            status: None,
        }
    }

    fn record(&self, place: &MemberAddress, address: &str, like: &DNSRecord) -> DNSRecord {
        let is_address = address.parse::<IpAddr>();
        let record_type = match is_address {
            Ok(IpAddr::V4(_)) => "A",
            Ok(IpAddr::V6(_)) => "AAAA",
            Err(_) => "CNAME",
        };
        let mut metadata = self.metadata(place);
        metadata.annotations = Some([(OPERATION.to_owned(), OPERATION_RECONCILE.to_owned())].into());
        let spec = DNSRecordSpec {
            name: place.host.clone(),
            record_type: record_type.to_owned(),
            values: vec![address.to_owned()],
            ttl: i64::try_from(LOW_TTL.as_secs()).ok(),
            ..like.spec.clone()
        };
        DNSRecord::new(metadata, spec)
    }

    fn metadata(&self, place: &MemberAddress) -> ObjectMeta {
        let labels = [(EXPOSES, place.pod.as_str()), (MADE_BY, self.migration)];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        ObjectMeta {
            name: Some(format!("{}-{}", place.pod, short(self.migration))),
            namespace: self.etcd.namespace(),
            labels: Some(labels.into()),
            ..ObjectMeta::default()
        }
    }

    /// Why the names do not lead to the members; `None` where all servers of the zone answer with these addresses.
    async fn unresolved(&self, names: &BTreeMap<String, BTreeSet<IpAddr>>) -> Result<Option<String>> {
        let owner = OwnerRecordOf::new(self.etcd)?;
        let wanted = names.iter().map(|(name, addresses)| (name.as_str(), addresses.clone())).collect();
        let is_answered = owner.zone_answers(wanted).await;
        Ok((!is_answered)
            .then(|| "the servers of the zone do not answer with the addresses of the Services".to_owned()))
    }
}

impl Exposed {
    /// Reads those of a namespace, whichever migration has made them.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub async fn read(client: &Client, namespace: &str) -> Result<Self> {
        let (services, records) =
            futures::try_join!(list(client, namespace, EXPOSES), list(client, namespace, EXPOSES))?;
        Ok(Self { services, records })
    }

    /// The same where it is asked for; none otherwise.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub async fn read_if(is_asked: bool, client: &Client, namespace: &str) -> Result<Self> {
        if is_asked { Self::read(client, namespace).await } else { Ok(Self::default()) }
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
        Self { services: services.cloned().collect(), records: records.cloned().collect() }
    }

    /// How far the exposure of these members is.
    pub async fn facts(&self, exposing: &Exposing<'_>) -> Exposure {
        let own = self.of(exposing.migration);
        let left = own.services.iter().map(|one| format!("Service {}", one.name_any()));
        let left =
            left.chain(own.records.iter().map(|one| format!("DNSRecord {}", one.name_any()))).collect();
        let found = async { Ok::<_, Error>((exposing.exposed_members()?, own.missing(exposing).await?)) };
        match found.await {
            Ok((members, missing)) => Exposure { members, missing, left },
            Err(error) => Exposure { members: Vec::new(), missing: vec![error.to_string()], left },
        }
    }

    async fn missing(&self, exposing: &Exposing<'_>) -> Result<Vec<String>> {
        let (mut missing, mut names) = (Vec::new(), BTreeMap::new());
        for place in exposing.places()? {
            let Some(address) = self.service(&place.pod).and_then(address) else {
                missing.push(format!("the Service of {} has no address", place.pod));
                continue;
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

    /// Makes what is missing: Services first, and the record of each as soon as it has an address.
    ///
    /// # Errors
    /// [`Error::Write`]; [`Error::OwnerCheck`] where members cannot be named.
    pub async fn ensure(&self, client: &Client, exposing: &Exposing<'_>, like: &DNSRecord) -> Result<()> {
        let own = self.of(exposing.migration);
        let namespace = exposing.etcd.namespace().unwrap_or_default();
        let services = Api::<Service>::namespaced(client.clone(), &namespace);
        let records = Api::<DNSRecord>::namespaced(client.clone(), &namespace);
        let made_by = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        for place in exposing.places()? {
            let task = || format!("expose {}", place.pod);
            let Some(service) = own.service(&place.pod) else {
                let made = services.create(&made_by, &exposing.service(&place)).await;
                made.map_err(Error::write(task()))?;
                continue;
            };
            let Some(address) = address(service) else { continue };
            match own.record(&place.pod) {
                None => {
                    let record = exposing.record(&place, &address, like);
                    records.create(&made_by, &record).await.map_err(Error::write(task()))?;
                }
                Some(record) if record.spec.values != [address.clone()] => {
                    let annotations = json!({OPERATION: OPERATION_RECONCILE});
                    let patch =
                        json!({"metadata": {"annotations": annotations}, "spec": {"values": [address]}});
                    let patch = under(record.resource_version(), patch);
                    records
                        .patch(&record.name_any(), &params(), &patch)
                        .await
                        .map_err(Error::write(task()))?;
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Deletes all of it. With its DNSRecords the names in the zone go.
    ///
    /// # Errors
    /// [`Error::Write`]; the next pass goes on.
    pub async fn remove(&self, client: &Client, namespace: &str, migration: &str) -> Result<()> {
        let records = self.records(migration);
        extensions::delete(client, namespace, records.iter()).await?;
        let all = Api::<Service>::namespaced(client.clone(), namespace);
        for service in self.services.iter().filter(|one| one.metadata.deletion_timestamp.is_none()) {
            let preconditions = Some(Preconditions { uid: service.uid(), resource_version: None });
            let params = DeleteParams { preconditions, ..DeleteParams::default() };
            match all.delete(&service.name_any(), &params).await {
                Err(error) if is_not_found(&error) => {}
                outcome => drop(outcome.map_err(Error::write("delete the Service of a member"))?),
            }
        }
        Ok(())
    }

    /// Whether nothing of it exists.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.services.is_empty() && self.records.is_empty()
    }
}

fn is_made_by(object: &impl ResourceExt, migration: &str) -> bool {
    object.labels().get(MADE_BY).map(String::as_str) == Some(migration)
}

/// The address of a Service, or its host name.
fn address(service: &Service) -> Option<String> {
    let ingress = service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?.first()?;
    ingress.ip.clone().or_else(|| ingress.hostname.clone())
}
