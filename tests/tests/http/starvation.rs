//! Clients that ask and do not take the answer: they cost themselves their turn, and nobody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::{FutureExt, StreamExt, stream};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use repot_tests::TestEnv;
use repot_tests::access::{Access, Credential};
use repot_tests::garden::FRONT_PROXY_USER;
use repot_tests::http::Api;
use repot_tests::run;
use repot_tests::wait::until;
use reqwest::Method;
use serde_json::json;
use tokio::task::JoinSet;

use super::connections::{authority_of, dial_tls, gauge};
use crate::shootstate::world::{GROUP, World, collection, large, path, small};

const REQUEST_TIMEOUT: &str = "--request-timeout=8s";
const FREED: Duration = Duration::from_secs(60);
/// Streams that the server takes on one connection before it knows the client.
const STREAMS: usize = 100;

/// A connection whose client grants no window to any response.
pub(super) struct Hoarder {
    pub(super) sender: SendRequest<String>,
    authority: String,
}

impl Hoarder {
    pub(super) async fn dial(access: &Access, window: u32) -> Result<Self> {
        let tls = dial_tls(access, &["h2"]).await?;
        let mut builder = Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(window);
        let (sender, connection) = builder.handshake(TokioIo::new(tls)).await?;
        tokio::spawn(connection);
        Ok(Self { sender, authority: authority_of(access)? })
    }

    /// Asks without waiting for the answer; gives it when its head is there. `user`: whom the front proxy names.
    pub(super) fn ask(&self, method: Method, path: &str, user: Option<&str>) -> Result<Asked> {
        let user: Vec<_> = user.map(|user| ("X-Remote-User", user)).into_iter().collect();
        self.send(method, path, &user, "{}".to_owned())
    }

    /// As [`Hoarder::ask`], with these headers and this body.
    pub(super) fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Result<Asked> {
        let mut sender = self.sender.clone();
        let request =
            hyper::Request::builder().method(method).uri(format!("https://{}{path}", self.authority));
        let request = request.header("Content-Type", "application/json");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let request = request.body(body)?;
        Ok(Box::pin(async move {
            sender.ready().await?;
            Ok(sender.send_request(request).await?)
        }))
    }
}

pub(super) type Asked = std::pin::Pin<Box<dyn Future<Output = Result<hyper::Response<Incoming>>> + Send>>;

/// Every head, when all have come.
async fn heads(asked: Vec<Asked>) -> Result<Vec<hyper::Response<Incoming>>> {
    let mut asking: JoinSet<_> = asked.into_iter().collect();
    let mut heads = Vec::new();
    while let Some(head) = asking.join_next().await {
        heads.push(head??);
    }
    Ok(heads)
}

/// Whether the server ends an answer that is not taken.
async fn is_reset(response: hyper::Response<Incoming>) -> bool {
    let mut body = response.into_body();
    loop {
        match std::future::poll_fn(|cx| std::pin::Pin::new(&mut body).poll_frame(cx)).await {
            Some(Ok(_)) => {}
            Some(Err(_)) => return true,
            None => return false,
        }
    }
}

/// Lets a user do everything with ShootStates.
pub(super) async fn grant(world: &World, user: &str) -> Result<()> {
    let garden = world.garden.as_ref().context("a garden")?;
    let rbac = "rbac.authorization.k8s.io";
    let role = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": user},
        "rules": [{"apiGroups": [GROUP], "resources": ["shootstates"], "verbs": ["*"]}],
    });
    let binding = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": user},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": user}],
    });
    garden.apply(&[role, binding]).await
}

pub fn certificate(world: &World, user: &str) -> Result<Credential> {
    let garden = world.garden.as_ref().context("a garden")?;
    Ok(Credential::Certificate(garden.pki().client.client(user, &[])?))
}

/// A server with these flags, and users who may use it.
pub async fn world_with(env: &TestEnv, flags: &[&str], users: &[&str]) -> Result<World> {
    let world = World::garden_with(env, flags.iter().map(|flag| (*flag).to_owned()).collect()).await?;
    for user in users {
        grant(&world, user).await?;
    }
    Ok(world)
}

/// Sixty reads and sixty writes of a user, all of which have to succeed.
async fn is_served(api: &Api, prefix: &str) -> Result<()> {
    for number in 0..60 {
        let listed = api.get(&collection("default")).await?;
        ensure!(listed.status == 200, "read {number}: {listed}");
        let created =
            api.post(&collection("default"), &small(&format!("{prefix}-{number}"), &json!(1))).await?;
        ensure!(created.status == 201, "write {number}: {created}");
    }
    Ok(())
}

async fn nothing_is_served(api: &Api) -> Result<()> {
    until("all places to be free", FREED, async || {
        // The question itself is one.
        let left = gauge(api, "apiserver_current_inflight_requests{").await?;
        ensure!(left <= 1.0, "{left} requests are being served");
        Ok(())
    })
    .await
}

#[test]
fn anonymous_clients_that_grant_no_window_stop_nobody_and_are_reset_in_time() {
    run(async |env| {
        let mut world = world_with(env, &[REQUEST_TIMEOUT], &["alice"]).await?;
        let alice = Api::new(&world.directly(certificate(&world, "alice")?)?)?;
        until("alice's role", FREED, async || alice.get(&collection("default")).await?.ok().map(drop))
            .await?;
        let anonymous = world.directly(Credential::Anonymous)?;
        let (mut hoarders, mut asked) = (Vec::new(), Vec::new());
        for number in 0..700 {
            if number % STREAMS == 0 {
                hoarders.push(Hoarder::dial(&anonymous, 0).await?);
            }
            let hoarder = hoarders.last().context("a connection")?;
            let method = if number < 450 { Method::GET } else { Method::POST };
            asked.push(hoarder.ask(method, &collection("default"), None)?);
        }
        let held = tokio::time::timeout(FREED, heads(asked)).await.context("not even heads came")??;
        for response in &held {
            ensure!(matches!(response.status().as_u16(), 403 | 429), "{response:?}");
        }
        is_served(&alice, "alice").await?;
        let probe = Api::new(&anonymous)?;
        for path in ["/livez", "/readyz", "/healthz"] {
            ensure!(probe.get(path).await?.status == 200, "{path} is not answered");
        }
        let api = Api::new(&world.as_master()?)?;
        nothing_is_served(&api).await?;
        let aborts = || gauge(&api, "apiserver_request_aborts_total{");
        until("the answers to be given up", FREED, async || {
            let aborted = aborts().await?;
            ensure!(aborted >= 700.0, "{aborted} were given up");
            Ok(())
        })
        .await?;
        for response in held {
            ensure!(is_reset(response).await, "an answer without a window came to an end");
        }
        Ok(())
    });
}

#[test]
fn a_user_that_does_not_read_large_answers_costs_itself_its_turn() {
    run(async |env| {
        let mut world = world_with(env, &[REQUEST_TIMEOUT], &["alice", "mallory"]).await?;
        world.create(&large("large", 4 << 20)).await?;
        let alice = Api::new(&world.directly(certificate(&world, "alice")?)?)?;
        let mallory = world.directly(certificate(&world, "mallory")?)?;
        for who in [&alice, &Api::new(&mallory)?] {
            until("the roles", FREED, async || who.get(&collection("default")).await?.ok().map(drop)).await?;
        }
        // Slow, or not at all: a byte is enough for a server that waits for any window.
        let mut asking = JoinSet::new();
        let mut hoarders = Vec::new();
        for window in [0, 1] {
            let hoarder = Hoarder::dial(&mallory, window).await?;
            for number in 0..300 {
                let what = if number % 2 == 0 { collection("default") } else { path("large") };
                asking.spawn(hoarder.ask(Method::GET, &what, None)?);
            }
            hoarders.push(hoarder);
        }
        // As many as may have an answer have its head; others wait, or were told to come again.
        let mut held = Vec::new();
        for _ in 0..10 {
            let head = asking.join_next().await.context("an answer")???;
            held.push(head);
        }
        is_served(&alice, "alice").await?;
        for number in 0..10 {
            let read = alice.get(&path("large")).await?;
            ensure!(read.status == 200 && read.body.len() > 3 << 20, "large read {number}: {}", read.status);
        }
        while let Some(head) = asking.join_next().await {
            held.push(head??);
        }
        let served = held.iter().filter(|head| head.status() == 200).count();
        ensure!(served > 0, "no answer was begun");
        for head in &held {
            ensure!(matches!(head.status().as_u16(), 200 | 429 | 504), "{head:?}");
        }
        let api = Api::new(&world.as_master()?)?;
        nothing_is_served(&api).await?;
        // A refusal is short: whoever takes it byte by byte may come to its end in time.
        for response in held.into_iter().filter(|head| head.status() == 200) {
            ensure!(is_reset(response).await, "an answer that is not read came to an end");
        }
        // What it held is there again.
        let again = Api::new(&mallory)?.get(&path("large")).await?;
        ensure!(again.status == 200, "{again}");
        Ok(())
    });
}

#[test]
fn one_user_does_not_take_the_places_of_others_on_the_connection_of_the_front_proxy() {
    run(async |env| {
        let mut world = world_with(env, &[REQUEST_TIMEOUT], &["alice", "mallory"]).await?;
        let garden = world.garden.as_ref().context("a garden")?;
        let proxy = garden.pki().front_proxy.client(FRONT_PROXY_USER, &[])?;
        let access = world.directly(Credential::Certificate(proxy))?;
        let hoarder = Hoarder::dial(&access, 0).await?;
        let list = collection("default");
        until("the roles", FREED, async || {
            for user in ["alice", "mallory"] {
                let head = hoarder.ask(Method::GET, &list, Some(user))?.await?;
                ensure!(head.status() == 200, "{head:?}");
            }
            Ok(())
        })
        .await?;
        // Bodies that never end keep their places while they are waited for.
        let mallory = Api::new(&access)?;
        let mut slow = JoinSet::new();
        for _ in 0..250 {
            let body = futures::stream::pending::<Result<String, std::io::Error>>();
            let request = mallory.request(Method::POST, &list).header("X-Remote-User", "mallory");
            let request = request.header("Content-Type", "application/json");
            slow.spawn(request.body(reqwest::Body::wrap_stream(body)).send());
        }
        // Those beyond the share are refused at once; the others are there then.
        let mut refused = 0;
        while refused < 150 {
            let head = slow.join_next().await.context("an answer")???;
            ensure!(head.status() == 429, "{head:?}");
            ensure!(head.headers().get("retry-after").is_some_and(|seconds| seconds == "1"), "{head:?}");
            refused += 1;
        }
        for number in 0..60 {
            let created = mallory.request(Method::POST, &list).header("X-Remote-User", "alice");
            let created = created.json(&small(&format!("alice-{number}"), &json!(1))).send().await?;
            ensure!(created.status() == 201, "write {number} of another user: {}", created.status());
        }
        let api = Api::new(&world.as_master()?)?;
        let shares = gauge(&api, "apiserver_flowcontrol_rejected_requests_total{").await?;
        ensure!(shares >= 150.0, "{shares} refusals are counted");
        // All are answered in the time that a request has.
        while let Some(head) = tokio::time::timeout(FREED, slow.join_next()).await.context("held for ever")? {
            match head?? {
                head if matches!(head.status().as_u16(), 400 | 504) => {}
                head => bail!("a body that never came was answered with {}", head.status()),
            }
        }
        nothing_is_served(&api).await
    });
}

#[test]
fn connections_without_credentials_make_room_for_newer_ones_and_not_for_those_of_users() {
    run(async |env| {
        let flags = vec!["--max-unauthenticated-connections=20".to_owned()];
        let mut world = World::garden_with(env, flags).await?;
        let (master, anonymous) = (world.as_master()?, world.directly(Credential::Anonymous)?);
        let kept = Hoarder::dial(&master, 1 << 20).await?;
        let mut idle = Vec::new();
        for _ in 0..60 {
            idle.push(Hoarder::dial(&anonymous, 1 << 20).await?);
        }
        ensure!(Api::new(&anonymous)?.get("/livez").await?.status == 200, "a probe finds no way in");
        let api = Api::new(&master)?;
        until("the oldest to be ended", FREED, async || {
            let ended = gauge(&api, "repot_unauthenticated_connections_evicted_total").await?;
            let closed = idle.iter().filter(|one| one.sender.is_closed()).count();
            ensure!(ended >= 40.0 && closed >= 40, "{ended} were ended, {closed} are closed");
            Ok(())
        })
        .await?;
        let newest = idle.last().context("a connection")?;
        ensure!(newest.ask(Method::GET, "/livez", None)?.await?.status() == 200, "the newest was ended");
        ensure!(
            kept.ask(Method::GET, "/livez", None)?.await?.status() == 200,
            "a user's connection was ended"
        );
        Ok(())
    });
}

/// A body that is kept for as long as the answer would be dropped with the last piece of it: while h2 holds the lock of the
/// connection that the body takes as well.
#[test]
fn a_refused_body_is_let_go_before_its_answer_is_taken() {
    run(async |env| {
        const PIECE: usize = 16 << 10;
        const PIECES: usize = 64;
        let world = World::dev(env).await?;
        let nobody = super::connections::dev_access(&world)?.with(Credential::Anonymous);
        let api = Api::build(&nobody, reqwest::Client::builder().http2_initial_stream_window_size(0))?;
        let taken = Arc::new(AtomicUsize::new(0));
        let counter = taken.clone();
        let pieces = stream::iter(0..PIECES).map(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            Ok::<_, std::io::Error>(vec![b' '; PIECE])
        });
        let request = api.request(Method::POST, &collection("default"));
        let request = request.header("Content-Type", "application/json");
        let mut answer = request.body(reqwest::Body::wrap_stream(pieces)).send().await?;
        ensure!(matches!(answer.status().as_u16(), 401 | 403), "{}", answer.status());
        until("the body to be taken", FREED, async || {
            let taken = taken.load(Ordering::Relaxed);
            ensure!(taken == PIECES, "{taken} of {PIECES} pieces are taken");
            Ok(())
        })
        .await?;
        ensure!(answer.chunk().now_or_never().is_none(), "the answer is over: the test shows nothing");
        Ok(())
    });
}
