//! What the source observes. What costs much is asked only while a row decides on it.

use std::time::Duration;

use kube::{Client, ResourceExt};
use repot_apimachinery::time::Time;
use repot_extension::kinds::DNSRecord;
use repot_plan::{
    ledger::{Phase, State},
    migration::{
        Side, Step,
        observed::{
            Exposure, ExtensionOperation, Facts, FinalSnapshot, MigrationMode, MigrationRequest, Observed,
            OwnerRecord, SourceFacts, TunnelFacts,
        },
    },
    status::from_status,
};

use super::{objects::Objects, remove};
use crate::{
    errors::causes,
    etcd::api::Etcd,
    migration::{
        api::{ControlPlaneMigration, Shoot},
        context::Context,
        error::{Error, Result},
        overall::Ledger,
        pass::{self, Observation},
        record,
        seed::{
            api_record, etcd::Etcds, exposure, extensions, namespace, owner::OwnerRecordOf, read, scale,
            snapshots, tunnel_client::Maker, tunnel_facts, workloads::ControlPlane,
        },
    },
    shootstate::{self, Mode, ShootKey},
};

/// Observes the source.
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
    let seed = context.own_client();
    let objects = objects(context, migration, shoot.as_ref(), &request, ledger).await?;
    let operation = match ledger.phase.is_rollback() {
        true => ExtensionOperation::Restore,
        false => ExtensionOperation::Migrate,
    };
    let (owner, owner_wait) = owner(objects.etcds.main()).await;
    let (api_ttl, api_ttl_fence) = api_record::ttl(&objects.api_records);
    let ending = match needs_final_snapshot(ledger) {
        true => ending(context, &objects, ledger.notes.owner_epoch, has_standby(migration)).await,
        false => Ending::default(),
    };
    let facts = SourceFacts {
        unsynced: unsynced(context, &objects, ledger).await,
        controllers: objects.plane.controller_group(),
        api: objects.plane.api(),
        tunnel: tunnel(seed, &objects, &request, ledger).await,
        api_answered: api_answered(context, &objects, migration, ledger),
        etcd: objects.etcds.facts(seed, asks_for_revision(ledger)).await,
        exposure: exposure(&context.exposer, &objects, &request, ledger).await,
        owner,
        owner_wait,
        final_snapshot: ending.snapshot,
        is_final_full: ending.is_full,
        api_ttl,
        api_ttl_fence,
        dns_records: extensions::facts(objects.records.iter(), operation),
        extensions: extensions::facts_if(
            asks_for_extensions(ledger),
            objects.extensions.iter(),
            ExtensionOperation::Migrate,
        ),
        api_dns_here: is_dns_here(&objects, ledger).await,
        left: match ledger.state(Step::SourceRemoved) {
            State::Running => remove::left(seed, &objects).await?,
            State::Pending | State::Succeeded | State::Failed | State::Skipped | State::RolledBack => {
                vec!["objects that were not listed yet".to_owned()]
            }
        },
    };
    let facts = Observed { request, facts: Facts::Source(Box::new(facts)) };
    Ok(Observation { facts, objects: pass::Objects::Source(Box::new(objects)) })
}

/// Whether extension resources are read: from their migrate on, and in a rollback. In an outage, requests of passes compete with the API
/// servers that are being started.
fn asks_for_extensions(ledger: &Ledger) -> bool {
    ledger.phase != Phase::Running || ledger.is_started(Step::ExtensionsMigrated)
}

/// Clients in the Shoot are asked for while a row decides on them.
async fn tunnel(
    seed: &Client,
    objects: &Objects,
    request: &MigrationRequest,
    ledger: &Ledger,
) -> TunnelFacts {
    let steps = [Step::TemporaryClientStarted, Step::TemporaryClientRemoved];
    let clients = steps.into_iter().any(|step| ledger.state(step) == State::Running);
    let asked = tunnel_facts::Asked { maker: Maker::of(request), clients, reach: false };
    tunnel_facts::facts(seed, &objects.namespace, &objects.plane, asked).await
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
    // A live migration that this one supersedes may have left some.
    let asks_for_exposed = request.mode == MigrationMode::Live || asks_for_extensions(ledger);
    let (own_namespace, plane, etcds, exposed, records, extensions) = futures::try_join!(
        namespace::find(seed, &namespace),
        ControlPlane::read(seed, &namespace),
        Etcds::read(seed, &namespace),
        exposure::Exposed::read_if(asks_for_exposed, seed, &namespace, &context.exposer),
        read::list::<DNSRecord>(seed, &namespace, ""),
        extensions::read_if(asks_for_extensions(ledger), seed, &namespace, &request.uid),
    )?;
    let owner = etcds.main().and_then(|etcd| OwnerRecordOf::new(etcd).ok());
    // Only a classic migration deletes the owner record. In others it names the destination, and its DNSRecord here goes like all others.
    let stays = request.mode != MigrationMode::Classic;
    let (owners, others): (Vec<_>, Vec<_>) = records
        .into_iter()
        .filter(|record| !exposure::is_one(record))
        .partition(|record| !stays && owner.as_ref().is_some_and(|owner| owner.is_of(record)));
    drop(owner);
    Ok(Objects {
        shoot: shoot.map(|shoot| ShootKey {
            namespace: migration.namespace().unwrap_or_default(),
            name: shoot.name_any(),
            uid: shoot.uid().unwrap_or_default(),
            seed_namespace: namespace.clone(),
        }),
        backup_entry: shoot.and_then(Shoot::backup_entry),
        records: others.iter().map(|record| extensions::of_record(record, &request.uid)).collect(),
        api_records: others.into_iter().filter(api_record::is_one).collect(),
        owner_record: owners.into_iter().next(),
        own_namespace,
        namespace,
        plane,
        etcds,
        exposed,
        extensions,
    })
}

/// Asked in a rollback: the servers of the zone answer as the DNSRecords of the API say, where they can be asked for the name.
async fn is_dns_here(objects: &Objects, ledger: &Ledger) -> bool {
    if !ledger.is_started(Step::DnsRecordsRestored) {
        return false;
    }
    match objects.etcds.main().map(OwnerRecordOf::new) {
        Some(Ok(owner)) => {
            owner.zone_answers(api_record::names_beside(&objects.api_records, owner.name())).await
        }
        Some(Err(_)) | None => true,
    }
}

async fn owner(etcd: Option<&Etcd>) -> (OwnerRecord, Duration) {
    match etcd.map(OwnerRecordOf::new) {
        Some(Ok(record)) => (record.look().await, record.wait()),
        Some(Err(error)) => {
            tracing::warn!(error = causes(&error), "the owner record cannot be asked for");
            (OwnerRecord::Unknown, Duration::ZERO)
        }
        None => (OwnerRecord::Unknown, Duration::ZERO),
    }
}

/// Asked until the controllers are stopped, and in a rollback.
async fn exposure(
    exposer: &exposure::Exposer,
    objects: &Objects,
    request: &MigrationRequest,
    ledger: &Ledger,
) -> Exposure {
    let is_asked = ledger.phase.is_rollback() || !ledger.is_settled(Step::SourceControllersStopped);
    match objects.etcds.main().filter(|_| is_asked && request.mode == MigrationMode::Live) {
        Some(etcd) => {
            let exposing = exposure::Exposing {
                etcd,
                seed: &request.source_seed,
                members: scale::members(etcd),
                migration: &request.uid,
                exposer,
            };
            objects.exposed.facts(&exposing).await
        }
        None => {
            Exposure { missing: vec!["members that were not asked for".to_owned()], ..Exposure::default() }
        }
    }
}

/// Asked from the request to stop until all API servers are gone.
fn api_answered(
    context: &Context,
    objects: &Objects,
    migration: &ControlPlaneMigration,
    ledger: &Ledger,
) -> Option<Time> {
    let is_asked = ledger.state(Step::SourceApiStopped) == State::Running;
    let watch = || {
        let uid = migration.uid().unwrap_or_default();
        context.last_answers.watch(&uid, context.own_client(), &objects.namespace)
    };
    is_asked.then(watch).flatten()
}

/// The members are asked only where a row decides on their revision.
fn asks_for_revision(ledger: &Ledger) -> bool {
    let is_settled = |step| matches!(ledger.state(step), State::Succeeded | State::Skipped);
    let is_before_outage = !ledger.phase.is_rollback() && !is_settled(Step::SourceControllersStopped);
    let is_restoring = ledger.phase.is_rollback() && ledger.is_started(Step::SourceEtcdRestored);
    is_before_outage || is_restoring
}

async fn unsynced(context: &Context, objects: &Objects, ledger: &Ledger) -> Option<u32> {
    let steps = [Step::StateSynced, Step::FinalStateSynced, Step::MigratedStateSynced];
    let is_asked = steps.into_iter().any(|step| ledger.state(step) == State::Running);
    let shoot = objects.shoot.as_ref().filter(|_| is_asked)?;
    let found =
        shootstate::unsynced(context.garden_client(), context.own_client(), shoot, Mode::Upsert).await;
    found.inspect_err(|error| tracing::warn!(error = causes(error), "the ShootState cannot be compared")).ok()
}

/// From the deletion of the owner record on, until no row decides on it any more: that of a rollback is held until the etcd is restored.
fn needs_final_snapshot(ledger: &Ledger) -> bool {
    let waits = match ledger.phase.is_rollback() {
        true => Step::SourceEtcdRestored,
        false => Step::SourceEtcdStopped,
    };
    ledger.notes.ownership_ended && !ledger.is_settled(waits)
}

/// Whether a member of the destination follows the deltas of the source.
fn has_standby(migration: &ControlPlaneMigration) -> bool {
    let destination = from_status(migration.plans(), &record::part(migration, Side::Destination));
    destination.is_ok_and(|ledger| ledger.state(Step::StandbyFollows) == State::Succeeded)
}

/// What ends the time of the source in its bucket.
#[derive(Default)]
struct Ending {
    /// The final snapshot; where a standby follows, the final delta as well, which is stored earlier.
    snapshot: Option<FinalSnapshot>,
    /// Whether the final snapshot of the epoch that ends is there.
    is_full: bool,
}

async fn ending(context: &Context, objects: &Objects, epoch: Option<u64>, has_standby: bool) -> Ending {
    let Some(store) = objects.etcds.main().and_then(|etcd| etcd.spec.backup.store.as_ref()) else {
        return Ending::default();
    };
    let found = async {
        let client = context.own_client();
        let store = snapshots::open(client, &objects.namespace, store, &context.local_stores).await?;
        let full = store.final_snapshot().await?;
        let is_full = full.as_ref().is_some_and(|full| Some(full.epoch) == epoch);
        let end = if has_standby && !is_full { store.end().await? } else { None };
        Ok(Ending { is_full, snapshot: end.or(full) })
    };
    found.await.unwrap_or_else(|error: Error| {
        tracing::warn!(error = causes(&error), "the bucket of the source cannot be read");
        Ending::default()
    })
}
