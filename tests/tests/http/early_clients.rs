//! Early answers as real clients see them, over both versions of HTTP, beside a real kube-apiserver.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::access::{Access, Credential};
use repot_tests::garden::Garden;
use repot_tests::http::Api;
use repot_tests::wait::until;
use repot_tests::{TestEnv, binaries, pki, run, tool};
use serde_json::Value;
use tokio::process::Command;

use super::connections::dev_access;
use super::limits::{endless, writes_under_way};
use super::starvation::{certificate, world_with};
use crate::shootstate::world::{World, collection};

const DEADLINE: Duration = Duration::from_secs(60);
/// How often each client asks: a race between an answer and a reset shows in some tries only.
const TRIES: usize = 20;
/// Longer than an object may be; kube-apiserver takes 3 MB.
const TOO_LONG: usize = 17_500_000;
/// Longer than the window of a stream: the client is still sending when the answer comes.
const LONG: usize = 2_000_000;
const JSON: &str = "Content-Type: application/json";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    Curl(&'static str),
    Nghttp,
    Go(bool),
    Python(&'static str),
}

const CLIENTS: &[Client] = &[
    Client::Curl("--http2"),
    Client::Curl("--http1.1"),
    Client::Nghttp,
    Client::Go(true),
    Client::Go(false),
    Client::Python("httpx2"),
    Client::Python("httpx1"),
    Client::Python("requests"),
];

/// Those over HTTP/2.
const TWO: &[Client] = &[Client::Curl("--http2"), Client::Go(true), Client::Nghttp, HTTPX];
/// It ends with an error at the GOAWAY that comes with a 401, here and at kube-apiserver (`UnauthenticatedHTTP2DOSMitigation`): its
/// library takes no frame after a GOAWAY.
const HTTPX: Client = Client::Python("httpx2");

/// Where a client sends a body, and as whom.
struct Target {
    server: String,
    ca: PathBuf,
    pair: Option<(PathBuf, PathBuf)>,
    body: PathBuf,
}

impl Target {
    fn new(dir: &Path, access: &Access, body: &Path) -> Result<Self> {
        let ca = pki::write_private(dir.join("ca.crt"), &access.ca_pem)?;
        let pair = match &access.credential {
            Credential::Certificate(leaf) => Some(leaf.write(dir, "client")?),
            _ => None,
        };
        Ok(Self { server: access.server.clone(), ca, pair, body: body.to_owned() })
    }

    /// What each of so many tries shows: a status code and the body of the answer, or what the client says instead.
    async fn send(
        &self,
        client: Client,
        path: &str,
        headers: &[&str],
        tries: usize,
    ) -> Result<Vec<Result<(u16, Value), String>>> {
        let url = format!("{}{path}", self.server);
        let mut seen = Vec::new();
        match client {
            Client::Curl(version) => {
                for _ in 0..tries {
                    seen.push(curl(self.curl(version, &url, headers)).await?);
                }
            }
            Client::Nghttp => {
                for _ in 0..tries {
                    seen.push(nghttp(self.nghttp(&url, headers)).await?);
                }
            }
            Client::Go(two) => seen = lines(self.go(two, &url, headers, tries)?).await?,
            Client::Python(library) => seen = lines(self.python(library, &url, headers, tries)).await?,
        }
        ensure!(seen.len() == tries, "{client:?} tried {} times", seen.len());
        Ok(seen)
    }

    fn curl(&self, version: &str, url: &str, headers: &[&str]) -> Command {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--noproxy", "*", version, "--cacert"]).arg(&self.ca);
        if let Some((cert, key)) = &self.pair {
            command.arg("--cert").arg(cert).arg("--key").arg(key);
        }
        for header in headers {
            command.args(["--header", header]);
        }
        // It would wait for a second before it sends a body over HTTP/1.1.
        command.args(["--header", "Expect:", "--write-out", "\n%{http_code}", "--data-binary"]);
        command.arg(format!("@{}", self.body.display())).arg(url);
        command
    }

    fn nghttp(&self, url: &str, headers: &[&str]) -> Command {
        let mut command = Command::new("nghttp");
        command.args(["--verbose", "--no-dep", "--data"]).arg(&self.body);
        if let Some((cert, key)) = &self.pair {
            command.arg("--cert").arg(cert).arg("--key").arg(key);
        }
        for header in headers {
            command.args(["--header", header]);
        }
        command.arg(url);
        command
    }

    fn go(&self, two: bool, url: &str, headers: &[&str], tries: usize) -> Result<Command> {
        let mut command = Command::new(binaries::find("upload")?);
        command.arg(format!("-http2={two}")).args(["-url", url, "-tries", &tries.to_string()]);
        command.arg("-ca").arg(&self.ca).arg("-body").arg(&self.body);
        if let Some((cert, key)) = &self.pair {
            command.arg("-cert").arg(cert).arg("-key").arg(key);
        }
        command.arg("--").args(headers);
        Ok(command)
    }

    fn python(&self, library: &str, url: &str, headers: &[&str], tries: usize) -> Command {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/upload.py");
        let mut command = Command::new(binaries::testbed_dir().join("python/bin/python"));
        command.arg(script).args([library, url]).arg(&self.ca);
        let (cert, key) = self.pair.clone().unwrap_or_default();
        command.arg(cert).arg(key).arg(&self.body).arg(tries.to_string()).args(headers);
        command
    }
}

async fn curl(command: Command) -> Result<Result<(u16, Value), String>> {
    let output = tool::run(command, b"").await?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, code) = text.rsplit_once('\n').context("curl told no code")?;
    // With an exit code that is not zero, a script does not look at what else it has seen.
    Ok(match (output.succeeded(), serde_json::from_str(body)) {
        (true, Ok(body)) => Ok((code.parse()?, body)),
        _ => Err(format!("{} {text}", output.stderr)),
    })
}

async fn nghttp(command: Command) -> Result<Result<(u16, Value), String>> {
    let text = tool::run(command, b"").await?.text()?;
    let code = text.split(":status: ").nth(1).and_then(|rest| rest.get(..3)?.parse().ok());
    let body = text
        .find("{\"kind\"")
        .and_then(|at| serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>().next()?.ok());
    Ok(code.zip(body).ok_or(text))
}

/// What a program prints that tries by itself.
async fn lines(command: Command) -> Result<Vec<Result<(u16, Value), String>>> {
    let text = tool::run(command, b"").await?.text()?;
    let outcome = |line: &str| {
        let line: Value = serde_json::from_str(line)?;
        let code = line["status"].as_u64().and_then(|code| u16::try_from(code).ok());
        let body = line["body"].as_str().and_then(|body| serde_json::from_str(body).ok());
        anyhow::Ok(code.zip(body).ok_or_else(|| line.to_string()))
    };
    text.lines().map(outcome).collect()
}

fn body(env: &TestEnv, name: &str, bytes: usize) -> Result<PathBuf> {
    let path = env.path().join(name);
    std::fs::write(&path, vec![b' '; bytes])?;
    Ok(path)
}

async fn all_see(target: &Target, client: Client, path: &str, headers: &[&str], code: u16) -> Result<()> {
    for (at, seen) in target.send(client, path, headers, TRIES).await?.into_iter().enumerate() {
        let (status, body) = seen
            .map_err(|said| anyhow::anyhow!("{client:?} does not see a {code} at try {at}: {said:.2000}"))?;
        let right = status == code && body["kind"] == "Status" && body["code"] == code;
        ensure!(right, "{client:?} sees {status} instead of {code} at try {at}: {body}");
    }
    Ok(())
}

#[test]
fn a_body_that_is_too_large_is_refused_so_that_every_client_sees_it() {
    run(async |env| {
        let world = World::dev(env).await?;
        let file = body(env, "too-long", TOO_LONG)?;
        let target = Target::new(&env.make_dir("repot")?, &dev_access(&world)?, &file)?;
        for client in CLIENTS {
            all_see(&target, *client, &collection("default"), &[JSON], 413).await?;
        }
        // The same clients and the same body before the original: what tells a 413 there tells it here each time.
        let garden = Garden::start(env).await?;
        let target = Target::new(&env.make_dir("garden")?, garden.admin(), &file)?;
        for client in [Client::Curl("--http2"), Client::Go(true)] {
            // It tells it by chance, and less often under load.
            until("a 413 of kube-apiserver", DEADLINE, async || {
                let seen = target.send(client, "/api/v1/namespaces/default/configmaps", &[JSON], 5).await?;
                let refused = seen.iter().any(|seen| seen.as_ref().is_ok_and(|(code, _)| *code == 413));
                ensure!(refused, "kube-apiserver's 413 is not seen by {client:?}: {seen:?}");
                Ok(())
            })
            .await?;
        }
        Ok(())
    });
}

#[test]
fn whatever_is_refused_early_is_seen_by_clients_that_still_send() {
    run(async |env| {
        let world = World::dev(env).await?;
        let file = body(env, "long", LONG)?;
        let access = dev_access(&world)?;
        let known = Target::new(&env.make_dir("known")?, &access, &file)?;
        let nobody = Target::new(&env.make_dir("nobody")?, &access.with(Credential::Anonymous), &file)?;
        let all = collection("default");
        for (target, path, headers, code) in [
            (&known, all.clone(), &["Content-Type: text/plain"][..], 415),
            (&known, all.clone(), &[JSON, "Accept: image/png"], 406),
            (&known, all.clone(), &[JSON, "Impersonate-User: alice"], 403),
            // Refused before anything else is known of the request.
            (&known, format!("{all}?watch=maybe"), &[JSON], 400),
            (&known, "/apis/none.example.com/v1/things".to_owned(), &[JSON], 404),
            (&known, format!("{all}/name"), &[JSON], 405),
            // Its connection ends with it, too.
            (&nobody, all.clone(), &[JSON, "Authorization: Bearer nonsense"], 401),
        ] {
            for client in TWO.iter().filter(|client| code != 401 || **client != HTTPX) {
                all_see(target, *client, &path, headers, code).await?;
            }
        }
        Ok(())
    });
}

#[test]
fn a_refusal_for_too_many_requests_is_seen_by_clients_that_still_send() {
    run(async |env| {
        let mut world = world_with(env, &["--max-mutating-requests-inflight=1"], &["alice"]).await?;
        let access = world.directly(certificate(&world, "alice")?)?;
        let (api, file) = (Api::new(&access)?, body(env, "long", LONG)?);
        let all = collection("default");
        until("the roles", DEADLINE, async || api.get(&all).await?.ok().map(drop)).await?;
        let endless = endless(&api, "");
        writes_under_way(&Api::new(&world.as_master()?)?, 1.0).await?;
        let target = Target::new(&env.make_dir("alice")?, &access, &file)?;
        for client in CLIENTS {
            all_see(&target, *client, &all, &[JSON], 429).await?;
        }
        endless.abort();
        Ok(())
    });
}
