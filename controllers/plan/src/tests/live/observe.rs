//! What each side observes of the simulated clusters.

use std::time::Duration;

use repot_api::conditions::Reason;

use super::{
    etcd::MEMBERS,
    tunnel::TUNNEL_NAME,
    world::{DESTINATION, SOURCE, World},
};
use crate::{
    flow::Abort,
    migration::{
        Side,
        observed::{
            BackupEntrySeeds, DestinationFacts, EtcdFacts, ExposedMember, Exposure, Facts, GardenFacts,
            MigrationMode, MigrationRequest, Observed, OwnerRecord, Quarantine, SourceFacts, Workloads,
        },
    },
    tests::classic::site::{KUBE_NAME, both},
};

pub(super) fn observe(world: &mut World, side: Side) -> Observed {
    let request = MigrationRequest {
        uid: "u1".into(),
        mode: MigrationMode::Live,
        confirmed: false,
        source_stopped: false,
        finalizer: world.finalizer,
        paused: false,
        abort: if world.now >= world.abort_at { Abort::Abort } else { Abort::None },
        abandoned: None,
        superseded: world
            .deaths
            .is_superseded
            .then(|| Reason::new("Superseded", "another migration goes on")),
        destination_lost: world.is_destination_lost(side),
        forced_instead: world.is_forced().then(|| "forced".into()),
        continued: world.deaths.is_continued.then(|| "forced".into()),
        retry: 0,
        force_shrink: world.is_shrink_asked(),
        step_timeout: Duration::from_secs(600),
        source_seed: SOURCE.into(),
        source_identity: SOURCE.into(),
        destination_seed: DESTINATION.into(),
        destination_identity: DESTINATION.into(),
        hibernated: false,
        workerless: false,
    };
    let facts = match side {
        Side::Garden => Facts::Garden(Box::new(garden(world))),
        Side::Source => Facts::Source(Box::new(source(world))),
        Side::Destination => Facts::Destination(Box::new(destination(world))),
    };
    Observed { request, facts }
}

fn garden(world: &World) -> GardenFacts {
    let entry = BackupEntrySeeds { spec: world.entry_seed.clone(), status: world.entry_seed.clone() };
    GardenFacts {
        other_migration: None,
        queued: None,
        gives_way: None,
        followed_by: None,
        superseded: Vec::new(),
        highest_epoch: None,
        quarantine: Quarantine::NotConfigured,
        refusals: Vec::new(),
        live: world.live.clone(),
        spec_seed: world.spec_seed.clone(),
        status_seed: world.status_seed.clone(),
        backup_entry: Some(entry),
        operation: world.operation,
        last_operation: None,
        is_operation_by_repot: false,
        requested_operation: None,
        is_seed_deleted: false,
        ignored: world.ignored,
        generation: 1,
        observed_generation: 0,
    }
}

fn does_not_answer(world: &mut World) -> bool {
    let chance = world.trouble.flaps;
    world.rng.percent(chance)
}

fn owner(world: &mut World) -> OwnerRecord {
    if does_not_answer(world) { OwnerRecord::Unknown } else { world.zone.owner_record(world.now) }
}

fn etcd(world: &World, side: Side) -> EtcdFacts {
    let etcd = &world.site(side).etcd;
    let is_serving = world.does_etcd_serve(side);
    let ready = if is_serving { etcd.pods.running } else { 0 };
    EtcdFacts {
        wanted: etcd.replicas,
        members: MEMBERS,
        volumes: etcd.volumes.clone(),
        pods: etcd.pods.running,
        ready,
        revision: is_serving.then_some(world.etcd.content.len() as u64),
        epoch: etcd.epoch,
        fence: etcd.fence.clone(),
        unknown_members: if side == Side::Source { world.etcd.of(Side::Destination) as u32 } else { 0 },
        is_being_left: side == Side::Destination && world.etcd.of(Side::Source) < MEMBERS as usize,
        has_lost_quorum: !is_serving
            && world.deaths.source_since.is_some_and(|since| world.now >= since + 60),
        joining: if side == Side::Destination { world.etcd.joining(etcd) } else { Default::default() },
        is_exposed: etcd.is_exposed,
        is_advertised: etcd.is_exposed,
        has_gateway: true,
        is_settled: world.now >= etcd.settled_at && ready == MEMBERS,
    }
}

fn exposure(world: &World, side: Side) -> Exposure {
    let etcd = &world.site(side).etcd;
    let member = |at| {
        let url = |port: u16| format!("https://{side}-{at}:{port}");
        ExposedMember { name: format!("{side}-{at}"), peer_url: url(2380), client_url: url(2379) }
    };
    let is_reached = etcd.exposure.is_some_and(|at| world.now >= at);
    Exposure {
        members: (0..MEMBERS).map(member).collect(),
        missing: if is_reached { Vec::new() } else { vec!["a Service".to_owned()] },
        left: etcd.exposure.map(|_| "Service".to_owned()).into_iter().collect(),
    }
}

/// Replicas of servers of the tunnel are among those of kube-apiservers, and their Pods are not.
fn api(world: &World, side: Side) -> Workloads {
    let (site, is_ready) = (world.site(side), world.is_api_ready(side));
    let servers = Workloads { pods: 0, ready: 0, ..site.tunnel.facts(TUNNEL_NAME, false) };
    both(site.api.facts("kube-apiserver", is_ready), servers)
}

fn source(world: &mut World) -> SourceFacts {
    let owner = owner(world);
    let (site, now) = (&world.source, world.now);
    SourceFacts {
        unsynced: Some(0),
        controllers: both(
            site.controllers.facts("controllers", true),
            site.kube_controllers.facts(KUBE_NAME, true),
        ),
        api_answered: None,
        api: api(world, Side::Source),
        tunnel: world.tunnel_facts(Side::Source),
        etcd: etcd(world, Side::Source),
        exposure: exposure(world, Side::Source),
        owner,
        owner_wait: Duration::from_secs(90),
        final_snapshot: None,
        is_final_full: false,
        api_ttl: Duration::from_secs(world.api_ttl),
        api_ttl_fence: world.api_ttl_fence.clone(),
        dns_records: site.dns_records.facts(now),
        api_dns_here: world.zone.is_api_at(Side::Source, now),
        extensions: site.extensions.facts(now),
        left: site.left(),
    }
}

fn destination(world: &mut World) -> DestinationFacts {
    let owner = owner(world);
    let [machines, leases, nodes] = [0; 3].map(|_| !does_not_answer(world));
    let (site, now) = (&world.destination, world.now);
    let stale = if now < world.trouble.leases_stale_until { vec!["node".to_owned()] } else { Vec::new() };
    let is_switched =
        world.has_written_dns(Side::Destination) && world.zone.is_api_at(Side::Destination, now);
    DestinationFacts {
        bucket_problem: None,
        unresolved: Vec::new(),
        copied: world.has_snapshot.then_some(1),
        api_held_back: Vec::new(),
        older_copied: false,
        source_newest: None,
        final_copied: None,
        unprepared: if site.exists { Vec::new() } else { vec!["Namespace".to_owned()] },
        machine_guard: world.machine_guard,
        offers_standby: false,
        standby: None,
        owner,
        owner_wait: Duration::from_secs(90),
        highest_epoch: 0,
        is_followed: false,
        etcd: etcd(world, Side::Destination),
        exposure: exposure(world, Side::Destination),
        dns_records: site.dns_records.facts(now),
        api: api(world, Side::Destination),
        tunnel: world.tunnel_facts(Side::Destination),
        exposure_problem: None,
        api_dns_written: None,
        uncached: None,
        api_dns_here: is_switched,
        api_ttl: Duration::from_secs(world.api_ttl),
        infrastructure: site.infrastructure.facts(now),
        extensions: site.extensions.facts(now),
        workers: site.workers.facts(now),
        machine_differences: machines.then(Vec::new),
        stale_leases: leases.then_some(stale),
        controllers: site.controllers.facts("controllers", true),
        kube_controllers: site.kube_controllers.facts(KUBE_NAME, true),
        unhealthy_nodes: nodes.then(Vec::new),
        source_backup_entry: false,
        left: left_at_destination(world),
    }
}

pub(super) fn left_at_destination(world: &World) -> Vec<String> {
    let mut left = world.destination.left();
    left.extend(world.machine_guard.then(|| "ValidatingAdmissionPolicy".to_owned()));
    left
}
