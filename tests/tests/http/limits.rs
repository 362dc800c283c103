//! How many requests are served at once, how long they may take, and what late ones are told.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use repot_tests::TestEnv;
use repot_tests::access::Access;
use repot_tests::http::{Answer, Api, send};
use repot_tests::repot::{Dev, program};
use repot_tests::run;
use repot_tests::wait::until;
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::connections::{dial_tls, gauge};
use super::starvation::{certificate, world_with};
use crate::shootstate::world::{GROUP, VERSION, Watch, collection, path, small};

const DEADLINE: Duration = Duration::from_secs(60);

/// A write whose body never comes to its end.
pub(super) fn endless(api: &Api, query: &str) -> JoinHandle<Result<Answer>> {
    let body = futures::stream::pending::<Result<String, std::io::Error>>();
    let request = api.request(Method::POST, &format!("{}{query}", collection("default")));
    let request = request.header("Content-Type", "application/json");
    tokio::spawn(send(request.body(reqwest::Body::wrap_stream(body))))
}

pub(super) async fn writes_under_way(api: &Api, expected: f64) -> Result<()> {
    until("the writes to be there", DEADLINE, async || {
        let now = gauge(api, "apiserver_current_inflight_requests{request_kind=\"mutating\"}").await?;
        ensure!(now == expected, "{now} writes are under way");
        Ok(())
    })
    .await
}

#[test]
fn requests_at_once_are_bounded_but_not_watches_masters_and_probes() {
    run(async |env| {
        let flags =
            ["--max-mutating-requests-inflight=2", "--max-requests-inflight=50", "--request-timeout=60s"];
        let users = ["alice", "bob", "carol"];
        let mut world = world_with(env, &flags, &users).await?;
        let master = Api::new(&world.as_master()?)?;
        let mut apis = Vec::new();
        for user in users {
            let api = Api::new(&world.directly(certificate(&world, user)?)?)?;
            until("the roles", DEADLINE, async || api.get(&collection("default")).await?.ok().map(drop))
                .await?;
            apis.push(api);
        }
        let [alice, bob, carol] = &apis[..] else { unreachable!() };
        let refused = async |api: &Api| -> Result<()> {
            let answer = api.post(&collection("default"), &small("refused", &json!(1))).await?;
            let status = answer.json()?;
            ensure!(answer.status == 429 && status["reason"] == "TooManyRequests", "{answer}");
            ensure!(answer.headers.get("retry-after").is_some_and(|seconds| seconds == "1"), "{answer}");
            Ok(())
        };
        let first = endless(alice, "?timeout=50s");
        writes_under_way(&master, 1.0).await?;
        // One user does not get the last place, and another one does.
        refused(alice).await?;
        let created = bob.post(&collection("default"), &small("b", &json!(1))).await?;
        ensure!(created.status == 201, "{created}");
        let second = endless(bob, "?timeout=50s");
        writes_under_way(&master, 2.0).await?;
        refused(carol).await?;
        // Reads have places of their own; watches, masters and probes need none.
        ensure!(carol.get(&path("b")).await?.status == 200, "reads wait for writes");
        let watch = carol.request(Method::GET, &format!("{}?watch=1", collection("default"))).send().await?;
        ensure!(watch.status() == 200, "{watch:?}");
        let by_master = master.post(&collection("default"), &small("m", &json!(1))).await?;
        ensure!(by_master.status == 201, "{by_master}");
        ensure!(carol.get("/livez").await?.status == 200, "a probe waits");
        let mut watch = Watch::new(watch);
        ensure!(watch.next().await?["object"]["metadata"]["name"] == "b", "the watch says something else");
        first.abort();
        second.abort();
        writes_under_way(&master, 0.0).await?;
        let created = carol.post(&collection("default"), &small("c", &json!(1))).await?;
        ensure!(created.status == 201, "{created}");
        Ok(())
    });
}

#[test]
fn a_request_that_is_no_watch_ends_within_the_request_timeout_and_within_what_it_asks_for() {
    run(async |env| {
        let help = std::process::Command::new(program()?).args(["apiserver", "--help"]).output()?;
        let help = String::from_utf8(help.stdout)?;
        let (_, about) = help.split_once("--request-timeout").context("no such flag")?;
        let about = about.split("\n      --").next().unwrap_or_default();
        ensure!(about.contains("[default: 60s]"), "{about}");

        let dev = Dev::start(env, ["--request-timeout=3s"]).await?;
        let api = dev.api()?;
        let began = Instant::now();
        let asked = [("", 3), ("?timeout=1s", 1), ("?timeout=1h", 3), ("?timeout=0s", 3)];
        let all = asked.map(|(query, seconds)| {
            let answered = endless(&api, query);
            async move { (query, seconds, answered.await, began.elapsed()) }
        });
        let mut order = Vec::new();
        for (query, seconds, answer, took) in futures::future::join_all(all).await {
            order.push((took, query));
            let answer = answer??;
            let status = answer.json()?;
            ensure!(answer.status == 504 && status["reason"] == "Timeout", "{query}: {answer}");
            ensure!(took >= Duration::from_secs(seconds), "{query}: {took:?}");
            ensure!(took < DEADLINE, "{query}: {took:?}");
        }
        // Loaded machines are slow, but what may take a second ends before what may take three.
        order.sort_unstable();
        ensure!(order[0].1 == "?timeout=1s", "{order:?}");
        Ok(())
    });
}

#[test]
fn nothing_but_a_watch_lives_longer_than_a_request() {
    run(async |env| {
        let dev = Dev::start(env, ["--request-timeout=2s"]).await?;
        let api = dev.api()?;
        api.post(&collection("default"), &small("a", &json!(1))).await?.ok()?;
        let response = api.request(Method::GET, &format!("{}?watch=1", collection("default"))).send().await?;
        let mut watch = Watch::new(response);
        watch.next().await?;
        // What streams in other APIs does not exist here.
        for subresource in ["log?follow=true", "exec?command=x&stdout=1", "attach", "portforward", "proxy/x"]
        {
            for method in [Method::GET, Method::POST] {
                let answer = send(api.request(method, &format!("{}/{subresource}", path("a")))).await?;
                ensure!(answer.status == 404, "{subresource}: {answer}");
            }
        }
        let listed = api.get(&format!("/apis/{GROUP}/{VERSION}")).await?.ok()?;
        for resource in listed["resources"].as_array().context("resources")? {
            let verbs = resource["verbs"].as_array().context("verbs")?;
            ensure!(!verbs.iter().any(|verb| verb == "connect" || verb == "proxy"), "{resource}");
        }
        let late = endless(&api, "").await??;
        ensure!(late.status == 504, "{late}");
        // That took longer than a request may, and the watch goes on.
        api.post(&collection("default"), &small("b", &json!(1))).await?.ok()?;
        ensure!(watch.next().await?["object"]["metadata"]["name"] == "b", "the watch says something else");
        Ok(())
    });
}

/// An HTTP/1.1 connection on which the first line of a request was sent.
async fn begin(access: &Access, path: &str) -> Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let mut tls = dial_tls(access, &["http/1.1"]).await?;
    tls.write_all(format!("GET {path} HTTP/1.1\r\n").as_bytes()).await?;
    tls.flush().await?;
    Ok(tls)
}

/// The rest of the request, and all of the answer.
async fn end(mut tls: tokio_rustls::client::TlsStream<TcpStream>) -> Result<String> {
    tls.write_all(b"Host: localhost\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    // The server may end without a last word of TLS.
    let _ = tokio::time::timeout(DEADLINE, tls.read_to_string(&mut answer)).await?;
    Ok(answer)
}

async fn requests_that_meet_a_stop(env: &TestEnv) -> Result<[String; 3]> {
    let mut dev = Dev::start(env, [] as [&str; 0]).await?;
    let access = Access::read(dev.kubeconfig())?;
    let list = begin(&access, &collection("default")).await?;
    let (live, metrics) = (begin(&access, "/livez").await?, begin(&access, "/metrics").await?);
    // They are connections that serve requests by then, and not handshakes.
    ensure!(dev.api()?.get("/livez").await?.status == 200, "it is not alive");
    let pid = i32::try_from(dev.repot().process().pid())?;
    let pid = rustix::process::Pid::from_raw(pid).context("a process")?;
    rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
    let address = access.server.trim_start_matches("https://").replace("localhost", "127.0.0.1");
    until("the port to be closed", DEADLINE, async || {
        ensure!(TcpStream::connect(&address).await.is_err(), "it is open");
        Ok(())
    })
    .await?;
    Ok([end(list).await?, end(live).await?, end(metrics).await?])
}

#[test]
fn while_draining_requests_are_503_with_retry_after_but_not_probes_and_metrics() {
    run(async |env| {
        let [list, live, metrics] = requests_that_meet_a_stop(env).await?;
        let head = list.to_ascii_lowercase();
        ensure!(head.starts_with("http/1.1 503 ") && head.contains("\r\nretry-after: 1\r\n"), "{list}");
        ensure!(list.contains("apiserver is shutting down"), "{list}");
        ensure!(live.starts_with("HTTP/1.1 200 "), "{live}");
        ensure!(metrics.starts_with("HTTP/1.1 200 "), "{metrics}");
        Ok(())
    });
}
