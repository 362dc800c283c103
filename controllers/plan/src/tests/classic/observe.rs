//! What each side observes of the simulated clusters.

use std::time::Duration;

use super::{
    clusters::{Clusters, DESTINATION, MEMBERS, SOURCE},
    site::{OWNER_WAIT, SeedState},
};
use crate::{
    classic::{
        Side,
        observed::{
            DestinationFacts, EtcdFacts, Facts, GardenFacts, MigrationRequest, Observed, OwnerRecord,
            SourceFacts,
        },
    },
    flow::Abort,
};

/// UID of the migration.
pub(super) const UID: &str = "u";

pub(super) fn observe(clusters: &mut Clusters, side: Side) -> Observed {
    let request = MigrationRequest {
        uid: UID.to_owned(),
        finalizer: clusters.finalizer,
        paused: false,
        abort: if clusters.now >= clusters.abort_at { Abort::Abort } else { Abort::None },
        abandoned: None,
        step_timeout: Duration::from_secs(600),
        source_seed: SOURCE.to_owned(),
        source_identity: SOURCE.to_owned(),
        destination_seed: DESTINATION.to_owned(),
        destination_identity: DESTINATION.to_owned(),
        hibernated: !clusters.is_awake(),
        workerless: !clusters.has_workers(),
    };
    let facts = match side {
        Side::Garden => Facts::Garden(garden(clusters)),
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
        refusals: listed(clusters.trouble.unfit),
        spec_seed: clusters.spec_seed.clone(),
        status_seed: clusters.status_seed.clone(),
        operation: clusters.operation,
        last_operation: None,
    }
}

fn owner(clusters: &mut Clusters) -> OwnerRecord {
    // Servers of a zone do not always answer.
    let is_cut = clusters.now < clusters.zone_back_at;
    if is_cut || !clusters.is_calm && clusters.rng.percent(5) {
        return OwnerRecord::Unknown;
    }
    clusters.owner.clone().map_or(OwnerRecord::Absent, OwnerRecord::Present)
}

fn etcd(site: &SeedState) -> EtcdFacts {
    let revision = site.etcd.content().filter(|_| site.etcd.serving).map(Vec::len);
    EtcdFacts {
        wanted: site.etcd.members.wanted,
        members: MEMBERS,
        volumes: site.etcd.volumes.clone(),
        pods: site.etcd.members.running,
        revision: revision.and_then(|revision| u64::try_from(revision).ok()),
        epoch: site.etcd.own.epoch,
        fence: site.etcd.members.fence.clone(),
    }
}

fn source(clusters: &mut Clusters) -> SourceFacts {
    let owner = owner(clusters);
    let (site, now) = (&clusters.source, clusters.now);
    let is_synced = clusters.state.as_ref() == Some(&(site.machines.clone(), site.extension_state));
    SourceFacts {
        unsynced: Some(u32::from(!is_synced)),
        controllers: site.controllers.facts("controllers", true),
        api: site.api.facts("kube-apiserver", site.is_api_ready(now)),
        etcd: etcd(site),
        owner,
        owner_wait: Duration::from_secs(OWNER_WAIT),
        final_snapshot: site.final_snapshot.as_ref().map(|(snapshot, _)| snapshot.clone()),
        api_ttl: Duration::from_secs(clusters.api_ttl),
        api_ttl_fence: clusters.api_ttl_fence.clone(),
        dns_records: site.dns_records.facts(now),
        extensions: site.extensions.facts(now),
        left: site.left(),
    }
}

fn destination(clusters: &mut Clusters) -> DestinationFacts {
    let owner = owner(clusters);
    let (site, now, trouble) = (&clusters.destination, clusters.now, &clusters.trouble);
    let is_cut = now < clusters.bucket_back_at;
    let is_unread = is_cut || trouble.bucket_unreadable || !clusters.source_backup_entry;
    let is_standing = clusters.standby && !trouble.no_standby;
    let mut differences = listed(now < trouble.machines_differ_until);
    differences.extend(listed(site.machines != clusters.vms));
    DestinationFacts {
        bucket_problem: is_unread.then(|| "the bucket does not answer".to_owned()),
        unresolved: listed(trouble.unresolved),
        copied: clusters.copied,
        final_copied: clusters.final_copied.as_ref().map(|(snapshot, _)| snapshot.clone()),
        unprepared: listed(!site.exists),
        machine_guard: clusters.machine_guard,
        offers_standby: true,
        exposure_problem: None,
        standby: clusters.copied.filter(|_| is_standing),
        owner,
        etcd: etcd(site),
        api: site.api.facts("kube-apiserver", site.is_api_ready(now)),
        api_dns_here: clusters.api_dns == Side::Destination,
        infrastructure: site.infrastructure.facts(now),
        extensions: site.extensions.facts(now),
        workers: site.workers.facts(now),
        machine_differences: Some(differences),
        stale_leases: Some(listed(now < trouble.leases_stale_until)),
        controllers: site.controllers.facts("controllers", true),
        unhealthy_nodes: Some(Vec::new()),
        source_backup_entry: clusters.source_backup_entry,
        left: left_at_destination(clusters),
    }
}

pub(super) fn left_at_destination(clusters: &Clusters) -> Vec<String> {
    let mut left = clusters.destination.left();
    left.extend(listed(clusters.source_backup_entry || clusters.machine_guard));
    left
}
