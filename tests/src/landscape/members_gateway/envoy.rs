//! What Envoy is told: listeners that pass TLS through by the name that a connection asks for.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

/// A port of the Gateway: connections go by the name that they ask for to a port of this machine.
pub fn listener(address: Ipv4Addr, port: u16, served: &[(u16, String, u16)]) -> Value {
    let chains = served.iter().filter(|(of, ..)| *of == port).map(|(_, host, local)| {
        json!({
            "filter_chain_match": {"server_names": [host]},
            "filters": [proxy_to(*local)],
        })
    });
    let mut chains: Vec<Value> = chains.collect();
    if chains.is_empty() {
        // Envoy wants one; nobody asks for this name.
        chains.push(json!({
            "filter_chain_match": {"server_names": ["nobody.invalid"]}, "filters": [proxy_to(1)],
        }));
    }
    json!({
        "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
        "name": format!("port-{port}"),
        "address": {"socket_address": {"address": address.to_string(), "port_value": port}},
        "listener_filters": [{
            "name": "envoy.filters.listener.tls_inspector",
            "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector"},
        }],
        "filter_chains": chains,
    })
}

fn proxy_to(local: u16) -> Value {
    json!({
        "name": "envoy.filters.network.tcp_proxy",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
            "stat_prefix": format!("local-{local}"), "cluster": format!("local-{local}"),
        },
    })
}

/// A port of this machine.
pub fn cluster(local: u16) -> Value {
    let address = json!({"socket_address": {"address": "127.0.0.1", "port_value": local}});
    json!({
        "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "name": format!("local-{local}"), "type": "STATIC", "connect_timeout": "3s",
        "load_assignment": {
            "cluster_name": format!("local-{local}"),
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
    })
}

/// What Envoy starts with: it reads the rest from files of a directory, whenever they change.
pub fn bootstrap(dir: &Path, admin: u16) -> Value {
    let watched = |file: &str| json!({"path_config_source": {"path": dir.join(file), "watched_directory": {"path": dir}}, "resource_api_version": "V3"});
    json!({
        "node": {"id": "members", "cluster": "members"},
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": admin}}},
        "dynamic_resources": {"lds_config": watched("listeners.json"), "cds_config": watched("clusters.json")},
    })
}

/// Writes a file so that Envoy notices: it looks for files that are moved into the place of others.
pub fn replace(path: &Path, text: &str) -> Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    Ok(fs::rename(&new, path)?)
}
