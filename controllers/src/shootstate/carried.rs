//! Objects as they are carried: without what only their old API server knows, and without requests for operations.

use bytes::Bytes;
use kube::core::ApiResource;
use repot_api::names::{OPERATION, OPERATION_GEP_7, TIMESTAMP};
use repot_apimachinery::json::{Node, Raw};
use repot_extension::RawJson;

use super::{
    certificates,
    error::{Error, Result},
    model::ResourceEntry,
};
use crate::etcd::api::FENCE;

/// Members of `metadata` that belong to one API server or to one life of the object.
const METADATA: [&str; 11] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "ownerReferences",
    "finalizers",
    "selfLink",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "namespace",
];

/// Annotations that ask for an operation, or that controllers of the source write.
const ANNOTATIONS: [&str; 6] = [
    OPERATION,
    OPERATION_GEP_7,
    TIMESTAMP,
    "deployment.kubernetes.io/revision",
    "kubectl.kubernetes.io/last-applied-configuration",
    FENCE,
];

/// Fields of a Service that its API server allocates.
const SERVICE_SPEC: [&str; 2] = ["clusterIPs", "healthCheckNodePort"];

/// Makes the entry of an object. Everything that is kept has its text as kube-apiserver wrote it.
///
/// # Errors
/// [`Error::Malformed`] where it is no object.
pub fn entry(kind: &ApiResource, name: &str, object: &RawJson) -> Result<ResourceEntry> {
    let malformed = || Error::Malformed(format!("{} {name}", kind.kind));
    let mut node = read(object).ok_or_else(malformed)?;
    node.open();
    clean(&mut node, kind);
    if kind.kind == "Service" && kind.group.is_empty() {
        clean_service(&mut node);
    }
    if kind.kind == "Secret" && kind.group.is_empty() {
        certificates::strip(&mut node);
    }
    let text = String::from_utf8(node.to_raw().into_bytes().to_vec()).map_err(|_| malformed())?;
    Ok(ResourceEntry {
        api_version: kind.api_version.clone(),
        data: RawJson::parse(text).map_err(|_| malformed())?,
        kind: kind.kind.clone(),
        name: name.to_owned(),
    })
}

fn read(object: &RawJson) -> Option<Node> {
    let node = Node::Raw(Raw::from_valid(Bytes::from(object.get().to_owned())).ok()?);
    matches!(&node, Node::Raw(raw) if raw.first() == b'{').then_some(node)
}

fn clean(node: &mut Node, kind: &ApiResource) {
    node.take("status");
    if let Some(metadata) = node.member_mut("metadata") {
        metadata.open();
        for member in METADATA {
            metadata.take(member);
        }
        take_within(metadata, "annotations", &ANNOTATIONS);
    }
    // Items of lists have neither.
    node.set("apiVersion", Node::String(kind.api_version.clone()));
    node.set("kind", Node::String(kind.kind.clone()));
}

/// Takes members out of a member, and the member itself where nothing is left.
fn take_within(node: &mut Node, member: &'static str, names: &[&str]) {
    let Some(within) = node.member_mut(member) else { return };
    within.open();
    for name in names {
        within.take(name);
    }
    if within.members().is_empty() {
        node.take(member);
    }
}

/// A headless Service stays headless: its `clusterIP` is `None`.
fn clean_service(node: &mut Node) {
    let Some(spec) = node.member_mut("spec") else { return };
    spec.open();
    for field in SERVICE_SPEC {
        spec.take(field);
    }
    let is_headless =
        spec.member("clusterIP").is_some_and(|address| &address.to_raw().bytes()[..] == b"\"None\"");
    if !is_headless {
        spec.take("clusterIP");
    }
    if let Some(ports) = spec.member_mut("ports") {
        ports.open();
        if let Node::Array(ports) = ports {
            for port in ports {
                port.open();
                port.take("nodePort");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shootstate::kinds::find;

    fn cleaned(api_version: &str, kind: &str, text: &str) -> String {
        let kind = find(api_version, kind).expect("a known kind").resource();
        let object = RawJson::parse(text).expect("JSON");
        entry(&kind, "x", &object).expect("an object").data.get().to_owned()
    }

    #[test]
    fn what_only_the_old_api_server_knows_is_left_behind() {
        let object = r#"{"metadata":{"name":"x","namespace":"n","uid":"u","resourceVersion":"7","generation":2,
            "creationTimestamp":"2026-01-01T00:00:00Z","managedFields":[{}],"ownerReferences":[{}],"finalizers":["f"],
            "deletionTimestamp":"2026-01-01T00:00:00Z","deletionGracePeriodSeconds":0,"selfLink":"/x",
            "labels":{"app":"x"},"annotations":{"keep":"me","gardener.cloud/operation":"migrate","gardener.cloud/timestamp":"t",
            "core.gardener.cloud/operation":"restore","migration.gardener.cloud/fence":"f","deployment.kubernetes.io/revision":"3",
            "kubectl.kubernetes.io/last-applied-configuration":"{}"}},
            "spec":{"odd":1.0,"big":12345678901234567890123,"\u0061":"b"},"status":{"replicas":1}}"#;
        assert_eq!(
            cleaned("apps/v1", "Deployment", object),
            r#"{"metadata":{"name":"x","labels":{"app":"x"},"annotations":{"keep":"me"}},"spec":{"odd":1.0,"big":12345678901234567890123,"\u0061":"b"},"apiVersion":"apps/v1","kind":"Deployment"}"#
        );
    }

    #[test]
    fn annotations_are_left_out_where_none_is_kept() {
        let object = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","annotations":{"gardener.cloud/operation":"migrate"}},"data":{}}"#;
        let expected = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{}}"#;
        assert_eq!(cleaned("v1", "ConfigMap", object), expected);
    }

    #[test]
    fn services_lose_what_their_api_server_allocates() {
        let object = r#"{"metadata":{"name":"x"},"spec":{"clusterIP":"10.0.0.7","clusterIPs":["10.0.0.7"],"healthCheckNodePort":30001,"ports":[{"port":443,"nodePort":30000}],"type":"LoadBalancer"},"status":{"loadBalancer":{}}}"#;
        let expected = r#"{"metadata":{"name":"x"},"spec":{"ports":[{"port":443}],"type":"LoadBalancer"},"apiVersion":"v1","kind":"Service"}"#;
        assert_eq!(cleaned("v1", "Service", object), expected);
        let headless = r#"{"metadata":{"name":"x"},"spec":{"clusterIP":"None","clusterIPs":["None"]}}"#;
        let expected =
            r#"{"metadata":{"name":"x"},"spec":{"clusterIP":"None"},"apiVersion":"v1","kind":"Service"}"#;
        assert_eq!(cleaned("v1", "Service", headless), expected);
    }

    #[test]
    fn certificates_that_are_issued_anew_are_left_behind_with_their_keys() {
        let secret = |annotation: &str| {
            let annotation = serde_json::to_string(annotation).expect("a text");
            let object = format!(
                r#"{{"metadata":{{"name":"x","annotations":{{"migration.gardener.cloud/certificates":{annotation}}}}},"data":{{"tls.crt":"Yw==","tls.key":"aw==","proxy.key":"cA==","ca.crt":"YQ=="}},"type":"Opaque"}}"#
            );
            let cleaned = cleaned("v1", "Secret", &object);
            serde_json::from_str::<serde_json::Value>(&cleaned).expect("JSON")["data"].clone()
        };
        let one = r#"[{"authority":"ca","commonName":"a","usages":["server"]}]"#;
        assert_eq!(secret(one), serde_json::json!({"proxy.key": "cA==", "ca.crt": "YQ=="}));
        let named = r#"[{"authority":"ca","commonName":"a","usages":["client"],"certificate":"proxy.crt","key":"proxy.key"}]"#;
        assert_eq!(secret(named)["proxy.key"], serde_json::Value::Null);
        assert_eq!(secret(named)["tls.key"], "aw==");
        assert_eq!(secret("what is no list"), serde_json::Value::Null);
    }

    #[test]
    fn what_is_no_object_is_refused() {
        let kind = find("v1", "ConfigMap").expect("a known kind").resource();
        entry(&kind, "x", &RawJson::parse("[1]").expect("JSON")).expect_err("an array");
    }
}
