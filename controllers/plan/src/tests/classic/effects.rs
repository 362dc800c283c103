//! What requested effects do to the simulated clusters.

use super::{
    clusters::{Clusters, Seen},
    site::{KUBE_NAME, SeedState, only},
    zone::is_in,
};
use crate::{
    migration::{
        Side,
        effect::Effect,
        observed::{ExtensionOperation, FinalSnapshot, OwnerId, Replicas},
    },
    tests::rng::Rng,
};

/// Objects with a version of their own.
#[derive(Clone, Copy)]
enum Object {
    Controllers(Side),
    Api(Side),
    Etcd(Side),
    Namespace,
    DnsRecords,
    Shoot,
    Migration,
}

const ALL: [Object; 10] = [
    Object::Controllers(Side::Source),
    Object::Controllers(Side::Destination),
    Object::Api(Side::Source),
    Object::Api(Side::Destination),
    Object::Etcd(Side::Source),
    Object::Etcd(Side::Destination),
    Object::Namespace,
    Object::DnsRecords,
    Object::Shoot,
    Object::Migration,
];

fn version(clusters: &Clusters, object: Object) -> u64 {
    match object {
        Object::Controllers(side) => {
            clusters.site(side).controllers.version + clusters.site(side).kube_controllers.version
        }
        Object::Api(side) => clusters.site(side).api.version,
        Object::Etcd(side) => clusters.site(side).etcd.members.version,
        Object::Namespace => clusters.destination.version,
        Object::DnsRecords => clusters.source.dns_records.version,
        Object::Shoot => clusters.shoot_version,
        Object::Migration => clusters.migration_version,
    }
}

pub(super) fn seen(clusters: &Clusters) -> Seen {
    Seen { versions: ALL.map(|object| version(clusters, object)) }
}

/// The object that an effect writes under the version that was seen.
fn written(side: Side, effect: &Effect) -> Option<Object> {
    match effect {
        Effect::EnsureControllers { .. } | Effect::EnsureKubeControllers { .. } => {
            Some(Object::Controllers(side))
        }
        Effect::EnsureApi { .. } => Some(Object::Api(side)),
        Effect::EnsureEtcdReplicas { .. } | Effect::EnsureEtcd { .. } | Effect::EnsureStandby { .. } => {
            Some(Object::Etcd(side))
        }
        Effect::RequestDnsRecords { .. } | Effect::EnsureApiTtl { .. } => Some(Object::DnsRecords),
        Effect::EnsureFinalizer { .. } => Some(Object::Migration),
        Effect::EnsureOperation { .. }
        | Effect::EnsureStatusSeed { .. }
        | Effect::EnsureSpecSeed { .. }
        | Effect::EnsureIgnored { .. } => Some(Object::Shoot),
        Effect::EnsureSourceBackupEntry
        | Effect::CopySnapshots
        | Effect::PrepareDestination
        | Effect::RequestInfrastructure { .. }
        | Effect::RequestWorkers { .. }
        | Effect::RemoveDestination => Some(Object::Namespace),
        _ => None,
    }
}

pub(super) fn apply(clusters: &mut Clusters, side: Side, effect: &Effect, seen: &Seen, guarded: bool) {
    if let Some(object) = written(side, effect) {
        let at = ALL.iter().position(|other| version_of(*other) == version_of(object));
        let is_old = at.is_none_or(|at| seen.versions[at] != version(clusters, object));
        if guarded && is_old {
            return;
        }
        clusters.shoot_version += u64::from(matches!(object, Object::Shoot));
        clusters.migration_version += u64::from(matches!(object, Object::Migration));
    }
    let now = clusters.now;
    let mut rng = Rng::new(clusters.rng.next());
    match effect {
        // There is one migration at a time here.
        Effect::SupersedeOthers | Effect::RevokeSourceCredentials => {}
        // Simulated kubelets start containers again at once.
        Effect::ReplaceApi { .. } => {}
        // Those of a live migration.
        Effect::TellLiveProgress { .. }
        | Effect::ExposeMembers { .. }
        | Effect::HideMembers { .. }
        | Effect::JoinEtcd { .. }
        | Effect::RemoveLostMembers { .. }
        | Effect::RemoveSourceMembers { .. }
        | Effect::EnsureTunnel { .. }
        | Effect::ExposeTunnel
        | Effect::EnsureTemporaryClient
        | Effect::RemoveTemporaryClient => {}
        // The last copy of a classic migration has all snapshots.
        Effect::CopyOlderSnapshots => {}
        Effect::EnsureFinalizer { present } => clusters.finalizer = *present,
        Effect::EnsureIgnored { .. } if clusters.trouble.seed_deleted => {}
        Effect::EnsureIgnored { ignored } => clusters.gardenlet.set_ignored(*ignored),
        // Simulated members look often enough.
        Effect::CheckOwner => {}
        Effect::EnsureOperation { operation } => clusters.operation = *operation,
        Effect::EnsureBackupEntrySeed { seed } => clusters.entry_seed.clone_from(seed),
        Effect::EnsureStatusSeed { seed } => clusters.status_seed.clone_from(seed),
        Effect::EnsureSpecSeed { seed } => clusters.spec_seed.clone_from(seed),
        Effect::SyncState => {
            clusters.state = Some((clusters.source.machines.clone(), clusters.source.extension_state));
        }
        Effect::EnsureApiTtl { ttl, fence } => {
            clusters.api_ttl = ttl.as_secs();
            clusters.api_ttl_fence.clone_from(fence);
            clusters.source.dns_records.version += 1;
        }
        Effect::CopySnapshots | Effect::CopyFinalSnapshot { .. }
            if is_in(clusters.trouble.bucket_cut, now) => {}
        Effect::EnsureNoOwner { owner } => clusters.zone.delete_owner(owner, now),
        Effect::RemoveSourceControllers => {
            clusters.source.controllers.set(None, "", now, &mut rng);
            clusters.source.kube_controllers.set(None, "", now, &mut rng);
        }
        Effect::EnsureOwner { owner } => clusters.zone.set_owner(owner, now, guarded),
        Effect::CopySnapshots => clusters.copied = Some(1),
        Effect::CopyFinalSnapshot { snapshot } => copy_final(clusters, snapshot),
        Effect::EnsureSourceBackupEntry => clusters.source_backup_entry = true,
        Effect::EnsureNoSourceBackupEntry => clusters.source_backup_entry = false,
        Effect::EnsureExposure => {}
        Effect::PrepareDestination => prepare(clusters, &mut rng),
        Effect::EnsureStandby { volumes, owner, replicas, fence } => {
            clusters.standby = clusters.destination.exists;
            set_etcd(clusters, side, (volumes, None, owner), (*replicas, fence), &mut rng);
        }
        Effect::SwitchApiDns => clusters.zone.switch_api(Side::Destination, now),
        Effect::EnsureNoMachineGuard => clusters.machine_guard = false,
        Effect::StopDestination { fence, .. } => stop(clusters, fence, &mut rng),
        Effect::RemoveDestination => remove_destination(clusters, &mut rng),
        Effect::RemoveSource if now >= clusters.trouble.source_removed_at => {
            clusters.source.remove(now, &mut rng)
        }
        Effect::RemoveSource => {}
        Effect::RequestWorkers { operation } => restore_workers(clusters, *operation, &mut rng),
        Effect::EnsureControllers { replicas, fence } | Effect::EnsureKubeControllers { replicas, fence } => {
            let site = clusters.site_mut(side);
            for (name, wanted) in replicas {
                let workload =
                    if name == KUBE_NAME { &mut site.kube_controllers } else { &mut site.controllers };
                workload.set(Some(*wanted), fence, now, &mut rng);
            }
        }
        Effect::EnsureApi { replicas, fence } => set_api(clusters, side, replicas, fence, &mut rng),
        Effect::EnsureEtcdReplicas { replicas, fence, .. } => {
            clusters.site_mut(side).etcd.members.set(Some(*replicas), fence, now, &mut rng);
        }
        Effect::EnsureEtcd { standby, volumes, from, owner, replicas, fence } => {
            clusters.standby &= *standby || side == Side::Source;
            let bucket = match side {
                // A standby reads the bucket of the source by itself, when it can.
                Side::Destination if *standby => &None,
                Side::Destination => &clusters.final_copied,
                _ => &clusters.source.final_snapshot,
            };
            let fill = bucket.as_ref().filter(|(snapshot, _)| snapshot == from).map(|(_, data)| data.clone());
            set_etcd(clusters, side, (volumes, fill, owner), (*replicas, fence), &mut rng);
        }
        // Nothing is requested of what does not exist any more.
        Effect::RequestDnsRecords { .. }
        | Effect::RequestInfrastructure { .. }
        | Effect::RequestExtensions { .. }
            if !clusters.site(side).exists => {}
        Effect::RequestDnsRecords { operation }
        | Effect::RequestInfrastructure { operation }
        | Effect::RequestExtensions { operation } => {
            let site = clusters.site_mut(side);
            let requests = match effect {
                Effect::RequestDnsRecords { .. } => &mut site.dns_records,
                Effect::RequestInfrastructure { .. } => &mut site.infrastructure,
                _ => &mut site.extensions,
            };
            let is_first = requests.last != Some(*operation);
            requests.ask(*operation, now, &mut rng);
            let is_migrate =
                matches!(effect, Effect::RequestExtensions { operation: ExtensionOperation::Migrate });
            // Extension controllers store their last state when they migrate.
            clusters.source.extension_state += u32::from(is_first && is_migrate);
            if is_first
                && side == Side::Destination
                && matches!(effect, Effect::RequestInfrastructure { .. } | Effect::RequestExtensions { .. })
            {
                clusters.destination.extension_state = clusters.state.as_ref().map_or(0, |(_, state)| *state);
            }
        }
    }
}

fn version_of(object: Object) -> (u8, Option<Side>) {
    match object {
        Object::Controllers(side) => (0, Some(side)),
        Object::Api(side) => (1, Some(side)),
        Object::Etcd(side) => (2, Some(side)),
        Object::Namespace => (3, None),
        Object::DnsRecords => (4, None),
        Object::Shoot => (5, None),
        Object::Migration => (6, None),
    }
}

fn copy_final(clusters: &mut Clusters, snapshot: &FinalSnapshot) {
    let taken = clusters.source.final_snapshot.clone();
    clusters.final_copied = taken
        .filter(|(taken, _)| taken == snapshot && clusters.destination.exists)
        .or(clusters.final_copied.take());
}

fn prepare(clusters: &mut Clusters, rng: &mut Rng) {
    let (now, carried) = (clusters.now, clusters.source.etcd.own.clone());
    let site = &mut clusters.destination;
    site.exists = true;
    clusters.machine_guard = true;
    if site.etcd.members.wanted.is_none() && site.etcd.members.running == 0 {
        // An Etcd is carried as it is at the source.
        (site.etcd.own, site.etcd.volumes) = (carried, "carried".to_owned());
    }
    for workload in [&mut site.api, &mut site.controllers, &mut site.kube_controllers, &mut site.etcd.members]
    {
        if workload.wanted.is_none() {
            workload.set(Some(0), "", now, rng);
        }
    }
}

fn stop(clusters: &mut Clusters, fence: &str, rng: &mut Rng) {
    let (now, site) = (clusters.now, &mut clusters.destination);
    clusters.standby = false;
    for workload in [&mut site.api, &mut site.controllers, &mut site.kube_controllers, &mut site.etcd.members]
    {
        let replicas = workload.wanted.map(|_| 0);
        workload.set(replicas, fence, now, rng);
    }
}

fn remove_destination(clusters: &mut Clusters, rng: &mut Rng) {
    let now = clusters.now;
    clusters.destination.remove(now, rng);
    (clusters.machine_guard, clusters.source_backup_entry, clusters.standby) = (false, false, false);
    (clusters.copied, clusters.final_copied) = (None, None);
}

fn set_api(clusters: &mut Clusters, side: Side, replicas: &Replicas, fence: &str, rng: &mut Rng) {
    let now = clusters.now;
    if exists(clusters.site(side)) {
        clusters.site_mut(side).api.set(only(replicas), fence, now, rng);
    }
}

fn exists(site: &SeedState) -> bool {
    site.exists
}

fn set_etcd(
    clusters: &mut Clusters,
    side: Side,
    (volumes, fill, owner): (&str, Option<Vec<u32>>, &OwnerId),
    (replicas, fence): (u32, &str),
    rng: &mut Rng,
) {
    let now = clusters.now;
    let site = clusters.site_mut(side);
    if !site.exists {
        return;
    }
    let etcd = &mut site.etcd;
    if etcd.volumes != volumes {
        // The members of the former volumes are gone before: the set has one name.
        etcd.members.running = 0;
        volumes.clone_into(&mut etcd.volumes);
    }
    let held = etcd.members.wanted.filter(|_| etcd.own == *owner && etcd.members.fence == fence);
    let replicas = if replicas == 0 { 0 } else { replicas.max(held.unwrap_or_default()) };
    etcd.own.clone_from(owner);
    etcd.fill = fill;
    etcd.members.set(Some(replicas), fence, now, rng);
}

/// Machines are made once, from the state that is carried.
fn restore_workers(clusters: &mut Clusters, operation: ExtensionOperation, rng: &mut Rng) {
    let (now, site) = (clusters.now, &mut clusters.destination);
    if site.workers.last != Some(operation) {
        site.machines = clusters.state.clone().unwrap_or_default().0;
        if clusters.trouble.early_controllers && site.controllers.wanted.is_some() {
            site.controllers.set(Some(1), "", now, rng);
        }
    }
    site.workers.ask(operation, now, rng);
}
