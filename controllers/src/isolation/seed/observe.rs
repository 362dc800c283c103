//! What the seed observes of an isolation.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, ResourceExt, api::ListParams, core::DynamicObject};
use repot_api::names::{LEAVES_ZONES_OUT, LEFT_OUT_SINCE, TIMESTAMP};
use repot_extension::{
    annotations::{Requested, SeenRequest},
    kinds::{Cluster, ExtensionObject, Infrastructure, SubnetIsolation, Worker},
    request::{BadTimestamp, Progress, Request, Waiting},
    status::{OperationState, OperationType},
};
use repot_plan::{
    isolation::{
        Step,
        observed::{Asked, Facts, IsolationRequest, SeedFacts, SeedNamespace, SubnetFacts, WorkerFacts},
    },
    ledger::{Phase, State},
};
use repot_rules::zones;
use serde_json::Value;

use super::{budgets, machines, nodes};
use crate::{
    errors::{causes, is_not_found},
    isolation::{
        api::ZoneIsolation,
        names::{ASKED, SUBNET_ISOLATION},
        record::Ledger,
        siblings,
    },
    migration::{
        Context, Error, Result,
        api::Shoot,
        seed::{read, shoot_api},
    },
    shootstate::kinds::{MACHINE, MACHINE_DEPLOYMENT, SeedKind},
};

/// When a controller that has done what it was asked for is asked for the same again.
const ASK_AGAIN: SignedDuration = SignedDuration::from_secs(60);

/// The Nodes of the Shoot, and a client of its API.
pub struct ShootNodes {
    /// A client of that API.
    pub client: Client,
    /// All Nodes that it has.
    pub nodes: Vec<Node>,
}

/// Objects of the seed, as they were observed.
pub struct Objects {
    /// Namespace of the control plane.
    pub namespace: String,
    /// The Worker of the Shoot, where it has one.
    pub worker: Option<Worker>,
    /// Machines of the zone.
    pub machines: Vec<DynamicObject>,
    /// Machines of other zones that came in place of them, and are not marked as the first to end.
    pub added: Vec<DynamicObject>,
    /// The API of the Shoot and its Nodes, where they are asked for and it answers.
    pub shoot: Option<ShootNodes>,
    /// Names of the Nodes of the zone that take Pods.
    pub open_nodes: Vec<String>,
    /// The SubnetIsolation, where there is one.
    pub subnet: Option<SubnetIsolation>,
}

/// Observes the seed.
///
/// # Errors
/// [`Error::Read`]. An API of the Shoot that does not answer is observed as such.
pub async fn observe(
    context: &Context,
    isolation: &ZoneIsolation,
    (request, shoot): (&IsolationRequest, Option<Shoot>),
    ledger: &Ledger,
) -> Result<(Facts, Objects)> {
    let seed = context.own_client();
    let SeedNamespace { seed: seed_name, namespace } = isolation.place().unwrap_or_default();
    let (workers, deployments, all_machines, infrastructures, cluster, subnet, migration) = futures::try_join!(
        read::list::<Worker>(seed, &namespace, ""),
        objects(seed, &namespace, &MACHINE_DEPLOYMENT),
        objects(seed, &namespace, &MACHINE),
        read::list::<Infrastructure>(seed, &namespace, ""),
        cluster(seed, &namespace),
        subnet(seed, &namespace),
        siblings::migration(context, isolation),
    )?;
    let worker = workers.into_iter().next();
    let zone_code = zone_code(&request.zone, worker.as_ref(), &infrastructures, cluster.as_ref());
    let code = ledger.notes.zone_code.clone().or_else(|| zone_code.clone()).unwrap_or_default();
    let of_zone = worker.as_ref().map(|worker| machines::of_zone(worker, &namespace, &code, &all_machines));
    let machines: Vec<DynamicObject> = of_zone.unwrap_or_default().into_iter().cloned().collect();
    let added = machines::added(&all_machines, &machines, worker.as_ref().and_then(left_out_since));
    let hibernated = shoot.is_some_and(|shoot| shoot.status.is_hibernated == Some(true));
    let found = nodes_of(seed, &namespace, ledger, hibernated).await;
    let of_machines: BTreeSet<String> =
        machines.iter().filter_map(|machine| machines::node_of(machine).cloned()).collect();
    let nodes = found.as_ref().map(|found| found.nodes.as_slice()).or(hibernated.then_some(&[]));
    let open = nodes.map(|nodes| nodes::open(nodes, &of_machines));
    let pools = worker.as_ref().map(|worker| machines::pools(worker, &namespace, &deployments));
    let facts = SeedFacts {
        seed: seed_name,
        migration,
        is_followed: ledger.phase.is_end() && is_followed(context, isolation).await?,
        unsupported: unsupported(seed, &namespace, worker.as_ref(), ledger).await?,
        zone_code,
        pools: pools.unwrap_or_default(),
        free: worker.as_ref().map(Worker::free_quota).unwrap_or_default(),
        open_nodes: open.clone(),
        own_cordoned: nodes.map(|nodes| nodes::marked(nodes, &request.zone)),
        worker: worker.as_ref().map(|worker| worker_facts(worker, &request.uid)),
        machines: machines.iter().map(ResourceExt::name_any).collect(),
        late_machines: machines::late(&machines, request.drain_timeout, Timestamp::now()),
        closed_budgets: closed_budgets(found.as_ref(), ledger).await,
        subnet: subnet_facts(subnet.as_ref(), &request.zone),
    };
    let open_nodes = open.unwrap_or_default();
    let objects = Objects { namespace, worker, machines, added, shoot: found, open_nodes, subnet };
    Ok((Facts::Seed(Box::new(facts)), objects))
}

/// Asked only of one that has ended: no other one begins before.
async fn is_followed(context: &Context, isolation: &ZoneIsolation) -> Result<bool> {
    let others = siblings::others(context, isolation).await?;
    Ok(others.iter().any(|other| siblings::follows(other, isolation)))
}

fn left_out_since(worker: &Worker) -> Option<Timestamp> {
    worker.annotations().get(LEFT_OUT_SINCE).and_then(|since| since.parse().ok())
}

/// Budgets are told of while machines are drained, and hold nothing else up.
async fn closed_budgets(shoot: Option<&ShootNodes>, ledger: &Ledger) -> Vec<String> {
    let Some(shoot) = shoot.filter(|_| ledger.state(Step::MachinesGone) == State::Running) else {
        return Vec::new();
    };
    let closed = budgets::closed(&shoot.client).await;
    closed
        .inspect_err(|error| tracing::warn!(error = causes(error), "PodDisruptionBudgets cannot be listed"))
        .unwrap_or_default()
}

/// What an isolation needs and this cluster does not know, asked until it is known.
async fn unsupported(
    seed: &Client,
    namespace: &str,
    worker: Option<&Worker>,
    ledger: &Ledger,
) -> Result<Vec<String>> {
    if ledger.is_settled(Step::CapacitySuffices) || !ledger.is_settled(Step::ZoneKnown) {
        return Ok(Vec::new());
    }
    let all = Api::<SubnetIsolation>::namespaced(seed.clone(), namespace);
    let is_served = match all.list(&ListParams::default().limit(1)).await {
        Err(error) if is_not_found(&error) => false,
        outcome => outcome.map(|_| true).map_err(Error::read("SubnetIsolations"))?,
    };
    let mut unsupported = Vec::new();
    if !is_served {
        unsupported.push("the seed has no kind SubnetIsolation".to_owned());
    }
    // One that does not would report success, and leave the machines where they are.
    if worker.is_some_and(|worker| !worker.leaves_zones_out()) {
        let message = format!(
            "the controller of the Worker has not said by annotation {LEAVES_ZONES_OUT} that it leaves zones out"
        );
        unsupported.push(message);
    }
    Ok(unsupported)
}

async fn objects(seed: &Client, namespace: &str, kind: &SeedKind) -> Result<Vec<DynamicObject>> {
    let all = Api::<DynamicObject>::namespaced_with(seed.clone(), namespace, &kind.resource());
    read::pages(&all, "", &format!("{}s of {namespace}", kind.kind)).await
}

async fn cluster(seed: &Client, namespace: &str) -> Result<Option<Cluster>> {
    let found = Api::<Cluster>::all(seed.clone()).get_opt(namespace).await;
    found.map_err(Error::read(format!("Cluster {namespace}")))
}

async fn subnet(seed: &Client, namespace: &str) -> Result<Option<SubnetIsolation>> {
    let found = Api::<SubnetIsolation>::namespaced(seed.clone(), namespace).get(SUBNET_ISOLATION).await;
    let found = match found {
        // There is none, or the seed does not know the kind.
        Err(error) if is_not_found(&error) => return Ok(None),
        found => found.map(Some),
    };
    found.map_err(Error::read(format!("SubnetIsolation {namespace}/{SUBNET_ISOLATION}")))
}

/// What the provider tells is believed before what the CloudProfile says.
fn zone_code(
    zone: &str,
    worker: Option<&Worker>,
    infrastructures: &[Infrastructure],
    cluster: Option<&Cluster>,
) -> Option<String> {
    let left_out = worker.filter(|worker| worker.left_out_zone() == Some(zone));
    let by_worker = left_out.and_then(|worker| worker.left_out_code().map(str::to_owned));
    let by_infrastructure = || {
        let statuses = infrastructures.iter().filter_map(|one| one.status.as_ref()?.provider_status.as_ref());
        statuses.filter_map(|status| status.decode::<Value>().ok()).find_map(|it| told(&it, zone))
    };
    let by_profile = || {
        let spec = &cluster?.spec;
        let (shoot, profile) =
            (spec.shoot.decode::<Value>().ok()?, spec.cloud_profile.decode::<Value>().ok());
        zones::code(&shoot, profile.as_ref(), zone)
    };
    by_worker.or_else(by_infrastructure).or_else(by_profile)
}

/// `zones: [{id, name}]` in the status that a provider defines.
fn told(status: &Value, zone: &str) -> Option<String> {
    let zones = status.get("zones")?.as_array()?;
    let found = zones.iter().find(|one| one["id"] == zone)?;
    found["name"].as_str().map(str::to_owned)
}

fn worker_facts(worker: &Worker, uid: &str) -> WorkerFacts {
    let asked = worker.annotations().get(ASKED).map(String::as_str).unwrap_or_default();
    let all = [Asked::LeaveZone, Asked::UseZone];
    WorkerFacts {
        left_out: worker.left_out_zone().map(str::to_owned),
        code: worker.left_out_code().map(str::to_owned),
        asked: all.into_iter().find(|one| asked == marker(uid, *one)),
        pending: pending(worker),
    }
}

/// What an isolation has asked for, as the annotation has it.
pub(super) fn marker(uid: &str, asked: Asked) -> String {
    format!("{uid}/{asked:?}")
}

fn progress<K: ExtensionObject>(object: &K) -> Result<Progress, BadTimestamp> {
    let time = object.annotations().get(TIMESTAMP).map(String::as_str).unwrap_or_default();
    Request::recorded(Requested::Reconcile, time).map(|request| request.progress(object))
}

/// Whether a reconcile has to be requested: the last one is done, or somebody has changed the object since, and controllers look at an
/// object only when they are asked. Not while another operation is requested, such as that of a migration.
pub(super) fn may_be_asked<K: ExtensionObject>(object: &K) -> bool {
    let seen = SeenRequest::of(object);
    let is_overtaken = || {
        let waits = progress(object);
        matches!(
            waits,
            Err(_)
                | Ok(
                    Progress::Done | Progress::Waiting(Waiting::OlderGeneration | Waiting::RequestNotVisible)
                )
        )
    };
    !seen.has_operation() && is_overtaken()
}

/// Whether its controller was asked for something in the last minute.
pub(super) fn was_asked_lately<K: ExtensionObject>(object: &K) -> bool {
    let asked = object.annotations().get(TIMESTAMP).and_then(|time| time.parse::<Timestamp>().ok());
    asked.is_some_and(|asked| Timestamp::now().duration_since(asked) < ASK_AGAIN)
}

/// Whether another operation than a reconcile is requested, or was the last one and has not succeeded.
pub(super) fn is_in_other_hands<K: ExtensionObject>(object: &K) -> bool {
    let requested = SeenRequest::of(object).requested();
    let last = object.status().last_operation;
    let is_moving = last.is_some_and(|last| match last.kind {
        OperationType::Migrate => true,
        OperationType::Restore => last.state != OperationState::Succeeded,
        _ => false,
    });
    is_moving || requested.is_some_and(|operation| operation != Requested::Reconcile)
}

/// What the last request for a reconcile waits for; `None` where it is done.
fn pending<K: ExtensionObject>(object: &K) -> Option<String> {
    match progress(object) {
        Ok(Progress::Done) => None,
        Ok(Progress::Waiting(waiting)) => Some(waiting.to_string()),
        Ok(Progress::Failed { description, .. }) => Some(description),
        Err(error) => Some(error.to_string()),
    }
}

fn subnet_facts(found: Option<&SubnetIsolation>, zone: &str) -> SubnetFacts {
    let Some(found) = found else { return SubnetFacts::Absent };
    let other = &found.spec.isolated_zone_id;
    if found.metadata.deletion_timestamp.is_some() {
        let last = found.status.as_ref().and_then(|status| status.last_operation.as_ref());
        return SubnetFacts::Deleting(last.map(|last| last.description.clone()).unwrap_or_default());
    }
    match pending(found) {
        _ if other != zone => SubnetFacts::Foreign(format!("a SubnetIsolation of zone {other}")),
        Some(why) => SubnetFacts::Pending(why),
        None => SubnetFacts::Ready,
    }
}

/// Nodes are asked for once the zone may be left, until nothing is to be undone any more. A hibernated Shoot has none.
async fn nodes_of(seed: &Client, namespace: &str, ledger: &Ledger, hibernated: bool) -> Option<ShootNodes> {
    let is_asked = ledger.is_settled(Step::CapacitySuffices) && ledger.phase != Phase::Failed;
    if !is_asked || hibernated {
        return None;
    }
    let found = async {
        let client = shoot_api::client(seed, namespace).await?;
        let nodes = nodes::all(&client).await?;
        Ok::<_, Error>(ShootNodes { client, nodes })
    };
    found
        .await
        .inspect_err(|error| tracing::warn!(error = causes(error), "the nodes of the Shoot cannot be listed"))
        .ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn provider_tells_the_code_of_a_zone_by_its_infrastructure() {
        let status = json!({"zones": [{"id": "euc1-az1", "name": "eu-central-1b"}]});
        assert_eq!(told(&status, "euc1-az1").as_deref(), Some("eu-central-1b"));
        assert_eq!(told(&status, "euc1-az2"), None);
        assert_eq!(told(&json!({"zones": "none"}), "euc1-az1"), None);
    }

    #[test]
    fn isolation_of_another_zone_is_foreign() {
        let of = |zone: &str| -> SubnetIsolation {
            let spec = json!({"type": "local", "isolatedZoneID": zone});
            serde_json::from_value(json!({"metadata": {"name": "s"}, "spec": spec})).expect("one")
        };
        assert_eq!(subnet_facts(None, "z1"), SubnetFacts::Absent);
        assert!(matches!(subnet_facts(Some(&of("z2")), "z1"), SubnetFacts::Foreign(_)));
        assert!(matches!(subnet_facts(Some(&of("z1")), "z1"), SubnetFacts::Pending(_)));
    }
}
