//! client-go's reflectors, informers and watches, of every kind and under disturbance: each ends equal to a LIST, and a watch that
//! is taken up again misses nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use repot_tests::clientgo::ClientGo;
use repot_tests::wait::until;
use repot_tests::{TestEnv, run};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::span;
use crate::shootstate::world::{World, path, small};

/// How long the writer may need for a few dozen requests.
const WRITER_DEADLINE: Duration = Duration::from_secs(120);

pub const MODES: [&str; 11] = [
    "list",
    "watchlist",
    "paged",
    "selector",
    "selector-list",
    "name",
    "metadata",
    "metadata-list",
    "informer",
    "metadata-informer",
    "typed-informer",
];

pub fn modes(count: usize) -> String {
    let all: Vec<&str> = MODES.into_iter().cycle().take(count).collect();
    format!("--modes={}", all.join(","))
}

/// Followers under a writer for some time.
async fn follow_a_writer(env: &TestEnv, world: &World, followers: usize, seconds: Duration) -> Result<()> {
    let mut client = ClientGo::start(env, "follow", world.kubectl.kubeconfig(), &[&modes(followers)])?;
    ensure!(client.answer().await?["followers"] == followers, "not all of them follow");
    client.ask("write").await?;
    // The load is what lasts; nothing is waited for.
    sleep(seconds).await;
    // On a busy machine the writer may have come to few deletions until now.
    until("enough writes and deletions", WRITER_DEADLINE, async || {
        let rest = client.ask("rest").await?;
        if rest["written"].as_u64() > Some(10) && rest["deleted"].as_u64() > Some(2) {
            return Ok(());
        }
        client.ask("write").await?;
        bail!("{rest}")
    })
    .await?;
    client.ask("verify").await?;
    ensure_modes_are_what_their_names_say(&client.ask("stats").await?["modes"])
}

/// The server was asked in the way that the mode stands for, and never for anything again: nothing broke.
fn ensure_modes_are_what_their_names_say(modes: &Value) -> Result<()> {
    let modes: BTreeMap<String, BTreeMap<String, u64>> = serde_json::from_value(modes.clone())?;
    for (mode, asked) in modes {
        let plain = ["list", "paged", "selector-list", "metadata-list"].contains(&mode.as_str());
        let (once, never) = if plain { ("watches", "watchLists") } else { ("watchLists", "watches") };
        ensure!(asked[once] == 1 && asked[never] == 0, "{mode} asked for {asked:?}");
        ensure!(asked["failures"] == 0 && asked["expired"] == 0, "{mode} met failures: {asked:?}");
    }
    Ok(())
}

#[test]
fn informers_follow_a_writer_on_the_embedded_store() {
    run(async |env| follow_a_writer(env, &World::dev(env).await?, MODES.len(), span(5, 30)).await);
}

#[test]
fn twenty_informers_follow_a_writer_through_a_kube_apiserver_on_etcd() {
    run(async |env| follow_a_writer(env, &World::garden_on_etcd(env).await?, 20, span(20, 120)).await);
}

/// A server that goes and comes back under its watches, once in order and once by `kill -9`.
async fn follow_through_restarts(env: &TestEnv, mut world: World) -> Result<()> {
    let flags = [&modes(MODES.len()), "--disturbed"];
    let mut client = ClientGo::start(env, "follow", world.kubectl.kubeconfig(), &flags)?;
    client.answer().await?;
    client.ask("write").await?;
    for gracefully in [true, false] {
        sleep(span(2, 10)).await;
        match gracefully {
            true => world.repot().stop().await?,
            false => world.repot().kill(),
        }
        world.repot().restart().await?;
    }
    sleep(span(2, 10)).await;
    client.ask("rest").await?;
    client.ask("verify").await?;
    Ok(())
}

#[test]
fn informers_survive_restarts_on_the_embedded_store() {
    run(async |env| follow_through_restarts(env, World::dev(env).await?).await);
}

#[test]
fn informers_survive_restarts_behind_a_kube_apiserver() {
    run(async |env| follow_through_restarts(env, World::garden_on_etcd(env).await?).await);
}

#[test]
fn two_managers_apply_conflict_force_and_release() {
    run(async |env| {
        for world in [World::dev(env).await?, World::garden(env).await?] {
            let mut client = ClientGo::start(env, "apply", world.kubectl.kubeconfig(), &[])?;
            ensure!(client.answer().await?["steps"] == 4, "the scenario has four steps");
        }
        Ok(())
    });
}

#[test]
fn until_with_sync_sees_what_is_there_and_what_comes() {
    run(async |env| {
        let world = World::dev(env).await?;
        world.create(&small("w-1", &json!(1))).await?;
        let start = |flags: &[&str]| ClientGo::start(env, "until", world.kubectl.kubeconfig(), flags);
        let mut change = start(&["--name=w-1", "--annotation=done"])?;
        let mut deletion = start(&["--name=w-1"])?;
        for client in [&mut change, &mut deletion] {
            ensure!(client.answer().await?["seen"] == "ADDED", "the object was there");
        }
        let patch = json!({"metadata": {"annotations": {"done": "yes"}}});
        world.api.patch(&path("w-1"), "application/merge-patch+json", &patch).await?.ok()?;
        for client in [&mut change, &mut deletion] {
            ensure!(client.answer().await?["seen"] == "MODIFIED", "it was changed");
        }
        ensure!(change.answer().await?["met"] == "MODIFIED", "it was annotated");
        world.api.delete(&path("w-1")).await?.ok()?;
        ensure!(deletion.answer().await?["seen"] == "DELETED", "it was deleted");
        ensure!(deletion.answer().await?["met"] == "DELETED", "it was waited for");
        Ok(())
    });
}
