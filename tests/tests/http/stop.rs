//! Health, and a stop that loses nothing.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use repot_tests::access::Credential;
use repot_tests::http::{Api, send};
use repot_tests::run;
use repot_tests::wait::until;
use reqwest::{Client, Method};
use serde_json::json;

use super::connections::Connection;
use crate::shootstate::world::{Watch, World, collection, small};

/// A client that makes a connection for each request, as probes do.
fn prober(world: &mut World) -> Result<Api> {
    Api::build(&world.as_master()?, Client::builder().pool_max_idle_per_host(0))
}

#[test]
fn health_is_told_in_the_form_of_kube_apiserver() {
    run(async |env| {
        let mut world = World::garden(env).await?;
        let nobody = Api::new(&world.directly(Credential::Anonymous)?)?;
        for path in ["/livez", "/readyz", "/healthz"] {
            let answer = nobody.get(path).await?;
            ensure!(answer.status == 200 && answer.body == "ok", "{answer}");
        }
        for path in ["/livez/ping", "/metrics", "/openapi/v2"] {
            let answer = nobody.get(path).await?;
            ensure!(answer.status == 403, "a stranger may look into {path}: {answer}");
        }
        let api = Api::new(&world.as_master()?)?;
        let said = async |path: &str| -> Result<String> {
            let answer = api.get(path).await?;
            ensure!(answer.status == 200, "{answer}");
            Ok(String::from_utf8(answer.body.to_vec())?)
        };
        let verbose = said("/readyz?verbose").await?;
        for check in ["ping", "log", "etcd", "etcd-readiness", "informer-sync", "shutdown"] {
            ensure!(verbose.contains(&format!("[+]{check} ok\n")), "{verbose}");
        }
        ensure!(verbose.ends_with("readyz check passed\n"), "{verbose}");
        let excluded = said("/readyz?verbose&exclude=etcd&exclude=nonsense").await?;
        ensure!(
            excluded.contains("[+]etcd excluded: ok\n") && excluded.contains("no matches for \"nonsense\""),
            "{excluded}"
        );
        ensure!(said("/livez/ping").await? == "ok", "the check alone says something else");
        ensure!(api.get("/livez/etcd").await?.status == 404, "liveness depends on the store");
        Ok(())
    });
}

#[test]
fn a_stop_says_so_at_once_serves_on_for_the_delay_and_answers_429_until_all_is_answered() {
    run(async |env| {
        let flags = vec!["--shutdown-delay-duration=4s".into(), "--shutdown-send-retry-after".into()];
        let mut world = World::garden_with(env, flags).await?;
        let (api, slow) = (prober(&mut world)?, prober(&mut world)?);
        let kept = Connection::dial(&world.as_master()?).await?;
        // A request whose body does not come to its end yet.
        let text = small("late", &json!(1)).to_string();
        let (more, body) = tokio::sync::mpsc::channel::<Result<String, std::io::Error>>(2);
        let (first, last) = text.split_at(text.len() / 2);
        more.send(Ok(first.to_owned())).await?;
        let stream = futures::stream::unfold(body, async |mut body| Some((body.recv().await?, body)));
        let request = slow.request(Method::POST, &collection("default"));
        let request =
            request.header("Content-Type", "application/json").body(reqwest::Body::wrap_stream(stream));
        let creating = tokio::spawn(send(request));
        until("the request to be there", Duration::from_secs(10), async || {
            let metrics = String::from_utf8(api.get("/metrics").await?.body.to_vec())?;
            ensure!(metrics.contains("request_kind=\"mutating\"} 1"), "it is not");
            Ok(())
        })
        .await?;

        let pid = world.repot().process().pid();
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(i32::try_from(pid)?).context("a process")?,
            rustix::process::Signal::TERM,
        )?;
        until("not to be ready", Duration::from_secs(3), async || {
            let ready = api.get("/readyz").await?;
            ensure!(ready.status == 500, "it is still ready");
            Ok(())
        })
        .await?;
        // While requests are still answered, who keeps a connection is told to look for another.
        tokio::time::timeout(Duration::from_secs(3), kept.end)
            .await
            .context("no GOAWAY in the delay")???;
        let served = api.get(&collection("default")).await?;
        ensure!(served.status == 200, "it serves no more in the delay: {served}");
        until("to be turned away", Duration::from_secs(20), async || {
            let answer = api.get(&collection("default")).await?;
            ensure!(answer.status == 429, "it is not");
            ensure!(answer.headers.get("retry-after").is_some_and(|seconds| seconds == "5"), "{answer}");
            Ok(())
        })
        .await?;
        ensure!(api.get("/livez").await?.status == 200, "it is not alive any more");
        more.send(Ok(last.to_owned())).await?;
        drop(more);
        let created = creating.await??;
        ensure!(created.status == 201, "a request that was begun before the stop was lost: {created}");
        let status = until("the end", Duration::from_secs(20), async || {
            world.repot().process().exited().context("it still runs")
        })
        .await?;
        ensure!(status.success(), "it ended with {status}");
        Ok(())
    });
}

#[test]
fn watches_end_at_a_stop_spread_over_the_grace_period_and_each_with_a_clean_end() {
    const WATCHES: usize = 60;
    run(async |env| {
        let flags = vec!["--shutdown-watch-termination-grace-period=6s".into()];
        let mut world = World::garden_with(env, flags).await?;
        let api = Api::new(&world.as_master()?)?;
        let version = api.get(&collection("default")).await?.ok()?["metadata"]["resourceVersion"].clone();
        let version = version.as_str().context("a version")?;
        let path = format!("{}?watch=1&resourceVersion={version}", collection("default"));
        let mut watches = Vec::new();
        for _ in 0..WATCHES {
            let response = api.request(Method::GET, &path).send().await?;
            ensure!(response.status() == 200, "{response:?}");
            watches.push(Watch::new(response));
        }
        let ends = try_join_all(watches.iter_mut().map(async |watch| {
            let rest = watch.rest().await?;
            anyhow::Ok((Instant::now(), rest))
        }));
        let (ends, stopped) = tokio::join!(ends, world.repot().stop());
        stopped?;
        let ends = ends?;
        ensure!(ends.iter().all(|(_, rest)| rest.is_empty()), "a watch ended in the middle of a line");
        let first = ends.iter().map(|(at, _)| *at).min().context("watches")?;
        let last = ends.iter().map(|(at, _)| *at).max().context("watches")?;
        // By chance alone, 60 ends are within a third of the period once in 10^26 stops.
        ensure!(last - first >= Duration::from_secs(2), "they ended within {:?}", last - first);
        Ok(())
    });
}

#[test]
fn metrics_have_the_names_that_dashboards_look_for() {
    run(async |env| {
        let mut world = World::garden(env).await?;
        world.create(&small("counted", &json!(1))).await?;
        let watch = format!("{}?watch=1&timeoutSeconds=1", collection("default"));
        world.api.get(&watch).await?;
        let api = Api::new(&world.as_master()?)?;
        api.get("/apis").await?;
        let text = String::from_utf8(api.get("/metrics").await?.body.to_vec())?;
        for name in [
            "apiserver_request_total",
            "apiserver_request_duration_seconds_bucket",
            "apiserver_request_sli_duration_seconds_bucket",
            "apiserver_response_sizes_sum",
            "apiserver_current_inflight_requests",
            "apiserver_longrunning_requests",
            "apiserver_watch_events_total",
            "apiserver_watch_events_sizes_sum",
            "apiserver_storage_objects",
            "apiserver_resource_objects",
            "apiserver_resource_size_estimate_bytes",
            "apiserver_tls_handshake_errors_total",
            "apiserver_delegated_authz_request_total",
            "apiserver_audit_event_total",
            "process_open_fds",
            "process_start_time_seconds",
        ] {
            ensure!(text.lines().any(|line| line.starts_with(name)), "no {name} in {text}");
        }
        let created = text.lines().find(|line| {
            let of =
                ["apiserver_request_total{", "verb=\"POST\"", "resource=\"shootstates\"", "code=\"201\""];
            of.iter().all(|part| line.contains(part))
        });
        ensure!(created.is_some_and(|line| line.ends_with(" 1")), "{text}");
        Ok(())
    });
}
