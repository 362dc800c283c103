//! Lists of everything that the watch cache cannot answer: few are read from the backend at a time, whoever asks and however many ask.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http::header::RETRY_AFTER;
use hyper::body::Incoming;
use repot_tests::access::Access;
use repot_tests::etcd::EtcdCluster;
use repot_tests::http::Api;
use repot_tests::wait::until;
use repot_tests::{TestEnv, run_large};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::starvation::{Hoarder, certificate, grant};
use crate::shootstate::large::memory::{MIB, forget_peak, peak};
use crate::shootstate::world::{World, collection, path, small};

const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const ROLES: Duration = Duration::from_secs(60);
/// How long a small request of another user takes at most. Alone it takes milliseconds.
const SOON: Duration = Duration::from_secs(8);
/// All objects have about 48 MiB of metadata together.
const OBJECTS: usize = 192;
const LISTS: usize = 64;
/// What [`LISTS`] lists may add: four that are read from the backend, the watch cache, responses on their way (48 MiB), and what the
/// allocator keeps. All of them together would take 3 GiB.
const MOST: u64 = 600 * MIB;

/// A server on etcd whose objects have long metadata, and two users.
async fn world(env: &TestEnv) -> Result<(World, Api, Access)> {
    let etcd = EtcdCluster::start(env, 1).await?;
    let mut world = World::garden_on_endpoint(env, &etcd.endpoints()[0]).await?;
    world.etcd = Some(etcd);
    for user in ["alice", "mallory"] {
        grant(&world, user).await?;
    }
    let notes = "x".repeat(250 << 10);
    for number in 0..OBJECTS {
        let mut object = small(&format!("noted-{number}"), &json!(1));
        object["metadata"]["annotations"] = json!({"note": notes});
        world.create(&object).await?;
    }
    world.create(&small("small", &json!(1))).await?;
    let alice = Api::new(&world.directly(certificate(&world, "alice")?)?)?;
    let mallory = world.directly(certificate(&world, "mallory")?)?;
    for who in [&alice, &Api::new(&mallory)?] {
        until("the roles", ROLES, async || who.get(&path("small")).await?.ok().map(drop)).await?;
    }
    Ok((world, alice, mallory))
}

/// Asks for [`LISTS`] lists at once, of which nothing is read, and reads a small object again and again until all are answered.
async fn ask_beside_small_requests(
    mallory: &Access,
    alice: &Api,
    query: &str,
) -> Result<Vec<hyper::Response<Incoming>>> {
    let hoarder = Hoarder::dial(mallory, 0).await?;
    let list = format!("{}{query}", collection("default"));
    let mut asked = JoinSet::new();
    for number in 0..LISTS {
        let accept = if number % 2 == 0 { "application/json" } else { METADATA };
        asked.spawn(hoarder.send(Method::GET, &list, &[("Accept", accept)], String::new())?);
    }
    let mut heads = Vec::new();
    while heads.len() < LISTS {
        let began = Instant::now();
        let read = tokio::time::timeout(SOON, alice.get(&path("small"))).await;
        let read = read.context("a small request waits for lists of another user")??;
        ensure!(read.status == 200, "{read}");
        // What is left of a short while is for answers.
        let rest = Duration::from_millis(100).saturating_sub(began.elapsed());
        while let Ok(Some(head)) = tokio::time::timeout(rest, asked.join_next()).await {
            heads.push(head??);
        }
    }
    Ok(heads)
}

/// Some are served, and every other one is told to come again.
fn check_statuses(heads: &[hyper::Response<Incoming>]) -> Result<()> {
    let served = heads.iter().filter(|head| head.status() == 200).count();
    ensure!(served > 0, "no list was answered");
    for head in heads.iter().filter(|head| head.status() != 200) {
        ensure!(matches!(head.status().as_u16(), 429 | 503), "{head:?}");
        ensure!(head.headers().contains_key(RETRY_AFTER), "{head:?}");
    }
    println!("{served} of {} lists are served", heads.len());
    Ok(())
}

fn check_memory(pid: u32, before: u64) -> Result<()> {
    let most = peak(pid)?.saturating_sub(before);
    println!("{LISTS} lists of 48 MiB at once take {} MiB", most / MIB);
    ensure!(most <= MOST, "{} MiB for {LISTS} lists at once", most / MIB);
    Ok(())
}

#[test]
fn many_lists_at_the_start_of_a_server_take_the_memory_of_a_few() {
    run_large(async |env| {
        let (mut world, alice, mallory) = world(env).await?;
        // The watch cache begins with the first list: until it has read everything, lists are read from the backend.
        world.repot().restart().await?;
        let pid = world.repot().process().pid();
        forget_peak(pid)?;
        let before = peak(pid)?;
        let heads = ask_beside_small_requests(&mallory, &alice, "").await?;
        check_statuses(&heads)?;
        check_memory(pid, before)?;
        drop(heads);
        reads_everything(&alice).await
    });
}

#[test]
fn many_lists_of_a_past_version_take_the_memory_of_a_few() {
    run_large(async |env| {
        let (mut world, alice, mallory) = world(env).await?;
        let listed: Value = alice.get(&format!("{}?limit=1", collection("default"))).await?.ok()?;
        let version = listed["metadata"]["resourceVersion"].as_str().context("a version")?.to_owned();
        world.create(&small("newer", &json!(1))).await?;
        let pid = world.repot().process().pid();
        forget_peak(pid)?;
        let before = peak(pid)?;
        let query = format!("?resourceVersionMatch=Exact&resourceVersion={version}");
        let heads = ask_beside_small_requests(&mallory, &alice, &query).await?;
        check_statuses(&heads)?;
        check_memory(pid, before)?;
        drop(heads);
        reads_everything(&alice).await
    });
}

/// What the lists held is free again.
async fn reads_everything(api: &Api) -> Result<()> {
    let listed = api.get(&collection("default")).await?.ok()?;
    let count = listed["items"].as_array().map_or(0, Vec::len);
    ensure!(count > OBJECTS, "{count} objects are listed");
    Ok(())
}
