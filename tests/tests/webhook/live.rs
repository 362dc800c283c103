//! Every rule of live migrations is seen to allow and to deny, through kubectl.

use anyhow::{Result, ensure};
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::{Value, json};
use std::time::Duration;

use super::world::TestNamespace;

const TRIGGER: &str = "migration.gardener.cloud/live-migrate";
const OPERATION: &str = "gardener.cloud/operation";
const ABORT: &str = "migration.shoot.gardener.cloud/abort-live-migration";
const SHRINK: &str = "migration.gardener.cloud/force-shrink-etcd";

fn mark(key: &str, value: &str) -> Value {
    json!({"metadata": {"annotations": {key: value}}})
}

fn live(seed: &str) -> Value {
    json!({"metadata": {"annotations": {TRIGGER: "true"}}, "spec": {"seedName": seed}})
}

async fn set_status(place: &TestNamespace, name: &str, status: &Value) -> Result<()> {
    let text = json!({"status": status}).to_string();
    let args =
        ["patch", "shoot", name, "-n", &place.namespace, "--subresource=status", "--type=merge", "-p", &text];
    place.world.garden.kubectl(args).await?.text().map(drop)
}

#[test]
fn the_trigger_is_judged_when_it_is_set() {
    run(async |_| {
        let place = TestNamespace::make("trigger").await?;
        place.put(&place.shoot("fine")).await?;
        place.allows("fine", &mark(OPERATION, "live-migrate")).await?;
        let kept = place.get("fine").await?["metadata"]["annotations"].clone();
        ensure!(kept == json!({TRIGGER: "true"}), "it was not brought into one form: {kept}");
        place.refuses("fine", &mark(TRIGGER, "maybe"), &["live-trigger-clear"]).await?;
        let both = json!({"metadata": {"annotations": {OPERATION: "live-migrate", TRIGGER: "false"}}});
        place.refuses("fine", &both, &["live-trigger-clear"]).await?;
        place
            .refuses(
                "fine",
                &mark("migration.gardener.cloud/allow-distant-regions", "maybe"),
                &["live-permission-readable"],
            )
            .await?;
        place.allows("fine", &mark("migration.gardener.cloud/allow-distant-regions", "true")).await?;
        place.allows("fine", &json!({"metadata": {"annotations": {TRIGGER: null}}})).await?;

        let mut simple = place.shoot("simple");
        simple["spec"]["controlPlane"] = json!({});
        place.put(&simple).await?;
        place.refuses("simple", &mark(TRIGGER, "true"), &["live-highly-available"]).await?;
        let mut asleep = place.shoot("asleep");
        asleep["spec"]["hibernation"] = json!({"enabled": true});
        place.put(&asleep).await?;
        let said = place.refuses("asleep", &mark(OPERATION, "live-migrate"), &["live-awake"]).await?;
        ensure!(said.contains("spec.hibernation.enabled: the Shoot is hibernated"), "{said}");
        let busy = json!({"metadata": {"annotations": {TRIGGER: "true", OPERATION: "reconcile"}}});
        place.refuses("fine", &busy, &["live-no-other-operation"]).await?;
        let mut new = place.shoot("new");
        new["metadata"]["annotations"] = json!({TRIGGER: "true"});
        let said = place.world.person_applies(&new, &[]).await?;
        ensure!(said.contains("(live-trigger-in-time)"), "{said}");
        Ok(())
    });
}

#[test]
fn the_seeds_of_a_live_migration_are_judged() {
    run(async |_| {
        let place = TestNamespace::make("live-seeds").await?;
        place.put(&place.shoot("one")).await?;
        let mut other = place.seed("b");
        other["spec"]["provider"]["type"] = json!("other");
        place.put(&other).await?;
        place.refuses("one", &live("live-seeds-b"), &["live-same-provider"]).await?;
        place.put(&place.seed("b")).await?;
        let mut ill = place.seed("a");
        ill["status"]["conditions"][0]["status"] = json!("Unknown");
        place.put(&ill).await?;
        place.refuses("one", &live("live-seeds-b"), &["live-source-healthy"]).await?;
        place.put(&place.seed("a")).await?;
        place.allows("one", &live("live-seeds-b")).await?;
        Ok(())
    });
}

#[test]
fn the_distance_is_judged_by_the_region_config_map() {
    run(async |_| {
        let place = TestNamespace::make("distance").await?;
        for (name, region) in [("near", "no"), ("far", "us"), ("lost", "mars")] {
            let mut seed = place.seed(name);
            seed["spec"]["provider"]["region"] = json!(region);
            place.put(&seed).await?;
        }
        for shoot in ["one", "two", "three"] {
            place.put(&place.shoot(shoot)).await?;
        }
        let said = place.refuses("one", &live("distance-far"), &["live-distance"]).await?;
        ensure!(
            said.contains("no region ConfigMap of the scheduler is for the CloudProfile \"distance\""),
            "{said}"
        );
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "namespace": "garden", "name": "distances", "labels": {"scheduling.gardener.cloud/purpose": "region-config"},
                "annotations": {
                    "scheduling.gardener.cloud/cloudprofiles": "distance",
                    "migration.gardener.cloud/inter-seed-distance-threshold": "180",
                },
            },
            "data": {"eu": "no: 180\nus: 181\n"},
        });
        place.world.garden.apply(&[map]).await?;
        // The ConfigMap is followed, so it is known a little later.
        let far = live("distance-far");
        until("the distances to be known", Duration::from_secs(30), async || {
            let said = place.refuses("one", &far, &["live-distance"]).await?;
            ensure!(
                said.contains(
                    "the distance from seed \"distance-a\" to seed \"distance-far\" is 181, more than 180"
                ),
                "{said}"
            );
            Ok(())
        })
        .await?;
        let said = place.refuses("one", &live("distance-lost"), &["live-distance"]).await?;
        ensure!(said.contains("has no distance from region \"eu\" to region \"mars\""), "{said}");
        place.allows("one", &live("distance-near")).await?;
        let mut anyhow = far.clone();
        anyhow["metadata"]["annotations"]["migration.gardener.cloud/allow-distant-regions"] = json!("true");
        let said = place.allows("two", &anyhow).await?;
        ensure!(said.contains("Warning: spec.seedName: the distance"), "{said}");
        // With downtime it may go anywhere.
        place.allows("three", &json!({"spec": {"seedName": "distance-far"}})).await?;
        Ok(())
    });
}

#[test]
fn a_live_migration_is_called_off_and_shrunk_in_time() {
    run(async |_| {
        let place = TestNamespace::make("abort").await?;
        place.put(&place.shoot("one")).await?;
        place.refuses("one", &mark(ABORT, "true"), &["live-abort-in-time"]).await?;
        place.refuses("one", &mark(SHRINK, "true"), &["live-shrink-in-need"]).await?;
        place.allows("one", &live("abort-b")).await?;
        let back = json!({"spec": {"seedName": "abort-a"}});
        place.refuses("one", &back, &["live-back-after-abort"]).await?;
        place.refuses("one", &mark(ABORT, "true"), &["live-abort-in-time"]).await?;
        place.refuses("one", &mark(OPERATION, "reconcile"), &["live-no-other-operation"]).await?;
        place.refuses("one", &mark(TRIGGER, "false"), &["live-trigger-kept"]).await?;
        let removed = json!({"metadata": {"annotations": {TRIGGER: null}}});
        place.refuses("one", &removed, &["live-trigger-kept"]).await?;

        let api_down = json!({"liveMigration": {"conditions": [
            {"type": "DestinationEtcdPeersJoined", "status": "True", "reason": "Joined"},
            {"type": "DestinationKubeAPIServerReady", "status": "False", "reason": "Failed"},
        ]}});
        set_status(&place, "one", &api_down).await?;
        place.allows("one", &mark(SHRINK, "true")).await?;
        let leaving = json!({"liveMigration": {"conditions": [{"type": "EtcdMigrationComplete", "status": "False", "reason": "Running"}]}});
        set_status(&place, "one", &leaving).await?;
        place.refuses("one", &mark(ABORT, "force"), &["live-abort-in-time"]).await?;

        let failed = json!({"liveMigration": {"conditions": [], "destination": {"stepName": "SixMemberETCDReady", "status": "Failed"}}});
        set_status(&place, "one", &failed).await?;
        place.allows("one", &mark(ABORT, "true")).await?;
        place.allows("one", &back).await?;
        Ok(())
    });
}
