//! What Pods have in common, of members and of Jobs: volumes, certificates, credentials.

use serde_json::{Value, json};

use super::paths;
use crate::etcd::api::{Etcd, SecretKey, Store, Tls};

/// User and group of a container that is not root's.
const USER: i64 = 65532;

/// A volume and where it is mounted.
pub struct Mounted {
    pub volume: Value,
    pub mount: Value,
}

/// The authority and a certificate with its key in one directory, whatever Secrets they come from.
pub fn certificates(name: &str, path: &str, tls: &Tls, leaf: &SecretKey) -> Mounted {
    let key = tls.ca.data_key.as_deref().unwrap_or("ca.crt");
    let item = |key: &str, path: &str| json!({"key": key, "path": path});
    let secret = |name: &str, items: Vec<Value>| json!({"secret": {"name": name, "items": items}});
    let sources = [
        secret(&tls.ca.name, vec![item(key, "ca.crt")]),
        secret(&leaf.name, vec![item("tls.crt", "tls.crt"), item("tls.key", "tls.key")]),
    ];
    mounted(name, path, true, json!({"projected": {"defaultMode": 0o440, "sources": sources}}))
}

/// All certificates of a member.
pub fn all_certificates(etcd: &Etcd) -> Vec<Mounted> {
    let mut all = Vec::new();
    if let Some(tls) = &etcd.spec.etcd.client_url_tls {
        all.push(certificates("server-tls", paths::SERVER_TLS, tls, &tls.server));
        let client = tls.client.as_ref().unwrap_or(&tls.server);
        all.push(certificates("client-tls", paths::CLIENT_TLS, tls, client));
    }
    if let Some(tls) = &etcd.spec.etcd.peer_url_tls {
        all.push(certificates("peer-tls", paths::PEER_TLS, tls, &tls.server));
    }
    all
}

/// The directory or the credentials of a store.
pub fn store(name: &str, store: &Store, credentials: &str, local: &str) -> Vec<Mounted> {
    let mut all = Vec::new();
    if store.is_local() {
        // Whoever renders has checked the path: `crate::local_stores`.
        let host = json!({"path": store.container, "type": "DirectoryOrCreate"});
        all.push(mounted(&format!("local-{name}"), local, false, json!({"hostPath": host})));
    }
    if let Some(secret) = &store.secret_ref {
        let source = json!({"secretName": secret.name, "defaultMode": 0o440});
        all.push(mounted(name, credentials, true, json!({"secret": source})));
    }
    all
}

/// A volume and its mount.
pub fn mounted(name: &str, path: &str, read_only: bool, mut source: Value) -> Mounted {
    source["name"] = name.into();
    let mut mount = json!({"name": name, "mountPath": path});
    if read_only {
        mount["readOnly"] = true.into();
    }
    Mounted { volume: source, mount }
}

/// Who the containers are to the node.
pub fn security(etcd: &Etcd) -> Value {
    pod_security(etcd.spec.run_as_root)
}

/// The security context of a Pod. Without root it is what the Pod Security Standard `restricted` asks for.
pub fn pod_security(run_as_root: bool) -> Value {
    if run_as_root {
        return json!({"runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}});
    }
    json!({
        "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
        "fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": {"type": "RuntimeDefault"},
    })
}

/// What a container may do.
pub fn container_security() -> Value {
    json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})
}
