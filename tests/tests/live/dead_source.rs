//! The source dies while both seeds are one etcd.

use std::time::Duration;

use anyhow::{Result, ensure};
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::whole::highly_available;
use crate::migration::departure::{self, Departure};
use crate::migration::faulty_seed::{Fault, FaultySeed};
use crate::migration::forced::{SOURCE_STOPPED, force, lost, until_state_is_stored};
use crate::migration::story::{self, DEADLINE};
use crate::migration::world::{SEEDS, World, run};
use crate::migration::writer::Writer;

/// Refuses that members of the source are asked to leave.
const POLICY: &str = "keep-source-members";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";

/// Most voters are at the source, so the members that have joined have no quorum, and cannot leave. A forced migration to the same seed
/// gives them up, and begins from the snapshots of the source.
#[test]
#[ignore = "minutes, in make soak"]
fn forced_migration_goes_to_the_seed_whose_members_have_joined_a_source_that_dies() {
    run(async |env| {
        let world = World::create(env, "widowed", highly_available()).await?;
        story::create_live(&world, "move", SEEDS).await?;
        story::until_reached(&world, "move", ("destination", "SixMemberETCDReady")).await?;
        let fault = Fault::StandsStill;
        let departure =
            Departure { world: &world, name: "forced", seeds: SEEDS, fault, lasts: Duration::ZERO };
        departure::leave(&[departure]).await?;
        let first = story::read(&world, "move").await?;
        story::ensure_phase(&first, "RolledBack")?;
        ensure!(first["status"]["supersededBy"] == json!("widowed-forced"), "{first}");
        ensure_alone(&world).await?;
        for name in ["move", "forced"] {
            story::delete(&world, name).await?;
        }
        world.stop(SEEDS.1).await
    });
}

/// The point of no return is recorded, and no member of the source has left yet: none ever can. The forced migration to the same seed
/// begins from the snapshots of the source, although the first migration has committed.
#[test]
#[ignore = "minutes, in make soak"]
fn forced_migration_goes_on_where_the_source_dies_before_its_first_member_has_left() {
    run(async |env| {
        let world = World::create(env, "stranded", highly_available()).await?;
        let before = world.workload().await?;
        until_state_is_stored(&world).await?;
        keep_source_members(&world).await?;
        let writer = Writer::start(world.api()?);
        story::create_live(&world, "move", SEEDS).await?;
        story::until_started(&world, "move", ("destination", "SourceMembersRemoved")).await?;
        let begun = writer.acknowledged().len();
        until("writes through the destination alone", DEADLINE, async || {
            let count = writer.acknowledged().len();
            ensure!(count > begun + 100, "{count} were acknowledged, {begun} of them before");
            Ok(())
        })
        .await?;
        let faulty = FaultySeed::new(&[&world], SEEDS.0, Fault::StandsStill).await?;
        let acknowledged = writer.acknowledged();
        let moved = go_on_without_source(&world).await;
        faulty.heal(&[&world]).await?;
        let migration = moved?;
        println!("{}, {}", migration["status"]["apiOutage"], migration["status"]["destination"]["loss"]);
        let lost = lost(&world, &acknowledged).await?;
        // A snapshot is stored every 10 s, and a write takes 100 ms at least.
        ensure!(lost.len() <= 200, "{} writes are lost: {lost:?}", lost.len());
        until("the source to be removed", DEADLINE, async || world.ensure_gone(SEEDS.0).await).await?;
        let first = story::read(&world, "move").await?;
        story::ensure_phase(&first, "RolledBack")?;
        ensure!(first["status"]["supersededBy"] == json!("stranded-forced"), "{first}");
        ensure!(world.workload().await? == before, "the workload has changed");
        ensure_alone(&world).await?;
        for name in ["move", "forced"] {
            story::delete(&world, name).await?;
        }
        world.stop(SEEDS.1).await
    });
}

/// The members of the source are to leave, and cannot; then somebody creates the forced migration.
async fn go_on_without_source(world: &World) -> Result<Value> {
    let_source_members_go(world).await?;
    until("the members of the source to be asked to leave", DEADLINE, async || {
        let etcd = etcd(world).await?;
        ensure!(etcd["spec"]["etcd"]["bootstrapWithExistingCluster"].is_null(), "{etcd}");
        ensure!(etcd["status"]["bootstrapWithExistingCluster"]["released"] != json!(true), "{etcd}");
        Ok(())
    })
    .await?;
    force(world, "forced", SEEDS).await?;
    story::annotate(world, "forced", &json!({SOURCE_STOPPED: SEEDS.0})).await?;
    story::until_success(world, "forced", SEEDS.1).await
}

/// Ends what [`keep_source_members`] has begun.
pub async fn let_source_members_go(world: &World) -> Result<()> {
    let policy = format!("{POLICIES}/validatingadmissionpolicies/{POLICY}");
    let seed = world.landscape.seed(SEEDS.1)?;
    seed.cluster.api().delete(&policy).await?.ok().map(drop)
}

/// Lets nobody ask the members of the source to leave.
pub async fn keep_source_members(world: &World) -> Result<()> {
    let namespace = json!({"matchLabels": {"kubernetes.io/metadata.name": world.name().technical_id()}});
    let etcds = json!({
        "apiGroups": ["druid.gardener.cloud"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["etcds"],
    });
    let expression = "!has(oldObject.spec.etcd.bootstrapWithExistingCluster) || has(object.spec.etcd.bootstrapWithExistingCluster)";
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": POLICY},
        "spec": {
            "matchConstraints": {"namespaceSelector": namespace, "resourceRules": [etcds]},
            "validations": [{"expression": expression}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": POLICY}, "spec": {"policyName": POLICY, "validationActions": ["Deny"]},
    });
    world.landscape.seed(SEEDS.1)?.cluster.apply(&[policy, binding]).await
}

/// The Etcd of the destination.
async fn etcd(world: &World) -> Result<Value> {
    let namespace = world.name().technical_id();
    let path = format!("/apis/druid.gardener.cloud/v1alpha1/namespaces/{namespace}/etcds/etcd-main");
    world.landscape.seed(SEEDS.1)?.cluster.api().get(&path).await?.ok()
}

/// The Etcd of the destination tells of no other etcd.
async fn ensure_alone(world: &World) -> Result<()> {
    until("the Etcd to have its own members alone", DEADLINE, async || {
        let etcd = etcd(world).await?;
        ensure!(etcd["spec"]["etcd"]["bootstrapWithExistingCluster"].is_null(), "{etcd}");
        ensure!(etcd["status"]["bootstrapWithExistingCluster"].is_null(), "{etcd}");
        ensure!(etcd["status"]["ready"] == json!(true), "{etcd}");
        Ok(())
    })
    .await
}
