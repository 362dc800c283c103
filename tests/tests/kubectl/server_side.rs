//! What the server does for kubectl: apply with owners, dry runs, differences.

use anyhow::{Result, ensure};
use repot_tests::run;
use serde_json::{Value, json};

use super::Hand;
use crate::shootstate::world::{GROUP, VERSION, World, path, small};

#[test]
fn people_apply_on_the_server_compare_and_rehearse_on_repot_dev() {
    run(async |env| {
        let world = World::dev(env).await?;
        Hand::both(env, &world, play).await
    });
}

#[test]
fn people_apply_on_the_server_compare_and_rehearse_through_a_real_kube_apiserver() {
    run(async |env| {
        let world = World::garden(env).await?;
        Hand::both(env, &world, play).await
    });
}

async fn play(hand: &Hand<'_>) -> Result<()> {
    owners(hand).await?;
    rehearses(hand).await?;
    compares(hand).await
}

/// Two managers and one field.
async fn owners(hand: &Hand<'_>) -> Result<()> {
    let name = hand.name("owned");
    let labelled = |value: &str| {
        json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "ShootState",
            "metadata": {"name": name, "namespace": "default", "labels": {"wave": value}},
        })
    };
    let first = hand.says_to("apply --server-side --field-manager=first -f -", &labelled("1")).await?;
    ensure!(first.contains("serverside-applied"), "{first}");
    let conflict = hand.fails("apply --server-side --field-manager=second -f -", &labelled("2")).await?;
    ensure!(
        conflict.contains("conflict")
            && conflict.contains("first")
            && conflict.contains(".metadata.labels.wave"),
        "{conflict}"
    );
    hand.says_to("apply --server-side --field-manager=second --force-conflicts -f -", &labelled("2")).await?;
    let read = hand.world.api.get(&path(&name)).await?.ok()?;
    ensure!(read["metadata"]["labels"] == json!({"wave": "2"}), "{}", read["metadata"]);
    let owner = read["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|entry| entry["manager"] == "second");
    ensure!(
        owner.is_some_and(|entry| entry["fieldsV1"]["f:metadata"]["f:labels"]["f:wave"] == json!({})),
        "{}",
        read["metadata"]
    );
    Ok(())
}

/// A dry run says what would be and leaves everything as it was.
async fn rehearses(hand: &Hand<'_>) -> Result<()> {
    let name = hand.name("rehearsed");
    let object = small(&name, &json!({"count": 1}));
    for line in ["create --dry-run=server -o json -f -", "apply --dry-run=server -o json -f -"] {
        let said: Value = serde_json::from_str(&hand.says_to(line, &object).await?)?;
        ensure!(
            said["metadata"]["uid"].is_string() && said["spec"]["extensions"][0]["state"]["count"] == 1,
            "{said}"
        );
        ensure!(hand.world.api.get(&path(&name)).await?.status == 404, "`{line}` left something behind");
    }
    hand.says_to("create -f -", &object).await?;
    let before = hand.world.api.get(&path(&name)).await?.ok()?;
    hand.says(&format!("delete shootstate {name} --dry-run=server")).await?;
    hand.says(&format!(
        r#"patch shootstate {name} --dry-run=server --type=merge -p {{"spec":{{"extensions":null}}}}"#
    ))
    .await?;
    ensure!(hand.world.api.get(&path(&name)).await?.ok()? == before, "a dry run changed the object");
    Ok(())
}

/// `kubectl diff` asks the server for what would be; exit code 1 means that there is a difference.
async fn compares(hand: &Hand<'_>) -> Result<()> {
    let name = hand.name("compared");
    let mut object = small(&name, &json!({"count": 1}));
    hand.says_to("apply -f -", &object).await?;
    let same = hand.kubectl.run_with(["diff", "-f", "-"], object.to_string().as_bytes()).await?;
    ensure!(same.succeeded(), "there is no difference: {same:?}");
    object["spec"]["extensions"][0]["state"]["count"] = json!(2);
    let other = hand.kubectl.run_with(["diff", "-f", "-"], object.to_string().as_bytes()).await?;
    let said = String::from_utf8_lossy(&other.stdout).into_owned();
    ensure!(other.code == 1 && said.contains("count: 1") && said.contains("count: 2"), "{other:?}");
    ensure!(
        hand.world.api.get(&path(&name)).await?.ok()?["metadata"]["generation"] == 1,
        "diff changed the object"
    );
    Ok(())
}
