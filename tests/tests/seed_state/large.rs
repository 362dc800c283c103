//! States of many MiB, and the functions that flows call.

use anyhow::{Result, ensure};
use repot_controllers::shootstate::{Mode, Synced, collect, read, sync, unsynced};
use repot_tests::run;
use serde_json::{Value, json};

use super::world::{World, infrastructure, secret};

const COUNT: usize = 12;

async fn set_state(world: &World, at: usize, fill: &str) -> Result<()> {
    // Less than etcd takes in one request.
    let state: Value = json!({"payload": fill.repeat(1 << 20)});
    world.set_extension_status("infrastructures", &format!("i-{at:02}"), &json!({"state": state})).await
}

#[test]
fn twelve_mib_are_written_and_changed_by_entry() {
    run(async |_| {
        let world = World::make("large").await?;
        world.apply(&[secret("ca", &json!({"k": "AA=="}))]).await?;
        let objects: Vec<_> =
            (0..COUNT).map(|at| infrastructure(&format!("i-{at:02}"), &json!({}))).collect();
        world.apply(&objects).await?;
        for at in 0..COUNT {
            set_state(&world, at, "x").await?;
        }
        let (garden, seed, shoot) = (&world.garden, &world.seed, &world.shoot);
        ensure!(read(garden, shoot).await?.is_none());
        let entries = u32::try_from(COUNT)? + 1;
        ensure!(unsynced(garden, seed, shoot, Mode::Overwrite).await? == entries);
        let synced = sync(garden, seed, shoot, Mode::Overwrite).await?;
        ensure!((synced.differing, synced.written) == (entries, entries), "{synced:?}");
        ensure!(synced.sent_bytes > 10 << 20, "{synced:?}");
        ensure!(read(garden, shoot).await? == Some(collect(seed, &shoot.seed_namespace).await?));
        ensure!(unsynced(garden, seed, shoot, Mode::Overwrite).await? == 0);
        world.writes.take();
        let nothing = sync(garden, seed, shoot, Mode::Overwrite).await?;
        ensure!(nothing == Synced::default() && world.writes.take().is_empty(), "{nothing:?}");

        set_state(&world, 7, "y").await?;
        ensure!(unsynced(garden, seed, shoot, Mode::Overwrite).await? == 1);
        let one = sync(garden, seed, shoot, Mode::Overwrite).await?;
        ensure!((one.differing, one.written) == (1, 1), "{one:?}");
        ensure!(((1 << 20)..(1 << 20) + 4096).contains(&one.sent_bytes), "{one:?}");
        let writes = world.writes.take();
        ensure!(writes.len() == 1 && writes[0].bytes < (1 << 20) + 4096, "{writes:?}");

        // What changes all of it is sent in several patches.
        for at in 0..COUNT {
            set_state(&world, at, "z").await?;
        }
        let all = sync(garden, seed, shoot, Mode::Overwrite).await?;
        ensure!(all.written == u32::try_from(COUNT)?, "{all:?}");
        let writes = world.writes.take();
        ensure!((3..=4).contains(&writes.len()), "{writes:?}");
        ensure!(read(garden, shoot).await? == Some(collect(seed, &shoot.seed_namespace).await?));
        Ok(())
    });
}

/// What the writer relies on: a patch that names another resourceVersion is refused with 409, and changes nothing.
#[test]
fn patch_of_an_older_version_is_a_conflict() {
    run(async |_| {
        let world = World::make("conflict").await?;
        world.apply(&[secret("ca", &json!({"k": "AA=="}))]).await?;
        sync(&world.garden, &world.seed, &world.shoot, Mode::Overwrite).await?;
        let old = world.stored().await?;
        world.apply(&[secret("ca", &json!({"k": "AQ=="}))]).await?;
        sync(&world.garden, &world.seed, &world.shoot, Mode::Overwrite).await?;
        let new = world.stored().await?;
        let namespace = &world.shoot.namespace;
        let path = format!("/apis/core.gardener.cloud/v1alpha1/namespaces/{namespace}/shootstates/s");
        let version = |value: &Value| {
            json!([
                {"op": "replace", "path": "/metadata/resourceVersion", "value": value["metadata"]["resourceVersion"]},
                {"op": "remove", "path": "/spec/gardener/0"},
            ])
        };
        let media = "application/json-patch+json";
        let refused = world.garden_api.patch(&path, media, &version(&old)).await?;
        ensure!(refused.status == 409, "{refused}");
        ensure!(world.stored().await? == new);
        world.garden_api.patch(&path, media, &version(&new)).await?.ok()?;
        Ok(())
    });
}
