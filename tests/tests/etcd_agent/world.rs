//! Agents of the members of one etcd, on loopback addresses.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use etcd_client::Client;
use repot_etcd::link;
use repot_tests::access::{Access, Credential};
use repot_tests::http::{Answer, Api};
use repot_tests::pki::{Ca, Leaf, Usage};
use repot_tests::process::{Process, Spec};
use repot_tests::test_env::TestEnv;
use repot_tests::tool::{self, Output};
use repot_tests::wait::until;
use repot_tests::{binaries, port};
use serde_json::{Value, json};
use tokio::process::Command;

pub const DEADLINE: Duration = Duration::from_secs(60);

/// Ports that all members have, each at an address of its own.
#[derive(Clone, Copy)]
pub struct Ports {
    pub client: u16,
    pub peer: u16,
    pub agent: u16,
}

/// A plan for the members of one etcd.
pub struct Cluster {
    pub dir: PathBuf,
    pub ports: Ports,
    pub tls: Option<Tls>,
    /// The program that agents start.
    pub etcd: PathBuf,
    /// What all members are told, without their data directory.
    pub config: Value,
    /// More variables of the agents.
    pub variables: Vec<(&'static str, String)>,
}

/// Certificates of one authority.
pub struct Tls {
    pub dir: PathBuf,
    pub ca: Ca,
    pub client: Leaf,
}

/// A member: an agent and its etcd.
pub struct Agent {
    pub process: Process,
    pub data: PathBuf,
    pub url: String,
    client_url: String,
    api: Api,
    tls: Option<(String, Leaf)>,
}

impl Tls {
    fn make(dir: PathBuf) -> Result<Self> {
        let ca = Ca::new("etcd-ca")?;
        let addresses = (0..6).map(address);
        let names: Vec<String> = addresses.chain(["localhost".to_owned()]).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let leaf = ca.leaf("etcd", &[], &names, Usage::Peer)?;
        for (file, text) in
            [("ca.crt", ca.pem()), ("tls.crt", leaf.cert_pem.clone()), ("tls.key", leaf.key_pem.clone())]
        {
            repot_tests::pki::write_private(dir.join(file), &text)?;
        }
        Ok(Self { dir, client: ca.client("somebody", &[])?, ca })
    }
}

impl Cluster {
    /// One of so many members, which found it.
    pub fn new(env: &TestEnv, members: usize) -> Result<Self> {
        Self::make(env, members, None)
    }

    pub fn with_tls(env: &TestEnv, members: usize) -> Result<Self> {
        let tls = Tls::make(env.make_dir("tls")?)?;
        Self::make(env, members, Some(tls))
    }

    fn make(env: &TestEnv, members: usize, tls: Option<Tls>) -> Result<Self> {
        let dir = env.make_dir("agents")?;
        let ports = Ports { client: port::reserve()?, peer: port::reserve()?, agent: port::reserve()? };
        let scheme = if tls.is_some() { "https" } else { "http" };
        let member = |at: usize| {
            let host = address(at);
            json!({
                "name": format!("m{at}"),
                "pod": format!("main-{at}"),
                "peerUrls": [format!("{scheme}://{host}:{}", ports.peer)],
                "clientUrls": [format!("{scheme}://{host}:{}", ports.client)],
            })
        };
        let mut config = json!({
            "name": "main",
            "namespace": "shoot--p--a",
            "volumes": "main-etcd",
            "clusterToken": "4711/main-etcd",
            "clusterState": "new",
            "members": (0..members).map(member).collect::<Vec<_>>(),
            "ports": { "client": ports.client, "peer": ports.peer, "agent": ports.agent },
        });
        if let Some(tls) = &tls {
            config["tls"] = json!({ "server": tls.dir, "client": tls.dir, "peer": tls.dir });
        }
        Ok(Self { dir, ports, tls, etcd: binaries::find("etcd")?, config, variables: Vec::new() })
    }

    /// What a member with an index is, without being one of those in the configuration.
    pub fn add_member(&mut self, at: usize) -> Result<()> {
        let text = self.config["members"][0].to_string();
        let text = text.replace(&address(0), &address(at)).replace("\"m0\"", &format!("\"m{at}\""));
        let member: Value = serde_json::from_str(&text.replace("main-0", &format!("main-{at}")))?;
        self.config["members"].as_array_mut().context("members")?.push(member);
        Ok(())
    }

    /// The directory of a member's volume.
    pub fn volume(&self, at: usize) -> Result<PathBuf> {
        let dir = self.dir.join(format!("volume-{at}"));
        fs::create_dir_all(&dir)?;
        Ok(dir)
    }

    /// Starts the agent of a member; waits for nothing.
    pub fn start(&self, env: &TestEnv, at: usize) -> Result<Agent> {
        let data = self.volume(at)?;
        let spec = self.spec(at, &data)?;
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}:{}", address(at), self.ports.agent);
        let client_url = format!("{scheme}://{}:{}", address(at), self.ports.client);
        let tls = self.tls.as_ref().map(|tls| (tls.ca.pem(), tls.client.clone()));
        let api = api(&url, tls.as_ref())?;
        Ok(Agent { process: Process::start(env, spec)?, data, url, client_url, api, tls })
    }

    pub async fn start_all(&self, env: &TestEnv) -> Result<Vec<Agent>> {
        let count = self.config["members"].as_array().map_or(0, Vec::len);
        let mut agents = (0..count).map(|at| self.start(env, at)).collect::<Result<Vec<_>>>()?;
        for agent in &mut agents {
            agent.ready().await?;
        }
        Ok(agents)
    }

    fn spec(&self, at: usize, data: &Path) -> Result<Spec> {
        let mut config = self.config.clone();
        config["dataDir"] = json!(data);
        let file = self.dir.join(format!("agent-{at}.yaml"));
        fs::write(&file, config.to_string())?;
        let spec = Spec::new(format!("agent-{at}"), binaries::profile_dir()?.join("repot"))
            .arg("etcd-agent")
            .flag("config", file)
            .flag("etcd", &self.etcd)
            .flag("etcdutl", binaries::find("etcdutl")?)
            .env("POD_NAME", format!("main-{at}"))
            .env("POD_IP", address(at))
            // A store that is gone is to be noticed before the test is over.
            .env("STORE_PATIENCE_SECONDS", "3");
        Ok(self.variables.iter().fold(spec, |spec, (name, value)| spec.env(name, value)))
    }

    /// A client of all members that are given.
    pub async fn client(&self, agents: &[Agent]) -> Result<Client> {
        let endpoints = agents.iter().map(|agent| agent.client_url.clone()).collect();
        Ok(link::connect(&self.access(endpoints)).await?)
    }

    /// How a client reaches what is at these URLs.
    pub fn access(&self, endpoints: Vec<String>) -> link::Options {
        let mut options = link::Options { endpoints, ..Default::default() };
        if let Some(tls) = &self.tls {
            options.ca = Some(tls.ca.pem().into_bytes());
            options.identity = Some((tls.client.cert_pem.clone().into(), tls.client.key_pem.clone().into()));
        }
        options
    }
}

/// The address of a member.
pub fn address(at: usize) -> String {
    format!("127.0.0.{}", at + 1)
}

fn api(url: &str, tls: Option<&(String, Leaf)>) -> Result<Api> {
    let (ca_pem, credential) = match tls {
        Some((ca, leaf)) => (ca.clone(), Credential::Certificate(leaf.clone())),
        None => (String::new(), Credential::Anonymous),
    };
    Api::new(&Access { server: url.to_owned(), ca_pem, credential })
}

impl Agent {
    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.api.get(path).await
    }

    /// The same as somebody who shows nothing.
    pub async fn get_as_nobody(&self, path: &str) -> Result<Answer> {
        let ca_pem = self.tls.as_ref().map(|(ca, _)| ca.clone()).unwrap_or_default();
        Api::new(&Access { server: self.url.clone(), ca_pem, credential: Credential::Anonymous })?
            .get(path)
            .await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Result<Answer> {
        self.api.put(path, body).await
    }

    pub async fn post(&self, path: &str) -> Result<Answer> {
        self.api.post(path, &Value::Null).await
    }

    pub async fn status(&self) -> Result<Value> {
        self.get("/status").await?.ok()
    }

    /// The value of a metric, by name and labels; zero where it is not told.
    pub async fn metric(&self, name: &str) -> Result<i64> {
        let answer = self.get("/metrics").await?;
        ensure!(answer.status == 200, "{answer}");
        let text = String::from_utf8_lossy(&answer.body);
        let name = format!("repot_etcd_agent_{name} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&name));
        Ok(value.map(str::parse).transpose()?.unwrap_or_default())
    }

    /// Waits until it says that it is ready.
    pub async fn ready(&mut self) -> Result<()> {
        self.ready_within(DEADLINE).await
    }

    /// The same with another deadline.
    pub async fn ready_within(&mut self, deadline: Duration) -> Result<()> {
        let Self { process, api, .. } = self;
        process.ready(deadline, async || api.get("/readyz").await?.ok().map(drop)).await
    }

    /// Waits until its status is as it should be.
    pub async fn says(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Result<Value> {
        let Self { process, api, .. } = self;
        let look = async || {
            let status = api.get("/status").await?.ok()?;
            ensure!(fits(&status), "it says {status}");
            Ok(status)
        };
        process.ready(DEADLINE, look).await.with_context(|| format!("{what} is not said"))
    }

    /// The processes that use its data directory and are etcd. One that was a standby calls it by another name.
    pub fn etcds(&self) -> Result<Vec<u32>> {
        Self::etcds_of(&self.data.join("new.etcd"))
    }

    /// The processes that are the etcd of its standby, where that is the member's own one.
    pub fn standby_etcds(&self) -> Result<Vec<u32>> {
        Self::etcds_of(&self.data.join("new.etcd.part/replay"))
    }

    fn etcds_of(data: &Path) -> Result<Vec<u32>> {
        let wanted = format!("--data-dir={}", data.display());
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let entry = entry?;
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let mut words = line.split(|byte| *byte == 0);
            let program = words.next().map(String::from_utf8_lossy).unwrap_or_default().into_owned();
            let is_here = || fs::read_link(entry.path().join("cwd")).is_ok_and(|dir| dir == data);
            let uses = |word: &[u8]| word == wanted.as_bytes() || word == b"--data-dir=." && is_here();
            if program.ends_with("/etcd") && words.any(uses) {
                found.push(pid);
            }
        }
        Ok(found)
    }

    /// Waits until there is no etcd of this member any more.
    pub async fn no_etcd(&self) -> Result<()> {
        until("etcd to be gone", Duration::from_secs(10), async || match self.etcds()?[..] {
            [] => Ok(()),
            ref pids => bail!("there is {pids:?}"),
        })
        .await
    }

    /// Kills the agent's process alone, as the kernel would when memory is short.
    pub fn kill_alone(&self) -> Result<()> {
        let pid = rustix::process::Pid::from_raw(self.process.pid().try_into()?).context("a process")?;
        Ok(rustix::process::kill_process(pid, rustix::process::Signal::KILL)?)
    }
}

/// Runs `repot snapshots` with these arguments.
pub async fn snapshots(args: &[&str]) -> Result<Output> {
    let mut command = Command::new(binaries::profile_dir()?.join("repot"));
    command.arg("snapshots").args(args);
    tool::run(command, b"").await
}
