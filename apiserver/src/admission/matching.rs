//! Which requests a webhook is for. Facts in, a decision out.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::admissionregistration::v1::RuleWithOperations, apimachinery::pkg::apis::meta::v1::LabelSelector,
};

use super::Operation;

/// The parts of a request that rules look at. The version is the one of the request: we serve one version of a kind, so
/// `matchPolicy: Equivalent` and `Exact` are the same.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Whether the request creates, updates or deletes an object.
    pub operation: Operation,
    /// API group of the requested resource.
    pub group: &'a str,
    /// API version of the request, such as `v1`.
    pub version: &'a str,
    /// Plural name of the resource, such as `shootstates`.
    pub resource: &'a str,
    /// Subresource, such as `status`; empty for the resource itself.
    pub subresource: &'a str,
    /// Namespace; empty for objects of the cluster.
    pub namespace: &'a str,
}

/// Whether one of the rules is about this request.
#[must_use]
pub fn any_rule(rules: &[RuleWithOperations], subject: &Subject<'_>) -> bool {
    rules.iter().any(|rule| {
        scope(rule.scope.as_deref(), subject.namespace)
            && listed(rule.operations.as_deref(), subject.operation.name())
            && listed(rule.api_groups.as_deref(), subject.group)
            && listed(rule.api_versions.as_deref(), subject.version)
            && rule.resources.iter().flatten().any(|pattern| resource(pattern, subject))
    })
}

fn scope(scope: Option<&str>, namespace: &str) -> bool {
    match scope {
        None | Some("*") => true,
        Some("Namespaced") => !namespace.is_empty(),
        Some("Cluster") => namespace.is_empty(),
        Some(_) => false,
    }
}

fn listed(patterns: Option<&[String]>, value: &str) -> bool {
    patterns.unwrap_or_default().iter().any(|pattern| pattern == "*" || pattern == value)
}

/// `R`, `R/S`, `*`, `*/*`, `R/*`, `*/S`. Without a slash only the resource itself is meant, no subresource.
fn resource(pattern: &str, subject: &Subject<'_>) -> bool {
    let (resource, subresource) = pattern.split_once('/').unwrap_or((pattern, ""));
    (resource == "*" || resource == subject.resource)
        && (subresource == "*" || subresource == subject.subresource)
}

/// A label selector that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a valid label selector operator")]
pub struct BadSelector(String);

/// Labels that an object has to have. Nothing asked for: every object matches.
///
/// # Errors
/// [`BadSelector`]: an operator that this server does not know.
pub fn selects(
    selector: Option<&LabelSelector>,
    labels: &BTreeMap<String, String>,
) -> Result<bool, BadSelector> {
    let Some(selector) = selector else { return Ok(true) };
    let exact = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let mut all = exact;
    for wanted in selector.match_expressions.iter().flatten() {
        let found = labels.get(&wanted.key);
        let values = wanted.values.as_deref().unwrap_or_default();
        all &= match wanted.operator.as_str() {
            "In" => found.is_some_and(|value| values.contains(value)),
            "NotIn" => found.is_none_or(|value| !values.contains(value)),
            "Exists" => found.is_some(),
            "DoesNotExist" => found.is_none(),
            other => return Err(BadSelector(other.to_owned())),
        };
    }
    Ok(all)
}

/// Whether a selector asks for anything at all.
#[must_use]
pub fn is_empty(selector: Option<&LabelSelector>) -> bool {
    selector.is_none_or(|selector| {
        selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
            && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SUBJECT: Subject<'_> = Subject {
        operation: Operation::Create,
        group: "core.gardener.cloud",
        version: "v1alpha1",
        resource: "shootstates",
        subresource: "",
        namespace: "garden",
    };

    fn rule(change: &[(&str, serde_json::Value)]) -> Vec<RuleWithOperations> {
        let mut rule = json!({
            "operations": ["CREATE"], "apiGroups": ["core.gardener.cloud"], "apiVersions": ["v1alpha1"],
            "resources": ["shootstates"],
        });
        for (key, value) in change {
            rule[*key] = value.clone();
        }
        vec![serde_json::from_value(rule).expect("a rule")]
    }

    #[test]
    fn rules_match_by_operation_group_version_resource_and_scope() {
        for (change, matches) in [
            (vec![], true),
            (vec![("operations", json!(["*"]))], true),
            (vec![("operations", json!(["UPDATE", "DELETE"]))], false),
            (vec![("apiGroups", json!(["*"]))], true),
            (vec![("apiGroups", json!(["apps", ""]))], false),
            (vec![("apiVersions", json!(["*"]))], true),
            (vec![("apiVersions", json!(["v1beta1"]))], false),
            (vec![("resources", json!(["*"]))], true),
            (vec![("resources", json!(["*/*"]))], true),
            (vec![("resources", json!(["shootstates/*"]))], true),
            (vec![("resources", json!(["shootstates/status"]))], false),
            (vec![("resources", json!(["*/status", "pods"]))], false),
            (vec![("scope", json!("Namespaced"))], true),
            (vec![("scope", json!("Cluster"))], false),
            (vec![("scope", json!("*"))], true),
            (vec![("scope", json!("Other"))], false),
            (vec![("resources", json!([]))], false),
        ] {
            assert_eq!(any_rule(&rule(&change), &SUBJECT), matches, "{change:?}");
        }
        assert!(!any_rule(&[], &SUBJECT));
    }

    #[test]
    fn rules_name_subresources_apart() {
        let status = Subject { subresource: "status", ..SUBJECT };
        for (pattern, matches) in [
            ("shootstates", false),
            ("*", false),
            ("shootstates/status", true),
            ("shootstates/*", true),
            ("*/status", true),
            ("*/*", true),
            ("*/scale", false),
        ] {
            assert_eq!(any_rule(&rule(&[("resources", json!([pattern]))]), &status), matches, "{pattern}");
        }
    }

    #[test]
    fn selectors_select_by_labels() {
        let labels = BTreeMap::from([("app".to_owned(), "etcd".to_owned())]);
        let wants = |operator: &str, key: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        for (selector, selected) in [
            (json!({}), true),
            (json!({"matchLabels": {"app": "etcd"}}), true),
            (json!({"matchLabels": {"app": "x"}}), false),
            (wants("In", "app", &["etcd"]), true),
            (wants("In", "none", &["etcd"]), false),
            (wants("NotIn", "app", &["etcd"]), false),
            (wants("NotIn", "none", &["etcd"]), true),
            (wants("Exists", "app", &[]), true),
            (wants("DoesNotExist", "app", &[]), false),
        ] {
            let read: LabelSelector = serde_json::from_value(selector.clone()).expect("a selector");
            assert_eq!(selects(Some(&read), &labels), Ok(selected), "{selector}");
        }
        let wrong: LabelSelector = serde_json::from_value(wants("Near", "app", &[])).expect("a selector");
        assert!(selects(Some(&wrong), &labels).is_err());
        assert_eq!(selects(None, &labels), Ok(true));
    }
}
