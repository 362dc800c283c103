//! Effects of the destination as calls.

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt, api::DeleteParams};
use repot_plan::migration::{
    effect::Effect,
    observed::{MigrationMode, OwnerId, Replicas},
};
use serde_json::json;

use super::{
    buckets, carried, cluster, copies, guard, live, objects::Objects, prepare, remove, restore, tunnel,
};
use crate::{
    errors::is_not_found,
    etcd::api::{Etcd, FENCE, Store},
    migration::{
        error::{Error, Result},
        pass::Pass,
        seed::{
            api_record, extensions,
            owner::{self, OwnerRecordOf},
            params, scale,
            tunnel_client::Maker,
            tunnel_facts::remove_temporary_client,
            under,
        },
    },
    shootstate::State,
};

/// Carries out an effect of the destination, under the versions of the objects that were observed.
///
/// # Errors
/// [`Error`]. The next pass looks again.
pub async fn act(pass: &Pass<'_>, objects: &Objects, effect: &Effect) -> Result<()> {
    let (seed, namespace, uid) = (pass.context.own_client(), &objects.namespace, &pass.facts.request.uid);
    match effect {
        Effect::EnsureSourceBackupEntry => source_bucket(pass, objects).await,
        Effect::EnsureExposure => exposure(pass, objects).await,
        Effect::CopySnapshots => copy(pass, objects, copies::AHEAD).await,
        Effect::CopyOlderSnapshots => copy_older(pass, objects).await,
        Effect::CopyFinalSnapshot { snapshot } => copy(pass, objects, &copies::name_of_final(snapshot)).await,
        Effect::PrepareDestination => prepare(pass, objects).await,
        Effect::EnsureOwner { owner } => write_owner(pass, objects, owner).await,
        Effect::EnsureStandby { volumes, owner, replicas, fence } => {
            main_etcd(pass, objects, true, (volumes, owner), (*replicas, fence)).await
        }
        Effect::EnsureEtcd { standby, volumes, owner, replicas, fence, .. } => {
            main_etcd(pass, objects, *standby, (volumes, owner), (*replicas, fence)).await?;
            other_etcds(pass, objects, *replicas, fence).await
        }
        Effect::ExposeMembers { .. } => live::expose(pass, objects).await,
        Effect::JoinEtcd { volumes, owner, joined, members, replicas, fence } => {
            let join = live::Join { volumes, owner, joined, members, replicas: *replicas };
            live::join(pass, objects, &join, fence).await
        }
        Effect::RemoveSourceMembers { fence } => live::remove_source_members(pass, objects, fence).await,
        Effect::HideMembers { fence } => live::hide(pass, objects, fence).await,
        Effect::RequestDnsRecords { operation } => {
            extensions::request(seed, namespace, objects.records.iter(), *operation, uid).await
        }
        Effect::CheckOwner => objects.etcds.check_owner(seed),
        Effect::EnsureEtcdReplicas { replicas, fence, .. } => {
            scale::etcd(seed, objects.etcds.need_main()?, *replicas, fence).await
        }
        Effect::EnsureApi { replicas, fence } => {
            other_etcds(pass, objects, replicas.values().sum(), fence).await?;
            scale::deployments(seed, namespace, objects.plane.api_servers_and_tunnels(), replicas, fence)
                .await
        }
        Effect::EnsureTunnel { replicas, fence } => {
            scale::deployments(seed, namespace, objects.plane.tunnels(), replicas, fence).await
        }
        Effect::ExposeTunnel => tunnel::expose(pass, objects).await,
        Effect::RemoveTemporaryClient => {
            remove_temporary_client(seed, namespace, &objects.plane, Maker::of(&pass.facts.request)).await
        }
        Effect::ReplaceApi { pods } => replace(seed, namespace, pods).await,
        Effect::EnsureControllers { replicas, fence } | Effect::EnsureKubeControllers { replicas, fence } => {
            scale::deployments(seed, namespace, objects.plane.controllers(), replicas, fence).await
        }
        Effect::SwitchApiDns => {
            let records = objects.records.iter();
            restore::restore(seed, namespace, records, &State::default(), uid).await
        }
        Effect::EnsureApiTtl { ttl, fence } => {
            api_record::ensure_ttl(seed, namespace, &objects.api_records, *ttl, fence).await
        }
        Effect::RequestInfrastructure { .. } => {
            restore::restore(seed, namespace, objects.of_kind("Infrastructure"), state(objects)?, uid).await
        }
        Effect::RequestExtensions { .. } => {
            restore::restore(seed, namespace, objects.others(), state(objects)?, uid).await
        }
        Effect::RequestWorkers { .. } => {
            restore::restore(seed, namespace, objects.of_kind("Worker"), state(objects)?, uid).await
        }
        Effect::EnsureNoSourceBackupEntry => no_source_bucket(pass, objects).await,
        Effect::EnsureNoMachineGuard => guard::remove(seed, uid).await,
        Effect::StopDestination { abandons_etcd, fence } => stop(pass, objects, *abandons_etcd, fence).await,
        Effect::RemoveDestination => remove::remove(seed, objects, uid).await,
        _ => Ok(()),
    }
}

fn state(objects: &Objects) -> Result<&State> {
    objects.state.as_ref().ok_or_else(|| Error::Missing("the ShootState".to_owned()))
}

async fn replace(seed: &Client, namespace: &str, pods: &[String]) -> Result<()> {
    let all = Api::<Pod>::namespaced(seed.clone(), namespace);
    for name in pods {
        match all.delete(name, &DeleteParams::default()).await {
            Err(error) if is_not_found(&error) => {}
            outcome => drop(outcome.map_err(Error::write(format!("delete Pod {name}")))?),
        }
    }
    Ok(())
}

async fn source_bucket(pass: &Pass<'_>, objects: &Objects) -> Result<()> {
    let (seed, request) = (pass.context.own_client(), &pass.facts.request);
    let (name, found) = (&objects.namespace, objects.own_namespace.as_ref());
    prepare::ensure_namespace(seed, name, found, &request.uid).await?;
    let garden = pass.context.garden_client();
    let access = buckets::Access::to_source(objects, request);
    buckets::ensure(garden, seed, &access).await
}

async fn no_source_bucket(pass: &Pass<'_>, objects: &Objects) -> Result<()> {
    buckets::remove_source(pass.context.own_client(), objects, &pass.facts.request.uid).await
}

/// The address of the API servers is known once their Service exists.
async fn exposure(pass: &Pass<'_>, objects: &Objects) -> Result<()> {
    let (seed, request) = (pass.context.own_client(), &pass.facts.request);
    let (name, found) = (&objects.namespace, objects.own_namespace.as_ref());
    prepare::ensure_namespace(seed, name, found, &request.uid).await?;
    let service = carried::exposure(state(objects)?, name, &objects.seed_facts)?;
    let service =
        service.ok_or_else(|| Error::Missing("Service kube-apiserver in the ShootState".to_owned()))?;
    prepare::create(seed, name, &[&service]).await
}

async fn prepare(pass: &Pass<'_>, objects: &Objects) -> Result<()> {
    let (seed, garden) = (pass.context.own_client(), pass.context.garden_client());
    let (request, namespace) = (&pass.facts.request, &objects.namespace);
    prepare::ensure_namespace(seed, namespace, objects.own_namespace.as_ref(), &request.uid).await?;
    guard::ensure(seed, namespace, &request.uid).await?;
    buckets::ensure(garden, seed, &buckets::Access::to_destination(objects, request)).await?;
    let shoot = objects.shoot.as_ref().ok_or_else(|| Error::Missing("the Shoot".to_owned()))?;
    let (shoot, seed_name) = ((shoot.namespace.as_str(), shoot.name.as_str()), &request.destination_seed);
    cluster::ensure(garden, seed, shoot, seed_name, namespace, &request.uid).await?;
    let wanted = carried::objects(state(objects)?, namespace, &objects.seed_facts)?;
    let missing = prepare::missing(seed, namespace, &wanted).await?;
    prepare::create(seed, namespace, &missing).await
}

async fn copy(pass: &Pass<'_>, objects: &Objects, name: &str) -> Result<()> {
    let carried = objects.carried_etcd.as_ref();
    let carried = carried.ok_or_else(|| Error::Missing("the Etcd in the ShootState".to_owned()))?;
    let etcd = objects.etcds.main().unwrap_or(carried);
    let (seed, namespace) = (pass.context.own_client(), &objects.namespace);
    let garden = pass.context.garden_client();
    // The first copy may come before everything else is prepared.
    let access = buckets::Access::to_destination(objects, &pass.facts.request);
    buckets::ensure(garden, seed, &access).await?;
    copies::ensure(seed, namespace, (carried, etcd), &pass.context.image, name).await
}

/// The ShootState may hold the Etcd of the destination by now, so its source is taken from the Etcd itself.
async fn copy_older(pass: &Pass<'_>, objects: &Objects) -> Result<()> {
    let main = objects.etcds.need_main()?;
    let mut carried = main.clone();
    carried.spec.backup.store.clone_from(&main.spec.backup.source_store);
    let (seed, image) = (pass.context.own_client(), &pass.context.image);
    copies::ensure(seed, &objects.namespace, (&carried, main), image, copies::OLDER).await
}

async fn write_owner(pass: &Pass<'_>, objects: &Objects, owner: &OwnerId) -> Result<()> {
    let like = objects.zone_record.as_ref();
    let like = like.ok_or_else(|| Error::Missing("a DNSRecord of the zone".to_owned()))?;
    let (namespace, migration) = (objects.namespace.as_str(), pass.facts.request.uid.as_str());
    let new = owner::NewRecord { namespace, like, migration, is_insisted: false };
    let found = (objects.owner_record.as_ref(), pass.facts.facts.owner_record());
    owner::write(pass.context.own_client(), found, &new, objects.etcds.need_main()?, owner).await
}

/// The main Etcd goes on from the snapshots of the source: its members restore a copy, or the first one follows the store of the source.
async fn main_etcd(
    pass: &Pass<'_>,
    objects: &Objects,
    standby: bool,
    (volumes, owner): (&str, &OwnerId),
    (replicas, fence): (u32, &str),
) -> Result<()> {
    let (seed, main) = (pass.context.own_client(), objects.etcds.need_main()?);
    let check = main.spec.backup.owner_check.as_ref();
    let is_own = main.volumes() == volumes
        && check.is_some_and(|check| check.id == owner::text(owner))
        && main.annotations().get(FENCE).map(String::as_str) == Some(fence);
    // A controller that was paused may ask for the members of an earlier step. No step takes members away.
    let replicas = if is_own && replicas > 0 { replicas.max(main.spec.replicas) } else { replicas };
    let is_written = is_own && main.spec.replicas == replicas && main.spec.backup.standby == standby;
    if is_written {
        return Ok(());
    }
    let source = restored_from(main, objects.carried_etcd.as_ref(), standby, volumes, replicas)?;
    let mut patch = json!({
        "metadata": {"annotations": {FENCE: fence}},
        "spec": {
            "volumeClaimTemplate": volumes, "replicas": replicas,
            "backup": {
                "ownerCheck": {"id": owner::text(owner)}, "sourceStore": source, "standby": standby,
            },
        },
    });
    if pass.facts.request.mode == MigrationMode::Forced {
        // A source that still runs stores its final snapshot while it is waited for anyway.
        let wait = OwnerRecordOf::new(main)?.wait().as_secs();
        let backup = &mut patch["spec"]["backup"];
        backup["waitForFinalSnapshot"] =
            json!({"enabled": true, "timeout": format!("{wait}s"), "onTimeout": "Copy"});
        // The others follow when it serves.
        backup["sourceSnapshots"] = "Newest".into();
    }
    let all = Api::<Etcd>::namespaced(seed.clone(), &objects.namespace);
    let patch = under(main.resource_version(), patch);
    let outcome = all.patch(&main.name_any(), &params(), &patch).await;
    outcome.map(drop).map_err(Error::write("start the Etcd of the destination"))
}

/// The store that members restore. The etcd of a hibernated Shoot is restored when it wakes: the access to the bucket of the source has
/// ended then, and all that is needed was copied. A standby of this migration has it already.
fn restored_from(
    main: &Etcd,
    carried: Option<&Etcd>,
    standby: bool,
    volumes: &str,
    replicas: u32,
) -> Result<Option<Store>> {
    let is_own_standby = standby && main.spec.backup.standby && main.volumes() == volumes;
    match carried {
        _ if replicas == 0 => Ok(main.spec.backup.store.clone()),
        Some(carried) => Ok(copies::source_store(carried)),
        None if is_own_standby => Ok(main.spec.backup.source_store.clone()),
        None => Err(Error::Missing("the Etcd in the ShootState".to_owned())),
    }
}

/// Etcds of events begin anew. kube-apiservers need them when they start.
async fn other_etcds(pass: &Pass<'_>, objects: &Objects, replicas: u32, fence: &str) -> Result<()> {
    for other in objects.etcds.others() {
        let wanted = if replicas == 0 { 0 } else { scale::members(other) };
        scale::etcd(pass.context.own_client(), other, wanted, fence).await?;
    }
    Ok(())
}

async fn stop(pass: &Pass<'_>, objects: &Objects, abandons_etcd: bool, fence: &str) -> Result<()> {
    let (seed, namespace) = (pass.context.own_client(), &objects.namespace);
    let none = |replicas: Replicas| replicas.into_keys().map(|name| (name, 0)).collect::<Replicas>();
    let plane = &objects.plane;
    let (api, controllers) = (none(plane.api().wanted), none(plane.controller_group().wanted));
    scale::deployments(seed, namespace, plane.api_servers_and_tunnels(), &api, fence).await?;
    scale::deployments(seed, namespace, plane.controllers(), &controllers, fence).await?;
    for etcd in &objects.etcds.all {
        match abandons_etcd {
            true => live::abandon(seed, etcd, fence).await?,
            false => scale::etcd(seed, etcd, 0, fence).await?,
        }
    }
    Ok(())
}
