//! Many values at once: whatever is installed, it is whole.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::pods::{assert_restricted, claims};
use super::{Key, key, render, template};

const ETCD: &str = "storage.type=etcd,storage.etcd.servers={https://etcd:2379}";
const EXISTING: &str = "certificates.issuer=existing,certificates.existing.caBundle=PEM,certificates.existing.apiserverSecret=a,\
                        certificates.existing.webhookSecret=b";
const SUBJECT: &str = "garden.subjects[0].kind=User,garden.subjects[0].name=repot";
const RUNTIME: &str = "mode=runtime,garden.kubeconfigSecret=virtual-garden";

/// Values of the garden chart, each as in `--set`.
const GARDEN: &[&[&str]] = &[
    &[],
    &[ETCD],
    &[ETCD, "chunkStore.url=s3://a/b", "chunkStore.credentialsSecret=c"],
    &["certificates.issuer=cert-manager"],
    &["certificates.issuer=cert-manager", "encryption.generate=false"],
    &[EXISTING],
    &["serve=all", "shootstateGroup=migration.gardener.cloud"],
    &["apiserver.enabled=false"],
    &["webhook.enabled=false"],
    &["controllers.enabled=false"],
    &["webhook.enabled=false", "controllers.enabled=false", "gardenNamespace="],
    &[RUNTIME, SUBJECT],
    &[RUNTIME, SUBJECT, ETCD],
    &[RUNTIME, SUBJECT, EXISTING],
    &["mode=application", SUBJECT, "garden.apiserverAddress=10.0.0.1"],
    &["mode=application", SUBJECT, "garden.apiserverAddress=fd00::1", EXISTING],
    &["mode=application", SUBJECT, "garden.apiserverAddress=repot.example.com"],
    &["priorityClass.create=true", "podDisruptionBudgets=false", "networkPolicy.enabled=false"],
    &["bindAddress=::", "tracing.config.endpoint=x:1", "apiserver.audit.logPath=-"],
    &["metrics.serviceMonitor.enabled=true", "metrics.serviceMonitor.tokenSecret.name=t"],
    &["metrics.prometheusRule.enabled=true", "metrics.dashboards.enabled=true", RUNTIME, SUBJECT],
];
/// Values of the seed chart.
const SEED: &[&[&str]] = &[
    &[],
    &[ETCD],
    &["certificates.issuer=cert-manager"],
    &[EXISTING],
    &["apiserver.enabled=false", "webhook.enabled=false"],
    &["controllers.enabled=false"],
    &["controllers.namespaces={a,b}"],
    &["garden.seedName=x", "garden.kubeconfigSecret=k", "controllers.membersGateway=a/b"],
    &["metrics.prometheusRule.enabled=true", "metrics.dashboards.enabled=true"],
    &["gardener.seed.name=x"],
    &["gardener.seed.name=x", EXISTING],
];
const CLUSTER_SCOPED: [&str; 9] = [
    "APIService",
    "ClusterRole",
    "ClusterRoleBinding",
    "MutatingWebhookConfiguration",
    "Namespace",
    "PriorityClass",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
];
/// Roles of Kubernetes.
const BUILT_IN: [&str; 2] = ["system:auth-delegator", "extension-apiserver-authentication-reader"];

#[test]
fn objects_fit_together_for_many_values() {
    let all = [("repot-garden", GARDEN), ("repot-seed", SEED)];
    for (chart, values) in
        all.into_iter().flat_map(|(chart, all)| all.iter().map(move |values| (chart, *values)))
    {
        let rendered = render(chart, values);
        let objects: BTreeMap<Key, &Value> = rendered.iter().map(|object| (key(object), object)).collect();
        let context = format!("{chart} {values:?}");
        assert_eq!(objects.len(), rendered.len(), "{context}: two objects have one name");
        for (key, object) in &objects {
            let (kind, namespace, name) = key;
            let cluster_scoped = CLUSTER_SCOPED.contains(&kind.as_str());
            assert_eq!(namespace.is_empty(), cluster_scoped, "{context}: {kind} {name}");
            assert_binding(&context, key, object, &objects);
            assert_pods(&context, object, &objects);
        }
    }
}

/// A binding names a role and accounts that exist.
fn assert_binding(
    context: &str,
    (kind, namespace, name): &Key,
    object: &Value,
    objects: &BTreeMap<Key, &Value>,
) {
    if !kind.ends_with("Binding") || kind == "ValidatingAdmissionPolicyBinding" {
        return;
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let role = &object["roleRef"];
    let within = if role["kind"] == "Role" { namespace.clone() } else { String::new() };
    let role = (text(&role["kind"]), within, text(&role["name"]));
    let known = objects.contains_key(&role) || BUILT_IN.contains(&role.2.as_str());
    assert!(known, "{context}: {kind} {name} is for {role:?}");
    let subjects = object["subjects"].as_array().expect("subjects");
    assert!(!subjects.is_empty(), "{context}: {kind} {name} is for nobody");
    for subject in subjects.iter().filter(|subject| subject["kind"] == "ServiceAccount") {
        let account = ("ServiceAccount".to_owned(), text(&subject["namespace"]), text(&subject["name"]));
        assert!(objects.contains_key(&account), "{context}: {kind} {name} is for {account:?}");
    }
}

/// Pods are restricted, and have a ServiceAccount.
fn assert_pods(context: &str, object: &Value, objects: &BTreeMap<Key, &Value>) {
    let (pod, claims) = match object["kind"].as_str() {
        Some("Pod") => (&object["spec"], BTreeSet::new()),
        Some("Deployment" | "StatefulSet") => (&object["spec"]["template"]["spec"], claims(&object["spec"])),
        _ => return,
    };
    assert_restricted(context, pod, &claims);
    let account = pod["serviceAccountName"].as_str().unwrap_or_default().to_owned();
    let account = ("ServiceAccount".to_owned(), super::NAMESPACE.to_owned(), account);
    assert!(objects.contains_key(&account), "{context}: there is no {account:?}");
}

/// The aggregator of kube-apiserver reads EndpointSlices since Kubernetes 1.34, and Endpoints before.
#[test]
fn a_virtual_garden_gets_endpoints_that_its_aggregator_reads() {
    let address = "10.0.0.1";
    let values = format!("mode=application,{SUBJECT},garden.apiserverAddress={address}");
    let path = super::deploy("charts/repot-garden").display().to_string();
    for (version, has_endpoints) in [("1.32.4", true), ("1.33.0", true), ("1.34.0", false), ("1.36.3", false)]
    {
        let args = ["template", "repot", &path, "--kube-version", version, "--set", &values];
        let text = String::from_utf8(super::helm(&args).stdout).expect("UTF-8");
        let objects = super::documents(&text);
        let of_kind = |kind: &str| objects.iter().find(|object| object["kind"] == kind);
        let slice = of_kind("EndpointSlice").expect("an EndpointSlice");
        assert_eq!(slice["endpoints"][0]["addresses"][0], address, "{version}");
        let endpoints = of_kind("Endpoints").map(|object| &object["subsets"][0]["addresses"][0]["ip"]);
        assert_eq!(endpoints.is_some_and(|ip| ip == address), has_endpoints, "{version}");
    }
}

/// gardener-resource-manager keeps one object of a kind and a name for each file of a chart.
#[test]
fn a_file_has_one_object_of_a_kind_and_name() {
    for (chart, values) in [("repot-garden", &[][..]), ("repot-seed", &["gardener.seed.name=x"][..])] {
        let text = template(chart, values).expect("rendered");
        let mut seen = BTreeSet::new();
        for document in
            format!("\n{text}").split("\n---\n").filter(|document| document.contains("# Source: "))
        {
            let source =
                document.lines().find(|line| line.starts_with("# Source: ")).expect("a line").to_owned();
            let object = super::documents(document).remove(0);
            let (kind, _, name) = key(&object);
            assert!(
                seen.insert((source, kind.clone(), name.clone())),
                "{chart}: {kind} {name} is there twice"
            );
        }
        assert!(seen.len() > 30, "only {} objects", seen.len());
    }
}

/// gardener-resource-manager would remove a CA bundle that it has not written.
#[test]
fn beside_gardenlet_objects_with_a_ca_bundle_are_created_once() {
    let objects = render("repot-seed", &["gardener.seed.name=x"]);
    let mut published = 0;
    for object in &objects {
        let kind = object["kind"].as_str().unwrap_or_default();
        if kind != "APIService" && !kind.ends_with("WebhookConfiguration") {
            continue;
        }
        published += 1;
        assert_eq!(object["metadata"]["annotations"]["resources.gardener.cloud/ignore"], "true", "{kind}");
        let (_, _, name) = key(object);
        let flag = format!("--publish={}/{name}", kind.to_lowercase());
        let args = objects
            .iter()
            .find(|object| object["metadata"]["name"] == "repot-certs" && object["kind"] == "Deployment");
        let args =
            args.expect("repot-certs")["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
        assert!(args.contains(&flag), "{args} does not contain {flag}");
    }
    assert_eq!(published, 2);
    let name = |values: &[&str]| {
        let objects = render("repot-seed", values);
        let found = objects.iter().find(|object| object["kind"] == "ValidatingWebhookConfiguration");
        key(found.expect("a configuration")).2
    };
    assert_eq!(name(&[]), "repot-seed");
    assert!(name(&["gardener.seed.name=x"]).starts_with("repot-seed-"));
}
