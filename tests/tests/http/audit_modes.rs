//! What a request does while the audit log is slow, full or gone.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use futures::stream::{FuturesUnordered, StreamExt};
use repot_tests::access::Credential;
use repot_tests::http::{Answer, Api, send};
use repot_tests::{TestEnv, run};
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::shootstate::world::{World, collection, path, small};

/// More than a pipe holds events of.
const REQUESTS: usize = 300;
/// Bytes in a pipe that nobody reads.
const PIPE: usize = 64 << 10;
/// When no answer came for so long, the log is taken to stand still.
const QUIET: Duration = Duration::from_secs(2);
/// How long a response to an anonymous request may take.
const ANONYMOUS_LIMIT: Duration = Duration::from_secs(10);

/// Names the requests of a load, each of which is one event.
fn id(n: usize) -> String {
    format!("load-{n}")
}

async fn get(api: &Api, id: &str) -> Result<Answer> {
    send(api.request(Method::GET, &collection("default")).header("Audit-ID", id.to_owned())).await
}

/// The ids of the requests in these events that were answered.
fn ids<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Vec<String>> {
    lines
        .map(|line| {
            let event: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
            Ok(event["auditID"].as_str().context("no id")?.to_owned())
        })
        .collect()
}

/// A pipe that nobody reads until the test does.
struct Pipe {
    path: PathBuf,
    file: File,
}

impl Pipe {
    fn new(env: &TestEnv) -> Result<Self> {
        let path = env.path().join("audit.pipe");
        ensure!(Command::new("mkfifo").arg(&path).status()?.success(), "no pipe");
        // Opened for both, so that neither side waits for the other.
        let file = File::options().read(true).write(true).open(&path)?;
        Ok(Self { path, file })
    }

    /// Reads on and on; the ids of requests so far come over the channel.
    fn read(&self) -> Result<tokio::sync::mpsc::UnboundedReceiver<Result<String>>> {
        let (tell, told) = tokio::sync::mpsc::unbounded_channel();
        let lines = BufReader::new(self.file.try_clone()?).lines();
        std::thread::spawn(move || {
            for line in lines {
                let line = line.map_err(anyhow::Error::from);
                let id = line.and_then(|line| ids(std::iter::once(line.as_str())).map(|ids| ids.concat()));
                if tell.send(id).is_err() {
                    return;
                }
            }
        });
        Ok(told)
    }
}

fn flag(name: &str, value: &Path) -> String {
    format!("--{name}={}", value.display())
}

async fn metric(api: &Api, name: &str) -> Result<f64> {
    let text = String::from_utf8(api.get("/metrics").await?.body.to_vec())?;
    let values = text.lines().filter(|line| line.starts_with(name));
    Ok(values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
}

#[test]
fn an_answer_that_a_client_has_seen_is_in_the_log_even_if_the_server_is_killed() {
    run(async |env| {
        let log = env.path().join("audit.log");
        let mut world = World::garden_with(env, vec![flag("audit-log-path", &log)]).await?;
        let api = Api::new(&world.as_master()?)?;
        let mut asked: FuturesUnordered<_> = (0..REQUESTS)
            .map(|n| {
                let api = &api;
                async move { (n, get(api, &id(n)).await) }
            })
            .collect();
        let mut seen = BTreeSet::new();
        while seen.len() < REQUESTS / 3 {
            let (n, answer) = asked.next().await.context("all are answered")?;
            ensure!(answer?.status == 200, "{n} failed");
            seen.insert(id(n));
        }
        world.repot().kill();
        while let Some((n, answer)) = asked.next().await {
            // What was answered before the end was seen, too.
            if answer.is_ok_and(|answer| answer.status == 200) {
                seen.insert(id(n));
            }
        }
        let text = std::fs::read_to_string(&log)?;
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let logged: BTreeSet<String> = ids(whole.lines())?.into_iter().collect();
        let missing: Vec<_> = seen.difference(&logged).collect();
        ensure!(missing.is_empty(), "{} answers have no event: {missing:?}", missing.len());
        Ok(())
    });
}

#[test]
fn in_blocking_mode_a_slow_log_holds_answers_up_and_loses_nothing() {
    run(async |env| {
        let pipe = Pipe::new(env)?;
        let mut world = World::garden_with(env, vec![flag("audit-log-path", &pipe.path)]).await?;
        let api = Api::new(&world.as_master()?)?;
        let nobody = Api::new(&world.directly(Credential::Anonymous)?)?;
        // Each event has two KiB or more.
        let padded = format!("{}?pad={}", collection("default"), "x".repeat(2 << 10));
        let ask = |api: &Api, id: String| send(api.request(Method::GET, &padded).header("Audit-ID", id));
        let mut asked: FuturesUnordered<_> = (0..REQUESTS).map(|n| ask(&api, id(n))).collect();
        let noise = (0..REQUESTS).map(|n| {
            let (began, asked) = (Instant::now(), ask(&nobody, format!("noise-{n}")));
            tokio::spawn(async move { (asked.await, began.elapsed()) })
        });
        let noise: Vec<_> = noise.collect();
        // Nobody reads: no more are answered than a pipe holds events of.
        let mut answers = Vec::new();
        while let Ok(answer) = timeout(QUIET, asked.next()).await {
            answers.push(answer.context("all are answered")??);
            ensure!(
                answers.len() <= PIPE / (2 << 10),
                "{} are answered although nobody reads",
                answers.len()
            );
        }
        let mut events = pipe.read()?;
        let mut logged = BTreeSet::new();
        while answers.len() < REQUESTS || logged.len() < REQUESTS {
            tokio::select! {
                Some(answer) = asked.next() => answers.push(answer?),
                event = events.recv() => {
                    let event = event.context("the pipe ended")??;
                    if event.starts_with("load-") {
                        ensure!(logged.insert(event.clone()), "{event} is there twice");
                    }
                }
            }
        }
        ensure!(answers.iter().all(|answer| answer.status == 200), "users are not served");
        ensure!(logged == (0..REQUESTS).map(id).collect(), "{logged:?}");
        let lost = metric(&api, "repot_audit_dropped_events_total{requests=\"authenticated\"}").await?;
        ensure!(lost == 0.0, "{lost} events are said to be lost");
        for answer in noise {
            let (answer, took) = answer.await?;
            // Without credentials a response is reset after 10 s, which the log may have been blocked for.
            match answer {
                Ok(answer) => {
                    ensure!(matches!(answer.status, 403 | 429), "an anonymous request is served: {answer}");
                }
                Err(error) => ensure!(took >= ANONYMOUS_LIMIT, "reset after {took:?}: {error:#}"),
            }
        }
        Ok(())
    });
}

#[test]
fn in_batch_mode_a_flood_of_strangers_displaces_no_event_of_a_user() {
    run(async |env| {
        let pipe = Pipe::new(env)?;
        let flags = vec![
            flag("audit-log-path", &pipe.path),
            "--audit-log-mode=batch".to_owned(),
            format!("--audit-log-batch-buffer-size={REQUESTS}"),
        ];
        let mut world = World::garden_with(env, flags).await?;
        let api = Api::new(&world.as_master()?)?;
        // A token that nobody knows: 401.
        let nobody = Api::build(
            &world.directly(Credential::Token("nonsense".to_owned()))?,
            Client::builder().http1_only(),
        )?;
        // Nobody reads. The buffer of strangers is full a hundred times over, and each user still finds a place.
        for round in 0..10 {
            let noise = try_join_all((0..50).map(|n| {
                let (nobody, id) = (nobody.clone(), format!("noise-{round}-{n}"));
                async move { get(&nobody, &id).await }
            }));
            let users = try_join_all((0..REQUESTS / 20).map(|n| {
                let (api, id) = (api.clone(), id(round * REQUESTS / 20 + n));
                async move { get(&api, &id).await }
            }));
            let (noise, users) = tokio::try_join!(noise, users)?;
            ensure!(
                noise.iter().all(|answer| matches!(answer.status, 401 | 429)),
                "strangers: {:?}",
                noise[0]
            );
            ensure!(users.iter().all(|answer| answer.status == 200), "users are not served: {:?}", users[0]);
        }
        let dropped = "repot_audit_dropped_events_total";
        let lost = metric(&api, &format!("{dropped}{{requests=\"refused\"}}")).await?;
        ensure!(lost > 0.0, "no flood: {lost} events of strangers are lost");
        ensure!(
            metric(&api, "apiserver_audit_error_total{plugin=\"buffered\"}").await? >= lost,
            "not counted"
        );
        let lost = metric(&api, &format!("{dropped}{{requests=\"authenticated\"}}")).await?;
        ensure!(lost == 0.0, "{lost} events of users are lost");
        let mut events = pipe.read()?;
        let mut logged = BTreeSet::new();
        while logged.len() < REQUESTS / 2 {
            let event = events.recv().await.context("the pipe ended")??;
            if event.starts_with("load-") {
                logged.insert(event);
            }
        }
        ensure!(logged == (0..REQUESTS / 2).map(id).collect(), "{logged:?}");
        Ok(())
    });
}

#[test]
fn in_blocking_mode_a_request_that_cannot_be_recorded_is_answered_and_counted() {
    run(async |env| {
        let full = flag("audit-log-path", Path::new("/dev/full"));
        let mut world = World::garden_with(env, vec![full]).await?;
        let api = Api::new(&world.as_master()?)?;
        let answer = api.post(&collection("default"), &small("unrecorded", &json!(1))).await?;
        ensure!(answer.status == 201, "blocking mode refuses: {answer}");
        ensure!(
            metric(&api, "apiserver_audit_error_total{plugin=\"log\"}").await? >= 1.0,
            "it is not counted"
        );
        Ok(())
    });
}

#[test]
fn in_strict_mode_a_request_that_cannot_be_recorded_fails() {
    run(async |env| {
        let policy = env.path().join("policy.yaml");
        // The probes of the test itself are let through.
        let rules = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: None\n  nonResourceURLs: ['*']\n\
                     - level: Metadata\n";
        std::fs::write(&policy, rules)?;
        let flags = vec![
            flag("audit-log-path", Path::new("/dev/full")),
            flag("audit-policy-file", &policy),
            "--audit-log-mode=blocking-strict".to_owned(),
        ];
        let mut world = World::garden_with(env, flags).await?;
        let api = Api::new(&world.as_master()?)?;
        let answer = api.post(&collection("default"), &small("refused", &json!(1))).await?;
        let message = answer.json()?["message"].as_str().unwrap_or_default().to_owned();
        ensure!(answer.status == 500 && message.contains("failed to store audit event"), "{answer}");
        ensure!(metric(&api, "apiserver_audit_requests_rejected_total").await? >= 1.0, "it is not counted");
        // Reads are recorded as well: the object is looked for where it would be.
        ensure!(api.get(&path("refused")).await?.status == 500, "a read is not recorded and answered");
        let objects = metric(&api, "apiserver_request_total{code=\"201\"").await?;
        ensure!(objects == 0.0, "{objects} objects were made");
        Ok(())
    });
}
