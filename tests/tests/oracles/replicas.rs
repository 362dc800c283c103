//! Two kube-apiservers, two replicas of Repot and one etcd: whom a client asks makes no difference, and neither does a replica that dies.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use repot_tests::access::Access;
use repot_tests::clientgo::ClientGo;
use repot_tests::etcd::EtcdCluster;
use repot_tests::garden::{Garden, Twin};
use repot_tests::http::Api;
use repot_tests::relay::Relay;
use repot_tests::repot::{Repot, register, write_encryption_config};
use repot_tests::wait::until;
use repot_tests::{TestEnv, run};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::informers::{MODES, modes};
use super::rounds;
use crate::shootstate::etcd_values::Values;
use crate::shootstate::kills::noise;
use crate::shootstate::world::{GROUP, VERSION, Watch, collection, path, small};

const TEN_MIB: usize = 10 << 20;
const DEADLINE: Duration = Duration::from_secs(60);

/// Everything twice.
struct Pair {
    repots: [Repot; 2],
    /// Both kube-apiservers, each with a connection to a replica of its own, and both replicas.
    apis: [Api; 4],
    twin: Twin,
    garden: Garden,
    etcd: EtcdCluster,
    _balancer: Relay,
}

impl Pair {
    async fn start(env: &TestEnv) -> Result<Self> {
        let etcd = EtcdCluster::start(env, 3).await?;
        let garden = Garden::start(env).await?;
        let keys = write_encryption_config(env.path())?;
        let flags = [
            format!("--etcd-servers={}", etcd.endpoints().join(",")),
            format!("--encryption-provider-config={}", keys.display()),
        ];
        let repots =
            [Repot::replica(env, &garden, &flags).await?, Repot::replica(env, &garden, &flags).await?];
        let ports = [repots[0].port()?, repots[1].port()?];
        let balancer = Relay::start(&ports.map(|port| ([127, 0, 0, 1], port).into())).await?;
        register(&garden, &[(GROUP, VERSION)], balancer.port()).await?;
        let twin = garden.start_twin(env).await?;
        wait_until_served(&twin.api).await?;
        let direct = |port| Api::new(&direct(&garden, port));
        let apis = [garden.api().clone(), twin.api.clone(), direct(ports[0])?, direct(ports[1])?];
        Ok(Self { repots, apis, twin, garden, etcd, _balancer: balancer })
    }
}

/// A way to one replica that passes by kube-apiserver: it knows the garden's users, too.
fn direct(garden: &Garden, port: u16) -> Access {
    Access { server: format!("https://127.0.0.1:{port}"), ..garden.admin().clone() }
}

/// Each kube-apiserver looks at APIServices by itself.
async fn wait_until_served(api: &Api) -> Result<()> {
    until("the other kube-apiserver to proxy", DEADLINE, async || {
        api.get(&collection("default")).await?.ok().map(drop)
    })
    .await
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn version_of(object: &Value) -> Result<&str> {
    object["metadata"]["resourceVersion"].as_str().context("no resourceVersion")
}

/// Pages of a list, each asked of the next in turn, while objects come and go.
async fn page_across(pair: &Pair) -> Result<()> {
    let mut token = String::new();
    let (mut seen, mut versions) = (Vec::new(), Vec::new());
    for (turn, api) in pair.apis.iter().cycle().enumerate() {
        let page = api.get(&format!("{}?limit=3&continue={token}", collection("default"))).await?.ok()?;
        seen.extend(page["items"].as_array().context("items")?.iter().map(name_of));
        versions.push(version_of(&page)?.to_owned());
        let other = &pair.apis[(turn + 1) % pair.apis.len()];
        other.post(&collection("default"), &small(&format!("p-new-{turn:02}"), &json!(turn))).await?.ok()?;
        match page["metadata"]["continue"].as_str() {
            Some(next) => token = next.to_owned(),
            None => break,
        }
    }
    let expected: Vec<String> = (0..16).map(|n| format!("p-{n:02}")).collect();
    ensure!(seen == expected, "the pages had {seen:?}");
    versions.dedup();
    ensure!(versions.len() == 1, "the pages were of versions {versions:?}");
    // The version of that list names the same state everywhere.
    for api in &pair.apis {
        let query = format!("?resourceVersion={}&resourceVersionMatch=Exact", versions[0]);
        let then = api.get(&format!("{}{query}", collection("default"))).await?.ok()?;
        let names: Vec<String> = then["items"].as_array().context("items")?.iter().map(name_of).collect();
        ensure!(names == expected, "at {} there were {names:?}", versions[0]);
    }
    Ok(())
}

/// What one after the other writes, everybody sees at once; and all watches tell the same in the same order.
async fn write_and_watch_across(pair: &Pair) -> Result<()> {
    let start = pair.apis[0].get(&collection("default")).await?.ok()?;
    let mut watches = Vec::new();
    for api in &pair.apis {
        let query = format!("?watch=true&resourceVersion={}", version_of(&start)?);
        let request = api.request(reqwest::Method::GET, &format!("{}{query}", collection("default")));
        watches.push(Watch::new(request.send().await?));
    }
    let mut written = Vec::new();
    for n in 0..16 {
        let name = format!("p-{n:02}");
        let created = pair.apis[n % 4].post(&collection("default"), &small(&name, &json!(n))).await?.ok()?;
        for api in &pair.apis {
            let seen = api.get(&path(&name)).await?.ok()?;
            ensure!(seen == created, "created was {created}, seen was {seen}");
            let list = api.get(&format!("{}?limit=100", collection("default"))).await?.ok()?;
            let items = list["items"].as_array().context("items")?;
            ensure!(items.iter().any(|item| name_of(item) == name), "{name} is missing in a list");
        }
        written.push(version_of(&created)?.to_owned());
    }
    for watch in &mut watches {
        for version in &written {
            let event = watch.next().await?;
            ensure!(event["type"] == "ADDED" && version_of(&event["object"])? == version, "{event}");
        }
    }
    Ok(())
}

/// What clients cache by its ETag must not flap between replicas.
async fn describe_alike(pair: &Pair) -> Result<()> {
    let openapi = format!("/openapi/v3/apis/{GROUP}/{VERSION}");
    let discovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    for (path, accept) in [
        ("/apis", discovery),
        ("/openapi/v2", "application/json"),
        ("/openapi/v3", "application/json"),
        (&openapi, "application/json"),
    ] {
        let mut answers = Vec::new();
        for api in &pair.apis[2..] {
            let request = api.request(reqwest::Method::GET, path).header("Accept", accept);
            let answer = repot_tests::http::send(request).await?;
            ensure!(answer.status == 200, "{answer}");
            answers.push((answer.headers.get("etag").cloned(), answer.body));
        }
        // The index of version 3 names a hash of each document instead.
        let tagged = path == "/openapi/v3" || answers[0].0.is_some();
        ensure!(answers[0] == answers[1] && tagged, "{path}: the replicas differ");
    }
    Ok(())
}

#[test]
fn replicas_answer_alike() {
    run(async |env| {
        let pair = Pair::start(env).await?;
        write_and_watch_across(&pair).await?;
        page_across(&pair).await?;
        describe_alike(&pair).await
    });
}

/// Writes ten MiB again and again through one kube-apiserver; gives the number of the last write that was acknowledged.
async fn write_large(api: Api, mut stop: tokio::sync::watch::Receiver<bool>) -> Result<(u64, u64)> {
    let (mut acknowledged, mut failed) = (0, 0);
    for number in 1.. {
        if *stop.borrow_and_update() {
            break;
        }
        match put_large(&api, number).await {
            Ok(200 | 201) => acknowledged = number,
            // Taken for a conflict with its own write of which it did not hear.
            Ok(409 | 429) | Err(_) => failed += 1,
            Ok(status @ 400..500) => bail!("write {number} was answered with {status}"),
            Ok(_) => failed += 1,
        }
    }
    Ok((acknowledged, failed))
}

async fn put_large(api: &Api, number: u64) -> Result<u16> {
    let current = api.get(&path("large")).await?;
    let mut object = small("large", &json!({"number": number, "filler": noise(TEN_MIB)}));
    let answer = match current.status {
        404 if current.json()?["details"]["name"] == "large" => {
            api.post(&collection("default"), &object).await?
        }
        _ => {
            object["metadata"] = current.ok()?["metadata"].clone();
            api.put(&path("large"), &object).await?
        }
    };
    Ok(answer.status)
}

#[test]
fn nothing_is_lost_while_replicas_are_killed_in_turn() {
    run(async |env| {
        let mut pair = Pair::start(env).await?;
        let flags = [&modes(MODES.len()), "--disturbed"];
        let mut client = ClientGo::start(env, "follow", pair.garden.kubeconfig(), &flags)?;
        client.answer().await?;
        client.ask("write").await?;
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let large = tokio::spawn(write_large(pair.twin.api.clone(), stopped));
        for turn in 0..rounds(4, 20) {
            // At what point of a write of ten MiB the replica dies is left to chance.
            sleep(Duration::from_millis(700 + 130 * turn)).await;
            let victim = &mut pair.repots[usize::from(turn % 2 == 1)];
            victim.kill();
            victim.restart().await?;
        }
        stop.send(true)?;
        let (acknowledged, failed) = large.await??;
        ensure!(acknowledged > 0, "no write of ten MiB was acknowledged, {failed} failed");
        let last = acknowledged + failed + 1;
        until("an undisturbed write", DEADLINE, async || match put_large(&pair.twin.api, last).await? {
            200 | 201 => Ok(()),
            status => bail!("it was answered with {status}"),
        })
        .await?;
        client.ask("rest").await?;
        client.ask("verify").await?;
        for api in &pair.apis {
            let found = until("an answer", DEADLINE, async || api.get(&path("large")).await?.ok()).await?;
            let state = &found["spec"]["extensions"][0]["state"];
            let number = state["number"].as_u64().context("a number")?;
            ensure!(number == last, "write {last} was acknowledged, {number} is there");
            ensure!(state["filler"] == noise(TEN_MIB), "half of write {number} is there");
        }
        Ok(())
    });
}

#[test]
fn informers_list_again_when_their_version_is_compacted_away() {
    run(async |env| {
        let mut pair = Pair::start(env).await?;
        let api = &pair.apis[3];
        api.post(&collection("default"), &small("w-1", &json!(1))).await?.ok()?;
        // Directly to the first replica: a refused connection has a watch wait and ask again for what it had come to.
        let access = direct(&pair.garden, pair.repots[0].port()?);
        let kubeconfig = access.write(env.path().join("direct.kubeconfig"))?;
        let flags = [&modes(MODES.len()), "--record=false"];
        let mut client = ClientGo::start(env, "follow", &kubeconfig, &flags)?;
        client.answer().await?;
        // A watch that told nothing within a second is thrown away with what it had come to.
        let touch = json!({"metadata": {"labels": {"parity": "even"}}});
        api.patch(&path("w-1"), "application/merge-patch+json", &touch).await?.ok()?;
        client.ask("verify").await?;
        pair.repots[0].kill();
        api.delete(&path("w-1")).await?.ok()?;
        for n in 2..5 {
            api.post(&collection("default"), &small(&format!("w-{n}"), &json!(n))).await?.ok()?;
        }
        Values::new(&mut pair.etcd)?.compact().await?;
        pair.repots[0].restart().await?;
        let verified = client.ask("verify").await?;
        ensure!(verified["items"]["list"] == 3 && verified["items"]["name"] == 0, "{verified}");
        let stats = client.ask("stats").await?;
        // The clients that informers make for themselves are not looked into that deeply.
        for mode in MODES.iter().filter(|mode| !["informer", "metadata-informer"].contains(mode)) {
            ensure!(stats["modes"][mode]["expired"].as_u64() > Some(0), "{mode} was not told 410: {stats}");
        }
        Ok(())
    });
}
