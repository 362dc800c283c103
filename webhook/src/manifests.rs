//! The registrations with kube-apiserver, made from the tables of `repot-rules`.

use repot_rules::watch::{FailurePolicy, HomeCluster, WATCHES, Watch};
use serde_json::{Value, json};

/// How kube-apiserver reaches the server.
#[derive(Clone, Debug)]
pub struct Reach {
    /// Namespace of the Service, never asked about: Repot has to be repairable while it is down.
    pub namespace: String,
    /// Name of the Service.
    pub service: String,
    /// Port of the Service.
    pub port: u16,
    /// Where the server is, in place of the Service: gardener-apiserver looks a Service up by DNS, which it may not be able to.
    pub url: Option<String>,
    /// The authority of the serving certificate, base64 of PEM.
    pub ca_bundle: String,
}

impl Default for Reach {
    fn default() -> Self {
        let text = str::to_owned;
        Self {
            namespace: text("repot-system"),
            service: text("repot-webhook"),
            port: 443,
            url: None,
            ca_bundle: text("CA_BUNDLE"),
        }
    }
}

/// Both configurations of a place: mutating, then validating. One without webhooks is left out.
#[must_use]
pub fn render(place: HomeCluster, reach: &Reach) -> Vec<Value> {
    let configuration = |mutating: bool| {
        let own = WATCHES.iter().filter(|watch| watch.place == place && watch.mutating == mutating);
        let webhooks: Vec<Value> = own.map(|watch| webhook(watch, reach)).collect();
        let kind = if mutating { "MutatingWebhookConfiguration" } else { "ValidatingWebhookConfiguration" };
        let name = match place {
            HomeCluster::Garden => "repot-garden",
            HomeCluster::Seed => "repot-seed",
        };
        (!webhooks.is_empty()).then(|| {
            json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
                "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "repot"}}, "webhooks": webhooks,
            })
        })
    };
    [configuration(true), configuration(false)].into_iter().flatten().collect()
}

fn webhook(watch: &Watch, reach: &Reach) -> Value {
    let rule = |m: &repot_rules::watch::Match| {
        json!({
            "apiGroups": m.groups, "apiVersions": ["*"], "resources": m.resources, "operations": m.operations,
            "scope": "Namespaced",
        })
    };
    let rules: Vec<Value> = watch.matches.iter().map(rule).collect();
    let conditions: Vec<Value> = watch
        .conditions
        .iter()
        .map(|(name, expression)| {
            let one_line: Vec<&str> = expression.split_whitespace().collect();
            json!({"name": name, "expression": one_line.join(" ")})
        })
        .collect();
    let client = match &reach.url {
        Some(url) => {
            json!({"url": format!("{}{}", url.trim_end_matches('/'), watch.path()), "caBundle": reach.ca_bundle})
        }
        None => json!({
            "service": {"namespace": reach.namespace, "name": reach.service, "port": reach.port, "path": watch.path()},
            "caBundle": reach.ca_bundle,
        }),
    };
    // Of a group with several versions each is shown in the version in which it is written: rules read what all have in common.
    let mut webhook = json!({
        "name": format!("{}.{}.repot.gardener.cloud", watch.name, if watch.mutating { "mutate" } else { "validate" }),
        "admissionReviewVersions": ["v1"],
        "clientConfig": client,
        "failurePolicy": match watch.failure_policy { FailurePolicy::Fail => "Fail", FailurePolicy::Ignore => "Ignore" },
        "matchPolicy": "Equivalent",
        "namespaceSelector": {"matchExpressions": [{
            "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", reach.namespace],
        }]},
        "rules": rules,
        "sideEffects": "None",
        "timeoutSeconds": watch.timeout_seconds,
    });
    if watch.mutating {
        webhook["reinvocationPolicy"] = json!("IfNeeded");
    }
    if !conditions.is_empty() {
        webhook["matchConditions"] = conditions.into();
    }
    webhook
}

/// Objects as YAML, one document each.
///
/// # Errors
/// When one cannot be printed.
pub fn to_yaml(objects: &[Value]) -> Result<String, serde_saphyr::ser::Error> {
    let mut text =
        String::from("# Made by `repot webhook --print-manifests`; a test holds the two together.\n");
    for (at, object) in objects.iter().enumerate() {
        text.push_str(if at == 0 { "" } else { "---\n" });
        text.push_str(&serde_saphyr::to_string(object)?);
    }
    Ok(text)
}
