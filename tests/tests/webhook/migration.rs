//! Every rule of migrations is seen to allow and to deny, through kubectl.

use std::time::Duration;

use anyhow::ensure;
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::world::{TestNamespace, names};

fn to(place: &TestNamespace, seed: &str) -> Value {
    json!({"spec": {"seedName": format!("{}-{seed}", place.namespace)}})
}

#[test]
fn a_shoot_moves_only_after_it_was_created() {
    run(async |_| {
        let place = TestNamespace::make("created").await?;
        let mut shoot = place.shoot("new");
        shoot["status"] = json!({});
        place.put(&shoot).await?;
        let said = place.refuses("new", &to(&place, "b"), &["created-first"]).await?;
        let expected = "spec.seedName: the Shoot was not created on seed \"created-a\" yet: status.seedName is empty; \
                        wait until the creation has succeeded";
        ensure!(said.contains(expected), "{said}");
        place.put(&place.shoot("old")).await?;
        place.allows("old", &to(&place, "b")).await?;
        let moved = place.get("old").await?;
        ensure!(moved["spec"]["seedName"] == "created-b", "{moved}");
        ensure!(
            moved["metadata"]["annotations"]["migration.gardener.cloud/requested-at"].is_string(),
            "{moved}"
        );
        Ok(())
    });
}

/// A rule, and a merge patch of the destination that makes it refuse.
fn destinations() -> Vec<(&'static str, Value)> {
    vec![
        ("destination-healthy", json!({"status": {"conditions": []}})),
        ("same-gardenlet-version", json!({"status": {"gardener": {"version": "v1.151.0"}}})),
        ("taints-tolerated", json!({"spec": {"taints": [{"key": "reserved"}]}})),
        ("destination-has-capacity", json!({"status": {"allocatable": {"shoots": "0"}}})),
        ("backup-configured", json!({"spec": {"backup": null}})),
        ("internal-domain", json!({"spec": {"dns": {"internal": {"domain": "other.example.com"}}}})),
        ("default-domain", json!({"spec": {"dns": {"defaults": [{"domain": "example.org"}]}}})),
        ("enough-zones", json!({"spec": {"provider": {"zones": ["eu-1a", "eu-1b"]}}})),
        ("networks-disjoint", json!({"spec": {"networks": {"pods": "fd00:aa::/48"}}})),
    ]
}

/// A rule, and a merge patch of the Shoot that makes it refuse, the status included.
fn shoots() -> Vec<(&'static str, Value)> {
    vec![
        ("region-offered", json!({"spec": {"region": "mars"}})),
        ("access-restrictions", json!({"spec": {"accessRestrictions": [{"name": "eu-only"}]}})),
        ("pinned-zones", json!({"spec": {"controlPlane": {"zones": ["eu-1x"]}}})),
        (
            "rotation-settled",
            json!({"status": {"credentials": {"rotation": {"serviceAccountKey": {"phase": "Preparing"}}}}}),
        ),
        ("ha-reconciled", json!({"status": {"observedGeneration": 0}})),
        (
            "no-leftover-markers",
            json!({"metadata": {"annotations": {"confirmation.gardener.cloud/force-restore": "some-seed"}}}),
        ),
    ]
}

fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else { return *target = patch.clone() };
    for (key, value) in patch {
        merge(&mut target[key], value);
    }
}

#[test]
fn a_destination_is_judged_by_every_rule() {
    run(async |_| {
        let place = TestNamespace::make("destinations").await?;
        let (fine, move_it) = (place.seed("b"), to(&place, "b"));
        for (rule, change) in destinations() {
            let mut seed = fine.clone();
            merge(&mut seed, &change);
            place.put(&seed).await?;
            let mut shoot = place.shoot(rule);
            merge(
                &mut shoot,
                &json!({"spec": {"dns": {"domain": "x.example.com"}, "networking": {"pods": "fd00:aa::/64"}}}),
            );
            place.put(&shoot).await?;
            place.refuses(rule, &move_it, &[rule]).await?;
            place.put(&fine).await?;
            place.allows(rule, &move_it).await?;
        }
        Ok(())
    });
}

#[test]
fn a_shoot_is_judged_by_every_rule() {
    run(async |_| {
        let place = TestNamespace::make("shoots").await?;
        let move_it = to(&place, "b");
        for (rule, change) in shoots() {
            let mut shoot = place.shoot(rule);
            merge(&mut shoot, &change);
            place.put(&shoot).await?;
            place.refuses(rule, &move_it, &[rule]).await?;
            // Put right, it may go.
            let mut right = place.shoot(rule);
            right["status"]["credentials"] = Value::Null;
            right["status"]["observedGeneration"] = Value::Null;
            place.put(&right).await?;
            place.allows(rule, &move_it).await?;
        }
        Ok(())
    });
}

#[test]
fn a_shoot_that_is_being_deleted_does_not_move() {
    run(async |_| {
        let place = TestNamespace::make("deleted").await?;
        let mut shoot = place.shoot("one");
        shoot["metadata"]["finalizers"] = json!(["example.com/test"]);
        place.put(&shoot).await?;
        let delete = ["delete", "shoot", "one", "-n", &place.namespace, "--wait=false"];
        place.world.garden.kubectl(delete).await?.text()?;
        place.refuses("one", &to(&place, "b"), &["no-move-while-deleted"]).await?;
        Ok(())
    });
}

#[test]
fn seeds_that_go_or_are_not_there_are_refused() {
    run(async |_| {
        let place = TestNamespace::make("gone").await?;
        place.put(&place.shoot("one")).await?;
        let said =
            place.refuses("one", &json!({"spec": {"seedName": "nowhere"}}), &["destination-exists"]).await?;
        ensure!(said.contains("there is no seed \"nowhere\"; name a seed that exists"), "{said}");
        let mut going = place.seed("c");
        going["metadata"]["finalizers"] = json!(["example.com/test"]);
        place.put(&going).await?;
        place.world.garden.kubectl(["delete", "seed", "gone-c", "--wait=false"]).await?.text()?;
        place.refuses("one", &to(&place, "c"), &["destination-exists"]).await?;
        place.refuses("one", &json!({"spec": {"seedName": null}}), &["seed-stays-named"]).await?;
        let both = json!({"spec": {"seedName": "gone-b", "purpose": "testing"}});
        let said = place.refuses("one", &both, &["seed-alone"]).await?;
        ensure!(said.contains("spec.purpose"), "{said}");
        place.allows("one", &to(&place, "b")).await?;
        Ok(())
    });
}

#[test]
fn everything_wrong_is_told_at_once_and_what_is_odd_is_warned_of() {
    run(async |_| {
        let place = TestNamespace::make("at-once").await?;
        place.put(&place.shoot("one")).await?;
        let mut seed = place.seed("b");
        merge(
            &mut seed,
            &json!({"spec": {"backup": null, "provider": {"type": "other"}}, "status": {"conditions": []}}),
        );
        place.put(&seed).await?;
        let said =
            place.refuses("one", &to(&place, "b"), &["backup-configured", "destination-healthy"]).await?;
        ensure!(said.contains("2 reasons:\n  - ") && said.contains("Warning: spec.seedName: seed"), "{said}");
        ensure!(names(&said).len() == 3, "{said}");
        Ok(())
    });
}

#[test]
fn a_shoot_on_its_way_rests() {
    run(async |_| {
        let place = TestNamespace::make("resting").await?;
        place.put(&place.seed("c")).await?;
        place.put(&place.shoot("one")).await?;
        place.allows("one", &json!({"spec": {"purpose": "testing"}})).await?;
        place.allows("one", &to(&place, "b")).await?;
        let said = place
            .refuses("one", &json!({"spec": {"purpose": "production"}}), &["spec-immutable-while-migrating"])
            .await?;
        ensure!(
            said.contains("spec.purpose: the spec cannot change while the Shoot moves (from seed"),
            "{said}"
        );
        place.refuses("one", &to(&place, "c"), &["one-migration"]).await?;
        place.refuses("one", &to(&place, "a"), &["one-migration"]).await?;
        let later = json!({"migration.gardener.cloud/requested-at": "2099-01-01T00:00:00Z"});
        place.refuses("one", &json!({"metadata": {"annotations": later}}), &["requested-at-true"]).await?;
        let delete = ["delete", "shoot", "one", "-n", "resting"];
        let status = async |status: Value| {
            let status = json!({"status": status}).to_string();
            let args = [
                "patch",
                "shoot",
                "one",
                "-n",
                "resting",
                "--subresource=status",
                "--type=merge",
                "-p",
                &status,
            ];
            place.world.garden.kubectl(args).await?.text().map(drop)
        };
        status(json!({"lastOperation": {"type": "Migrate", "state": "Processing"}})).await?;
        let refused = place.world.person.run(delete).await?;
        ensure!(
            refused.code != 0 && refused.stderr.contains("(no-deletion-while-migrating)"),
            "{}",
            refused.stderr
        );
        let arrived =
            json!({"seedName": "resting-b", "lastOperation": {"type": "Restore", "state": "Succeeded"}});
        status(arrived).await?;
        place.allows("one", &json!({"spec": {"purpose": "production"}})).await?;
        let kept = place.get("one").await?;
        ensure!(kept["metadata"]["annotations"]["migration.gardener.cloud/requested-at"].is_null(), "{kept}");
        ensure!(
            kept["metadata"]["labels"] == json!({"name.seed.gardener.cloud/resting-b": "true"}),
            "{kept}"
        );
        place.world.person.run(delete).await?.text()?;
        Ok(())
    });
}

#[test]
fn the_cloud_profile_says_which_seeds_are_fit() {
    run(async |_| {
        let place = TestNamespace::make("selected").await?;
        place.put(&place.shoot("one")).await?;
        let select = async |selector: Value| {
            let text = json!({"spec": {"seedSelector": selector}}).to_string();
            let args = ["patch", "cloudprofile", "selected", "--type=merge", "-p", &text];
            place.world.garden.kubectl(args).await?.text().map(drop)
        };
        select(json!({"providerTypes": ["other"], "matchLabels": {"size": "big"}})).await?;
        // CloudProfiles are followed, so the change is known a little later.
        until("the CloudProfile to be known", Duration::from_secs(30), async || {
            let (done, said) = place.patch("one", &to(&place, "b"), &["--dry-run=server"]).await?;
            ensure!(!done && said.contains("(provider-and-labels)"), "{said}");
            ensure!(
                said.contains("the CloudProfile allows other") && said.contains("label size=big"),
                "{said}"
            );
            Ok(())
        })
        .await?;
        select(json!({"providerTypes": ["*"], "matchLabels": null})).await?;
        until("the CloudProfile to be known", Duration::from_secs(30), async || {
            place.allows("one", &to(&place, "b")).await.map(drop)
        })
        .await
    });
}
