//! Effects of the seed as calls.

use jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::DynamicObject,
};
use repot_api::names::{CONFIRM_DELETION, EXTENSIONS_GROUP, LEFT_OUT_SINCE, LEFT_OUT_ZONE, V1ALPHA1};
use repot_extension::{
    annotations::Requested,
    kinds::{SubnetIsolation, Worker},
    request::Request,
};
use repot_plan::isolation::{
    effect::Effect,
    observed::{Asked, IsolationRequest},
};
use serde_json::{Value, json};

use super::{
    machines, nodes,
    observe::{Objects, is_in_other_hands, marker, may_be_asked, was_asked_lately},
};
use crate::{
    errors::{causes, is_conflict, is_not_found},
    isolation::names::{ASKED, MANAGER, SUBNET_ISOLATION},
    migration::{Context, Error, Result},
    shootstate::kinds::MACHINE,
};

/// Carries out an effect of the seed, under the versions of the objects that were observed.
///
/// # Errors
/// [`Error`]. The next pass looks again.
pub async fn act(
    context: &Context,
    request: &IsolationRequest,
    objects: &Objects,
    effect: &Effect,
) -> Result<()> {
    let seed = context.own_client();
    match effect {
        Effect::Cordon { .. } => match &objects.shoot {
            Some(it) => nodes::cordon(&it.client, &it.nodes, &objects.open_nodes, &request.zone).await,
            None => Ok(()),
        },
        Effect::Uncordon => match &objects.shoot {
            Some(it) => nodes::uncordon(&it.client, &it.nodes, &request.zone).await,
            None => Ok(()),
        },
        Effect::LeaveZone { zone } => ask(seed, objects, request, Some(zone), Asked::LeaveZone).await,
        Effect::UseZone => {
            end_added_first(seed, objects).await;
            ask(seed, objects, request, None, Asked::UseZone).await
        }
        Effect::ForceMachines { machines } => force(seed, objects, machines).await,
        Effect::IsolateSubnet { zone } => isolate(seed, objects, zone).await,
        Effect::ReleaseSubnet => release(seed, objects).await,
        _ => Ok(()),
    }
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

fn under(version: Option<String>, mut patch: Value) -> Patch<Value> {
    patch["metadata"]["resourceVersion"] = version.into();
    Patch::Merge(patch)
}

/// Asks the controller of the Worker once. What it works on already is not asked for again: it would begin anew. What a migration has
/// requested is not replaced.
async fn ask(
    seed: &Client,
    objects: &Objects,
    request: &IsolationRequest,
    zone: Option<&String>,
    asked: Asked,
) -> Result<()> {
    let Some(worker) = objects.worker.as_ref().filter(|worker| !is_in_other_hands(*worker)) else {
        return Ok(());
    };
    let mark = marker(&request.uid, asked);
    let is_asked =
        worker.annotations().get(ASKED) == Some(&mark) && worker.left_out_zone() == zone.map(String::as_str);
    if is_asked && (!may_be_asked(worker) || was_asked_lately(worker)) {
        return Ok(());
    }
    let mut annotations = json!(Request::new(Requested::Reconcile, Timestamp::now()).annotations());
    annotations[ASKED] = mark.into();
    // Beside a gardenlet the kind may have no such field, and its controller reads the annotation.
    annotations[LEFT_OUT_ZONE] = json!(zone);
    // An isolation that goes on from another one counts from the first.
    let since = worker.annotations().get(LEFT_OUT_SINCE).cloned();
    annotations[LEFT_OUT_SINCE] = json!(zone.map(|_| since.unwrap_or_else(|| Timestamp::now().to_string())));
    let patch = json!({"metadata": {"annotations": annotations}, "spec": {"isolatedZoneID": zone}});
    let all = Api::<Worker>::namespaced(seed.clone(), &objects.namespace);
    let name = worker.name_any();
    let outcome = all.patch(&name, &params(), &under(worker.resource_version(), patch)).await;
    outcome.map(drop).map_err(Error::write(format!("ask Worker {name} for {asked:?}")))
}

/// Machines that were deleted, and whose Pods do not end. machine-controller-manager changes them all the time, so they are named by UID
/// alone.
async fn force(seed: &Client, objects: &Objects, names: &[String]) -> Result<()> {
    let all = Api::<DynamicObject>::namespaced_with(seed.clone(), &objects.namespace, &MACHINE.resource());
    let is_meant = |machine: &&DynamicObject| {
        let is_ending = machine.metadata.deletion_timestamp.is_some() && !machines::is_forced(machine);
        names.contains(&machine.name_any()) && is_ending
    };
    for machine in objects.machines.iter().filter(is_meant) {
        let name = machine.name_any();
        let mut patch = machines::force();
        patch["metadata"]["uid"] = machine.uid().into();
        match all.patch(&name, &params(), &Patch::Merge(patch)).await {
            Err(error) if is_not_found(&error) || is_conflict(&error) => {}
            outcome => drop(outcome.map_err(Error::write(format!("end Machine {name}")))?),
        }
    }
    Ok(())
}

/// Other zones have too many machines as soon as the zone is used again, and those that they had before stay. Where a Machine cannot be
/// marked, the zone is used all the same.
async fn end_added_first(seed: &Client, objects: &Objects) {
    let all = Api::<DynamicObject>::namespaced_with(seed.clone(), &objects.namespace, &MACHINE.resource());
    for machine in &objects.added {
        let name = machine.name_any();
        let mut patch = machines::end_first();
        patch["metadata"]["uid"] = machine.uid().into();
        if let Err(error) = all.patch(&name, &params(), &Patch::Merge(patch)).await {
            tracing::warn!(
                machine = name,
                error = causes(&error),
                "a Machine is not marked as the first to end"
            );
        }
    }
}

/// One that somebody has changed since is asked for again.
async fn isolate(seed: &Client, objects: &Objects, zone: &str) -> Result<()> {
    let all = Api::<SubnetIsolation>::namespaced(seed.clone(), &objects.namespace);
    if let Some(subnet) = &objects.subnet {
        let is_own = subnet.spec.isolated_zone_id == zone && subnet.metadata.deletion_timestamp.is_none();
        if !is_own || !may_be_asked(subnet) {
            return Ok(());
        }
        let annotations = Request::new(Requested::Reconcile, Timestamp::now()).annotations();
        let patch = under(subnet.resource_version(), json!({"metadata": {"annotations": annotations}}));
        let outcome = all.patch(SUBNET_ISOLATION, &params(), &patch).await;
        return outcome.map(drop).map_err(Error::write("ask for the SubnetIsolation"));
    }
    let Some(worker) = &objects.worker else { return Ok(()) };
    let spec = &worker.spec;
    let object = json!({
        "apiVersion": format!("{EXTENSIONS_GROUP}/{V1ALPHA1}"), "kind": "SubnetIsolation",
        "metadata": {
            "name": SUBNET_ISOLATION,
            "annotations": Request::new(Requested::Reconcile, Timestamp::now()).annotations(),
        },
        "spec": {
            "type": spec.provider_type, "isolatedZoneID": zone, "region": spec.region,
            "secretRef": spec.secret_ref, "infrastructureProviderStatus": spec.infrastructure_provider_status,
        },
    });
    let form = |source| Error::Form { what: "a SubnetIsolation".to_owned(), source };
    let object: SubnetIsolation = serde_json::from_value(object).map_err(form)?;
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    match all.create(&params, &object).await {
        // Created before; its answer was lost.
        Err(error) if is_conflict(&error) => Ok(()),
        outcome => outcome.map(drop).map_err(Error::write("create the SubnetIsolation")),
    }
}

/// With the confirmation that Gardener asks for.
async fn release(seed: &Client, objects: &Objects) -> Result<()> {
    let Some(subnet) = &objects.subnet else { return Ok(()) };
    let all = Api::<SubnetIsolation>::namespaced(seed.clone(), &objects.namespace);
    let patch = json!({"metadata": {"annotations": {CONFIRM_DELETION: "true"}}});
    let task = || Error::write("delete the SubnetIsolation");
    let confirmed = all.patch(SUBNET_ISOLATION, &params(), &under(subnet.resource_version(), patch)).await;
    let confirmed = match confirmed {
        Err(error) if is_not_found(&error) => return Ok(()),
        confirmed => confirmed.map_err(task())?,
    };
    let preconditions =
        Some(Preconditions { uid: subnet.uid(), resource_version: confirmed.resource_version() });
    match all.delete(SUBNET_ISOLATION, &DeleteParams { preconditions, ..DeleteParams::default() }).await {
        Err(error) if is_not_found(&error) => Ok(()),
        outcome => outcome.map(drop).map_err(task()),
    }
}
