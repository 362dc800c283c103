//! What the destination observes. What costs much is asked only while a row decides on it.

use std::time::Duration;

use kube::{Client, ResourceExt};
use repot_etcd_core::timing::epoch;
use repot_extension::kinds::DNSRecord;
use repot_plan::{
    ledger::Phase,
    migration::{
        Side, Step,
        observed::{
            DestinationFacts, ExtensionOperation, Facts, MigrationMode, MigrationRequest, Observed,
            OwnerRecord,
        },
    },
    status::from_status,
};

use super::{
    asked,
    bindings::{API_SERVER_ADDRESS, MEMBER_NAME_PREFIX, SEED_NAME, SeedFacts},
    buckets, carried, copies,
    found::{self, Found},
    guard, live, machines, nodes,
    objects::Objects,
    prepare::{self, is_made_by},
    remove, stored, tunnel,
};
use crate::{
    errors::causes,
    etcd::api::Etcd,
    migration::{
        api::{ControlPlaneMigration, Shoot},
        clock::timestamp,
        context::Context,
        error::{Error, Result},
        names::API_SERVER,
        overall::{Ledger, is_open},
        pass::{self, Observation},
        record,
        seed::{
            api_record, etcd::Etcds, exposure, extensions, owner::OwnerRecordOf, shoot_api, watch_caches,
        },
        siblings,
    },
    shootstate::{self, ShootKey, State, machines::MachineState},
};

/// Observes the destination.
///
/// # Errors
/// Where an API server does not answer. A zone and a store that do not answer are observed as such.
pub async fn observe(
    context: &Context,
    migration: &ControlPlaneMigration,
    shoot: Option<Shoot>,
    request: MigrationRequest,
    ledger: &Ledger,
) -> Result<Observation> {
    let objects = objects(context, migration, shoot.as_ref(), &request, ledger).await?;
    let facts = facts(context, migration, &objects, &request, ledger).await?;
    let facts = Observed { request, facts: Facts::Destination(Box::new(facts)) };
    Ok(Observation { facts, objects: pass::Objects::Destination(Box::new(objects)) })
}

async fn objects(
    context: &Context,
    migration: &ControlPlaneMigration,
    shoot: Option<&Shoot>,
    request: &MigrationRequest,
    ledger: &Ledger,
) -> Result<Objects> {
    let seed = context.own_client();
    let namespace = shoot.map(|shoot| shoot.status.technical_id.clone()).unwrap_or_default();
    let key = shoot.map(|shoot| ShootKey {
        namespace: migration.namespace().unwrap_or_default(),
        name: shoot.name_any(),
        uid: shoot.uid().unwrap_or_default(),
        seed_namespace: namespace.clone(),
    });
    let is_live = request.mode == MigrationMode::Live;
    let ((own_namespace, found), address) = futures::try_join!(
        found::read(context, &namespace, request, ledger),
        prepare::api_address(seed, &namespace, API_SERVER),
    )?;
    let Found { plane, etcds, exposed, records, extensions, jobs } = found;
    let state = state(context, key.as_ref(), &etcds, ledger).await?;
    let carried_etcd = state.as_ref().map(carried::main_etcd).transpose()?.flatten();
    let owner = etcds.main().and_then(|etcd| OwnerRecordOf::new(etcd).ok());
    let (owners, others): (Vec<_>, Vec<_>) = records
        .into_iter()
        .filter(|record| !exposure::is_one(record))
        .partition(|record| owner.as_ref().is_some_and(|owner| owner.is_of(record)));
    drop(owner);
    let seen = |record: &DNSRecord| extensions::of_record(record, &request.uid);
    Ok(Objects {
        seed_facts: SeedFacts::from([
            (SEED_NAME, Some(request.destination_seed.clone())),
            (API_SERVER_ADDRESS, address),
            (MEMBER_NAME_PREFIX, is_live.then(|| live::member_name_prefix(request))),
        ]),
        shoot: key,
        backup_entry: shoot.and_then(Shoot::backup_entry),
        records: others.iter().map(seen).collect(),
        zone_record: others.first().cloned(),
        api_records: others.into_iter().filter(api_record::is_one).collect(),
        owner_seen: owners.iter().map(seen).collect(),
        owner_record: owners.into_iter().next(),
        extensions,
        namespace,
        own_namespace,
        state,
        plane,
        etcds,
        exposed,
        carried_etcd,
        jobs,
    })
}

async fn state(
    context: &Context,
    shoot: Option<&ShootKey>,
    etcds: &Etcds,
    ledger: &Ledger,
) -> Result<Option<State>> {
    match shoot.filter(|_| asked::state(ledger, etcds.main())) {
        Some(shoot) => Ok(shootstate::read(context.garden_client(), shoot).await?),
        None => Ok(None),
    }
}

async fn facts(
    context: &Context,
    migration: &ControlPlaneMigration,
    objects: &Objects,
    request: &MigrationRequest,
    ledger: &Ledger,
) -> Result<DestinationFacts> {
    let seed = context.own_client();
    let (asked, restore) = (asked::extensions(ledger), ExtensionOperation::Restore);
    let source = from_status(migration.plans(), &record::part(migration, Side::Source)).unwrap_or_default();
    let snapshots = stored::snapshots(context, objects, ledger, source.notes.final_snapshot.as_ref()).await;
    let (stale_leases, unhealthy_nodes) =
        nodes::observe(context, (request.mode, &source), objects, ledger).await;
    Ok(DestinationFacts {
        bucket_problem: stored::bucket_problem(context, objects, ledger).await,
        unresolved: unresolved(objects, ledger),
        copied: snapshots.copied,
        api_held_back: api_held_back(objects, ledger),
        older_copied: copies::is_complete(&objects.jobs, copies::OLDER),
        source_newest: stored::source_newest(context, objects, ledger).await,
        final_copied: snapshots.final_copied,
        unprepared: unprepared(seed, objects, ledger, &request.uid).await?,
        machine_guard: guard::exists(seed, &request.uid).await?,
        offers_standby: objects.etcds.main().is_some_and(offers_standby),
        standby: objects.etcds.main().and_then(standby),
        owner: owner(objects).await,
        owner_wait: owner_wait(objects),
        highest_epoch: highest_epoch(context, migration, ledger).await?,
        is_followed: is_followed(context, migration, ledger).await?,
        etcd: objects.etcds.facts(seed, is_open(ledger, Step::EtcdServes) || serves(ledger)).await,
        exposure: live::exposure(&context.exposer, objects, request, ledger, &source).await,
        dns_records: extensions::facts_if(
            ledger.phase.is_rollback(),
            objects.records.iter(),
            ExtensionOperation::Migrate,
        ),
        api: objects.plane.api(),
        tunnel: tunnel::facts(context, objects, request, ledger).await,
        exposure_problem: exposure_problem(seed, objects, ledger).await,
        api_dns_here: is_switched(objects, ledger).await,
        uncached: uncached(seed, objects, ledger).await,
        api_dns_written: api_record::written(&objects.api_records),
        api_ttl: api_record::ttl(&objects.api_records).0,
        infrastructure: extensions::facts_if(asked, objects.of_kind("Infrastructure"), restore),
        extensions: extensions::facts_if(asked, objects.others(), restore),
        workers: extensions::facts_if(asked, objects.of_kind("Worker"), restore),
        machine_differences: machine_differences(seed, objects, ledger, request.mode).await,
        stale_leases,
        controllers: objects.plane.other_controllers(),
        kube_controllers: objects.plane.kube_controllers(),
        unhealthy_nodes,
        source_backup_entry: !asked::source_secret(ledger) || buckets::has_source(seed, objects).await?,
        left: match asked::left(ledger) {
            true => remove::left(seed, objects, &request.uid).await?,
            false => vec!["objects that were not listed yet".to_owned()],
        },
    })
}

/// Those that are younger than the etcd fail for another reason, so the kubelet waits rightly.
fn api_held_back(objects: &Objects, ledger: &Ledger) -> Vec<String> {
    let served = ledger.steps.get(&Step::EtcdServes).and_then(|record| record.completed);
    match served.filter(|_| is_open(ledger, Step::ApiServes)) {
        Some(served) => objects.plane.api_held_back(timestamp(served)),
        None => Vec::new(),
    }
}

/// Whether a member of this Etcd can follow the source: it needs a store, and an owner check with an epoch to take over by.
fn offers_standby(etcd: &Etcd) -> bool {
    let backup = &etcd.spec.backup;
    backup.store.is_some() && backup.owner_check.as_ref().is_some_and(|check| epoch(&check.id).is_some())
}

/// The revision that a standby holds; `None` where none runs, or it does not go on.
fn standby(etcd: &Etcd) -> Option<u64> {
    let status = etcd.status.as_ref().filter(|_| etcd.spec.replicas > 0 && etcd.spec.backup.standby)?;
    let standby = status.standby.as_ref().filter(|standby| standby.message.is_empty())?;
    u64::try_from(standby.revision?).ok()
}

fn address(objects: &Objects) -> Option<&String> {
    objects.seed_facts.get(API_SERVER_ADDRESS).and_then(Option::as_ref)
}

/// Asked until clients are sent there.
async fn exposure_problem(seed: &Client, objects: &Objects, ledger: &Ledger) -> Option<String> {
    if !ledger.is_started(Step::ApiServes) {
        return Some("it was not asked yet".to_owned());
    }
    if ledger.is_settled(Step::MoveCommitted) || ledger.phase.is_rollback() {
        return None;
    }
    match address(objects) {
        Some(_) => shoot_api::reach(seed, &objects.namespace).await,
        None => Some("the Service of the API servers has no address".to_owned()),
    }
}

/// Asked once clients are to be sent there.
async fn uncached(seed: &Client, objects: &Objects, ledger: &Ledger) -> Option<String> {
    match is_open(ledger, Step::WatchCachesStarted) {
        true => watch_caches::start(seed, &objects.namespace, &objects.plane).await,
        false => Some("it was not asked yet".to_owned()),
    }
}

fn is_reached(ledger: &Ledger, step: Step) -> bool {
    matches!(ledger.state(step), repot_plan::ledger::State::Succeeded)
}

/// From the first quorum until the point of no return, the etcd has to serve.
fn serves(ledger: &Ledger) -> bool {
    ledger.is_settled(Step::EtcdServes) && !ledger.is_settled(Step::MoveCommitted)
}

async fn owner(objects: &Objects) -> OwnerRecord {
    match objects.etcds.main().or(objects.carried_etcd.as_ref()).map(OwnerRecordOf::new) {
        Some(Ok(record)) => record.look().await,
        Some(Err(_)) | None => OwnerRecord::Unknown,
    }
}

/// Asked before a forced migration takes ownership: a record that an earlier one has requested may arrive later.
async fn highest_epoch(context: &Context, migration: &ControlPlaneMigration, ledger: &Ledger) -> Result<u64> {
    if !is_open(ledger, Step::LossConfirmed) {
        return Ok(0);
    }
    let others = siblings::of(context, migration).await?;
    Ok(others.iter().filter_map(ControlPlaneMigration::owner_epoch).max().unwrap_or_default())
}

/// Asked while the owner record of a forced migration that has succeeded is kept.
async fn is_followed(context: &Context, migration: &ControlPlaneMigration, ledger: &Ledger) -> Result<bool> {
    let is_asked = ledger.phase == Phase::Succeeded && migration.mode() == Some(MigrationMode::Forced);
    if is_asked { siblings::is_followed(context, migration).await } else { Ok(false) }
}

fn owner_wait(objects: &Objects) -> Duration {
    let record = objects.etcds.main().map(OwnerRecordOf::new);
    record.and_then(Result::ok).map_or(Duration::ZERO, |record| record.wait())
}

/// Asked from the point of no return on: the DNSRecords of the API are written when their restore is requested. What they say is
/// believed when the servers of the zone say it as well, where these can be asked for the name.
async fn is_switched(objects: &Objects, ledger: &Ledger) -> bool {
    if ledger.is_settled(Step::ApiDnsSwitched) {
        return true;
    }
    let done = extensions::facts(objects.records.iter(), ExtensionOperation::Restore);
    let is_written = !objects.records.is_empty() && done.have_done(ExtensionOperation::Restore);
    let Some(address) = address(objects).filter(|_| is_written) else { return is_written };
    if !api_record::say(&objects.api_records, address) {
        tracing::warn!(address, "DNSRecords of the API have another address");
        return false;
    }
    match objects.etcds.main().map(OwnerRecordOf::new) {
        Some(Ok(owner)) => {
            owner.zone_answers(api_record::names_beside(&objects.api_records, owner.name())).await
        }
        Some(Err(_)) | None => true,
    }
}

fn unresolved(objects: &Objects, ledger: &Ledger) -> Vec<String> {
    match &objects.state {
        Some(state) => carried::unresolved(state, &objects.namespace, &objects.seed_facts),
        None if ledger.is_settled(Step::BindingsResolved) => Vec::new(),
        None => vec!["the ShootState was not read yet".to_owned()],
    }
}

/// Once all objects were made, the namespace stands for them: a list of each kind in each second of an outage would cost more.
async fn unprepared(
    seed: &Client,
    objects: &Objects,
    ledger: &Ledger,
    migration: &str,
) -> Result<Vec<String>> {
    let is_ours = objects.own_namespace.as_ref().is_some_and(|found| is_made_by(found, migration));
    if !is_ours {
        return Ok(vec![format!("Namespace {}", objects.namespace)]);
    }
    if ledger.is_settled(Step::DestinationPrepared) {
        return Ok(Vec::new());
    }
    let Some(state) = &objects.state else { return Ok(vec!["the ShootState".to_owned()]) };
    let wanted = match carried::objects(state, &objects.namespace, &objects.seed_facts) {
        Ok(wanted) => wanted,
        Err(error) => return Ok(vec![causes(&error)]),
    };
    let missing = prepare::missing(seed, &objects.namespace, &wanted).await?;
    let mut names: Vec<_> =
        missing.into_iter().map(|one| format!("{} {}", one.kind.kind, one.name)).collect();
    // The ShootState of a seed that died may be older than this object, without which nobody can take ownership.
    if names.is_empty() && objects.zone_record.is_none() {
        names.push("a DNSRecord of the zone, which the ShootState does not hold".to_owned());
    }
    if names.is_empty() {
        names.extend(buckets::missing_secret(seed, objects).await?);
    }
    Ok(names)
}

async fn machine_differences(
    seed: &Client,
    objects: &Objects,
    ledger: &Ledger,
    mode: MigrationMode,
) -> Option<Vec<String>> {
    let entry =
        objects.state.as_ref().filter(|_| is_open(ledger, Step::MachinesUnchanged))?.machines.as_ref();
    let found = async {
        let carried = entry.map(MachineState::read).transpose()?.unwrap_or_default();
        let here = shootstate::collect(seed, &objects.namespace).await?.machines;
        let here = here.as_ref().map(MachineState::read).transpose()?.unwrap_or_default();
        let mut all = machines::differences(&carried, &here)?;
        // Behind a source that lives, the ShootState holds all of them; a hibernated Shoot has none, and no API.
        if mode == MigrationMode::Forced && is_reached(ledger, Step::ApiServes) {
            let shoot = shoot_api::client(seed, &objects.namespace).await?;
            all.extend(machines::without_machine(&nodes::all(&shoot).await?, &here)?);
        }
        Ok::<_, Error>(all)
    };
    found.await.inspect_err(|error| tracing::warn!(error = causes(error), "machines cannot be compared")).ok()
}
