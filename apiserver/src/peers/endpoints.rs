//! The other servers, from the EndpointSlices of the Service.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

/// Another server of the Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    /// Name of its Pod.
    pub name: String,
    /// UID of its Pod.
    pub uid: String,
    /// Where it listens: one address, or one of each family.
    pub addresses: Vec<SocketAddr>,
}

/// The ready endpoints of the Service.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ready {
    /// Whether this server is among them.
    pub own: bool,
    /// All others that are Pods.
    pub peers: Vec<Peer>,
}

/// Reads ready endpoints from slices. `own`: the name of this server's Pod.
pub(super) fn ready<'a>(slices: impl IntoIterator<Item = &'a EndpointSlice>, own: &str) -> Ready {
    let (mut found, mut peers) = (Ready::default(), BTreeMap::<String, Peer>::new());
    for slice in slices {
        for endpoint in slice.endpoints.iter().filter(|endpoint| is_ready(endpoint)) {
            let Some((name, uid)) = pod(endpoint) else { continue };
            if name == own {
                found.own = true;
                continue;
            }
            let (name, key) = (name.to_owned(), uid.to_owned());
            let new = Peer { name, uid: key.clone(), addresses: Vec::new() };
            peers.entry(key).or_insert(new).addresses.extend(addresses(slice, endpoint));
        }
    }
    found.peers = peers.into_values().filter(|peer| !peer.addresses.is_empty()).collect();
    found
}

/// A condition that nobody has set counts as true.
fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().is_none_or(|conditions| conditions.ready != Some(false))
}

fn pod(endpoint: &Endpoint) -> Option<(&str, &str)> {
    let target = endpoint.target_ref.as_ref().filter(|target| target.kind.as_deref() == Some("Pod"))?;
    Some((target.name.as_deref()?, target.uid.as_deref()?))
}

/// The Service has one port.
fn addresses(slice: &EndpointSlice, endpoint: &Endpoint) -> Vec<SocketAddr> {
    let port = slice.ports.iter().flatten().find_map(|port| u16::try_from(port.port?).ok());
    let ips = endpoint.addresses.iter().filter_map(|address| address.parse::<IpAddr>().ok());
    port.map(|port| ips.map(|ip| SocketAddr::new(ip, port)).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn slice(family: &str, endpoints: &Value) -> EndpointSlice {
        let slice = json!({"metadata": {"name": "s"}, "addressType": family, "endpoints": endpoints,
            "ports": [{"name": "https", "port": 8443}]});
        serde_json::from_value(slice).expect("a slice")
    }

    fn endpoint(pod: &str, address: &str, conditions: &Value) -> Value {
        let target = json!({"kind": "Pod", "name": pod, "uid": format!("uid-{pod}")});
        json!({"addresses": [address], "conditions": conditions, "targetRef": target})
    }

    #[test]
    fn peers_are_ready_pods_other_than_this_one() {
        let (yes, no) = (json!({"ready": true}), json!({"ready": false, "terminating": true}));
        let mut foreign = endpoint("x", "10.0.0.9", &yes);
        foreign["targetRef"]["kind"] = json!("Node");
        let v4 = slice(
            "IPv4",
            &json!([
                endpoint("a", "10.0.0.1", &yes),
                endpoint("b", "10.0.0.2", &yes),
                endpoint("c", "10.0.0.3", &no),
                endpoint("d", "10.0.0.4", &json!({})),
                foreign,
                {"addresses": ["10.0.0.5"]},
            ]),
        );
        let v6 = slice("IPv6", &json!([endpoint("b", "fd00::2", &yes)]));
        let peer = |name: &str, addresses: &[&str]| Peer {
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            addresses: addresses.iter().map(|address| address.parse().expect("an address")).collect(),
        };
        let peers = vec![peer("b", &["10.0.0.2:8443", "[fd00::2]:8443"]), peer("d", &["10.0.0.4:8443"])];
        assert_eq!(ready([&v4, &v6], "a"), Ready { own: true, peers });
        assert!(!ready([&v4, &v6], "c").own);
        assert_eq!(ready([], "a"), Ready::default());
    }
}
