//! Damage at rest is told with the name of the object, and stays with that object.

use anyhow::{Context, Result, bail, ensure};
use repot_tests::http::send;
use repot_tests::run;
use repot_tests::wait::until;
use reqwest::Method;
use serde_json::{Value, json};

use super::etcd_values::Values;
use super::world::{Watch, World, collection, large, path, small};

/// kube-apiserver looks for the resources of a server that it has not reached every minute.
const DISCOVERY_DEADLINE: std::time::Duration = std::time::Duration::from_secs(150);

/// The chunks of one object, by size.
async fn chunks(values: &Values, uid: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let prefix = format!("/repot/chunks/{}/", uid.replace('-', ""));
    let mut found = values.range(&prefix).await?;
    // What is no chunk under a uid says whose chunks they are.
    found.retain(|(key, _)| !key.contains("/-/"));
    ensure!(found.len() >= 4, "only {} chunks under {prefix}", found.len());
    found.sort_by_key(|(_, value)| value.len());
    Ok(found)
}

/// The object cannot be read any more, and the answer says which; all others can.
async fn expect_damage(world: &World, what: &str) -> Result<()> {
    match world.api.get(&path("hurt")).await {
        Ok(answer) => {
            let status = answer.json()?;
            ensure!(answer.status == 500 && status["reason"] == "StorageReadError", "{what}: {answer}");
            let message = status["message"].as_str().unwrap_or_default();
            ensure!(message.contains("default/hurt"), "{what}: the object is not named: {message}");
        }
        Err(error) => bail!("{what}: no answer: {error:#}"),
    }
    let whole = world.api.get(&path("whole")).await?;
    ensure!(whole.status == 200, "{what}: another object is not readable: {whole}");
    let table = world.kubectl.run(["get", "shootstates", "-n", "default"]).await?.text()?;
    ensure!(table.contains("hurt") && table.contains("whole"), "{what}: {table}");
    let list = world.api.get(&collection("default")).await;
    ensure!(
        list.is_err() || list.is_ok_and(|list| list.status == 500),
        "{what}: a list shows it all the same"
    );
    Ok(())
}

/// A list of metadata shows everything of an object that has no payload any more.
async fn lists_of_metadata_are_whole(world: &World, hurt: &Value) -> Result<()> {
    let list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let asked = world.api.request(Method::GET, &collection("default")).header("Accept", list);
    let list = send(asked).await?.ok()?;
    let items = list["items"].as_array().context("items")?;
    let found = items.iter().find(|item| item["metadata"]["name"] == "hurt").context("no such item")?;
    ensure!(items.len() == 2 && found["metadata"] == hurt["metadata"], "{list}");
    Ok(())
}

#[test]
fn damaged_chunks_are_told_and_harm_no_other_object() {
    run(async |env| {
        let mut world = World::garden_on_etcd(env).await?;
        let hurt = large("hurt", 3 << 20);
        let hurt = world.create(&hurt).await?;
        world.create(&small("whole", &json!(1))).await?;
        let uid = hurt["metadata"]["uid"].as_str().context("a uid")?;
        let values = Values::new(world.etcd.as_mut().context("etcd")?)?;
        let chunks = chunks(&values, uid).await?;
        let [(first, one), (second, two), ..] = &chunks[..] else { bail!("two chunks") };

        values.put(first, two).await?;
        values.put(second, one).await?;
        expect_damage(&world, "two chunks swapped").await?;
        values.put(second, two).await?;
        values.put(first, &one[..one.len() / 2]).await?;
        expect_damage(&world, "a chunk cut short").await?;
        for bit in [0, one.len() * 4, one.len() * 8 - 1] {
            let mut flipped = one.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            values.put(first, &flipped).await?;
            expect_damage(&world, &format!("bit {bit} turned")).await?;
        }
        values.remove(first).await?;
        expect_damage(&world, "a chunk removed").await?;
        for (key, _) in &chunks {
            values.remove(key).await?;
        }
        expect_damage(&world, "all chunks removed").await?;
        lists_of_metadata_are_whole(&world, &hurt).await?;
        for (key, value) in &chunks {
            values.put(key, value).await?;
        }
        let healed = world.api.get(&path("hurt")).await?.ok()?;
        ensure!(healed == hurt, "put back, it is not the object it was");

        let log = world.repot().process().log();
        ensure!(!log.contains("panicked"), "something panicked");
        Ok(())
    });
}

#[test]
fn a_damaged_record_is_told_and_harms_no_other_object() {
    run(async |env| {
        let mut world = World::garden_on_etcd(env).await?;
        world.create(&small("hurt", &json!(1))).await?;
        world.create(&small("whole", &json!(2))).await?;
        // Damage is proved by a key that opens other objects. A server that has only written has opened none: what it cannot open may
        // also be under another secret of the same name, which is no damage.
        world.repot().restart().await?;
        // kube-apiserver may have looked for the resources of the server while it was down, and looks again later.
        until("kubectl to read an object", DISCOVERY_DEADLINE, async || {
            world.kubectl.run(["get", "shootstate", "whole", "-n", "default"]).await?.text().map(drop)
        })
        .await?;
        let values = Values::new(world.etcd.as_mut().context("etcd")?)?;
        let records = values.range("/repot/registry/").await?;
        let record = |name: &str| {
            let found = records.iter().find(|(key, _)| key.ends_with(name));
            found.cloned().with_context(|| format!("no record of {name}"))
        };
        let ((hurt, own), (_, other)) = (record("/hurt")?, record("/whole")?);
        let mut flipped = own.clone();
        *flipped.last_mut().context("a value")? ^= 1;
        for (what, value) in
            [("another's record", other), ("a bit turned", flipped), ("nothing left", Vec::new())]
        {
            values.put(&hurt, &value).await?;
            let answer = world.api.get(&path("hurt")).await?;
            let status = answer.json()?;
            ensure!(answer.status == 500 && status["reason"] == "StorageReadError", "{what}: {answer}");
            ensure!(status["message"].as_str().unwrap_or_default().contains("hurt"), "{what}: {answer}");
            ensure!(
                world.api.get(&path("whole")).await?.status == 200,
                "{what}: another object is not readable"
            );
            let table = world.kubectl.run(["get", "shootstates", "-n", "default"]).await?.text()?;
            ensure!(table.contains("whole"), "{what}: {table}");
        }
        values.put(&hurt, &own).await?;
        ensure!(world.api.get(&path("hurt")).await?.status == 200, "put back, it is not readable");
        Ok(())
    });
}

#[test]
fn a_watch_ends_with_500_where_an_object_cannot_be_read_and_goes_on_where_it_is_repaired() {
    run(async |env| {
        let mut world = World::garden_on_etcd(env).await?;
        let hurt = world.create(&small("hurt", &json!(1))).await?;
        let version = hurt["metadata"]["resourceVersion"].as_str().context("a version")?;
        let values = Values::new(world.etcd.as_mut().context("etcd")?)?;
        let records = values.range("/repot/registry/").await?;
        let (key, whole) = records.iter().find(|(key, _)| key.ends_with("/hurt")).context("a record")?;
        let mut watch = world.watch(version).await?;
        let mut flipped = whole.clone();
        *flipped.last_mut().context("a value")? ^= 1;
        values.put(key, &flipped).await?;
        let event = watch.next().await?;
        let status = &event["object"];
        ensure!(event["type"] == "ERROR" && status["kind"] == "Status", "{event}");
        ensure!(status["code"] == 500 && status["reason"] == "InternalError", "{event}");
        ensure!(watch.rest().await?.is_empty(), "something comes after the error");

        // Metadata is listed without it; who watches from there is told when it is back.
        let accept = |form: &str| format!("application/json;as={form};g=meta.k8s.io;v=v1");
        let request = world.api.request(reqwest::Method::GET, &collection("default"));
        let list = request.header("Accept", accept("PartialObjectMetadataList"));
        let list = repot_tests::http::send(list).await?.ok()?;
        ensure!(list["items"].as_array().is_some_and(Vec::is_empty), "{list}");
        let version = list["metadata"]["resourceVersion"].as_str().context("a version")?;
        let path = format!("{}?watch=1&resourceVersion={version}", collection("default"));
        let request = world.api.request(reqwest::Method::GET, &path);
        let mut watch = Watch::new(request.header("Accept", accept("PartialObjectMetadata")).send().await?);
        values.put(key, whole).await?;
        let event = watch.next().await?;
        ensure!(event["type"] == "ADDED" && event["object"]["metadata"]["name"] == "hurt", "{event}");
        Ok(())
    });
}
