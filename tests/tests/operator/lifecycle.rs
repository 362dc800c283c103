use anyhow::{Result, ensure};
use repot_tests::run;
use serde_json::json;

use super::world::{TestNamespace, holds, spec};

const CLAIMS: [&str; 3] = ["main-main-0", "main-main-1", "main-main-2"];

#[test]
fn three_members_serve_are_stopped_and_change_their_volumes_and_no_volume_is_lost() {
    run(async |_| {
        let place = TestNamespace::make("operator-life").await?;
        place.apply(spec(3)).await?;
        let etcd = place.until_members(3, "main").await?;
        let status = &etcd["status"];
        ensure!(status["ready"] == true && holds(status, "Ready") == Some(true), "{status}");
        let member = place.member(0).await?;
        ensure!(member.members().await? == ["main-0", "main-1", "main-2"], "{:?}", member.members().await?);
        member.put("a", "1").await?;

        stop_and_start(&place).await?;
        other_volumes(&place).await
    });
}

async fn stop_and_start(place: &TestNamespace) -> Result<()> {
    place.pods.kubectl(&["scale", "etcd/main", "--replicas=0"]).await?;
    place.until_stopped().await?;
    ensure!(place.names("pvc").await? == CLAIMS, "{:?}", place.names("pvc").await?);
    place.pods.kubectl(&["scale", "etcd/main", "--replicas=3"]).await?;
    place.until_members(3, "main").await?;
    ensure!(place.member(1).await?.read("a").await? == "1", "the data is gone");
    Ok(())
}

/// As a workflow does it: there, and back again.
async fn other_volumes(place: &TestNamespace) -> Result<()> {
    let before = place.pods.get("statefulset", "main").await?;
    let fence = json!({"migration.gardener.cloud/fence": "f-2"});
    place.patch(json!({"metadata": {"annotations": fence}, "spec": {"volumeClaimTemplate": "n-2"}})).await?;
    let etcd = place.until_members(3, "n-2").await?;
    ensure!(etcd["status"]["bootstrapped"]["earlier"] == json!(["main"]), "{}", etcd["status"]);
    let after = place.pods.get("statefulset", "main").await?;
    ensure!(after["metadata"]["uid"] != before["metadata"]["uid"], "it was not made anew");
    let key = "migration.gardener.cloud/fence";
    ensure!(after["metadata"]["annotations"][key] == fence[key], "{}", after["metadata"]);
    let member = place.member(0).await?;
    ensure!(member.read("a").await?.is_empty(), "new volumes are not empty");
    member.put("a", "2").await?;
    let labelled = place
        .pods
        .kubectl(&["get", "pvc", "-l", "migration.gardener.cloud/volumes=n-2", "-o", "name"])
        .await?;
    ensure!(labelled.lines().count() == 3, "{labelled}");

    place.patch(json!({"spec": {"volumeClaimTemplate": "main"}})).await?;
    let etcd = place.until_members(3, "main").await?;
    ensure!(etcd["status"]["bootstrapped"]["earlier"] == json!(["n-2"]), "{}", etcd["status"]);
    ensure!(place.member(0).await?.read("a").await? == "1", "the old volumes do not hold what they held");
    ensure!(place.names("pvc").await?.len() == 6, "{:?}", place.names("pvc").await?);
    Ok(())
}
