//! What each side observes of the simulated clusters.

use std::time::Duration;

use repot_apimachinery::time::Time;

use super::{
    members::{WAIT, is_in},
    world::{API, CONTROLLERS, DESTINATION, KUBE, MEMBERS, SOURCE, SimulatedSeed, World},
};
use crate::{
    flow::Abort,
    migration::{
        Side,
        observed::{
            BackupEntrySeeds, DestinationFacts, EtcdFacts, Exposure, Extensions, Facts, FinalSnapshot,
            GardenFacts, Joining, MigrationMode, MigrationRequest, Observed, OwnerRecord, Quarantine,
            SourceFacts, SourceSnapshot, TunnelClient, TunnelFacts, Workloads,
        },
    },
    tests::classic::site::{KUBE_NAME, both},
};

pub(super) fn observe(world: &mut World, side: Side) -> Observed {
    let request = MigrationRequest {
        uid: "u1".into(),
        mode: MigrationMode::Forced,
        confirmed: world.now >= world.confirmed_at,
        source_stopped: world.now >= world.stopped_at,
        finalizer: world.finalizer,
        paused: false,
        abort: if world.now >= world.abort_at { Abort::Abort } else { Abort::None },
        abandoned: None,
        superseded: None,
        destination_lost: false,
        forced_instead: None,
        continued: None,
        retry: 0,
        force_shrink: false,
        step_timeout: Duration::from_secs(600),
        source_seed: SOURCE.into(),
        source_identity: SOURCE.into(),
        destination_seed: DESTINATION.into(),
        destination_identity: DESTINATION.into(),
        hibernated: false,
        workerless: false,
    };
    let facts = match side {
        Side::Garden => Facts::Garden(Box::new(GardenFacts {
            other_migration: None,
            queued: None,
            gives_way: None,
            followed_by: None,
            superseded: Vec::new(),
            highest_epoch: None,
            quarantine: quarantine(world),
            refusals: Vec::new(),
            live: Vec::new(),
            spec_seed: world.spec_seed.clone(),
            status_seed: world.status_seed.clone(),
            backup_entry: Some(entry_seeds(&world.entry_seed)),
            operation: world.operation,
            last_operation: None,
            is_operation_by_repot: false,
            // gardenlet of a dead seed takes nothing up.
            requested_operation: Some("rotate-credentials-start".to_owned()),
            is_seed_deleted: false,
            ignored: world.ignored,
            generation: 1,
            observed_generation: 1,
        })),
        Side::Source => Facts::Source(Box::new(source(world))),
        Side::Destination => Facts::Destination(Box::new(destination(world))),
    };
    Observed { request, facts }
}

fn quarantine(world: &mut World) -> Quarantine {
    match (world.trouble.has_quarantine_command, does_not_answer(world)) {
        (false, _) => Quarantine::NotConfigured,
        (true, true) => Quarantine::Open("the command does not answer".to_owned()),
        (true, false) if world.is_quarantined => Quarantine::Revoked,
        (true, false) => Quarantine::Open("the credentials are valid".to_owned()),
    }
}

fn does_not_answer(world: &mut World) -> bool {
    let chance = world.trouble.flaps;
    world.rng.percent(chance)
}

fn owner(world: &mut World) -> OwnerRecord {
    let is_silent = does_not_answer(world);
    let answer = world.zone.answer(world.now).filter(|_| !is_silent);
    answer.map_or(OwnerRecord::Unknown, |owner| OwnerRecord::Present(owner.clone()))
}

fn etcd(site: &SimulatedSeed) -> EtcdFacts {
    let members = &site.members;
    let revision = members.content.as_ref().filter(|_| members.serving).map(Vec::len);
    EtcdFacts {
        wanted: members.workload.wanted,
        members: MEMBERS,
        volumes: members.volumes.clone(),
        pods: members.workload.running,
        ready: if members.serving { members.workload.running } else { 0 },
        revision: revision.and_then(|revision| u64::try_from(revision).ok()),
        epoch: members.own.epoch,
        fence: members.workload.fence.clone(),
        unknown_members: 0,
        is_being_left: false,
        has_lost_quorum: false,
        joining: Joining::Apart,
        is_exposed: false,
        is_advertised: false,
        is_settled: true,
        has_gateway: false,
    }
}

fn source(world: &mut World) -> SourceFacts {
    let owner = owner(world);
    let is_read = !does_not_answer(world);
    let (site, now) = (&world.source, world.now);
    let last = world.bucket.last.as_ref().filter(|_| is_read);
    SourceFacts {
        unsynced: Some(0),
        controllers: both(
            site.controllers.facts("controllers", true),
            site.kube_controllers.facts(KUBE_NAME, true),
        ),
        api_answered: None,
        api: site.api.facts("kube-apiserver", site.is_api_ready()),
        tunnel: TunnelFacts::default(),
        etcd: etcd(site),
        exposure: Exposure::default(),
        owner,
        owner_wait: Duration::from_secs(WAIT),
        final_snapshot: last.map(|(epoch, content)| FinalSnapshot {
            name: "final".into(),
            revision: content.len() as u64,
            epoch: *epoch,
        }),
        is_final_full: last.is_some(),
        api_ttl: Duration::from_secs(120),
        api_ttl_fence: String::new(),
        dns_records: site.dns_records.facts(now),
        api_dns_here: false,
        extensions: site.extensions.facts(now),
        left: site.left(),
    }
}

/// Workloads are carried without replicas, and remember how many they had.
fn carried(mut workloads: Workloads, replicas: u32) -> Workloads {
    workloads.former = workloads.wanted.keys().map(|name| (name.clone(), replicas)).collect();
    workloads
}

/// Servers run beside the kube-apiservers, and the usual client finds them when those answer.
fn tunnel(world: &World) -> TunnelFacts {
    let site = &world.destination;
    let servers = carried(site.api.facts("tunnel", site.is_api_ready()), API);
    let (client, temporary_client) = match (site.is_api_ready(), world.has_temporary_client) {
        (false, _) => return TunnelFacts { servers, ..TunnelFacts::default() },
        (true, true) => (TunnelClient::Ready, TunnelClient::Starting),
        (true, false) => (TunnelClient::Ready, TunnelClient::Absent),
    };
    TunnelFacts { servers, client, temporary_client, ..TunnelFacts::default() }
}

fn destination(world: &mut World) -> DestinationFacts {
    let owner = owner(world);
    let [bucket, machines, leases, nodes] = [0; 4].map(|_| !does_not_answer(world));
    let (site, now, trouble) = (&world.destination, world.now, &world.trouble);
    let is_read = bucket && world.backup_entry && !is_in(trouble.bucket_cut, now);
    let (content, stored_at) = &world.bucket.newest;
    let stale = if now < trouble.leases_stale_until { vec!["node".to_owned()] } else { Vec::new() };
    DestinationFacts {
        bucket_problem: (!is_read).then(|| "the bucket does not answer".to_owned()),
        unresolved: Vec::new(),
        copied: None,
        api_held_back: Vec::new(),
        older_copied: world.older_copied,
        source_newest: is_read.then(|| SourceSnapshot {
            name: "newest".into(),
            revision: content.len() as u64,
            created: Time(*stored_at),
        }),
        final_copied: None,
        unprepared: if site.exists { Vec::new() } else { vec!["Namespace".to_owned()] },
        machine_guard: world.machine_guard,
        offers_standby: false,
        standby: None,
        owner,
        owner_wait: Duration::from_secs(WAIT),
        highest_epoch: 0,
        is_followed: false,
        etcd: etcd(site),
        exposure: Exposure::default(),
        dns_records: Extensions::default(),
        api: carried(site.api.facts("kube-apiserver", site.is_api_ready()), API),
        tunnel: tunnel(world),
        exposure_problem: None,
        api_dns_written: None,
        uncached: None,
        api_dns_here: world.api_at == Side::Destination,
        api_ttl: Duration::from_secs(120),
        infrastructure: site.infrastructure.facts(now),
        extensions: site.extensions.facts(now),
        workers: site.workers.facts(now),
        machine_differences: machines.then(Vec::new),
        stale_leases: leases.then_some(stale),
        controllers: carried(site.controllers.facts("controllers", true), CONTROLLERS),
        kube_controllers: carried(site.kube_controllers.facts(KUBE_NAME, true), KUBE),
        unhealthy_nodes: nodes.then(Vec::new),
        source_backup_entry: world.backup_entry,
        left: left_at_destination(world),
    }
}

pub(super) fn left_at_destination(world: &World) -> Vec<String> {
    let mut left = world.destination.left();
    left.extend((world.backup_entry || world.machine_guard).then(|| "BackupEntry".to_owned()));
    left
}

fn entry_seeds(seed: &str) -> BackupEntrySeeds {
    BackupEntrySeeds { spec: seed.to_owned(), status: seed.to_owned() }
}
