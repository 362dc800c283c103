//! What requested effects do to the simulated clusters.

use super::world::{DESTINATION, World};
use crate::{
    migration::{
        Side,
        effect::Effect,
        observed::{Ignored, OwnerId, Replicas},
    },
    tests::{
        classic::site::{KUBE_NAME, Requests, only},
        rng::Rng,
    },
};

/// Versions of the objects that a decision was made on: controllers, API servers and members of both seeds, the namespace at the
/// destination, the Shoot and the migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen([u64; 9]);

pub(super) fn seen(world: &World) -> Seen {
    let (a, b) = (&world.source, &world.destination);
    Seen([
        a.controllers.version + a.kube_controllers.version,
        b.controllers.version + b.kube_controllers.version,
        a.api.version,
        b.api.version,
        a.members.workload.version,
        b.members.workload.version,
        b.version,
        world.shoot_version,
        world.migration_version,
    ])
}

/// The number of the object that an effect writes under the version that was seen.
fn written(side: Side, effect: &Effect) -> Option<usize> {
    let of = usize::from(side == Side::Destination);
    match effect {
        Effect::EnsureControllers { .. } | Effect::EnsureKubeControllers { .. } => Some(of),
        Effect::EnsureApi { .. } => Some(2 + of),
        Effect::EnsureEtcdReplicas { .. } | Effect::EnsureEtcd { .. } => Some(4 + of),
        Effect::EnsureSourceBackupEntry
        | Effect::PrepareDestination
        | Effect::RequestInfrastructure { .. }
        | Effect::RequestWorkers { .. }
        | Effect::RemoveDestination => Some(6),
        Effect::EnsureOperation { .. }
        | Effect::EnsureStatusSeed { .. }
        | Effect::EnsureSpecSeed { .. }
        | Effect::EnsureIgnored { .. } => Some(7),
        Effect::EnsureFinalizer { .. } => Some(8),
        _ => None,
    }
}

pub(super) fn apply(world: &mut World, side: Side, effect: &Effect, then: &Seen, guarded: bool) {
    if let Some(at) = written(side, effect) {
        if guarded && then.0[at] != seen(world).0[at] {
            return;
        }
        world.shoot_version += u64::from(at == 7);
        world.migration_version += u64::from(at == 8);
    }
    let now = world.now;
    let mut rng = Rng::new(world.rng.next());
    match effect {
        Effect::EnsureFinalizer { present } => world.finalizer = *present,
        Effect::RevokeSourceCredentials => world.revoke_credentials(),
        Effect::EnsureIgnored { ignored } => {
            world.ignored = if *ignored { Ignored::ByThis } else { Ignored::No };
        }
        Effect::EnsureOperation { operation } => world.operation = *operation,
        Effect::EnsureBackupEntrySeed { seed } => world.entry_seed.clone_from(seed),
        Effect::EnsureStatusSeed { seed } => world.status_seed.clone_from(seed),
        Effect::EnsureSpecSeed { seed } => world.spec_seed.clone_from(seed),
        Effect::EnsureOwner { owner } => world.zone.write(owner, now, guarded),
        Effect::EnsureSourceBackupEntry => world.backup_entry = true,
        Effect::CopyOlderSnapshots => world.older_copied |= world.backup_entry,
        Effect::EnsureNoSourceBackupEntry => world.backup_entry = false,
        Effect::EnsureNoMachineGuard => world.machine_guard = false,
        Effect::RemoveTemporaryClient if world.site(side).is_api_ready() => {
            world.has_temporary_client = false
        }
        Effect::SwitchApiDns => world.api_at = Side::Destination,
        Effect::PrepareDestination => prepare(world, &mut rng),
        Effect::StopDestination { fence, .. } => stop(world, fence, &mut rng),
        Effect::RemoveDestination => {
            remove(world, Side::Destination, &mut rng);
            (world.backup_entry, world.machine_guard) = (false, false);
        }
        Effect::RemoveSource => remove(world, Side::Source, &mut rng),
        Effect::RemoveSourceControllers => {
            world.source.controllers.set(None, "", now, &mut rng);
            world.source.kube_controllers.set(None, "", now, &mut rng);
        }
        Effect::EnsureControllers { replicas, fence } | Effect::EnsureKubeControllers { replicas, fence } => {
            let site = world.site_mut(side);
            for (name, wanted) in replicas {
                let workload =
                    if name == KUBE_NAME { &mut site.kube_controllers } else { &mut site.controllers };
                workload.set(site.exists.then_some(*wanted), fence, now, &mut rng);
            }
        }
        Effect::EnsureApi { replicas, fence } => {
            let wanted = as_wanted(world, side, replicas);
            world.site_mut(side).api.set(wanted, fence, now, &mut rng);
        }
        Effect::EnsureEtcdReplicas { replicas, fence, .. } => {
            world.site_mut(side).members.workload.set(Some(*replicas), fence, now, &mut rng);
        }
        Effect::EnsureEtcd { volumes, owner, replicas, fence, .. } => {
            start_etcd(world, (volumes, owner), (*replicas, fence), &mut rng);
        }
        Effect::RequestDnsRecords { operation } => {
            request(world, side, |site| &mut site.dns_records, *operation, &mut rng)
        }
        Effect::RequestInfrastructure { operation } => {
            request(world, side, |site| &mut site.infrastructure, *operation, &mut rng);
        }
        Effect::RequestExtensions { operation } => {
            request(world, side, |site| &mut site.extensions, *operation, &mut rng)
        }
        Effect::RequestWorkers { operation } => {
            request(world, side, |site| &mut site.workers, *operation, &mut rng)
        }
        _ => {}
    }
}

/// Nothing is scaled in a namespace that does not exist.
fn as_wanted(world: &World, side: Side, replicas: &Replicas) -> Option<u32> {
    only(replicas).filter(|_| world.site(side).exists)
}

fn request(
    world: &mut World,
    side: Side,
    of: impl Fn(&mut super::world::SimulatedSeed) -> &mut Requests,
    operation: crate::migration::observed::ExtensionOperation,
    rng: &mut Rng,
) {
    let now = world.now;
    let site = world.site_mut(side);
    if site.exists {
        of(site).ask(operation, now, rng);
    }
}

fn prepare(world: &mut World, rng: &mut Rng) {
    let (now, own) = (world.now, world.zone.record().clone());
    let site = &mut world.destination;
    world.machine_guard = true;
    if !site.exists {
        // The Etcd is carried with the owner of the source.
        site.members.own = own;
        site.exists = true;
    }
    for workload in
        [&mut site.api, &mut site.controllers, &mut site.kube_controllers, &mut site.members.workload]
    {
        if workload.wanted.is_none() {
            workload.set(Some(0), "", now, rng);
        }
    }
}

fn start_etcd(
    world: &mut World,
    (volumes, owner): (&str, &OwnerId),
    (replicas, fence): (u32, &str),
    rng: &mut Rng,
) {
    let now = world.now;
    let site = &mut world.destination;
    if !site.exists || owner.seed != DESTINATION {
        return;
    }
    if site.members.volumes != volumes {
        (site.members.content, site.members.volumes) = (None, volumes.to_owned());
    }
    site.members.own.clone_from(owner);
    site.members.workload.set(Some(replicas), fence, now, rng);
}

fn stop(world: &mut World, fence: &str, rng: &mut Rng) {
    let (now, site) = (world.now, &mut world.destination);
    for workload in
        [&mut site.api, &mut site.controllers, &mut site.kube_controllers, &mut site.members.workload]
    {
        let replicas = workload.wanted.map(|_| 0);
        workload.set(replicas, fence, now, rng);
    }
}

fn remove(world: &mut World, side: Side, rng: &mut Rng) {
    let now = world.now;
    let site = world.site_mut(side);
    for workload in
        [&mut site.api, &mut site.controllers, &mut site.kube_controllers, &mut site.members.workload]
    {
        workload.set(None, "", now, rng);
    }
    for requests in [&mut site.dns_records, &mut site.infrastructure, &mut site.extensions, &mut site.workers]
    {
        requests.clear();
    }
    site.members.content = None;
    site.exists = false;
    site.version += 1;
}
