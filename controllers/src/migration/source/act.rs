//! Effects of the source as calls.

use kube::{Api, Client, ResourceExt};
use repot_plan::migration::{
    Side,
    effect::Effect,
    observed::{ExtensionOperation, Facts, MigrationMode, OwnerId},
};
use serde_json::json;

use super::{dns_owner, objects::Objects, remove};
use crate::{
    etcd::api::{Etcd, FENCE, OWN_HISTORIES},
    migration::{
        error::{Error, Result},
        pass::Pass,
        seed::{
            api_record,
            etcd::unknown_members,
            exposure::{self, Exposing},
            extensions, owner, params, scale, shoot_api,
            tunnel_client::{self, Maker},
            tunnel_facts, under,
        },
    },
    shootstate::{self, Mode},
};

/// Carries out an effect of the source, under the versions of the objects that were observed.
///
/// # Errors
/// [`Error`]. The next pass looks again.
pub async fn act(pass: &Pass<'_>, objects: &Objects, effect: &Effect) -> Result<()> {
    let (seed, namespace) = (pass.context.own_client(), &objects.namespace);
    match effect {
        Effect::SyncState => {
            let shoot = objects.shoot.as_ref().ok_or_else(|| Error::Missing("the Shoot".to_owned()))?;
            let written = shootstate::sync(pass.context.garden_client(), seed, shoot, Mode::Upsert).await?;
            tracing::debug!(?written, "ShootState is synced");
            Ok(())
        }
        Effect::EnsureApiTtl { ttl, fence } => {
            api_record::ensure_ttl(seed, namespace, &objects.api_records, *ttl, fence).await
        }
        Effect::EnsureControllers { replicas, fence } => {
            scale::deployments(seed, namespace, objects.plane.controllers(), replicas, fence).await
        }
        Effect::EnsureApi { replicas, fence } => {
            scale::deployments(seed, namespace, objects.plane.api_servers_and_tunnels(), replicas, fence)
                .await
        }
        Effect::EnsureNoOwner { owner } => match &objects.owner_record {
            Some(record) => owner::delete(seed, record, owner).await,
            None => Err(Error::Missing("the DNSRecord of the owner".to_owned())),
        },
        Effect::EnsureOwner { owner } => write_owner(pass, objects, owner).await,
        Effect::EnsureEtcdReplicas { replicas, volumes, fence } => {
            etcd_replicas(pass, objects, *replicas, volumes, fence).await
        }
        Effect::EnsureEtcd { volumes, owner, replicas, fence, .. } => {
            restore_etcd(pass, objects, volumes, owner, *replicas, fence).await
        }
        Effect::ExposeMembers { fence } => expose(pass, objects, fence).await,
        Effect::HideMembers { fence } => hide(pass, objects, fence).await,
        Effect::EnsureTemporaryClient => ensure_temporary_client(pass, objects).await,
        Effect::RemoveTemporaryClient => remove_temporary_client(pass, objects).await,
        Effect::RemoveLostMembers { fence } => remove_lost_members(seed, objects, fence).await,
        Effect::CheckOwner => objects.etcds.check_owner(seed),
        Effect::RequestDnsRecords { operation } => request(pass, objects, *operation).await,
        Effect::RequestExtensions { operation } => {
            let (seen, uid) = (objects.extensions.iter(), &pass.facts.request.uid);
            extensions::request(seed, namespace, seen, *operation, uid).await
        }
        Effect::RemoveSourceControllers => remove_controllers(pass, objects).await,
        Effect::RemoveSource => remove::remove(seed, objects, &pass.facts.request.uid).await,
        _ => Ok(()),
    }
}

/// Members are told of their further addresses when other seeds reach these.
async fn expose(pass: &Pass<'_>, objects: &Objects, fence: &str) -> Result<()> {
    let (seed, request) = (pass.context.own_client(), &pass.facts.request);
    let etcd = objects.etcds.need_main()?;
    let Facts::Source(facts) = &pass.facts.facts else { return Ok(()) };
    if !facts.exposure.missing.is_empty() {
        let like = objects.api_records.first();
        let like = like.ok_or_else(|| Error::Missing("a DNSRecord of the zone".to_owned()))?;
        let exposing = Exposing {
            etcd,
            seed: &request.source_seed,
            members: scale::members(etcd),
            migration: &request.uid,
            exposer: &pass.context.exposer,
        };
        return objects.exposed.ensure(seed, &exposing, like).await;
    }
    match exposure::is_advertised(etcd) && facts.etcd.fence == fence {
        true => Ok(()),
        false => {
            let (members, is_settled) = (&facts.exposure.members, facts.etcd.is_settled);
            exposure::advertise(seed, etcd, members, is_settled, fence).await
        }
    }
}

/// Only what this migration has exposed: another one may have begun since.
async fn hide(pass: &Pass<'_>, objects: &Objects, fence: &str) -> Result<()> {
    let (seed, etcd, uid) = (pass.context.own_client(), objects.etcds.need_main()?, &pass.facts.request.uid);
    let Facts::Source(facts) = &pass.facts.facts else { return Ok(()) };
    let is_own = facts.etcd.fence.split_once('/').is_some_and(|(migration, _)| migration == uid);
    match facts.etcd.is_exposed {
        // One that failed has left it so, and has ended: nobody else takes it back.
        true if is_own || !pass.migration.has_side_ended(Side::Source) => {
            exposure::hide(seed, etcd, facts.etcd.is_settled, fence).await
        }
        true => Ok(()),
        false if facts.etcd.fence != fence && !pass.migration.has_side_ended(Side::Source) => {
            let patch = json!({"metadata": {"annotations": {FENCE: fence}}});
            scale::write(seed, etcd, patch, "hide the members of").await
        }
        false if facts.etcd.is_settled => objects.exposed.of(uid).remove(seed, &objects.namespace, uid).await,
        false => Ok(()),
    }
}

/// All members that are not those of the source: nobody else shares its etcd.
async fn remove_lost_members(seed: &Client, objects: &Objects, fence: &str) -> Result<()> {
    let etcd = objects.etcds.need_main()?;
    let lost: Vec<&str> = unknown_members(etcd).iter().map(|member| member.id.as_str()).collect();
    let asked = &etcd.spec.etcd.lost_members;
    if lost.iter().all(|id| asked.iter().any(|asked| asked == id)) {
        return Ok(());
    }
    let patch = json!({
        "metadata": {"annotations": {FENCE: fence}},
        "spec": {"etcd": {"lostMembers": lost}},
    });
    scale::write(seed, etcd, patch, "remove lost members by").await
}

/// It dials the destination, by the name that leads there during this migration.
async fn ensure_temporary_client(pass: &Pass<'_>, objects: &Objects) -> Result<()> {
    let (seed, request) = (pass.context.own_client(), &pass.facts.request);
    let Some(tunnel) = objects.plane.tunnel().map_err(Error::Missing)? else { return Ok(()) };
    let host = exposure::tunnel_host(objects.etcds.need_main()?, &request.destination_seed, &request.uid)?;
    let shoot = shoot_api::client(seed, &objects.namespace).await?;
    tunnel_client::ensure(&shoot, &tunnel, &host, &request.uid).await
}

async fn remove_temporary_client(pass: &Pass<'_>, objects: &Objects) -> Result<()> {
    let (seed, maker) = (pass.context.own_client(), Maker::of(&pass.facts.request));
    tunnel_facts::remove_temporary_client(seed, &objects.namespace, &objects.plane, maker).await
}

/// In a forced migration no rollback needs the DNSOwners again.
async fn remove_controllers(pass: &Pass<'_>, objects: &Objects) -> Result<()> {
    let (seed, namespace) = (pass.context.own_client(), &objects.namespace);
    if pass.facts.request.mode == MigrationMode::Forced {
        dns_owner::remove(seed, namespace).await?;
    }
    scale::delete(seed, namespace, objects.plane.controllers()).await
}

async fn request(pass: &Pass<'_>, objects: &Objects, operation: ExtensionOperation) -> Result<()> {
    let (seen, uid) = (objects.records.iter(), &pass.facts.request.uid);
    extensions::request(pass.context.own_client(), &objects.namespace, seen, operation, uid).await
}

async fn write_owner(pass: &Pass<'_>, objects: &Objects, owner: &OwnerId) -> Result<()> {
    let like = objects.owner_record.as_ref().or(objects.api_records.first());
    let like = like.ok_or_else(|| Error::Missing("a DNSRecord of the zone".to_owned()))?;
    let new = owner::NewRecord {
        namespace: &objects.namespace,
        like,
        migration: &pass.facts.request.uid,
        is_insisted: false,
    };
    let found = (objects.owner_record.as_ref(), pass.facts.facts.owner_record());
    owner::write(pass.context.own_client(), found, &new, objects.etcds.need_main()?, owner).await
}

/// All Etcds are stopped together; only the main one is started alone, for its final snapshot.
async fn etcd_replicas(
    pass: &Pass<'_>,
    objects: &Objects,
    replicas: u32,
    volumes: &str,
    fence: &str,
) -> Result<()> {
    let (seed, main) = (pass.context.own_client(), objects.etcds.need_main()?);
    // One that has other volumes by now is not what was decided on.
    if main.volumes() != volumes {
        return Ok(());
    }
    scale::etcd(seed, main, replicas, fence).await?;
    if replicas == 0 {
        for other in objects.etcds.others() {
            scale::etcd(seed, other, 0, fence).await?;
        }
    }
    Ok(())
}

/// The former volumes have lost ownership: new ones are filled from the own store.
async fn restore_etcd(
    pass: &Pass<'_>,
    objects: &Objects,
    volumes: &str,
    owner: &OwnerId,
    replicas: u32,
    fence: &str,
) -> Result<()> {
    let (seed, main) = (pass.context.own_client(), objects.etcds.need_main()?);
    let all = Api::<Etcd>::namespaced(seed.clone(), &objects.namespace);
    let is_written = main.spec.replicas == replicas
        && main.volumes() == volumes
        && main.annotations().get(FENCE).map(String::as_str) == Some(fence);
    if !is_written {
        let patch = json!({
            "metadata": {"annotations": {FENCE: fence, OWN_HISTORIES: serde_json::Value::Null}},
            "spec": {
                "volumeClaimTemplate": volumes, "replicas": replicas,
                "backup": {"ownerCheck": {"id": owner::text(owner)}, "sourceStore": main.spec.backup.store},
            },
        });
        let patch = under(main.resource_version(), patch);
        let outcome = all.patch(&main.name_any(), &params(), &patch).await;
        outcome.map_err(Error::write("restore the Etcd of the source"))?;
    }
    for other in objects.etcds.others() {
        scale::etcd(seed, other, scale::members(other), fence).await?;
    }
    Ok(())
}
