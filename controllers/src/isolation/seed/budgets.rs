//! PodDisruptionBudgets of the Shoot that let no Pod end.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{Api, Client, ResourceExt};

use crate::migration::{Result, seed::read};

/// Namespaces and names of those that let no Pod of theirs end now.
///
/// # Errors
/// Where the API of the Shoot does not answer.
pub async fn closed(shoot: &Client) -> Result<Vec<String>> {
    let all = Api::<PodDisruptionBudget>::all(shoot.clone());
    let all = read::pages(&all, "", "the PodDisruptionBudgets of the Shoot").await?;
    Ok(all.iter().filter(|budget| is_closed(budget)).map(title).collect())
}

/// One without Pods holds nobody up.
fn is_closed(budget: &PodDisruptionBudget) -> bool {
    let status = budget.status.as_ref();
    status.is_some_and(|status| status.disruptions_allowed == 0 && status.expected_pods > 0)
}

fn title(budget: &PodDisruptionBudget) -> String {
    format!("{}/{}", budget.namespace().unwrap_or_default(), budget.name_any())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn budget_is_closed_when_none_of_its_pods_may_end() {
        let budget = |allowed: u32, expected: u32| -> PodDisruptionBudget {
            let status = json!({
                "disruptionsAllowed": allowed, "expectedPods": expected, "currentHealthy": 1, "desiredHealthy": 1,
            });
            serde_json::from_value(json!({"metadata": {"name": "b", "namespace": "n"}, "status": status}))
                .expect("a PodDisruptionBudget")
        };
        assert!(is_closed(&budget(0, 2)));
        assert!(!is_closed(&budget(1, 2)));
        assert!(!is_closed(&budget(0, 0)));
        assert_eq!(title(&budget(0, 1)), "n/b");
    }
}
