//! Nodes of the Shoot, asked of its API at the destination: whether they have found the new address, and whether they are healthy.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};
use kube::{Api, Client, ResourceExt};
use repot_plan::migration::{Step, observed::MigrationMode};

use super::objects::Objects;
use crate::{
    errors::causes,
    migration::{
        clock::timestamp,
        context::Context,
        error::{Error, Result},
        overall::{Ledger, is_open},
        seed::{read, shoot_api},
    },
};

/// Namespace of the Leases of nodes (Kubernetes).
const LEASES: &str = "kube-node-lease";
/// A node that has not renewed its Lease for so long before the outage was lost already.
const LOST: SignedDuration = SignedDuration::from_secs(60);

/// Names of Nodes; `None` where they were not asked for, or could not be listed.
pub type Names = Option<Vec<String>>;

/// Nodes whose Lease is stale, and nodes that are not healthy, as far as a row decides on them.
pub async fn observe(
    context: &Context,
    (mode, source): (MigrationMode, &Ledger),
    objects: &Objects,
    ledger: &Ledger,
) -> (Names, Names) {
    let (leases, health) = (is_open(ledger, Step::NodeLeasesRenewed), is_open(ledger, Step::NodesHealthy));
    if !leases && !health {
        return (None, None);
    }
    let begun = |ledger: &Ledger, step| ledger.steps.get(&step).and_then(|record| record.started);
    let found = async {
        let shoot = shoot_api::client(context.own_client(), &objects.namespace).await?;
        // A source that died has no such step: its API may have been down for long.
        let outage = begun(source, Step::SourceApiStopped).filter(|_| mode != MigrationMode::Forced);
        // Both sides serve until the last kube-apiserver of the source has ended.
        let ended = || source.steps.get(&Step::SourceApiStopped).and_then(|record| record.completed);
        let served = match mode {
            MigrationMode::Live => ended(),
            MigrationMode::Classic | MigrationMode::Forced => begun(ledger, Step::ApiDnsSwitched),
        };
        let stale = match served {
            Some(served) if leases && (outage.is_some() || mode == MigrationMode::Forced) => {
                Some(stale_leases(&shoot, outage.map(timestamp), timestamp(served)).await?)
            }
            _ => None,
        };
        let unhealthy = if health { Some(unhealthy(&shoot).await?) } else { None };
        Ok::<_, Error>((stale, unhealthy))
    };
    found.await.unwrap_or_else(|error| {
        tracing::warn!(error = causes(&error), "the nodes of the Shoot cannot be listed");
        (None, None)
    })
}

/// Nodes whose Lease was fresh at the beginning of the outage and is not renewed since the API serves here. Where nobody knows when
/// the outage began, it is when the last Lease was renewed.
///
/// # Errors
/// Where the API of the Shoot does not answer.
pub async fn stale_leases(
    shoot: &Client,
    outage: Option<Timestamp>,
    served: Timestamp,
) -> Result<Vec<String>> {
    let leases = read::list::<Lease>(shoot, LEASES, "").await?;
    Ok(stale(&leases, outage, served))
}

fn stale(leases: &[Lease], outage: Option<Timestamp>, served: Timestamp) -> Vec<String> {
    let renewed = |lease: &Lease| lease.spec.as_ref()?.renew_time.as_ref().map(|time| time.0);
    let last = || leases.iter().filter_map(renewed).filter(|time| *time < served).max();
    let outage = outage.or_else(last).unwrap_or(served);
    let is_stale = |lease: &&Lease| renewed(lease).is_some_and(|time| time < served && time >= outage - LOST);
    leases.iter().filter(is_stale).map(ResourceExt::name_any).collect()
}

/// All Nodes of the Shoot.
///
/// # Errors
/// Where the API of the Shoot does not answer.
pub async fn all(shoot: &Client) -> Result<Vec<Node>> {
    read::pages(&Api::<Node>::all(shoot.clone()), "", "Nodes of the Shoot").await
}

/// Nodes that are not Ready.
///
/// # Errors
/// Where the API of the Shoot does not answer.
pub async fn unhealthy(shoot: &Client) -> Result<Vec<String>> {
    let nodes = all(shoot).await?;
    let is_ready = |node: &Node| {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True")
    };
    Ok(nodes.iter().filter(|node| !is_ready(node)).map(ResourceExt::name_any).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(name: &str, renewed: i64) -> Lease {
        let time = Timestamp::from_second(renewed).expect("a time").to_string();
        let time = format!("{}.000000Z", time.trim_end_matches('Z'));
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"renewTime": time}}))
            .expect("a Lease")
    }

    #[test]
    fn lease_is_stale_between_the_outage_and_the_new_api() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let leases = [lease("lost", 800), lease("stale", 950), lease("late", 1010), lease("fresh", 1021)];
        assert_eq!(stale(&leases, Some(at(1000)), at(1020)), ["stale", "late"]);
        assert_eq!(stale(&leases, None, at(1020)), ["stale", "late"]);
    }
}
