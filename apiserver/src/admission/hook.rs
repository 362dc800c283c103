//! A webhook as its configuration says it: read once, when the configuration changes.

use std::{sync::OnceLock, time::Duration};

use k8s_openapi::{
    api::admissionregistration::v1::{
        MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ValidatingWebhook,
        ValidatingWebhookConfiguration, WebhookClientConfig,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

use super::{conditions::Conditions, review::Version};

/// How long a webhook has where its configuration does not say.
const DEFAULT_TIMEOUT: i32 = 10;
const TIMEOUTS: std::ops::RangeInclusive<i32> = 1..=30;

/// One webhook of a MutatingWebhookConfiguration or ValidatingWebhookConfiguration.
pub struct Hook {
    /// `<configuration>/<webhook>/<n>`: tells webhooks of one name apart within a request.
    pub id: String,
    /// Its name, as errors and metrics show it.
    pub name: String,
    /// Whether it may change objects.
    pub mutating: bool,
    /// The webhook is asked about requests that match one of these rules.
    pub rules: Vec<RuleWithOperations>,
    /// The `namespaceSelector`: labels that the object's namespace has to have. `None`: any namespace matches.
    pub namespaces: Option<LabelSelector>,
    /// The `objectSelector`: labels that the object has to have. `None`: any object matches.
    pub objects: Option<LabelSelector>,
    /// Expressions that all have to hold.
    pub conditions: Conditions,
    /// Whether a failure of the webhook lets the request pass.
    pub ignore_failure: bool,
    /// Whether it can be asked about a dry run.
    pub dry_run: bool,
    /// Whether it wants to be asked again after others have changed the object.
    pub reinvoke: bool,
    /// How long it has.
    pub timeout: Duration,
    /// The form of the question; `None` where it knows none of ours.
    pub version: Option<Version>,
    /// The `clientConfig`: URL or Service of the webhook, and its authorities.
    pub client_config: WebhookClientConfig,
    /// The client for it, made when first needed.
    pub client: OnceLock<Result<reqwest::Client, String>>,
}

impl Hook {
    /// Name of the configuration that the webhook is part of.
    #[must_use]
    pub fn configuration(&self) -> &str {
        self.id.split('/').next().unwrap_or_default()
    }
}

/// The webhooks of a configuration, in order.
#[must_use]
pub fn mutating(configuration: &MutatingWebhookConfiguration) -> Vec<Hook> {
    let name = configuration.metadata.name.as_deref().unwrap_or_default();
    let hooks = configuration.webhooks.iter().flatten();
    hooks.enumerate().map(|(at, hook)| of_mutating(format!("{name}/{}/{at}", hook.name), hook)).collect()
}

/// The webhooks of a configuration, in order.
#[must_use]
pub fn validating(configuration: &ValidatingWebhookConfiguration) -> Vec<Hook> {
    let name = configuration.metadata.name.as_deref().unwrap_or_default();
    let hooks = configuration.webhooks.iter().flatten();
    hooks.enumerate().map(|(at, hook)| of_validating(format!("{name}/{}/{at}", hook.name), hook)).collect()
}

fn of_mutating(id: String, hook: &MutatingWebhook) -> Hook {
    Hook {
        id,
        name: hook.name.clone(),
        mutating: true,
        rules: hook.rules.clone().unwrap_or_default(),
        namespaces: hook.namespace_selector.clone(),
        objects: hook.object_selector.clone(),
        conditions: Conditions::compile(hook.match_conditions.as_deref().unwrap_or_default()),
        ignore_failure: hook.failure_policy.as_deref() == Some("Ignore"),
        dry_run: harmless(&hook.side_effects),
        reinvoke: hook.reinvocation_policy.as_deref() == Some("IfNeeded"),
        timeout: timeout(hook.timeout_seconds),
        version: Version::first_of(&hook.admission_review_versions),
        client_config: hook.client_config.clone(),
        client: OnceLock::new(),
    }
}

fn of_validating(id: String, hook: &ValidatingWebhook) -> Hook {
    Hook {
        id,
        name: hook.name.clone(),
        mutating: false,
        rules: hook.rules.clone().unwrap_or_default(),
        namespaces: hook.namespace_selector.clone(),
        objects: hook.object_selector.clone(),
        conditions: Conditions::compile(hook.match_conditions.as_deref().unwrap_or_default()),
        ignore_failure: hook.failure_policy.as_deref() == Some("Ignore"),
        dry_run: harmless(&hook.side_effects),
        reinvoke: false,
        timeout: timeout(hook.timeout_seconds),
        version: Version::first_of(&hook.admission_review_versions),
        client_config: hook.client_config.clone(),
        client: OnceLock::new(),
    }
}

/// Whether a dry run stays one when such a webhook is asked.
fn harmless(side_effects: &str) -> bool {
    matches!(side_effects, "None" | "NoneOnDryRun")
}

fn timeout(seconds: Option<i32>) -> Duration {
    let seconds = seconds.unwrap_or(DEFAULT_TIMEOUT).clamp(*TIMEOUTS.start(), *TIMEOUTS.end());
    Duration::from_secs(seconds.unsigned_abs().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_is_set_and_the_defaults() {
        let configuration = serde_json::json!({
            "metadata": {"name": "policy"},
            "webhooks": [
                {"name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v2", "v1beta1"], "clientConfig": {},
                 "failurePolicy": "Ignore", "timeoutSeconds": 3, "reinvocationPolicy": "IfNeeded"},
                {"name": "b.example.com", "sideEffects": "Some", "admissionReviewVersions": ["v2"], "clientConfig": {}, "timeoutSeconds": 99},
                {"name": "c.example.com", "sideEffects": "NoneOnDryRun", "admissionReviewVersions": ["v1"], "clientConfig": {}},
            ],
        });
        let configuration = serde_json::from_value(configuration).expect("a configuration");
        let hooks = mutating(&configuration);
        let seen: Vec<_> = hooks
            .iter()
            .map(|h| (h.id.as_str(), h.ignore_failure, h.dry_run, h.reinvoke, h.timeout.as_secs(), h.version))
            .collect();
        assert_eq!(
            seen,
            [
                ("policy/a.example.com/0", true, true, true, 3, Some(Version::V1Beta1)),
                ("policy/b.example.com/1", false, false, false, 30, None),
                ("policy/c.example.com/2", false, true, false, 10, Some(Version::V1)),
            ]
        );
    }
}
