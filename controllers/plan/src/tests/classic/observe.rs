//! What each side observes of the simulated clusters.

use std::time::Duration;

use super::{
    clusters::Clusters,
    site::{KUBE_NAME, OWNER_WAIT, SeedState, both},
    zone::is_in,
};
use crate::{
    flow::Abort,
    migration::{
        Side,
        observed::{
            BackupEntrySeeds, DestinationFacts, EtcdFacts, Exposure, Extensions, Facts, GardenFacts, Joining,
            MigrationMode, MigrationRequest, Observed, Operation, OwnerRecord, Quarantine, SourceFacts,
            TunnelFacts,
        },
    },
};

pub(super) fn observe(clusters: &mut Clusters, side: Side) -> Observed {
    let request = MigrationRequest {
        uid: format!("u{}", clusters.migrations),
        mode: MigrationMode::Classic,
        confirmed: false,
        source_stopped: false,
        finalizer: clusters.finalizer,
        paused: false,
        abort: match (clusters.now >= clusters.abort_at, clusters.is_forced) {
            (false, _) => Abort::None,
            (true, false) => Abort::Abort,
            (true, true) => Abort::Force,
        },
        abandoned: None,
        superseded: None,
        destination_lost: false,
        forced_instead: None,
        continued: None,
        retry: clusters.retry,
        force_shrink: false,
        step_timeout: Duration::from_secs(600),
        source_seed: clusters.from.to_owned(),
        source_identity: clusters.from.to_owned(),
        destination_seed: clusters.to.to_owned(),
        destination_identity: clusters.to.to_owned(),
        hibernated: clusters.is_awake() == clusters.is_hibernation_changed,
        workerless: !clusters.has_workers(),
    };
    let facts = match side {
        Side::Garden => Facts::Garden(Box::new(garden(clusters))),
        Side::Source => Facts::Source(Box::new(source(clusters))),
        Side::Destination => Facts::Destination(Box::new(destination(clusters))),
    };
    Observed { request, facts }
}

fn listed(is_listed: bool) -> Vec<String> {
    if is_listed { vec!["one".to_owned()] } else { Vec::new() }
}

fn garden(clusters: &Clusters) -> GardenFacts {
    GardenFacts {
        other_migration: None,
        queued: (clusters.now < clusters.queued_until).then(|| "seed a has others".to_owned()),
        gives_way: None,
        followed_by: None,
        superseded: Vec::new(),
        highest_epoch: None,
        quarantine: Quarantine::NotConfigured,
        refusals: listed(clusters.trouble.unfit),
        live: Vec::new(),
        spec_seed: clusters.spec_seed.clone(),
        status_seed: clusters.status_seed.clone(),
        backup_entry: Some(entry_seeds(&clusters.entry_seed)),
        operation: clusters.operation,
        last_operation: clusters.last_operation(),
        is_operation_by_repot: clusters.operation != Operation::Other,
        requested_operation: clusters.requested_operation(),
        is_seed_deleted: clusters.trouble.seed_deleted,
        ignored: clusters.gardenlet.ignored,
        generation: clusters.gardenlet.generation,
        observed_generation: clusters.gardenlet.observed_generation,
    }
}

fn owner(clusters: &mut Clusters) -> OwnerRecord {
    // Servers of a zone do not always answer.
    if does_not_answer(clusters) {
        return OwnerRecord::Unknown;
    }
    clusters.zone.owner_record(clusters.now)
}

fn does_not_answer(clusters: &mut Clusters) -> bool {
    let chance = clusters.trouble.flaps;
    clusters.rng.percent(chance)
}

fn etcd(site: &SeedState, members: u32, has_gateway: bool) -> EtcdFacts {
    let revision = site.etcd.content().filter(|_| site.etcd.serving).map(Vec::len);
    EtcdFacts {
        wanted: site.etcd.members.wanted,
        members,
        volumes: site.etcd.volumes.clone(),
        pods: site.etcd.members.running,
        ready: if site.etcd.serving { site.etcd.members.running } else { 0 },
        revision: revision.and_then(|revision| u64::try_from(revision).ok()),
        epoch: site.etcd.own.epoch,
        fence: site.etcd.members.fence.clone(),
        unknown_members: 0,
        is_being_left: false,
        has_lost_quorum: false,
        joining: Joining::Apart,
        is_exposed: false,
        is_advertised: false,
        is_settled: true,
        has_gateway,
    }
}

fn source(clusters: &mut Clusters) -> SourceFacts {
    let owner = owner(clusters);
    let (is_unread, has_no_answer) = (does_not_answer(clusters), does_not_answer(clusters));
    let (site, now) = (&clusters.source, clusters.now);
    let is_synced = clusters.state.as_ref() == Some(&(site.machines.clone(), site.extension_state));
    SourceFacts {
        unsynced: (!is_unread).then_some(u32::from(!is_synced)),
        controllers: both(
            site.controllers.facts("controllers", true),
            site.kube_controllers.facts(KUBE_NAME, true),
        ),
        api_answered: None,
        api: site.api.facts("kube-apiserver", site.is_api_ready(now)),
        tunnel: TunnelFacts::default(),
        etcd: etcd(site, clusters.members, !clusters.trouble.no_gateways),
        exposure: Exposure::default(),
        owner,
        owner_wait: Duration::from_secs(OWNER_WAIT),
        final_snapshot: site
            .final_snapshot
            .as_ref()
            .filter(|_| !has_no_answer)
            .map(|(snapshot, _)| snapshot.clone()),
        is_final_full: site.final_snapshot.is_some() && !has_no_answer,
        api_ttl: Duration::from_secs(clusters.api_ttl),
        api_ttl_fence: clusters.api_ttl_fence.clone(),
        dns_records: site.dns_records.facts(now),
        api_dns_here: false,
        extensions: site.extensions.facts(now),
        left: site.left(),
    }
}

fn destination(clusters: &mut Clusters) -> DestinationFacts {
    let owner = owner(clusters);
    let [copies, machines, leases, nodes] = [0; 4].map(|_| !does_not_answer(clusters));
    let (site, now, trouble) = (&clusters.destination, clusters.now, &clusters.trouble);
    let is_cut = is_in(trouble.bucket_cut, now);
    let is_unread = is_cut || trouble.bucket_unreadable || !clusters.source_backup_entry;
    let is_standing = clusters.standby && !trouble.no_standby;
    let mut differences = listed(now < trouble.machines_differ_until);
    let carried = clusters.state.as_ref().map(|(machines, _)| machines);
    differences.extend(listed(carried != Some(&site.machines)));
    DestinationFacts {
        bucket_problem: is_unread.then(|| "the bucket does not answer".to_owned()),
        unresolved: listed(trouble.unresolved),
        copied: clusters.copied,
        api_held_back: Vec::new(),
        older_copied: false,
        source_newest: None,
        final_copied: clusters.final_copied.as_ref().filter(|_| copies).map(|(snapshot, _)| snapshot.clone()),
        unprepared: listed(!site.exists),
        machine_guard: clusters.machine_guard,
        offers_standby: true,
        exposure_problem: (now < trouble.unexposed_until).then(|| "the Service has no address".to_owned()),
        standby: clusters.copied.filter(|_| is_standing),
        owner,
        owner_wait: Duration::from_secs(OWNER_WAIT),
        highest_epoch: 0,
        is_followed: false,
        etcd: etcd(site, clusters.members, !clusters.trouble.no_gateways),
        exposure: Exposure::default(),
        dns_records: Extensions::default(),
        api: site.api.facts("kube-apiserver", site.is_api_ready(now)),
        tunnel: TunnelFacts::default(),
        api_dns_written: None,
        uncached: None,
        api_dns_here: clusters.zone.is_api_at(Side::Destination, now),
        api_ttl: Duration::from_secs(clusters.api_ttl),
        infrastructure: site.infrastructure.facts(now),
        extensions: site.extensions.facts(now),
        workers: site.workers.facts(now),
        machine_differences: machines.then_some(differences),
        stale_leases: leases.then(|| listed(now < trouble.leases_stale_until)),
        controllers: site.controllers.facts("controllers", true),
        kube_controllers: site.kube_controllers.facts(KUBE_NAME, true),
        unhealthy_nodes: nodes.then(Vec::new),
        source_backup_entry: clusters.source_backup_entry,
        left: left_at_destination(clusters),
    }
}

pub(super) fn left_at_destination(clusters: &Clusters) -> Vec<String> {
    let mut left = clusters.destination.left();
    left.extend(listed(clusters.source_backup_entry || clusters.machine_guard));
    left
}

fn entry_seeds(seed: &str) -> BackupEntrySeeds {
    BackupEntrySeeds { spec: seed.to_owned(), status: seed.to_owned() }
}
