//! Rules of a change of seed that take more than one field to break, and of Shoots that move.

use anyhow::{Result, ensure};
use repot_tests::TestEnv;
use repot_tests::gardener::{self, operation};
use repot_tests::http::Answer;
use serde_json::{Value, json};

use crate::gardener::world::{Project, merge, refused_by, shared};

/// gardener-apiserver refuses the write itself, before it asks a webhook.
fn refused_by_gardener(answer: &Answer, words: &str) -> Result<()> {
    let said = answer.to_string();
    ensure!(answer.status >= 400 && said.contains(words) && !said.contains("repot"), "{said}");
    Ok(())
}

/// The rule itself refuses the binding, asked past gardener-apiserver: the webhook is reached where a plugin is switched off.
async fn refused_directly(project: &Project<'_>, old: &Value, new: &Value, rule: &str) -> Result<()> {
    let said = project.ask("seed-change", old, new).await?;
    ensure!(said.contains(&format!("({rule})")), "{rule} does not refuse it: {said}");
    Ok(())
}

pub async fn a_shoot_on_its_way_rests(_: &TestEnv, gate: bool) -> Result<()> {
    let shared = shared(gate)?;
    let project = Project::make(&shared, "rules-rest").await?;
    project.put_seed(&gardener::seed(&project.seed("c"))).await?;
    project.create_on_a("one").await?;
    let confirm = json!({"confirmation.gardener.cloud/deletion": "true"});
    project.annotate("one", &confirm).await?.ok()?;
    let purpose = json!({"spec": {"purpose": "evaluation"}});
    project.patch("one", &json!({"spec": {"purpose": "testing"}})).await?.ok()?;
    project.bind("one", "b").await?.ok()?;
    refused_by(&project.bind("one", "c").await?, &["one-migration"])?;
    refused_by(&project.bind("one", "a").await?, &["one-migration"])?;
    // While Gardener calls the destination unfit, gardenlet does not begin, and the Shoot may go back.
    let unfit = json!([{
        "type": "ReadyForMigration", "status": "False", "reason": "DestinationSeedUnready", "message": "not ready",
        "lastTransitionTime": "2026-01-01T10:00:00Z", "lastUpdateTime": "2026-01-01T10:00:00Z",
    }]);
    project.set_status("one", &json!({"constraints": unfit})).await?;
    project.bind("one", "a").await?.ok()?;
    project.bind("one", "b").await?.ok()?;
    // Its source deletes a Shoot whose move has not begun.
    project.create_on_a("two").await?;
    project.annotate("two", &confirm).await?.ok()?;
    project.bind("two", "b").await?.ok()?;
    project.delete("two").await?.ok()?;
    let (old, mut new) = (project.get("one").await?, project.get("one").await?);
    merge(&mut new, &purpose);
    let said = project.ask("moving-shoots", &old, &new).await?;
    ensure!(said.contains("(spec-immutable-while-migrating)"), "{said}");
    refused_by_gardener(&project.patch("one", &purpose).await?, "has been rescheduled to a new seed")?;
    // While it is migrated or restored, Gardener refuses its deletion; while it is migrated live, only the rule does.
    for kind in ["Migrate", "Restore"] {
        project.set_status("one", &json!({"lastOperation": operation(kind, "Processing")})).await?;
        refused_by_gardener(&project.delete("one").await?, &format!("during {kind} operation"))?;
    }
    project.set_status("one", &json!({"lastOperation": operation("LiveMigrate", "Processing")})).await?;
    refused_by(&project.delete("one").await?, &["no-deletion-while-migrating"])?;

    let arrived = json!({"seedName": project.seed("b"), "lastOperation": operation("Restore", "Succeeded")});
    project.set_status("one", &arrived).await?;
    project.patch("one", &purpose).await?.ok()?;
    project.bind("one", "c").await?.ok()?;
    let arrived = json!({"seedName": project.seed("c"), "lastOperation": operation("Restore", "Succeeded")});
    project.set_status("one", &arrived).await?;
    project.delete("one").await?.ok().map(drop)
}

pub async fn a_shoot_that_is_being_deleted_does_not_move(_: &TestEnv, gate: bool) -> Result<()> {
    let shared = shared(gate)?;
    let project = Project::make(&shared, "rules-del").await?;
    project.create_on_a("one").await?;
    project.create_on_a("two").await?;
    let kept = json!({"metadata": {
        "finalizers": ["gardener"], "annotations": {"confirmation.gardener.cloud/deletion": "true"},
    }});
    project.patch("one", &kept).await?.ok()?;
    project.delete("one").await?.ok()?;
    refused_by_gardener(&project.bind("one", "b").await?, "if deletion timestamp is set")?;
    project.refused_directly_to("one", "b", "no-move-while-deleted").await?;
    project.bind("two", "b").await?.ok().map(drop)
}

pub async fn the_destination_is_there_and_is_all_that_changes(_: &TestEnv, gate: bool) -> Result<()> {
    let shared = shared(gate)?;
    let project = Project::make(&shared, "rules-dest").await?;
    project.create_on_a("one").await?;
    let binding = async |spec: &Value| project.patch("one/binding", &json!({"spec": spec})).await;
    let old = project.get("one").await?;
    for (spec, words, rule) in [
        (json!({"seedName": "nowhere"}), "not found", "destination-exists"),
        (json!({"seedName": null}), "cannot be changed to 'nil'", "seed-stays-named"),
        (
            json!({"seedName": project.seed("b"), "purpose": "testing"}),
            "only spec.seedName can be changed",
            "seed-alone",
        ),
    ] {
        refused_by_gardener(&binding(&spec).await?, words)?;
        let mut new = old.clone();
        merge(&mut new, &json!({"spec": spec}));
        refused_directly(&project, &old, &new, rule).await?;
    }
    binding(&json!({"seedName": project.seed("b")})).await?.ok().map(drop)
}

pub async fn a_shoot_with_bastions_stays(_: &TestEnv, gate: bool) -> Result<()> {
    let shared = shared(gate)?;
    let project = Project::make(&shared, "rules-bast").await?;
    project.create_on_a("one").await?;
    let bastions =
        format!("/apis/operations.gardener.cloud/v1alpha1/namespaces/{}/bastions", project.namespace());
    let bastion = json!({
        "apiVersion": "operations.gardener.cloud/v1alpha1", "kind": "Bastion", "metadata": {"name": "way-in"},
        "spec": {
            "shootRef": {"name": "one"}, "ingress": [{"ipBlock": {"cidr": "192.0.2.1/32"}}],
            "sshPublicKey": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBWqrWpPiH5RBzO3XRLLQpUBcaa3ViUuu3dGRzQnF7pR test",
        },
    });
    project.world.api().post(&bastions, &bastion).await?.ok()?;
    let answer = project.bind("one", "b").await?;
    refused_by(&answer, &["no-bastions"])?;
    ensure!(answer.to_string().contains("way-in"), "{answer}");
    project.world.api().delete(&format!("{bastions}/way-in")).await?.ok()?;
    project.bind("one", "b").await?.ok().map(drop)
}

/// A CloudProfile of this test, which allows what the shared one does not.
fn profile(name: &str, regions: &Value) -> Value {
    let mut profile = gardener::profile();
    profile["metadata"]["name"] = json!(name);
    profile["spec"]["regions"] = regions.clone();
    profile["spec"]["controlPlane"] = json!({"allowZonePinning": true});
    profile
}

pub async fn the_cloud_profile_and_the_zones_say_which_seeds_are_fit(_: &TestEnv, gate: bool) -> Result<()> {
    let shared = shared(gate)?;
    let project = Project::make(&shared, "rules-prof").await?;
    let zones = json!([{"name": "eu-1a"}, {"name": "eu-1b"}, {"name": "eu-1c"}]);
    let eu = json!({"name": "eu", "zones": zones, "accessRestrictions": [{"name": "eu-only"}]});
    let mars = json!({"name": "mars", "zones": zones});
    project.world.garden.apply(&[profile("rules-prof", &json!([eu, mars]))]).await?;
    let own = json!({"cloudProfile": {"kind": "CloudProfile", "name": "rules-prof"}});
    let make = async |name: &str, patch: Value| {
        let mut spec = own.clone();
        merge(&mut spec, &patch);
        project.create_on_a_as(name, &json!({"spec": spec})).await
    };
    // Seed a is fit for all of them, seed b for none, and seed c for all.
    for (seed, patch) in [
        (
            "a",
            json!({"spec": {"accessRestrictions": [{"name": "eu-only"}]}, "metadata": {"labels": {"size": "big"}}}),
        ),
        ("b", json!({"spec": {"provider": {"zones": ["eu-1a", "eu-1b", "eu-1d"]}}})),
        (
            "c",
            json!({"spec": {"accessRestrictions": [{"name": "eu-only"}]}, "metadata": {"labels": {"size": "big"}}}),
        ),
    ] {
        let mut whole = gardener::seed(&project.seed(seed));
        merge(&mut whole, &patch);
        project.put_seed(&whole).await?;
    }
    make("pinned", json!({"controlPlane": {"zones": ["eu-1a", "eu-1b", "eu-1c"]}})).await?;
    refused_by(&project.bind("pinned", "b").await?, &["pinned-zones"])?;
    project.bind("pinned", "c").await?.ok()?;

    make("restricted", json!({"accessRestrictions": [{"name": "eu-only"}]})).await?;
    refused_by_gardener(&project.bind("restricted", "b").await?, "doesn't support the access restrictions")?;
    project.refused_directly_to("restricted", "b", "access-restrictions").await?;
    project.bind("restricted", "c").await?.ok()?;

    make("selected", json!({})).await?;
    let selector = json!({"spec": {"seedSelector": {"matchLabels": {"size": "big"}}}});
    let path = "/apis/core.gardener.cloud/v1beta1/cloudprofiles/rules-prof";
    project.patch_at(path, &selector).await?.ok()?;
    project.wait_for_rule("selected", "b", "provider-and-labels").await?;
    refused_by_gardener(&project.bind("selected", "b").await?, "seed selector is not matching the labels")?;
    project.bind("selected", "c").await?.ok()?;

    make("martian", json!({"region": "mars"})).await?;
    project.patch_at(path, &json!({"spec": {"regions": [eu]}})).await?.ok()?;
    project.wait_for_rule("martian", "c", "region-offered").await?;
    refused_by(&project.bind("martian", "c").await?, &["region-offered"])?;
    project.patch_at(path, &json!({"spec": {"regions": [eu, mars]}})).await?.ok()?;
    project.wait_until_allowed("martian", "c").await
}

pub async fn networks_of_shoot_and_destination_are_apart(_: &TestEnv, gate: bool) -> Result<()> {
    let shared = shared(gate)?;
    let project = Project::make(&shared, "rules-net").await?;
    project.create_on_a("one").await?;
    let six = |pods: &str| {
        let mut seed = gardener::seed(&project.seed("b"));
        seed["metadata"]["name"] = json!(project.seed(pods));
        seed["spec"]["networks"] = json!({
            "ipFamilies": ["IPv6"], "nodes": "fd00:1::/64", "services": "fd00:3::/112",
            "pods": if pods == "clash" { "fd00:aa::/48" } else { "fd00:2::/64" },
        });
        seed
    };
    for seed in ["clash", "apart"] {
        project.put_seed(&six(seed)).await?;
    }
    project
        .set_status(
            "one",
            &json!({"networking": {
                "pods": ["fd00:aa:0:1::/64"], "services": ["fd00:bb::/112"], "nodes": ["fd00:cc::/64"],
            }}),
        )
        .await?;
    refused_by_gardener(&project.bind("one", "clash").await?, "intersects with seed pod network")?;
    project.refused_directly_to("one", "clash", "networks-disjoint").await?;
    project.bind("one", "apart").await?.ok().map(drop)
}
