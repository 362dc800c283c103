//! Heads of objects that were replaced meanwhile: a client that does not read keeps few of them in memory.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use futures::future::try_join_all;
use repot_tests::access::Access;
use repot_tests::http::Api;
use repot_tests::repot::Dev;
use repot_tests::run;
use repot_tests::wait::until;
use reqwest::Method;
use serde_json::{Value, json};

use super::starvation::Hoarder;
use crate::shootstate::large::memory::{BASE, MIB, peak};
use crate::shootstate::world::{collection, path, small};

const OBJECTS: usize = 200;
/// Of the annotations of each, in bytes.
const LENGTH: usize = 250 << 10;
const ROUNDS: usize = 8;
/// Watches that begin in each round, on a connection of their own.
const WATCHES: usize = 250;
const DEADLINE: Duration = Duration::from_secs(60);
/// `--max-inflight-bytes`.
const BUDGET: u64 = 132 * MIB;
const LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const WATCH: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

fn note(round: usize) -> Value {
    json!({"metadata": {"annotations": {"note": format!("{round}{}", "x".repeat(LENGTH))}}})
}

async fn update_all(api: &Api, round: usize) -> Result<()> {
    let patch = note(round);
    let mut updates = futures::stream::iter(0..OBJECTS)
        .map(async |number| {
            let path = path(&format!("o-{number}"));
            api.patch(&path, "application/merge-patch+json", &patch).await?.ok().map(drop)
        })
        .buffer_unordered(4);
    while let Some(updated) = updates.next().await {
        updated?;
    }
    Ok(())
}

#[test]
fn clients_that_do_not_read_keep_few_heads_of_objects_that_change() {
    run(async |env| {
        // Long enough for what is not read to be there until the end.
        let flags = ["--request-timeout=20m", "--watch-stall-timeout=20m", "--max-watches-per-user=5000"];
        let budget = format!("--max-inflight-bytes={BUDGET}");
        let mut dev = Dev::start(env, flags.into_iter().chain([budget.as_str()])).await?;
        let (api, pid) = (dev.api()?, dev.repot().process().pid());
        let access = Access::read(dev.kubeconfig())?;
        for number in 0..OBJECTS {
            api.post(&collection("default"), &small(&format!("o-{number}"), &json!(1))).await?.ok()?;
        }
        let (mut unread, mut connections) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            update_all(&api, round).await?;
            let hoarder = Hoarder::dial(&access, 0).await?;
            let list = collection("default");
            let listed = hoarder.send(Method::GET, &list, &[("Accept", LIST)], String::new())?;
            let watch = format!("{list}?watch=1");
            let watches = (0..WATCHES)
                .map(|_| hoarder.send(Method::GET, &watch, &[("Accept", WATCH)], String::new()))
                .collect::<Result<Vec<_>>>()?;
            let heads = try_join_all([listed].into_iter().chain(watches));
            let heads = tokio::time::timeout(DEADLINE, heads).await.context("not even heads came")??;
            ensure!(heads.iter().all(|head| head.status() == 200), "round {round}: not all began");
            unread.extend(heads);
            connections.push(hoarder);
        }
        let most = peak(pid)?;
        // The watch cache has the heads of now, and each was written once more than that.
        let heads = 2 * (OBJECTS * LENGTH) as u64;
        println!("{} MiB were resident for {} responses that are not read", most / MIB, unread.len());
        ensure!(most <= BUDGET + BASE + heads, "{} MiB were resident", most / MIB);
        // Whoever reads is served beside them, with what is there now.
        let request = api.request(Method::GET, &collection("default")).header("Accept", LIST);
        let list = repot_tests::http::send(request).await?.ok()?;
        let items = list["items"].as_array().context("items")?;
        let last =
            |item: &Value| item["metadata"]["annotations"]["note"].as_str().map(|note| &note[..1] == "7");
        ensure!(
            items.len() == OBJECTS && items.iter().all(|item| last(item) == Some(true)),
            "{} items",
            items.len()
        );
        drop((unread, connections));
        until("the watches to be gone", DEADLINE, async || {
            let left = super::connections::gauge(&api, "apiserver_longrunning_requests{").await?;
            ensure!(left == 0.0, "{left} are left");
            Ok(())
        })
        .await
    });
}

#[test]
fn a_list_that_is_read_slowly_shows_its_own_version_however_much_changes() {
    const SLOW: usize = 40;
    run(async |env| {
        let dev = Dev::start(env, ["--request-timeout=10m"]).await?;
        let api = dev.api()?;
        for number in 0..SLOW {
            let mut object = small(&format!("o-{number:02}"), &json!(1));
            object["metadata"]["annotations"] = json!({"note": format!("0{}", "x".repeat(LENGTH))});
            api.post(&collection("default"), &object).await?.ok()?;
        }
        for query in ["", "limit=30", "labelSelector=!none", "resourceVersion=0"] {
            // A window of 64 KiB, of which nothing is given back before everything has changed.
            let slow = Api::build(
                &Access::read(dev.kubeconfig())?,
                reqwest::Client::builder().http2_initial_stream_window_size(64 << 10),
            )?;
            let request = slow.request(Method::GET, &format!("{}?{query}", collection("default")));
            let mut response = request.header("Accept", LIST).send().await?.error_for_status()?;
            for number in 0..SLOW {
                let patch = json!({"metadata": {"labels": {"changed-for": query.len().to_string()}}});
                let changed = path(&format!("o-{number:02}"));
                api.patch(&changed, "application/merge-patch+json", &patch).await?.ok()?;
            }
            let mut body = Vec::new();
            while let Some(piece) = response.chunk().await? {
                body.extend_from_slice(&piece);
            }
            let list: Value = serde_json::from_slice(&body)?;
            let version: u64 = list["metadata"]["resourceVersion"].as_str().context("a version")?.parse()?;
            let items = list["items"].as_array().context("items")?;
            ensure!(items.len() == if query == "limit=30" { 30 } else { SLOW }, "{query}: {}", items.len());
            for (number, item) in items.iter().enumerate() {
                let of: u64 = item["metadata"]["resourceVersion"].as_str().context("a version")?.parse()?;
                ensure!(item["metadata"]["name"] == format!("o-{number:02}"), "{query}: {number}");
                ensure!(of <= version, "{query}: an item of {of} in a list of {version}");
            }
        }
        Ok(())
    });
}
