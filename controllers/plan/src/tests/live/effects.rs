//! What requested effects do to the simulated clusters.

use super::{
    etcd::EtcdObject,
    tunnel::TUNNEL_NAME,
    world::{SimulatedSeed, World},
};
use crate::{
    migration::{
        Side,
        effect::Effect,
        observed::{ExtensionOperation, Ignored, Replicas},
    },
    tests::{
        classic::site::{KUBE_NAME, Requests},
        rng::Rng,
    },
};

/// Versions of the objects that a decision was made on: controllers, API servers and Etcds of both seeds, their namespaces, the Shoot
/// and the migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen([u64; 10]);

const SHOOT: usize = 8;
const MIGRATION: usize = 9;

pub(super) fn seen(world: &World) -> Seen {
    let (a, b) = (&world.source, &world.destination);
    Seen([
        a.controllers.version + a.kube_controllers.version,
        b.controllers.version + b.kube_controllers.version,
        a.api.version + a.tunnel.version,
        b.api.version + b.tunnel.version,
        a.etcd.version,
        b.etcd.version,
        a.version + a.dns_records.version,
        b.version + b.dns_records.version,
        world.shoot_version,
        world.migration_version,
    ])
}

/// The number of the object that an effect writes under the version that was seen.
fn written(side: Side, effect: &Effect) -> Option<usize> {
    let of = usize::from(side == Side::Destination);
    match effect {
        Effect::EnsureControllers { .. } | Effect::EnsureKubeControllers { .. } => Some(of),
        Effect::EnsureApi { .. } | Effect::EnsureTunnel { .. } => Some(2 + of),
        Effect::EnsureEtcdReplicas { .. }
        | Effect::ExposeMembers { .. }
        | Effect::HideMembers { .. }
        | Effect::JoinEtcd { .. }
        | Effect::RemoveLostMembers { .. }
        | Effect::RemoveSourceMembers { .. } => Some(4 + of),
        Effect::EnsureApiTtl { .. }
        | Effect::RequestDnsRecords { .. }
        | Effect::SwitchApiDns
        | Effect::PrepareDestination
        | Effect::RequestInfrastructure { .. }
        | Effect::RequestWorkers { .. }
        | Effect::RemoveDestination => Some(6 + of),
        Effect::EnsureOperation { .. }
        | Effect::TellLiveProgress { .. }
        | Effect::EnsureStatusSeed { .. }
        | Effect::EnsureSpecSeed { .. }
        | Effect::EnsureIgnored { .. } => Some(SHOOT),
        Effect::EnsureFinalizer { .. } => Some(MIGRATION),
        _ => None,
    }
}

pub(super) fn apply(world: &mut World, side: Side, effect: &Effect, then: &Seen, guarded: bool) {
    if let Some(at) = written(side, effect) {
        if guarded && then.0[at] != seen(world).0[at] {
            return;
        }
        world.shoot_version += u64::from(at == SHOOT);
        world.migration_version += u64::from(at == MIGRATION);
    }
    let mut rng = Rng::new(world.rng.next());
    match effect {
        Effect::EnsureFinalizer { present } => world.finalizer = *present,
        Effect::EnsureIgnored { ignored } => {
            world.ignored = if *ignored { Ignored::ByThis } else { Ignored::No };
        }
        Effect::TellLiveProgress { conditions } => world.live.clone_from(conditions),
        Effect::EnsureOperation { operation } => world.operation = *operation,
        Effect::EnsureBackupEntrySeed { seed } => world.entry_seed.clone_from(seed),
        Effect::EnsureStatusSeed { seed } => world.status_seed.clone_from(seed),
        Effect::EnsureSpecSeed { seed } => world.spec_seed.clone_from(seed),
        Effect::EnsureOwner { owner } => world.zone.set_owner(owner, world.now, guarded),
        Effect::EnsureNoMachineGuard => world.machine_guard = false,
        Effect::EnsureApiTtl { ttl, fence } => {
            world.api_ttl = ttl.as_secs();
            world.api_ttl_fence.clone_from(fence);
            world.site_mut(side).dns_records.version += 1;
        }
        Effect::PrepareDestination => prepare(world, &mut rng),
        Effect::RemoveDestination => {
            remove(world, Side::Destination, &mut rng);
            world.machine_guard = false;
        }
        Effect::RemoveSource => remove(world, Side::Source, &mut rng),
        Effect::ExposeTunnel | Effect::EnsureTemporaryClient | Effect::RemoveTemporaryClient => {
            world.change_tunnel(side, effect, &mut rng);
        }
        effect if world.site(side).exists => in_namespace(world, side, effect, &mut rng),
        _ => {}
    }
}

/// What needs the namespace of the control plane.
fn in_namespace(world: &mut World, side: Side, effect: &Effect, rng: &mut Rng) {
    let now = world.now;
    let site = world.site_mut(side);
    match effect {
        Effect::EnsureControllers { replicas, fence } | Effect::EnsureKubeControllers { replicas, fence } => {
            scale(site, replicas, fence, now, rng);
        }
        Effect::RemoveSourceControllers => {
            site.controllers.set(None, "", now, rng);
            site.kube_controllers.set(None, "", now, rng);
        }
        Effect::EnsureApi { replicas, fence } | Effect::EnsureTunnel { replicas, fence } => {
            for (name, wanted) in replicas {
                let workload = if name == TUNNEL_NAME { &mut site.tunnel } else { &mut site.api };
                workload.set(Some(*wanted), fence, now, rng);
            }
        }
        Effect::EnsureEtcdReplicas { replicas, fence, .. } => {
            write(&mut site.etcd, fence).replicas = Some(*replicas);
        }
        Effect::ExposeMembers { fence } if side == Side::Source => {
            write(&mut site.etcd, fence).expose(now, rng)
        }
        Effect::ExposeMembers { .. } => {
            site.etcd.exposure.get_or_insert(now + rng.within(1, 60));
        }
        Effect::HideMembers { fence } => write(&mut site.etcd, fence).hide(now, rng),
        Effect::JoinEtcd { volumes, owner, replicas, fence, .. } => {
            let etcd = write(&mut site.etcd, fence);
            (etcd.replicas, etcd.epoch) = (Some(*replicas), owner.epoch);
            etcd.volumes.clone_from(volumes);
            (etcd.joins, etcd.has_joined, etcd.is_exposed) = (true, true, true);
        }
        Effect::RemoveLostMembers { fence } => write(&mut site.etcd, fence).removes_lost = true,
        Effect::RemoveSourceMembers { fence } => write(&mut site.etcd, fence).joins = false,
        Effect::StopDestination { abandons_etcd, fence } => {
            stop(site, fence, now, rng);
            // Members that give the etcd up do not leave it.
            site.etcd.has_joined &= !abandons_etcd;
        }
        Effect::SwitchApiDns => site.ask_dns(ExtensionOperation::Restore, now, rng),
        Effect::RequestDnsRecords { operation } => site.ask_dns(*operation, now, rng),
        Effect::RequestInfrastructure { operation } => ask(&mut site.infrastructure, *operation, now, rng),
        Effect::RequestExtensions { operation } => ask(&mut site.extensions, *operation, now, rng),
        Effect::RequestWorkers { operation } => ask(&mut site.workers, *operation, now, rng),
        _ => {}
    }
}

fn ask(requests: &mut Requests, operation: ExtensionOperation, now: u64, rng: &mut Rng) {
    requests.ask(operation, now, rng);
}

fn write<'a>(etcd: &'a mut EtcdObject, fence: &str) -> &'a mut EtcdObject {
    fence.clone_into(&mut etcd.fence);
    etcd.version += 1;
    etcd
}

fn scale(site: &mut SimulatedSeed, replicas: &Replicas, fence: &str, now: u64, rng: &mut Rng) {
    for (name, wanted) in replicas {
        let workload = if name == KUBE_NAME { &mut site.kube_controllers } else { &mut site.controllers };
        workload.set(Some(*wanted), fence, now, rng);
    }
}

fn prepare(world: &mut World, rng: &mut Rng) {
    let now = world.now;
    world.machine_guard = true;
    let site = &mut world.destination;
    site.exists = true;
    site.etcd.replicas.get_or_insert(0);
    for workload in site.workloads() {
        if workload.wanted.is_none() {
            workload.set(Some(0), "", now, rng);
        }
    }
}

fn stop(site: &mut SimulatedSeed, fence: &str, now: u64, rng: &mut Rng) {
    for workload in site.workloads() {
        let replicas = workload.wanted.map(|_| 0);
        workload.set(replicas, fence, now, rng);
    }
    let etcd = write(&mut site.etcd, fence);
    etcd.replicas = etcd.replicas.map(|_| 0);
}

/// Everything of the Shoot goes; members of an Etcd that is deleted do not leave the etcd by that.
fn remove(world: &mut World, side: Side, rng: &mut Rng) {
    let now = world.now;
    let is_held = world.site(side).etcd.has_joined && world.etcd.of(Side::Destination) > 0;
    let is_held = is_held && side == Side::Destination;
    let site = world.site_mut(side);
    for workload in site.workloads() {
        workload.set(None, "", now, rng);
    }
    for requests in [&mut site.dns_records, &mut site.infrastructure, &mut site.extensions, &mut site.workers]
    {
        requests.clear();
    }
    if is_held {
        // Its finalizer holds the Etcd, and that holds the namespace, until its members have left the etcd or give it up.
        site.etcd.replicas = Some(0);
        return;
    }
    let (pods, version) = (std::mem::take(&mut site.etcd.pods), site.etcd.version);
    site.etcd = EtcdObject { pods, version: version + 1, ..EtcdObject::default() };
    site.exists = false;
    site.version += 1;
}
