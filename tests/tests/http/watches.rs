//! What watches cost: the store, where many watch the same; and memory, where clients do not read.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use repot_tests::TestEnv;
use repot_tests::access::{Access, Credential};
use repot_tests::etcd::EtcdCluster;
use repot_tests::garden::Garden;
use repot_tests::http::Api;
use repot_tests::repot::{Repot, write_encryption_config};
use repot_tests::run;
use repot_tests::wait::until;
use reqwest::Method;
use serde_json::{Value, json};

use super::connections::dial_tls;
use crate::shootstate::kills::noise;
use crate::shootstate::world::{Watch, collection, path, small};

const MIB: usize = 1 << 20;
const DEADLINE: Duration = Duration::from_secs(120);

/// A server on one member of etcd, reached directly.
struct World {
    repot: Repot,
    garden: Garden,
    etcd: Api,
    _cluster: EtcdCluster,
}

impl World {
    async fn start(env: &TestEnv, flags: &[&str]) -> Result<Self> {
        let mut cluster = EtcdCluster::start(env, 1).await?;
        let url = cluster.member(0).client_url().to_owned();
        let garden = Garden::start(env).await?;
        let keys = write_encryption_config(env.path())?;
        let own =
            [format!("--etcd-servers={url}"), format!("--encryption-provider-config={}", keys.display())];
        let flags = own.into_iter().chain(flags.iter().map(|flag| (*flag).to_owned()));
        let repot = Repot::replica(env, &garden, flags).await?;
        let access = Access { server: url, ca_pem: String::new(), credential: Credential::Anonymous };
        Ok(Self { repot, garden, etcd: Api::new(&access)?, _cluster: cluster })
    }

    /// Somebody who may do everything.
    fn user(&self, name: &str) -> Result<Access> {
        let leaf = self.garden.pki().client.client(name, &["system:masters"])?;
        let server = self.repot.url().replace("127.0.0.1", "localhost");
        let ca_pem = self.garden.pki().serving.pem();
        Ok(Access { server, ca_pem, credential: Credential::Certificate(leaf) })
    }

    /// Reads that etcd has served.
    async fn reads(&self) -> Result<f64> {
        metric(&self.etcd, "grpc_server_handled_total{", &["grpc_code=\"OK\"", "grpc_method=\"Range\""]).await
    }

    /// Resident memory of the server in bytes.
    fn resident(&mut self) -> Result<u64> {
        let pid = self.repot.process().pid();
        let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = text.lines().find(|line| line.starts_with("VmRSS:")).context("VmRSS")?;
        let kib: u64 = line.split_whitespace().nth(1).context("a number")?.parse()?;
        Ok(kib << 10)
    }
}

async fn metric(api: &Api, name: &str, labels: &[&str]) -> Result<f64> {
    let answer = api.get("/metrics").await?;
    ensure!(answer.status == 200, "{answer}");
    let text = String::from_utf8(answer.body.to_vec())?;
    let wanted = |line: &&str| line.starts_with(name) && labels.iter().all(|label| line.contains(label));
    Ok(text.lines().filter(wanted).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
}

/// An object of about so many bytes, which no codec shortens.
fn object(name: &str, bytes: usize, mark: u64) -> Value {
    let mut object = small(name, &json!({"mark": mark, "text": noise(bytes)}));
    object["metadata"]["labels"] = json!({"mark": mark.to_string()});
    object
}

async fn watch(api: &Api, query: &str) -> Result<Watch> {
    let path = format!("{}?watch=1&{query}", collection("default"));
    let response = api.request(Method::GET, &path).send().await?;
    ensure!(response.status() == 200, "{}", response.status());
    Ok(Watch::new(response))
}

/// Writes another state and waits until every watch has shown it whole. How many reads of etcd that cost.
async fn update_and_follow(world: &World, api: &Api, watches: &mut [Watch], mark: u64) -> Result<f64> {
    let mut object = object("a", MIB, mark);
    let before = world.reads().await?;
    let now = api.get(&path("a")).await?.ok()?;
    object["metadata"]["resourceVersion"] = now["metadata"]["resourceVersion"].clone();
    api.put(&path("a"), &object).await?.ok()?;
    let state = |object: &Value| object["spec"]["extensions"][0]["state"].clone();
    let expected = state(&object);
    try_join_all(watches.iter_mut().map(async |watch| {
        let event = watch.next().await?;
        ensure!(state(&event["object"]) == expected, "another state is shown");
        Ok(())
    }))
    .await?;
    Ok(world.reads().await? - before)
}

#[test]
fn an_event_is_read_and_decrypted_once_however_many_watch() {
    const WATCHES: usize = 60;
    const ROUNDS: u64 = 3;
    run(async |env| {
        // Sixty MiB for one event are much for a busy machine: nobody is ended for that here.
        let world = World::start(env, &["--watch-stall-timeout=10m"]).await?;
        let api = Api::new(&world.user("alice")?)?;
        let made = api.post(&collection("default"), &object("a", MIB, 0)).await?.ok()?;
        let version = made["metadata"]["resourceVersion"].as_str().context("a version")?;
        let query = format!("resourceVersion={version}");
        // Over connections of their own: what a watch leaves unread takes the window of its connection from the other answers there.
        let watching = Api::new(&world.user("alice")?)?;
        let mut one = vec![watch(&watching, &query).await?];
        let mut alone = 0.0;
        for round in 0..ROUNDS {
            alone += update_and_follow(&world, &api, &mut one, 1 + round).await?;
        }
        drop(one);
        let now = api.get(&path("a")).await?.ok()?;
        let query =
            format!("resourceVersion={}", now["metadata"]["resourceVersion"].as_str().context("a version")?);
        let mut many = try_join_all((0..WATCHES).map(|_| watch(&watching, &query))).await?;
        let mut together = 0.0;
        for round in 0..ROUNDS {
            together += update_and_follow(&world, &api, &mut many, 100 + round).await?;
        }
        eprintln!(
            "reads of etcd for {ROUNDS} events of 1 MiB: {alone} with one watch, {together} with {WATCHES}"
        );
        // Each watch would cost at least one read for each event.
        ensure!(together <= alone + 10.0, "{together} reads for {WATCHES} watches, {alone} for one");
        Ok(())
    });
}

#[test]
fn a_client_starts_on_many_objects_without_reading_them_from_etcd() {
    const OBJECTS: usize = 600;
    const LIMIT: usize = 30;
    run(async |env| {
        let world = World::start(env, &[]).await?;
        let api = Api::new(&world.user("alice")?)?;
        for chunk in (0..OBJECTS).collect::<Vec<_>>().chunks(20) {
            try_join_all(chunk.iter().map(async |n| {
                let mut object = small(&format!("o-{n:04}"), &json!(n));
                let rare = if n % 100 == 99 { "yes" } else { "no" };
                object["metadata"]["labels"] = json!({ "rare": rare });
                api.post(&collection("default"), &object).await?.ok()
            }))
            .await?;
        }
        let listed = api.get(&collection("default")).await?.ok()?;
        ensure!(listed["items"].as_array().map(Vec::len) == Some(OBJECTS), "not all are listed");
        // As client-go starts, from the cache; as kubectl lists; and with a selector, which passes over nearly all of them.
        for (query, items) in
            [("resourceVersion=0&", OBJECTS), ("", OBJECTS), ("labelSelector=rare%3Dyes&", 6)]
        {
            let before = world.reads().await?;
            let (mut found, mut pages, mut token, mut query) = (0, 0, String::new(), query.to_owned());
            loop {
                let page = format!("{}?{query}limit={LIMIT}{token}", collection("default"));
                let request = api.request(Method::GET, &page);
                let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
                let answer = repot_tests::http::send(request.header("Accept", accept)).await?.ok()?;
                found += answer["items"].as_array().context("items")?.len();
                pages += 1;
                let Some(next) = answer["metadata"]["continue"].as_str() else { break };
                token = format!("&continue={next}");
                // Where a list goes on, it is as of the version of its first page.
                query = query.replace("resourceVersion=0&", "");
            }
            let reads = world.reads().await? - before;
            eprintln!("{query:?}: {found} objects on {pages} pages, {reads} reads of etcd");
            ensure!(found == items, "{found} of {items}");
            // The revision once, and what the server does beside (readiness, progress of its watches).
            ensure!(reads <= 8.0, "{reads} reads of etcd for {pages} pages");
        }
        Ok(())
    });
}

/// Watches on one connection whose streams have no window: the client takes headers and nothing else.
struct Unread {
    responses: Vec<hyper::Response<Incoming>>,
    _connection: tokio::task::JoinHandle<hyper::Result<()>>,
}

impl Unread {
    async fn open(access: &Access, count: usize, query: &str) -> Result<Self> {
        let tls = dial_tls(access, &["h2"]).await?;
        let (mut sender, connection) = Builder::new(TokioExecutor::new())
            .initial_stream_window_size(0)
            .handshake::<_, String>(TokioIo::new(tls))
            .await?;
        let connection = tokio::spawn(connection);
        sender.ready().await?;
        let open = async |mut sender: SendRequest<String>| {
            let uri = format!("{}{}?watch=1&{query}", access.server, collection("default"));
            let request = hyper::Request::builder().uri(uri).body(String::new())?;
            let response = sender.send_request(request).await?;
            ensure!(response.status() == 200, "{response:?}");
            Ok(response)
        };
        let responses = try_join_all((0..count).map(|_| open(sender.clone()))).await?;
        Ok(Self { responses, _connection: connection })
    }
}

#[test]
fn watches_that_nobody_reads_cost_little_memory_and_are_ended() {
    const UNREAD: usize = 2000;
    /// 8 GiB were needed when every stream had its own copies.
    const MOST: u64 = 512 << 20;
    run(async |env| {
        let mut world = World::start(env, &["--watch-stall-timeout=30s"]).await?;
        let (alice, bob) = (world.user("alice")?, Api::new(&world.user("bob")?)?);
        let made = bob.post(&collection("default"), &object("a", MIB, 0)).await?.ok()?;
        let version = made["metadata"]["resourceVersion"].as_str().context("a version")?.to_owned();
        let mut reading = vec![watch(&bob, &format!("resourceVersion={version}")).await?];
        let before = world.resident()?;
        // Half of them begin with the present state, half with what comes.
        let present = Unread::open(&alice, UNREAD / 2, "allowWatchBookmarks=true").await?;
        let coming = Unread::open(&alice, UNREAD / 2, &format!("resourceVersion={version}")).await?;
        let mut most = 0;
        for round in 1..=5 {
            update_and_follow(&world, &bob, &mut reading, round).await?;
            most = most.max(world.resident()?);
        }
        eprintln!("resident: {} MiB before, {} MiB with {UNREAD} unread watches", before >> 20, most >> 20);
        let more = most.saturating_sub(before);
        ensure!(more < MOST, "{} MiB more", more >> 20);
        until("the watches to be ended", DEADLINE, async || {
            let ended = metric(&bob, "apiserver_terminated_watchers_total{", &[]).await?;
            let left = metric(&bob, "apiserver_longrunning_requests{", &[]).await?;
            ensure!(ended >= UNREAD as f64 && left <= 1.0, "{ended} were ended, {left} are left");
            Ok(())
        })
        .await?;
        for mut response in present.responses.into_iter().chain(coming.responses) {
            let end = std::future::poll_fn(|cx| {
                hyper::body::Body::poll_frame(std::pin::Pin::new(response.body_mut()), cx)
            });
            let end = tokio::time::timeout(DEADLINE, end).await.context("a stream was not reset")?;
            ensure!(matches!(end, Some(Err(_))), "a stream that was cut looks whole: {end:?}");
        }
        update_and_follow(&world, &bob, &mut reading, 9).await?;
        Ok(())
    });
}
