//! What the members of an Etcd are exposed by, as it is to be: names, and the objects behind them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::{ResourceExt, core::ObjectMeta};
use repot_api::names::{OPERATION, OPERATION_RECONCILE};
use repot_extension::kinds::{DNSRecord, DNSRecordSpec};
use repot_plan::migration::{LOW_TTL, observed::ExposedMember};

use super::{
    route::{GatewayName, Route},
    routes::GatewayKind,
};
use crate::{
    etcd::{api::Etcd, names},
    migration::{
        error::{Error, Result},
        names::MADE_BY,
        seed::owner::OwnerRecordOf,
    },
};

/// Label of Services and DNSRecords of an exposure, with the name of the Pod of the member.
pub const EXPOSES: &str = "migration.gardener.cloud/exposes-member";

/// What stands in that label, and at the beginning of names, for the tunnel to the Shoot.
const TUNNEL: &str = "tunnel";
/// Label of Pods of a StatefulSet (Kubernetes).
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
/// Labels of the owner record before the internal domain: `owner`, the Shoot and its Project.
const LABELS_OF_SHOOT: usize = 3;

/// How other seeds reach the members of an etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Exposer {
    /// Each member has a load balancer of its own.
    #[default]
    LoadBalancers,
    /// All members of the seed are behind one Gateway.
    Gateway(GatewayKind, GatewayName),
}

/// From the port of a Gateway for peers of one member to that of the next.
const PORTS_APART: u16 = 100;

impl Exposer {
    /// The port at which peers reach the member of a place. etcd takes members for the same whose peer URLs lead to the same address and
    /// port, whatever their host names are; behind one Gateway all of them have one address.
    fn peer_port(&self, at: u32, port: u16) -> u16 {
        match self {
            Self::LoadBalancers => port,
            Self::Gateway(..) => {
                let at = u16::try_from(at).unwrap_or(u16::MAX);
                port.saturating_add(PORTS_APART.saturating_mul(at))
            }
        }
    }

    /// Type of the Service of a member.
    pub(super) fn service_type(&self) -> &'static str {
        match self {
            Self::LoadBalancers => "LoadBalancer",
            Self::Gateway(..) => "ClusterIP",
        }
    }
}

/// A member as other seeds reach it.
pub(super) struct MemberAddress {
    at: u32,
    pub(super) pod: String,
    pub(super) host: String,
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
    /// How other seeds reach them.
    pub exposer: &'a Exposer,
}

/// So much of the UID of a migration tells it from others of the same Shoot.
const ID: usize = 8;

/// The beginning of the UID of a migration, for names.
#[must_use]
pub fn short(migration: &str) -> String {
    migration.chars().filter(char::is_ascii_alphanumeric).take(ID).collect()
}

/// The name by which a temporary client reaches servers of the tunnel of a seed.
///
/// # Errors
/// [`Error::OwnerCheck`] where the owner record has a name of another form.
pub fn tunnel_host(etcd: &Etcd, seed: &str, migration: &str) -> Result<String> {
    host(etcd, TUNNEL, seed, migration)
}

/// A name in the internal domain, which is that of the owner record.
fn host(etcd: &Etcd, what: &str, seed: &str, migration: &str) -> Result<String> {
    let owner = OwnerRecordOf::new(etcd)?;
    let name = owner.name().trim_end_matches('.');
    let internal = name.splitn(LABELS_OF_SHOOT + 1, '.').nth(LABELS_OF_SHOOT);
    let internal = internal.filter(|domain| !domain.is_empty()).ok_or_else(|| {
        let form = "a record owner.<shoot>.<project>.<internal domain>, by which members are named";
        Error::OwnerCheck(format!("{name} is not {form}"))
    })?;
    let namespace = etcd.namespace().unwrap_or_default();
    Ok(format!("{what}-{}.{namespace}.{seed}.{internal}", short(migration)))
}

impl Exposing<'_> {
    pub(super) fn places(&self) -> Result<Vec<MemberAddress>> {
        let place = |at| {
            let pod = names::pod(&self.etcd.name_any(), at);
            Ok(MemberAddress { at, host: host(self.etcd, &pod, self.seed, self.migration)?, pod })
        };
        (0..self.members).map(place).collect()
    }

    /// The tunnel, which is named as members are.
    pub(super) fn tunnel(&self) -> Result<MemberAddress> {
        let host = tunnel_host(self.etcd, self.seed, self.migration)?;
        Ok(MemberAddress { at: 0, pod: TUNNEL.to_owned(), host })
    }

    /// Routes of a Gateway to a member: one for peers, and one for clients.
    pub(super) fn routes<'a>(&self, place: &'a MemberAddress, service: &'a str) -> [Route<'a>; 2] {
        let (peer, client) = (self.etcd.spec.etcd.peer_port(), self.etcd.spec.etcd.client_port());
        let host = &place.host;
        let gateway_port = self.exposer.peer_port(place.at, peer);
        [
            Route { suffix: "peer", host, service, gateway_port, port: peer },
            Route { suffix: "client", host, service, gateway_port: client, port: client },
        ]
    }

    /// A Gateway tells members apart by the name that a client of TLS asks for.
    pub(super) fn ensure_tls(&self) -> Result<()> {
        let members = &self.etcd.spec.etcd;
        match members.peer_url_tls.is_some() && members.client_url_tls.is_some() {
            true => Ok(()),
            false => Err(Error::Missing(
                "TLS for peers and clients of the Etcd, by which a Gateway tells members apart".to_owned(),
            )),
        }
    }

    fn member(&self, at: u32, place: &MemberAddress) -> ExposedMember {
        let members = &self.etcd.spec.etcd;
        let url = |tls: bool, port: u16| format!("{}://{}:{port}", names::scheme(tls), place.host);
        ExposedMember {
            name: names::member(self.etcd, at),
            peer_url: url(members.peer_url_tls.is_some(), self.exposer.peer_port(at, members.peer_port())),
            client_url: url(members.client_url_tls.is_some(), members.client_port()),
        }
    }

    pub(super) fn exposed_members(&self) -> Result<Vec<ExposedMember>> {
        let places = self.places()?;
        Ok((0..).zip(&places).map(|(at, place)| self.member(at, place)).collect())
    }

    pub(super) fn service(&self, place: &MemberAddress) -> Service {
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
                type_: Some(self.exposer.service_type().to_owned()),
                // Members reach each other before they are ready.
                publish_not_ready_addresses: Some(true),
                selector: Some([(POD_NAME.to_owned(), place.pod.clone())].into()),
                ports: Some(vec![port("peer", members.peer_port()), port("client", members.client_port())]),
                ..ServiceSpec::default()
            }),
            status: None,
        }
    }

    pub(super) fn record(&self, place: &MemberAddress, address: &str, like: &DNSRecord) -> DNSRecord {
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

    pub(super) fn metadata(&self, place: &MemberAddress) -> ObjectMeta {
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
    pub(super) async fn unresolved(
        &self,
        names: &BTreeMap<String, BTreeSet<IpAddr>>,
    ) -> Result<Option<String>> {
        let owner = OwnerRecordOf::new(self.etcd)?;
        let wanted = names.iter().map(|(name, addresses)| (name.as_str(), addresses.clone())).collect();
        let is_answered = owner.zone_answers(wanted).await;
        Ok((!is_answered).then(|| {
            "the servers of the zone do not answer with the addresses that lead to the members".to_owned()
        }))
    }
}
