//! What all extension kinds have in common in their status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

/// What a controller did last, as in `status.lastOperation.type`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperationType {
    /// The first reconciliation, until it succeeds.
    Create,
    /// Any later reconciliation.
    Reconcile,
    /// Removal of everything that the object stands for.
    Delete,
    /// The object is given up in this seed; what it stands for stays.
    Migrate,
    /// The object is taken over in this seed.
    Restore,
    /// A type that this library does not know.
    #[serde(untagged)]
    Other(String),
}

/// How it went, as in `status.lastOperation.state`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperationState {
    /// The controller works on it, or was interrupted.
    Processing,
    /// The operation is complete.
    Succeeded,
    /// The operation failed and is retried.
    Error,
    /// The operation failed and is not retried.
    Failed,
    /// The operation waits for something.
    Pending,
    /// The operation was given up.
    Aborted,
    /// A state that this library does not know.
    #[serde(untagged)]
    Other(String),
}

/// `status.lastOperation` of an extension object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastOperation {
    /// What happened, in words for people.
    pub description: String,
    /// When this was written.
    pub last_update_time: Option<Time>,
    /// Percentage of the work that is done.
    pub progress: i32,
    /// How the operation went.
    pub state: OperationState,
    /// What the controller did.
    #[serde(rename = "type")]
    pub kind: OperationType,
}

impl LastOperation {
    /// The type and the state alone.
    #[must_use]
    pub fn summary(&self) -> (&OperationType, &OperationState) {
        (&self.kind, &self.state)
    }

    /// Whether it is of this type and succeeded.
    #[must_use]
    pub fn has_succeeded(&self, kind: &OperationType) -> bool {
        self.kind == *kind && self.state == OperationState::Succeeded
    }
}

/// Machine-readable cause of an error, as gardenlet and dashboards evaluate it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorCode {
    /// The provider does not accept the credentials.
    #[serde(rename = "ERR_INFRA_UNAUTHENTICATED")]
    InfraUnauthenticated,
    /// The credentials lack permissions.
    #[serde(rename = "ERR_INFRA_UNAUTHORIZED")]
    InfraUnauthorized,
    /// A quota of the provider is exhausted.
    #[serde(rename = "ERR_INFRA_QUOTA_EXCEEDED")]
    InfraQuotaExceeded,
    /// The provider refuses further calls for a while.
    #[serde(rename = "ERR_INFRA_RATE_LIMITS_EXCEEDED")]
    InfraRateLimitsExceeded,
    /// Something else of the user depends on the infrastructure.
    #[serde(rename = "ERR_INFRA_DEPENDENCIES")]
    InfraDependencies,
    /// The same, and a retry may help.
    #[serde(rename = "ERR_RETRYABLE_INFRA_DEPENDENCIES")]
    RetryableInfraDependencies,
    /// The provider has no capacity left.
    #[serde(rename = "ERR_INFRA_RESOURCES_DEPLETED")]
    InfraResourcesDepleted,
    /// Resources in the Shoot cannot be cleaned up.
    #[serde(rename = "ERR_CLEANUP_CLUSTER_RESOURCES")]
    CleanupClusterResources,
    /// The user's configuration is wrong.
    #[serde(rename = "ERR_CONFIGURATION_PROBLEM")]
    ConfigurationProblem,
    /// The same, and a retry may help.
    #[serde(rename = "ERR_RETRYABLE_CONFIGURATION_PROBLEM")]
    RetryableConfigurationProblem,
    /// A webhook of the user blocks the operation.
    #[serde(rename = "ERR_PROBLEMATIC_WEBHOOK")]
    ProblematicWebhook,
    /// A code that this library does not know.
    #[serde(untagged)]
    Other(String),
}

impl ErrorCode {
    /// Whether gardenlet stops retrying the Shoot when it sees this code.
    #[must_use]
    pub fn needs_user(&self) -> bool {
        matches!(
            self,
            Self::InfraUnauthenticated
                | Self::InfraUnauthorized
                | Self::InfraQuotaExceeded
                | Self::InfraRateLimitsExceeded
                | Self::InfraDependencies
                | Self::ConfigurationProblem
                | Self::ProblematicWebhook
        )
    }
}

/// `status.lastError` of an extension object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastError {
    /// What failed, in words for people.
    pub description: String,
    /// Identifier of the task that failed; extension controllers leave it out.
    #[serde(rename = "taskID", default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// Machine-readable causes; empty where none is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub codes: Vec<ErrorCode>,
    /// When this was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
}

/// A condition of Gardener's kinds, which has one time more than those of Kubernetes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What the condition is about.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False`, `Unknown` or `Progressing`.
    pub status: String,
    /// When the status changed last.
    pub last_transition_time: Option<Time>,
    /// When the condition was written last.
    pub last_update_time: Option<Time>,
    /// CamelCase fact that an operator can search for.
    pub reason: String,
    /// The same in words for people.
    pub message: String,
    /// Machine-readable causes; empty where none is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub codes: Vec<ErrorCode>,
}

/// An object that `status.state` refers to by a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NamedResourceReference {
    /// Name by which the state refers to the object.
    pub name: String,
    /// The object itself, in the namespace of the extension object.
    pub resource_ref: CrossVersionObjectReference,
}

/// Reference to an object in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CrossVersionObjectReference {
    /// Group and version of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the object, in CamelCase.
    pub kind: String,
    /// Name of the object.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_words_survive() {
        let text =
            r#"{"description":"","lastUpdateTime":null,"progress":3,"state":"Odd","type":"LiveMigrate"}"#;
        let read: LastOperation = serde_json::from_str(text).expect("an operation");
        assert_eq!(read.kind, OperationType::Other("LiveMigrate".to_owned()));
        assert_eq!(serde_json::to_string(&read).expect("JSON"), text);
        let codes: Vec<ErrorCode> =
            serde_json::from_str(r#"["ERR_INFRA_DEPENDENCIES","ERR_X"]"#).expect("codes");
        assert_eq!(codes, [ErrorCode::InfraDependencies, ErrorCode::Other("ERR_X".to_owned())]);
        assert!(codes[0].needs_user() && !codes[1].needs_user());
    }
}
