//! A Shoot gets its first seed, and then another one.

use anyhow::{Result, ensure};
use repot_tests::access::{Access, Credential};
use repot_tests::http::Api;
use repot_tests::{gardener, run};
use serde_json::json;

use super::world::{Project, refused_by, shared};
use crate::webhook::questions::review;

async fn is_scheduled(live_migration: bool, name: &str) -> Result<()> {
    let shared = shared(live_migration)?;
    let project = Project::make(&shared, name).await?;
    project.create("one").await?;
    let bound = project.bind("one", "a").await?;
    ensure!(bound.status == 200, "a new Shoot cannot be scheduled: {bound}");
    ensure!(bound.headers.get("warning").is_none(), "{:?}", bound.headers);
    let spec = &project.get("one").await?["spec"];
    // What Gardener's plugins fill in at the first binding.
    ensure!(spec["dns"]["domain"] == format!("one.{name}.example.com"), "{spec}");
    ensure!(spec["networking"]["pods"] == "10.3.0.0/16", "{spec}");
    Ok(())
}

#[test]
fn a_new_shoot_is_scheduled_with_the_feature_gate_on() {
    run(async |_| is_scheduled(true, "sched-on").await);
}

#[test]
fn a_new_shoot_is_scheduled_with_the_feature_gate_off() {
    run(async |_| is_scheduled(false, "sched-off").await);
}

#[test]
fn a_shoot_that_has_a_seed_moves_by_a_binding_that_the_rules_judge() {
    run(async |_| {
        let shared = shared(true)?;
        let project = Project::make(&shared, "binding").await?;
        project.create_on_a("one").await?;
        let mut ill = gardener::seed(&project.seed("b"));
        ill["status"]["conditions"][1]["status"] = json!("False");
        project.put_seed(&ill).await?;
        refused_by(&project.bind("one", "b").await?, &["destination-healthy"])?;
        project.put_seed(&gardener::seed(&project.seed("b"))).await?;
        project.bind("one", "b").await?.ok()?;
        let moving = project.get("one").await?;
        let asked = &moving["metadata"]["annotations"]["migration.gardener.cloud/requested-at"];
        ensure!(moving["spec"]["seedName"] == "binding-b" && asked.is_string(), "{moving}");
        refused_by(&project.bind("one", "a").await?, &["one-migration"])
    });
}

#[test]
fn the_seed_is_changed_through_the_binding_that_discovery_shows() {
    run(async |_| {
        let shared = shared(true)?;
        let project = Project::make(&shared, "discovery").await?;
        project.create_on_a("one").await?;
        let (old, mut new) = (project.get("one").await?, project.get("one").await?);
        new["spec"]["seedName"] = json!(project.seed("b"));
        // gardener-apiserver itself refuses the same before it asks anybody.
        let own = project.patch("one", &json!({"spec": {"seedName": project.seed("b")}})).await?;
        ensure!(own.status == 403 && own.to_string().contains("please use the shoots/binding"), "{own}");
        let (url, ca_pem) = (project.world.webhook.url(), project.world.garden.pki().serving.pem());
        let access = Access { server: url.to_owned(), ca_pem, credential: Credential::Anonymous };
        let answer = Api::new(&access)?.post("/validate-seed-change", &review(new, old)).await?.ok()?;
        let said = answer["response"]["status"]["message"].as_str().unwrap_or_default();
        ensure!(said.contains("(binding-only)"), "{answer}");
        Ok(())
    });
}
