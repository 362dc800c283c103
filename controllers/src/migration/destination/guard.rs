//! The ValidatingAdmissionPolicy that keeps Machines while a control plane moves.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::{Api, Client, api::DeleteParams};
use serde_json::json;

use super::prepare::create_params;
use crate::{
    errors::{is_conflict, is_not_found},
    migration::{
        error::{Error, Result},
        names::MADE_BY,
    },
    shootstate::kinds::MACHINE_GROUP,
};

/// Name of the policy and of its binding.
#[must_use]
pub fn name(migration: &str) -> String {
    format!("repot-migration-{migration}")
}

/// Whether the policy of this migration is there and bound.
///
/// # Errors
/// [`Error::Read`].
pub async fn exists(seed: &Client, migration: &str) -> Result<bool> {
    let name = name(migration);
    let (policies, bindings) = apis(seed);
    let (policy, binding) = futures::try_join!(policies.get_opt(&name), bindings.get_opt(&name))
        .map_err(Error::read(format!("ValidatingAdmissionPolicy {name}")))?;
    // The API server has compiled the policy once it has observed it.
    let is_compiled = policy.is_some_and(|policy| {
        let observed = policy.status.and_then(|status| status.observed_generation);
        observed.is_none() || observed == policy.metadata.generation
    });
    Ok(is_compiled && binding.is_some())
}

fn apis(seed: &Client) -> (Api<ValidatingAdmissionPolicy>, Api<ValidatingAdmissionPolicyBinding>) {
    (Api::all(seed.clone()), Api::all(seed.clone()))
}

/// Refuses each deletion of a Machine in a namespace.
///
/// # Errors
/// [`Error::Write`].
pub async fn ensure(seed: &Client, namespace: &str, migration: &str) -> Result<()> {
    let name = name(migration);
    let form = |source| Error::Form { what: format!("ValidatingAdmissionPolicy {name}"), source };
    let metadata = json!({"name": name, "labels": {MADE_BY: migration}});
    let policy: ValidatingAdmissionPolicy = serde_json::from_value(json!({
        "metadata": metadata,
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [MACHINE_GROUP], "apiVersions": ["*"], "operations": ["DELETE"], "resources": ["machines"],
            }]},
            "matchConditions": [{
                "name": "namespace", "expression": format!("request.namespace == {namespace:?}"),
            }],
            "validations": [{
                "expression": "false",
                "message": "Machines are kept while the control plane moves to this seed; see its ControlPlaneMigration",
            }],
        },
    }))
    .map_err(form)?;
    let binding: ValidatingAdmissionPolicyBinding = serde_json::from_value(json!({
        "metadata": metadata, "spec": {"policyName": name, "validationActions": ["Deny"]},
    }))
    .map_err(form)?;
    let (policies, bindings) = apis(seed);
    let task = format!("create ValidatingAdmissionPolicy {name}");
    match policies.create(&create_params(), &policy).await {
        Err(error) if is_conflict(&error) => {}
        outcome => drop(outcome.map_err(Error::write(task.clone()))?),
    }
    match bindings.create(&create_params(), &binding).await {
        Err(error) if is_conflict(&error) => Ok(()),
        outcome => outcome.map(drop).map_err(Error::write(task)),
    }
}

/// Lets Machines be deleted again.
///
/// # Errors
/// [`Error::Write`].
pub async fn remove(seed: &Client, migration: &str) -> Result<()> {
    let name = name(migration);
    let task = format!("delete ValidatingAdmissionPolicy {name}");
    let (policies, bindings) = apis(seed);
    match bindings.delete(&name, &DeleteParams::default()).await {
        Err(error) if is_not_found(&error) => {}
        outcome => drop(outcome.map_err(Error::write(task.clone()))?),
    }
    match policies.delete(&name, &DeleteParams::default()).await {
        Err(error) if is_not_found(&error) => Ok(()),
        outcome => outcome.map(drop).map_err(Error::write(task)),
    }
}
