//! A DNS server with one zone, whose records a test changes while it runs, and a wire to it on which datagrams get lost or are late:
//! Knot DNS from the distribution. [`dns_cache`](crate::dns_cache) has caches before it.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use tokio::net::UdpSocket;
use tokio::process::Command;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

use crate::process::{Process, Spec};
use crate::test_env::TestEnv;
use crate::wait::until;
use crate::{port, tool};

/// The zone that the server owns.
pub const ZONE: &str = "own.test";
/// How long each of its records may be kept at first, in seconds.
pub const TTL: u32 = 1;
pub(crate) const START_DEADLINE: Duration = Duration::from_secs(60);
/// The longest datagram.
const DATAGRAM: usize = 65_535;

/// A server of [`ZONE`]. It ends when it is dropped.
pub struct DnsServer {
    process: Process,
    /// The way that clients take.
    pub wire: Wire,
    port: u16,
    zone: Mutex<Zone>,
    /// Paths of sockets have to be short.
    dir: TempDir,
}

struct Zone {
    ttl: u32,
    serial: u32,
    /// Address of its name server, by its own records.
    server: Ipv4Addr,
    texts: BTreeMap<String, Vec<String>>,
}

impl DnsServer {
    /// Starts one whose zone has no TXT records, and waits until it answers.
    pub async fn start(env: &TestEnv) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("repot-dns.").tempdir()?;
        let port = port::reserve()?;
        fs::write(dir.path().join("knot.conf"), configuration(dir.path(), port))?;
        let spec = Spec::new("knotd", "knotd").arg("--config").arg(dir.path().join("knot.conf"));
        let zone = Zone { ttl: TTL, serial: 0, server: name_server(port), texts: BTreeMap::new() };
        zone.write(dir.path())?;
        let process = Process::start(env, spec).context("knotd is missing: install it by `make tools`")?;
        let wire = Wire::start((Ipv4Addr::LOCALHOST, port).into()).await?;
        let mut server = Self { process, wire, port, zone: Mutex::new(zone), dir };
        server.wait_until_ready().await?;
        Ok(server)
    }

    /// Waits until it takes orders and has its zone.
    pub async fn wait_until_ready(&mut self) -> Result<()> {
        let Self { process, dir, .. } = self;
        let probe = async || knotc(dir.path(), &["zone-read", ZONE, "@", "SOA"]).await;
        process.ready(START_DEADLINE, probe).await
    }

    /// Its address by way of the wire, which is for UDP only.
    pub fn address(&self) -> SocketAddr {
        self.wire.address
    }

    /// The address of the server itself, past the relay.
    pub fn direct(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// A wire to it from the address that the zone gives for its name server, at port 53, which only root may open.
    pub async fn open_port_53(&self) -> Result<Wire> {
        let at = SocketAddr::from((name_server(self.port), 53));
        Wire::start_at(at, self.direct()).await.with_context(|| format!("nobody can listen on {at}"))
    }

    /// Its process, to pause, kill or restart it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Sets the TXT records of a name in the zone, such as `owner`; none of them removes the name. It answers so when this returns.
    pub async fn set(&self, name: &str, values: &[&str]) -> Result<()> {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        self.change(|zone| drop(zone.texts.insert(name.to_owned(), values))).await
    }

    /// Sets for how many seconds its records may be kept from now on.
    pub async fn set_ttl(&self, ttl: u32) -> Result<()> {
        self.change(|zone| zone.ttl = ttl).await
    }

    async fn change(&self, change: impl FnOnce(&mut Zone)) -> Result<()> {
        {
            let mut zone = self.zone.lock().ok().context("a thread died while it changed the zone")?;
            change(&mut zone);
            zone.serial += 1;
            zone.write(self.dir.path())?;
        }
        // One that does not run reads the file when it starts.
        if fs::exists(Path::new("/proc").join(self.process.pid().to_string()))? {
            let reload = async || knotc(self.dir.path(), &["--blocking", "zone-reload", ZONE]).await;
            until("the zone to be reloaded", START_DEADLINE, reload).await?;
        }
        Ok(())
    }
}

/// An address on loopback that no other server has.
fn name_server(port: u16) -> Ipv4Addr {
    let [high, low] = port.to_be_bytes();
    Ipv4Addr::new(127, 53, high, low)
}

impl Zone {
    fn write(&self, dir: &Path) -> Result<()> {
        let ttl = self.ttl;
        let mut text = format!(
            "{ZONE}. {ttl} SOA ns.{ZONE}. nobody.{ZONE}. {} 3600 600 86400 {ttl}\n{ZONE}. {ttl} NS ns.{ZONE}.\nns.{ZONE}. {ttl} A {}\n",
            self.serial + 1,
            self.server
        );
        for (name, value) in self.texts.iter().flat_map(|(name, all)| all.iter().map(move |one| (name, one)))
        {
            // A string of TXT has 255 bytes at most.
            let strings: Vec<String> = value
                .as_bytes()
                .chunks(255)
                .map(|part| format!("\"{}\"", String::from_utf8_lossy(part)))
                .collect();
            text += &format!("{name}.{ZONE}. {ttl} TXT {}\n", strings.join(" "));
        }
        Ok(fs::write(dir.join("zone"), text)?)
    }
}

fn configuration(dir: &Path, port: u16) -> String {
    let dir = dir.display();
    format!(
        "server:
  listen: 127.0.0.1@{port}
  rundir: {dir}
  udp-workers: 1
  tcp-workers: 1
  background-workers: 1
database:
  storage: {dir}
control:
  listen: {dir}/control
log:
  - target: stderr
    any: info
zone:
  - domain: {ZONE}
    file: {dir}/zone
    journal-content: none
"
    )
}

async fn knotc(dir: &Path, args: &[&str]) -> Result<()> {
    let mut command = Command::new("knotc");
    command.arg("--socket").arg(dir.join("control")).args(args);
    let output = tool::run(command, b"").await?;
    ensure!(output.succeeded(), "knotc {args:?}: {}", output.stderr);
    Ok(())
}

/// What happens to datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// They pass.
    Pass,
    /// Answers come so much later.
    Late(Duration),
    /// They get lost.
    Lost,
}

/// A wire for datagrams, with an address of its own.
pub struct Wire {
    address: SocketAddr,
    fate: Arc<Mutex<Fate>>,
    task: AbortHandle,
}

impl Wire {
    /// A wire to a server from a port of its own on 127.0.0.1.
    pub async fn start(target: SocketAddr) -> Result<Self> {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), target).await
    }

    async fn start_at(at: SocketAddr, target: SocketAddr) -> Result<Self> {
        let socket = Arc::new(UdpSocket::bind(at).await?);
        let (address, fate) = (socket.local_addr()?, Arc::new(Mutex::new(Fate::Pass)));
        let task = tokio::spawn(carry(socket, target, fate.clone())).abort_handle();
        Ok(Self { address, fate, task })
    }

    /// Where datagrams go in.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What happens to datagrams from now on.
    pub fn set(&self, fate: Fate) {
        if let Ok(mut current) = self.fate.lock() {
            *current = fate;
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(socket: Arc<UdpSocket>, target: SocketAddr, fate: Arc<Mutex<Fate>>) {
    let mut exchanges = JoinSet::new();
    let mut buffer = vec![0; DATAGRAM];
    loop {
        while exchanges.try_join_next().is_some() {}
        // That somebody has closed his socket is told here too, and is no reason to end.
        let Ok((length, client)) = socket.recv_from(&mut buffer).await else { continue };
        let fate = fate.lock().map_or(Fate::Pass, |fate| *fate);
        if fate != Fate::Lost {
            exchanges.spawn(exchange(socket.clone(), client, buffer[..length].to_vec(), target, fate));
        }
    }
}

/// One question and its answer. What fails is lost, as on any wire; only that nobody is there is not told to the client.
async fn exchange(
    socket: Arc<UdpSocket>,
    client: SocketAddr,
    question: Vec<u8>,
    target: SocketAddr,
    fate: Fate,
) -> Option<()> {
    let own = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.ok()?;
    own.connect(target).await.ok()?;
    own.send(&question).await.ok()?;
    let mut buffer = vec![0; DATAGRAM];
    let length = timeout(START_DEADLINE, own.recv(&mut buffer)).await.ok()?.ok()?;
    if let Fate::Late(delay) = fate {
        sleep(delay).await;
    }
    socket.send_to(&buffer[..length], client).await.ok().map(drop)
}
