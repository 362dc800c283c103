//! Names of what is made from an Etcd.

use std::collections::BTreeMap;

use kube::ResourceExt;

use super::api::{Backup, Etcd, Gateway, Members, Spec, Store};

/// Field manager of everything that the operator writes.
pub const MANAGER: &str = "repot-etcd-operator";
/// Label with the name of the Etcd, on Pods and claims.
pub const PART_OF: &str = "app.kubernetes.io/part-of";
/// Label that says what something is for: `etcd` or `copy`.
pub const COMPONENT: &str = "app.kubernetes.io/component";
/// Label that says which program made an object.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Value of [`MANAGED_BY`] on what Repot makes.
pub const MANAGED_BY_REPOT: &str = "repot";

/// Port for clients of etcd.
const CLIENT_PORT: u16 = 2379;
/// Port for members.
const PEER_PORT: u16 = 2380;
/// Port of the agent's HTTP.
const AGENT_PORT: u16 = 8080;
/// Port of a gateway.
const GATEWAY_PORT: u16 = 2381;

/// Labels of everything, by which Pods are selected. They can never be changed for a StatefulSet that exists.
#[must_use]
pub fn labels(etcd: &str) -> BTreeMap<String, String> {
    let pairs = [(COMPONENT, "etcd"), (MANAGED_BY, MANAGED_BY_REPOT), (PART_OF, etcd)];
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// [`labels`] as a selector.
#[must_use]
pub fn selector(etcd: &str) -> String {
    let pairs: Vec<String> = labels(etcd).into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(",")
}

/// The headless Service of members.
#[must_use]
pub fn peer_service(etcd: &str) -> String {
    format!("{etcd}-peer")
}

/// The Service for clients.
#[must_use]
pub fn client_service(etcd: &str) -> String {
    format!("{etcd}-client")
}

/// The ConfigMap with the configuration of the agents.
#[must_use]
pub fn config_map(etcd: &str) -> String {
    format!("{etcd}-config")
}

/// A Pod of the StatefulSet.
#[must_use]
pub fn pod(etcd: &str, ordinal: u32) -> String {
    format!("{etcd}-{ordinal}")
}

/// A claim of the StatefulSet.
#[must_use]
pub fn claim(volumes: &str, etcd: &str, ordinal: u32) -> String {
    format!("{volumes}-{etcd}-{ordinal}")
}

/// The place that the name of a Pod or claim ends in.
#[must_use]
pub fn ordinal(name: &str, before: &str) -> Option<u32> {
    let digits = name.strip_prefix(before)?.strip_prefix('-')?;
    let ordinal: u32 = digits.parse().ok()?;
    // `+1` and `01` are no names that Kubernetes gives.
    (ordinal.to_string() == digits).then_some(ordinal)
}

/// The name of a member in etcd.
#[must_use]
pub fn member(etcd: &Etcd, ordinal: u32) -> String {
    let pod = pod(&etcd.name_any(), ordinal);
    etcd.spec.member_name_prefix.as_ref().map_or_else(|| pod.clone(), |prefix| format!("{prefix}-{pod}"))
}

/// The name of a Pod in DNS.
#[must_use]
pub fn host(etcd: &Etcd, ordinal: u32) -> String {
    let (name, namespace) = (etcd.name_any(), etcd.namespace().unwrap_or_default());
    format!("{}.{}.{namespace}.svc", pod(&name, ordinal), peer_service(&name))
}

/// URL at which clients reach a member.
#[must_use]
pub fn client_url(etcd: &Etcd, ordinal: u32) -> String {
    let members = &etcd.spec.etcd;
    format!(
        "{}://{}:{}",
        scheme(members.client_url_tls.is_some()),
        host(etcd, ordinal),
        members.client_port()
    )
}

/// URL of the agent of a member.
#[must_use]
pub fn agent_url(etcd: &Etcd, ordinal: u32) -> String {
    let tls = etcd.spec.etcd.client_url_tls.is_some();
    format!("{}://{}:{}", scheme(tls), host(etcd, ordinal), etcd.spec.agent_port())
}

/// URLs at which members reach a member: that of its Pod, then further ones. They go by the name of the member: with a prefix it
/// differs from that of the Pod.
#[must_use]
pub fn peer_urls(etcd: &Etcd, ordinal: u32) -> Vec<String> {
    let members = &etcd.spec.etcd;
    let name = member(etcd, ordinal);
    let further = members.additional_peer_urls.iter().filter(|of| of.member_name == name);
    let further: Vec<String> = further.flat_map(|of| of.urls.clone()).collect();
    if members.only_additional_peer_urls && !further.is_empty() {
        return further;
    }
    let own = format!(
        "{}://{}:{}",
        scheme(members.peer_url_tls.is_some()),
        host(etcd, ordinal),
        members.peer_port()
    );
    std::iter::once(own).chain(further).collect()
}

/// The scheme of URLs with or without TLS.
#[must_use]
pub fn scheme(tls: bool) -> &'static str {
    if tls { "https" } else { "http" }
}

impl Etcd {
    /// Name of the set of volumes.
    #[must_use]
    pub fn volumes(&self) -> String {
        self.spec.volume_claim_template.clone().unwrap_or_else(|| self.name_any())
    }
}

impl Spec {
    /// Port of the agent's HTTP.
    #[must_use]
    pub fn agent_port(&self) -> u16 {
        self.backup.port.unwrap_or(AGENT_PORT)
    }
}

impl Members {
    /// Port at which members serve clients; 2379 where the spec names none.
    #[must_use]
    pub fn client_port(&self) -> u16 {
        self.client_port.unwrap_or(CLIENT_PORT)
    }

    /// Port at which members serve each other; 2380 where the spec names none.
    #[must_use]
    pub fn peer_port(&self) -> u16 {
        self.server_port.unwrap_or(PEER_PORT)
    }
}

impl Gateway {
    /// Port at which the gateway listens; 2381 where the spec names none.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(GATEWAY_PORT)
    }
}

impl Backup {
    /// Stores that are directories of a node, by the names of their fields.
    pub fn local_stores(&self) -> impl Iterator<Item = (&'static str, &Store)> {
        let all = [("store", self.store.as_ref()), ("sourceStore", self.source_store.as_ref())];
        let all = all.into_iter().filter_map(|(field, store)| Some((field, store?)));
        all.filter(|(_, store)| store.is_local())
    }
}

impl Store {
    /// The URL of the store; that of a directory is where it is mounted.
    #[must_use]
    pub fn url(&self, mounted: &str) -> String {
        let (container, prefix) = (&self.container, self.prefix.trim_matches('/'));
        match self.provider.as_str() {
            "S3" => format!("s3://{container}/{prefix}"),
            "GCS" => format!("gs://{container}/{prefix}"),
            "ABS" => format!("az://{container}/{prefix}"),
            // The CRD lets nothing else in.
            _ => format!("file://{mounted}/{prefix}"),
        }
    }

    /// Whether it is a directory of the node.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.provider == "Local"
    }
}

#[cfg(test)]
mod tests {
    use super::ordinal;

    #[test]
    fn ordinals_are_read_only_as_kubernetes_writes_them() {
        assert_eq!(ordinal("main-2", "main"), Some(2));
        for (name, before) in
            [("main-02", "main"), ("main-+2", "main"), ("main-x-2", "main"), ("main", "main")]
        {
            assert_eq!(ordinal(name, before), None, "{name}");
        }
    }
}
