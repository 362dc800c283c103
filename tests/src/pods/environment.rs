//! The environment of a container, and `$(NAME)` in its command line, as Kubernetes has them. No I/O here.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, Pod};

/// Keys and values of a ConfigMap or Secret.
pub(super) type Data = BTreeMap<String, Vec<u8>>;

/// What values may refer to.
#[derive(Clone, Debug)]
pub(super) struct Facts<'a> {
    pub pod: &'a Pod,
    pub pod_ip: Ipv4Addr,
    pub host_ip: Ipv4Addr,
    /// By name; what is missing in the API is missing here.
    pub config_maps: BTreeMap<String, Data>,
    /// By name; what is missing in the API is missing here.
    pub secrets: BTreeMap<String, Data>,
}

/// Names of the ConfigMaps and Secrets, in this order, that the environment of a container refers to.
pub(super) fn references(container: &Container) -> (Vec<String>, Vec<String>) {
    let (mut config_maps, mut secrets) = (Vec::new(), Vec::new());
    for source in container.env_from.iter().flatten() {
        config_maps.extend(source.config_map_ref.iter().map(|r| r.name.clone()));
        secrets.extend(source.secret_ref.iter().map(|r| r.name.clone()));
    }
    for source in container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
        config_maps.extend(source.config_map_key_ref.iter().map(|r| r.name.clone()));
        secrets.extend(source.secret_key_ref.iter().map(|r| r.name.clone()));
    }
    (config_maps, secrets)
}

/// The environment of a container, in the order in which it was written: `envFrom` first, later names win.
///
/// Errors: when it refers to something that is missing and not optional, or in a way that is not supported.
pub(super) fn resolve(container: &Container, facts: &Facts<'_>) -> Result<BTreeMap<String, String>> {
    let mut resolved = BTreeMap::new();
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.clone().unwrap_or_default();
        let (kind, name, all, optional) = match (&source.config_map_ref, &source.secret_ref) {
            (Some(r), _) => ("configmap", &r.name, &facts.config_maps, r.optional),
            (None, Some(r)) => ("secret", &r.name, &facts.secrets, r.optional),
            (None, None) => continue,
        };
        let Some(data) = found(kind, name, all.get(name), optional)? else { continue };
        resolved.extend(data.iter().map(|(key, value)| (format!("{prefix}{key}"), text(value))));
    }
    for variable in container.env.iter().flatten() {
        if let Some(value) = value(variable, facts, &resolved)? {
            resolved.insert(variable.name.clone(), value);
        }
    }
    Ok(resolved)
}

fn value(variable: &EnvVar, facts: &Facts<'_>, earlier: &BTreeMap<String, String>) -> Result<Option<String>> {
    match &variable.value_from {
        None => Ok(Some(expand(variable.value.as_deref().unwrap_or_default(), earlier))),
        Some(source) => referred(source, facts).with_context(|| format!("variable {}", variable.name)),
    }
}

fn referred(source: &EnvVarSource, facts: &Facts<'_>) -> Result<Option<String>> {
    if let Some(field) = &source.field_ref {
        return field_value(&field.field_path, facts).map(Some);
    }
    let (kind, name, key, all, optional) = match (&source.config_map_key_ref, &source.secret_key_ref) {
        (Some(r), _) => ("configmap", &r.name, &r.key, &facts.config_maps, r.optional),
        (None, Some(r)) => ("secret", &r.name, &r.key, &facts.secrets, r.optional),
        (None, None) => bail!("resourceFieldRef is not supported by the pod runner"),
    };
    let Some(data) = found(kind, name, all.get(name), optional)? else { return Ok(None) };
    let value = found(&format!("key {key} of {kind}"), name, data.get(key), optional)?;
    Ok(value.map(|value| text(value)))
}

fn found<'a, T>(kind: &str, name: &str, it: Option<&'a T>, optional: Option<bool>) -> Result<Option<&'a T>> {
    match it {
        None if optional != Some(true) => bail!("{kind} \"{name}\" not found"),
        it => Ok(it),
    }
}

/// A field of the pod by its path, as `fieldRef` and downward API volumes name it.
///
/// Errors: when the path is not one of those that Kubernetes allows.
pub(super) fn field_value(path: &str, facts: &Facts<'_>) -> Result<String> {
    let (pod, spec) = (&facts.pod.metadata, facts.pod.spec.as_ref());
    if let Some((map, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
        let map = match map {
            "metadata.labels" => &pod.labels,
            "metadata.annotations" => &pod.annotations,
            _ => bail!("field {path} is not supported"),
        };
        return Ok(map.as_ref().and_then(|map| map.get(key)).cloned().unwrap_or_default());
    }
    let known = match path {
        "metadata.name" => pod.name.clone(),
        "metadata.namespace" => pod.namespace.clone(),
        "metadata.uid" => pod.uid.clone(),
        "metadata.labels" => pod.labels.as_ref().map(lines),
        "metadata.annotations" => pod.annotations.as_ref().map(lines),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()),
        "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()),
        "status.podIP" | "status.podIPs" => Some(facts.pod_ip.to_string()),
        "status.hostIP" | "status.hostIPs" => Some(facts.host_ip.to_string()),
        _ => bail!("field {path} is not supported"),
    };
    Ok(known.unwrap_or_default())
}

/// The form of whole maps in downward API volumes.
fn lines(map: &BTreeMap<String, String>) -> String {
    map.iter().map(|(key, value)| format!("{key}={value:?}\n")).collect()
}

/// Replaces each `$(NAME)` that is known; `$$` stands for one `$`, and what is unknown stays as it is.
pub(super) fn expand(text: &str, known: &BTreeMap<String, String>) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        let name = after.strip_prefix('(').and_then(|inner| inner.split_once(')'));
        rest = match name {
            _ if after.starts_with('$') => {
                expanded.push('$');
                &after[1..]
            }
            Some((name, behind)) => {
                match known.get(name) {
                    Some(value) => expanded.push_str(value),
                    None => expanded.push_str(&format!("$({name})")),
                }
                behind
            }
            None => {
                expanded.push('$');
                after
            }
        };
    }
    expanded + rest
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn known(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn resolved(env: Value) -> Result<BTreeMap<String, String>> {
        let mut container: Container = serde_json::from_value(env)?;
        container.name = "c".to_owned();
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "etcd-0", "namespace": "plants", "labels": {"app": "etcd"}},
        }))?;
        let data = |key: &str| Data::from([(key.to_owned(), b"v".to_vec())]);
        let facts = Facts {
            pod: &pod,
            pod_ip: Ipv4Addr::new(10, 101, 0, 2),
            host_ip: Ipv4Addr::new(10, 101, 0, 1),
            config_maps: BTreeMap::from([("map".to_owned(), data("k"))]),
            secrets: BTreeMap::from([("secret".to_owned(), data("s"))]),
        };
        resolve(&container, &facts)
    }

    #[test]
    fn expands_known_names_and_keeps_the_rest() {
        let known = known(&[("A", "1"), ("B", "$(A)")]);
        for (text, expected) in [
            ("$(A)-$(A)", "1-1"),
            ("$(C)", "$(C)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$A $", "$A $"),
            ("$(A", "$(A"),
            // A value is not looked into again.
            ("$(B)", "$(A)"),
        ] {
            assert_eq!(expand(text, &known), expected, "{text}");
        }
    }

    #[test]
    fn variables_refer_to_earlier_ones_to_fields_and_to_data() {
        let env = resolved(json!({"name": "c", "envFrom": [{"prefix": "P_", "configMapRef": {"name": "map"}}], "env": [
            {"name": "URL", "value": "http://$(POD):1"},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "PEER", "value": "http://$(POD):2"},
            {"name": "APP", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "S", "valueFrom": {"secretKeyRef": {"name": "secret", "key": "s"}}},
            {"name": "NONE", "valueFrom": {"secretKeyRef": {"name": "secret", "key": "x", "optional": true}}},
        ]}))
        .expect("all is there");
        let expected = known(&[
            ("P_k", "v"),
            ("URL", "http://$(POD):1"),
            ("POD", "etcd-0"),
            ("PEER", "http://etcd-0:2"),
            ("APP", "etcd"),
            ("IP", "10.101.0.2"),
            ("S", "v"),
        ]);
        assert_eq!(env, expected);
    }

    #[test]
    fn missing_data_is_named() {
        for (source, expected) in [
            (json!({"secretKeyRef": {"name": "gone", "key": "k"}}), "secret \"gone\" not found"),
            (json!({"configMapKeyRef": {"name": "map", "key": "x"}}), "key x of configmap \"map\" not found"),
            (json!({"fieldRef": {"fieldPath": "spec.x"}}), "field spec.x is not supported"),
        ] {
            let env = json!({"name": "c", "env": [{"name": "V", "valueFrom": source}]});
            let message = format!("{:#}", resolved(env).expect_err("it is missing"));
            assert_eq!(message, format!("variable V: {expected}"));
        }
    }
}
