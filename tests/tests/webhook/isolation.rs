//! Every rule of isolated zones is seen to allow and to deny, through kubectl.

use anyhow::ensure;
use repot_tests::run;
use serde_json::{Value, json};

use super::world::TestNamespace;

const ZONE: &str = "shoot.gardener.cloud/isolated-zone";

const CONFIRM: &str = "confirmation.gardener.cloud/isolated-zone";

fn isolate(zone: &str) -> Value {
    json!({"metadata": {"annotations": {ZONE: zone}}})
}

#[test]
fn a_zone_is_isolated_by_every_rule() {
    run(async |_| {
        let place = TestNamespace::make("zones").await?;
        place.put(&place.shoot("one")).await?;
        let said = place.refuses("one", &isolate("EU 1"), &["zone-form"]).await?;
        ensure!(
            said.contains(
                "metadata.annotations[shoot.gardener.cloud/isolated-zone]: the value does not look like"
            ),
            "{said}"
        );
        let said = place.allows("one", &isolate("euc1-az1")).await?;
        ensure!(!said.contains("Warning"), "the reconciliation was filled in: {said}");
        let kept = place.get("one").await?["metadata"]["annotations"].clone();
        ensure!(kept == json!({ZONE: "euc1-az1", "gardener.cloud/operation": "reconcile"}), "{kept}");
        place.refuses("one", &isolate("eu-1b"), &["zone-fixed"]).await?;
        let maintain = json!({"metadata": {"annotations": {"gardener.cloud/operation": "maintain"}}});
        place.refuses("one", &maintain, &["no-maintenance-while-isolated"]).await?;
        place.refuses("one", &json!({"spec": {"seedName": "zones-b"}}), &["no-move-while-isolated"]).await?;
        place
            .allows(
                "one",
                &json!({"metadata": {"annotations": {ZONE: null, "gardener.cloud/operation": null}}}),
            )
            .await?;
        place.allows("one", &maintain).await?;
        place.allows("one", &json!({"spec": {"seedName": "zones-b"}})).await?;
        place.refuses("one", &isolate("euc1-az1"), &["no-isolation-while-migrating"]).await?;
        Ok(())
    });
}

#[test]
fn a_zone_that_is_not_in_use_or_the_last_one_is_not_isolated() {
    run(async |_| {
        let place = TestNamespace::make("last-zone").await?;
        let mut elsewhere = place.shoot("elsewhere");
        elsewhere["spec"]["provider"]["workers"][0]["zones"] = json!(["eu-1b", "eu-1c"]);
        place.put(&elsewhere).await?;
        place.refuses("elsewhere", &isolate("euc1-az1"), &["zone-used"]).await?;
        place.refuses("elsewhere", &isolate("euc1-az7"), &["zone-used"]).await?;
        let confirmed = json!({"metadata": {"annotations": {ZONE: "euc1-az7", CONFIRM: "euc1-az7"}}});
        let said = place.allows("elsewhere", &confirmed).await?;
        ensure!(said.contains("nobody knows which zone"), "{said}");
        let mut one = place.shoot("single");
        one["spec"]["provider"]["workers"][0]["zones"] = json!(["eu-1a"]);
        place.put(&one).await?;
        let said = place.refuses("single", &isolate("euc1-az1"), &["zones-left"]).await?;
        ensure!(said.contains("add workers in another zone first"), "{said}");
        let kept = json!({"metadata": {"annotations": {ZONE: "euc1-az8", CONFIRM: "euc1-az8", "gardener.cloud/operation": "retry"}}});
        let said = place.allows("single", &kept).await?;
        ensure!(said.contains("(isolation-reconciled)"), "{said}");
        Ok(())
    });
}
