//! Who owns which fields after creates, updates and patches, and what becomes of the entries that say so.

use anyhow::{Context, Result, ensure};
use repot_tests::http::send;
use repot_tests::run;
use reqwest::Method;
use serde_json::{Value, json};

use super::apply::{apply, config, data, owners};
use super::world::{GROUP, VERSION, World, collection, path, small};

/// What an object may have in bytes, unless the operator says otherwise.
const LIMIT: usize = 15 << 20;
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";

#[test]
fn every_write_is_tracked_under_the_name_of_who_made_it() {
    run(async |env| owners_of_updates(&World::dev(env).await?).await);
}

#[test]
fn entries_can_be_cleared_and_patched_and_never_refuse_a_write() {
    run(async |env| entries_can_be_cleared_and_patched(&World::dev(env).await?).await);
}

#[test]
fn an_apply_of_nothing_new_gives_no_version() {
    run(async |env| no_operations(&World::dev(env).await?).await);
}

#[test]
fn who_owns_what_is_forgotten_where_the_object_would_be_too_large() {
    run(async |env| {
        let world = World::dev(env).await?;
        let entries: Vec<Value> = (0..100).map(|n| json!({"kind": format!("Kind{n}")})).collect();
        let mut object = config("full", &json!({"gardener": [data("a", "")], "extensions": entries}));
        let room = LIMIT - object.to_string().len();
        // Without an entry for each extension it fits; with them it does not.
        object["spec"]["gardener"][0]["data"]["value"] = json!("x".repeat(room - 2000));
        let created = world.create(&object).await?;
        ensure!(created["metadata"].get("managedFields").is_none(), "{}", created["metadata"]);
        let object = object.to_string();
        let refused = apply(&world, "full", "fieldManager=m", object).await?;
        ensure!(refused.status == 413, "{refused}");
        let label = json!({"metadata": {"labels": {"l": "x"}}});
        world.api.patch(&path("full"), MERGE_PATCH, &label).await?.ok()?;
        Ok(())
    });
}

/// Create, update and patches are tracked under the name of the client's program or the one it asks for.
async fn owners_of_updates(world: &World) -> Result<()> {
    let request = world.api.request(Method::POST, &collection("default"));
    let body = small("u", &json!(1)).to_string();
    let request = request.header("User-Agent", "gardenlet/v1.2").header("Content-Type", "application/json");
    let created = send(request.body(body)).await?.ok()?;
    let found = owners(&created);
    ensure!(
        found.len() == 1 && (found[0].0.as_str(), found[0].1.as_str()) == ("gardenlet", "Update"),
        "{found:?}"
    );
    let key = r#"k:{"kind":"Worker","name":"w","purpose":""}"#;
    ensure!(found[0].2["f:spec"]["f:extensions"][key]["f:state"] == json!({}), "{found:?}");
    ensure!(found[0].2["f:metadata"].is_null(), "{found:?}");

    let mut put = created.clone();
    put["spec"]["extensions"][0]["state"] = json!(2);
    let put = world.api.put(&format!("{}?fieldManager=p", path("u")), &put).await?.ok()?;
    let of = |object: &Value, manager: &str| owners(object).into_iter().find(|o| o.0 == manager).map(|o| o.2);
    let expected = json!({"f:spec": {"f:extensions": {key: {"f:state": {}}}}});
    ensure!(of(&put, "p") == Some(expected), "{:?}", owners(&put));

    // A patch of metadata reads no payload, and what it says is tracked all the same.
    let label = json!({"metadata": {"labels": {"l": "1"}, "finalizers": ["example.com/f"]}});
    let patched =
        world.api.patch(&format!("{}?fieldManager=q", path("u")), MERGE_PATCH, &label).await?.ok()?;
    let expected = json!({"f:metadata": {
        "f:finalizers": {".": {}, "v:\"example.com/f\"": {}},
        "f:labels": {".": {}, "f:l": {}},
    }});
    ensure!(of(&patched, "q") == Some(expected), "{:?}", owners(&patched));
    let patch = json!([{"op": "remove", "path": "/metadata/finalizers"}, {"op": "replace", "path": "/spec/gardener/0/type", "value": "x"}]);
    let patched =
        world.api.patch(&format!("{}?fieldManager=r", path("u")), JSON_PATCH, &patch).await?.ok()?;
    ensure!(
        of(&patched, "q") == Some(json!({"f:metadata": {"f:labels": {".": {}, "f:l": {}}}})),
        "{patched}"
    );
    let expected = json!({"f:spec": {"f:gardener": {r#"k:{"name":"ca"}"#: {"f:type": {}}}}});
    ensure!(of(&patched, "r") == Some(expected), "{:?}", owners(&patched));

    for n in 0..12 {
        let label = json!({"metadata": {"labels": {format!("l{n}"): "1"}}});
        world.api.patch(&format!("{}?fieldManager=many-{n}", path("u")), MERGE_PATCH, &label).await?.ok()?;
    }
    let read = world.api.get(&path("u")).await?.ok()?;
    ensure!(owners(&read).len() == 10 && of(&read, "ancient-changes").is_some(), "{:?}", owners(&read));
    Ok(())
}

async fn entries_can_be_cleared_and_patched(world: &World) -> Result<()> {
    let created = world.create(&small("c", &json!(1))).await?;
    ensure!(owners(&created).len() == 1, "{created}");
    // Clients that do not know of entries do not delete them.
    let mut unaware = created.clone();
    unaware["metadata"].as_object_mut().context("metadata")?.remove("managedFields");
    let kept = world.api.put(&path("c"), &unaware).await?.ok()?;
    ensure!(kept["metadata"] == created["metadata"], "{kept}");
    // What cannot be read is no reason to refuse a write.
    let broken = json!([{"op": "add", "path": "/metadata/managedFields/-", "value": {"manager": "x", "operation": "Nonsense"}}]);
    let kept = world.api.patch(&path("c"), JSON_PATCH, &broken).await?.ok()?;
    ensure!(owners(&kept) == owners(&created), "{kept}");
    let renamed = json!([{"op": "replace", "path": "/metadata/managedFields/0/manager", "value": "renamed"}]);
    let renamed = world.api.patch(&path("c"), JSON_PATCH, &renamed).await?.ok()?;
    ensure!(owners(&renamed)[0].0 == "renamed", "{renamed}");
    for (clear, media) in [
        (json!({"metadata": {"managedFields": [{}]}}), MERGE_PATCH),
        (json!([{"op": "add", "path": "/metadata/managedFields", "value": []}]), JSON_PATCH),
    ] {
        let cleared = world.api.patch(&path("c"), media, &clear).await?.ok()?;
        ensure!(cleared["metadata"].get("managedFields").is_none(), "{cleared}");
    }
    // Nobody owned anything: the first apply finds a manager for all of it.
    let object = config("c", &json!({"gardener": [{"name": "ca", "type": "secret"}]})).to_string();
    let applied = apply(world, "c", "fieldManager=m", object).await?.ok()?;
    let managers: Vec<String> = owners(&applied).into_iter().map(|owner| owner.0).collect();
    ensure!(managers == ["m", "before-first-apply"], "{managers:?}");
    Ok(())
}

/// Writes that change nothing give no new version; a migrator's patch, which names nothing but an identity, is one.
async fn no_operations(world: &World) -> Result<()> {
    let created = world.create(&small("n", &json!(1))).await?;
    let meta = &created["metadata"];
    let migrate = |version: &Value| {
        let identity = json!({"uid": meta["uid"], "resourceVersion": version});
        json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": "ShootState", "metadata": identity})
            .to_string()
    };
    let same = apply(world, "n", "fieldManager=migrator&force=true", migrate(&meta["resourceVersion"]))
        .await?
        .ok()?;
    ensure!(same == created, "{same}");
    let stale = apply(world, "n", "fieldManager=migrator&force=true", migrate(&json!("1"))).await?;
    ensure!(stale.status == 409, "{stale}");
    let object = config("n", &json!({"extensions": [{"kind": "Worker", "name": "w"}]})).to_string();
    let first = apply(world, "n", "fieldManager=m", object.clone()).await?.ok()?;
    ensure!(first["metadata"]["resourceVersion"] != meta["resourceVersion"], "{first}");
    let second = apply(world, "n", "fieldManager=m", object).await?.ok()?;
    ensure!(second == first, "{second}");
    Ok(())
}
