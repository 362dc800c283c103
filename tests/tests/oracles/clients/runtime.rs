//! controller-runtime's client and cache.

use anyhow::{Result, ensure};
use repot_tests::clientgo::ClientGo;
use repot_tests::run;
use serde_json::{Value, json};

use super::{backup, count, managers, state};
use crate::etcd_kinds::world::World;
use crate::shootstate::world::{collection, path, small};

#[test]
fn controller_runtime_patches_applies_and_writes_status() {
    run(async |env| {
        let world = World::garden(env).await?;
        let mut client = ClientGo::library(env, "runtime", world.kubectl.kubeconfig())?;
        client.ask("create").await?;
        merges(&world, &mut client).await?;
        writes_status(&world, &mut client).await?;
        applies(&world, &mut client).await
    });
}

async fn merges(world: &World, client: &mut ClientGo) -> Result<()> {
    let created = state(world, "one").await?;
    client.ask("merge").await?;
    let merged = state(world, "one").await?;
    ensure!(merged["metadata"]["labels"] == json!({"merged": "yes"}) && *count(&merged) == 2, "{merged}");
    ensure!(merged["spec"]["gardener"] == created["spec"]["gardener"], "what was not patched stays");
    let said = client.ask("lock").await?;
    ensure!(said["conflict"] == true, "a patch of an old version was answered with {}", said["said"]);
    let locked = state(world, "one").await?;
    ensure!(locked["metadata"]["labels"] == json!({"locked": "first"}), "{}", locked["metadata"]);
    Ok(())
}

async fn writes_status(world: &World, client: &mut ClientGo) -> Result<()> {
    let said = client.ask("status").await?;
    ensure!(said["patched"] == "patched", "{said}");
    let object = backup(world, "one").await?;
    ensure!(object["status"]["message"] == "updated", "{}", object["status"]);
    ensure!(
        object["spec"]["clusterRef"]["name"] == "main" && object["metadata"]["generation"] == 1,
        "status wrote spec: {object}"
    );
    Ok(())
}

async fn applies(world: &World, client: &mut ClientGo) -> Result<()> {
    let said = client.ask("apply").await?;
    ensure!(said["conflict"] == true, "another owner's apply was answered with {}", said["said"]);
    let applied = state(world, "applied").await?;
    ensure!(*count(&applied) == 3, "{applied}");
    let mut owners = managers(&applied, "Apply");
    owners.sort_unstable();
    ensure!(owners == ["first", "second"], "{owners:?}");
    Ok(())
}

#[test]
fn controller_runtime_reads_by_pages_and_by_caches_and_deletes() {
    run(async |env| {
        let world = World::garden(env).await?;
        for n in 0..25 {
            let mut object = small(&format!("p-{n:02}"), &json!(n));
            object["metadata"]["labels"] = json!({"paged": "yes"});
            world.api.post(&collection("default"), &object).await?.ok()?;
        }
        let mut client = ClientGo::library(env, "runtime", world.kubectl.kubeconfig())?;
        client.ask("create").await?;
        let read = client.ask("pages").await?;
        ensure!(read["sizes"] == json!([10, 10, 5]), "{read}");
        let expected: Vec<String> = (0..25).map(|n| format!("p-{n:02}")).collect();
        ensure!(read["names"] == json!(expected), "{read}");
        follows(&world, &mut client).await?;
        ensure!(client.ask("delete").await?["refused"] == true, "a precondition was passed over");
        let left = world.api.get(&collection("default")).await?.ok()?;
        ensure!(left["items"] == json!([]), "{left}");
        Ok(())
    });
}

/// Both informers begin with one watch that sends what there is, and never list; then changes come.
async fn follows(world: &World, client: &mut ClientGo) -> Result<()> {
    for (cache, watches) in [("metadata", 1), ("cache", 2)] {
        let before = asked(&client.ask(cache).await?, "lists")?;
        let label = json!({"metadata": {"labels": {"seen": cache}}});
        let changed = world.api.patch(&path("p-03"), "application/merge-patch+json", &label).await?.ok()?;
        world.api.post(&collection("default"), &small(&format!("new-{cache}"), &json!(1))).await?.ok()?;
        let seen = client.ask(cache).await?;
        let versions = seen["versions"].as_object().map(serde_json::Map::len);
        ensure!(versions == Some(26 + watches), "{seen}");
        ensure!(seen["versions"]["p-03"] == changed["metadata"]["resourceVersion"], "{seen}");
        // The one list is that of the step itself, which compares the cache with it.
        ensure!(asked(&seen, "lists")? == before + 1, "the informer listed: {seen}");
        ensure!(asked(&seen, "watchLists")? == watches as u64 && asked(&seen, "failures")? == 0, "{seen}");
        world.api.delete(&path(&format!("new-{cache}"))).await?.ok()?;
        let less = client.ask(cache).await?;
        ensure!(less["versions"].get(format!("new-{cache}")).is_none(), "{less}");
        world.api.post(&collection("default"), &labelled(&format!("rest-{cache}"))).await?.ok()?;
    }
    Ok(())
}

fn labelled(name: &str) -> Value {
    let mut object = small(name, &json!(1));
    object["metadata"]["labels"] = json!({"paged": "yes"});
    object
}

fn asked(answer: &Value, what: &str) -> Result<u64> {
    answer["asked"][what].as_u64().ok_or_else(|| anyhow::anyhow!("no count of {what}: {answer}"))
}
