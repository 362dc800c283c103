//! etcd clusters of any size on 127.0.0.1, with etcd's own default limits.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::process::Command;

use crate::access::{Access, Credential};
use crate::http::Api;
use crate::pki::{Ca, Leaf, Usage};
use crate::process::{Process, Spec};
use crate::test_env::TestEnv;
use crate::tool::{self, Output};
use crate::wait::until;
use crate::{binaries, port};

const START_DEADLINE: Duration = Duration::from_secs(60);
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// What kind of cluster to start.
#[derive(Clone, Debug, Default)]
pub struct EtcdOptions {
    /// Prefix of the members' names; `etcd` when empty.
    pub name: String,
    /// Whether clients and peers must use TLS with certificates of the cluster's own CA.
    pub tls: bool,
    /// Further command line arguments of every member.
    pub flags: Vec<String>,
}

/// A cluster. Its members end when it is dropped.
pub struct EtcdCluster {
    members: Vec<EtcdMember>,
    tls: Option<EtcdTls>,
    dir: PathBuf,
    slots: Vec<MemberSpec>,
}

/// One member of an etcd.
pub struct EtcdMember {
    name: String,
    client_url: String,
    data_dir: PathBuf,
    process: Process,
    probe: Api,
}

/// The files with which a client reaches a cluster with TLS.
#[derive(Clone, Debug)]
pub struct EtcdTls {
    /// File with the CA certificate.
    pub ca: PathBuf,
    /// Client certificate (also valid for a member).
    pub cert: PathBuf,
    /// File with the private key.
    pub key: PathBuf,
    ca_pem: String,
    leaf: Leaf,
}

/// Name and addresses of a member before it is started.
struct MemberSpec {
    name: String,
    client_port: u16,
    peer_port: u16,
}

impl EtcdCluster {
    /// Starts a cluster of so many members and waits until each of them serves.
    pub async fn start(env: &TestEnv, members: usize) -> Result<Self> {
        Self::start_with(env, members, EtcdOptions::default()).await
    }

    /// Starts a cluster with options of the test's own.
    pub async fn start_with(env: &TestEnv, members: usize, options: EtcdOptions) -> Result<Self> {
        ensure!(members > 0, "a cluster has at least one member");
        let dir = env.make_dir(options.prefix())?;
        let tls = options.tls.then(|| EtcdTls::make(&dir)).transpose()?;
        let slots = (0..members).map(|i| MemberSpec::take(&options, i)).collect::<Result<Vec<_>>>()?;
        let mut cluster = Self { members: Vec::new(), tls, dir, slots: Vec::new() };
        for slot in &slots {
            cluster.members.push(cluster.launch(env, &options, slot, &slots)?);
        }
        for member in &mut cluster.members {
            member.wait_until_ready().await?;
        }
        cluster.slots = slots;
        Ok(cluster)
    }

    /// Adds a learner, and waits until it has joined. Its index is the last one.
    pub async fn add_learner(&mut self, env: &TestEnv) -> Result<()> {
        let options = EtcdOptions {
            flags: vec!["--initial-cluster-state=existing".to_owned()],
            ..EtcdOptions::default()
        };
        let slot = MemberSpec::take(&options, self.slots.len())?;
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let url = format!("--peer-urls={scheme}://127.0.0.1:{}", slot.peer_port);
        // A cluster that has just started takes no members.
        let add = async || self.etcdctl(&["member", "add", &slot.name, "--learner", &url]).await?.text();
        until("the cluster to take a learner", START_DEADLINE, add).await?;
        self.slots.push(slot);
        let slot = &self.slots[self.slots.len() - 1];
        let learner = self.launch(env, &options, slot, &self.slots)?;
        let url = learner.client_url.clone();
        self.members.push(learner);
        until("the learner to join", START_DEADLINE, async || {
            let list = self.etcdctl_at(&self.members[0].client_url, &["member", "list"]).await?.text()?;
            ensure!(list.contains(&url), "{list}");
            Ok(())
        })
        .await
    }

    /// Client URLs of all members, running or not.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| member.client_url.clone()).collect()
    }

    /// The member of that index.
    ///
    /// Panics when there is none.
    pub fn member(&mut self, index: usize) -> &mut EtcdMember {
        &mut self.members[index]
    }

    /// How to reach it with TLS; `None` without.
    pub fn tls(&self) -> Option<&EtcdTls> {
        self.tls.as_ref()
    }

    /// Runs etcdctl against all members.
    pub async fn etcdctl(&self, args: &[&str]) -> Result<Output> {
        self.etcdctl_at(&self.endpoints().join(","), args).await
    }

    /// Saves a snapshot of one member to a file.
    pub async fn save_snapshot(&self, member: usize, path: &Path) -> Result<()> {
        let path = path.to_string_lossy();
        let endpoint = &self.members[member].client_url;
        self.etcdctl_at(endpoint, &["snapshot", "save", &path]).await?.text().map(drop)
    }

    /// Ends the only member of a cluster and starts it on what a snapshot holds, as an operator restores it: its revisions go back.
    pub async fn restore_snapshot(&mut self, path: &Path) -> Result<()> {
        ensure!(self.slots.len() == 1 && self.tls.is_none(), "only a cluster of one member without TLS");
        let (slot, member) = (&self.slots[0], &mut self.members[0]);
        member.kill();
        fs::remove_dir_all(&member.data_dir)?;
        let peer = format!("http://127.0.0.1:{}", slot.peer_port);
        let mut command = Command::new(binaries::find("etcdutl")?);
        command.args(["snapshot", "restore"]).arg(path).arg("--data-dir").arg(&member.data_dir);
        command.args(["--name", &slot.name, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("{}={peer}", slot.name)]).current_dir(&self.dir);
        tool::run(command, b"").await?.text()?;
        member.restart().await
    }

    /// Runs etcdctl against these endpoints, with the cluster's certificates.
    pub async fn etcdctl_at(&self, endpoints: &str, args: &[&str]) -> Result<Output> {
        let mut command = Command::new(binaries::find("etcdctl")?);
        command.arg("--endpoints").arg(endpoints).args(args).current_dir(&self.dir);
        if let Some(tls) = &self.tls {
            command.arg("--cacert").arg(&tls.ca).arg("--cert").arg(&tls.cert).arg("--key").arg(&tls.key);
        }
        tool::run(command, b"").await
    }

    fn launch(
        &self,
        env: &TestEnv,
        options: &EtcdOptions,
        slot: &MemberSpec,
        all: &[MemberSpec],
    ) -> Result<EtcdMember> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let client_url = format!("{scheme}://127.0.0.1:{}", slot.client_port);
        let data_dir = self.dir.join(&slot.name);
        let mut spec = slot.spec(scheme, all)?.flag("data-dir", &data_dir).args(&options.flags);
        if let Some(tls) = &self.tls {
            spec = tls.add_flags(spec);
        }
        let probe = Api::new(&self.probe_access(&client_url))?;
        let process = Process::start(env, spec)?;
        Ok(EtcdMember { name: slot.name.clone(), client_url, data_dir, process, probe })
    }

    fn probe_access(&self, client_url: &str) -> Access {
        let (ca_pem, credential) = match &self.tls {
            Some(tls) => (tls.ca_pem.clone(), Credential::Certificate(tls.leaf.clone())),
            None => (String::new(), Credential::Anonymous),
        };
        Access { server: client_url.to_owned(), ca_pem, credential }
    }
}

impl EtcdOptions {
    fn prefix(&self) -> &str {
        if self.name.is_empty() { "etcd" } else { &self.name }
    }
}

impl EtcdMember {
    /// Its name in the cluster.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The URL for clients of the member.
    pub fn client_url(&self) -> &str {
        &self.client_url
    }

    /// The data directory of the member.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Its process, to pause or stop it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Ends it at once (SIGKILL).
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again on the same data and waits until it serves.
    pub async fn restart(&mut self) -> Result<()> {
        self.process.restart()?;
        self.wait_until_ready().await
    }

    /// Waits until it answers a linearizable read, so it has a leader.
    pub async fn wait_until_ready(&mut self) -> Result<()> {
        let Self { process, probe, .. } = self;
        process.ready(START_DEADLINE, async || check_health(probe).await).await
    }
}

pub(crate) async fn check_health(probe: &Api) -> Result<()> {
    let request = probe.request(reqwest::Method::GET, "/health").timeout(PROBE_TIMEOUT);
    let answer = crate::http::send(request).await?;
    ensure!(answer.ok()?["health"] == "true", "{answer}");
    Ok(())
}

impl MemberSpec {
    fn take(options: &EtcdOptions, index: usize) -> Result<Self> {
        let name = format!("{}-{index}", options.prefix());
        Ok(Self { name, client_port: port::reserve()?, peer_port: port::reserve()? })
    }

    fn spec(&self, scheme: &str, all: &[MemberSpec]) -> Result<Spec> {
        let client = format!("{scheme}://127.0.0.1:{}", self.client_port);
        let peer = |slot: &MemberSpec| format!("{scheme}://127.0.0.1:{}", slot.peer_port);
        let cluster: Vec<_> = all.iter().map(|slot| format!("{}={}", slot.name, peer(slot))).collect();
        Ok(Spec::new(&self.name, binaries::find("etcd")?)
            .flag("name", &self.name)
            .flag("listen-client-urls", &client)
            .flag("advertise-client-urls", &client)
            .flag("listen-peer-urls", peer(self))
            .flag("initial-advertise-peer-urls", peer(self))
            .flag("initial-cluster", cluster.join(","))
            .flag("initial-cluster-state", "new"))
    }
}

impl EtcdTls {
    fn make(dir: &Path) -> Result<Self> {
        let authority = Ca::new("etcd-ca")?;
        let leaf = authority.leaf("etcd", &[], &["localhost", "127.0.0.1"], Usage::Peer)?;
        let (cert, key) = leaf.write(dir, "etcd")?;
        Ok(Self { ca: authority.write(dir, "etcd-ca")?, cert, key, ca_pem: authority.pem(), leaf })
    }

    fn add_flags(&self, spec: Spec) -> Spec {
        ["", "peer-"].iter().fold(spec, |spec, side| {
            spec.flag(&format!("{side}cert-file"), &self.cert)
                .flag(&format!("{side}key-file"), &self.key)
                .flag(&format!("{side}trusted-ca-file"), &self.ca)
                .flag(&format!("{side}client-cert-auth"), "true")
        })
    }
}
