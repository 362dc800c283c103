//! The DNS of a landscape: one zone for the names of Shoots, in Knot DNS, changed by updates as in RFC 2136.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tempfile::TempDir;
use tokio::net::UdpSocket;
use tokio::time::timeout;

use super::dns_message::{self, Kind, Values};
use super::wide_network::here;
use crate::pods::OUTSIDE_IP;
use crate::port;
use crate::process::{Process, Spec};
use crate::test_env::TestEnv;

/// The zone: Gardener's internal domain, below which every Shoot has its name.
pub const ZONE: &str = "internal.example.com";
const START_DEADLINE: Duration = Duration::from_secs(60);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
const DATAGRAM: usize = 4096;

/// A running server. It ends when it is dropped. Its zone names it at the address where Pods reach it.
pub struct Dns {
    process: Process,
    resolver: Resolver,
    /// Paths of sockets have to be short.
    _dir: TempDir,
}

/// Resolves names at the server, without a cache: each new connection of a client with this resolver asks anew.
#[derive(Clone, Debug)]
pub struct Resolver {
    server: SocketAddr,
    next_id: Arc<AtomicU16>,
}

/// Changes records of the zone by updates as in RFC 2136.
#[derive(Clone, Debug)]
pub struct Updater(Resolver);

impl Dns {
    /// Starts a server with an empty zone, and waits until it answers.
    pub async fn start(env: &TestEnv) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("repot-zone.").tempdir()?;
        let port = port::reserve()?;
        let serial = 1;
        let zone = format!(
            "{ZONE}. 1 SOA ns.{ZONE}. nobody.{ZONE}. {serial} 3600 600 86400 1\n{ZONE}. 1 NS ns.{ZONE}.\nns.{ZONE}. 1 A {OUTSIDE_IP}\n"
        );
        fs::write(dir.path().join("zone"), zone)?;
        fs::write(dir.path().join("knot.conf"), configuration(dir.path(), port))?;
        let spec = Spec::new("knotd-internal", "knotd").arg("--config").arg(dir.path().join("knot.conf"));
        let process = Process::start(env, spec).context("knotd is missing: install it by `make tools`")?;
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let resolver = Resolver::new(server);
        let mut dns = Self { process, resolver, _dir: dir };
        let Self { process, resolver, .. } = &mut dns;
        let probe = async || {
            let found = resolver.addresses(&format!("ns.{ZONE}")).await?;
            ensure!(!found.is_empty(), "the zone is not loaded yet");
            Ok(())
        };
        process.ready(START_DEADLINE, probe).await?;
        Ok(dns)
    }

    /// The address of the server, for UDP and TCP.
    pub fn address(&self) -> SocketAddr {
        self.resolver.server
    }

    /// A resolver that asks this server.
    pub fn resolver(&self) -> Resolver {
        self.resolver.clone()
    }

    /// Its process, to pause, kill or restart it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// What changes records of the zone.
    pub fn updater(&self) -> Updater {
        Updater(self.resolver())
    }

    /// Sets a record set as [`Updater::set`] does.
    pub async fn set(&self, name: &str, ttl: u32, values: &Values) -> Result<()> {
        self.updater().set(name, ttl, values).await
    }
}

impl Updater {
    /// Replaces the record set of a name below [`ZONE`]; without values it removes the set. It holds when this returns.
    ///
    /// Errors: when the server refuses the update.
    pub async fn set(&self, name: &str, ttl: u32, values: &Values) -> Result<()> {
        let id = self.0.id();
        let update = dns_message::update(id, ZONE, name, ttl, values)?;
        let answer = self.0.exchange(&update).await?;
        dns_message::check(id, &answer).with_context(|| format!("failed to update {name}"))
    }

    /// Removes the record set of a name below [`ZONE`] if it has exactly these values: the server compares and removes at once.
    /// Gives whether it had them.
    ///
    /// Errors: when the server refuses the update, or there are no values.
    pub async fn remove(&self, name: &str, values: &Values) -> Result<bool> {
        let id = self.0.id();
        let answer = self.0.exchange(&dns_message::removal(id, ZONE, name, values)?).await?;
        dns_message::is_met(id, &answer).with_context(|| format!("failed to remove {name}"))
    }
}

impl Resolver {
    /// A resolver that asks this server alone.
    pub fn new(server: SocketAddr) -> Self {
        Self { server, next_id: Arc::new(AtomicU16::new(1)) }
    }

    /// The addresses of a name; none when it does not exist in this type.
    ///
    /// Errors: when the server does not answer in time, or with another response code than 0.
    pub async fn addresses(&self, name: &str) -> Result<Vec<Ipv4Addr>> {
        let id = self.id();
        let answer = self.exchange(&dns_message::query(id, name, Kind::A)?).await?;
        dns_message::addresses(id, &answer).with_context(|| format!("failed to resolve {name}"))
    }

    /// The texts of a name, such as those of an owner record; none when it does not exist in this type.
    ///
    /// Errors: as [`Self::addresses`].
    pub async fn texts(&self, name: &str) -> Result<Vec<String>> {
        let id = self.id();
        let answer = self.exchange(&dns_message::query(id, name, Kind::Txt)?).await?;
        dns_message::texts(id, &answer).with_context(|| format!("failed to resolve {name}"))
    }

    fn id(&self) -> u16 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    async fn exchange(&self, message: &[u8]) -> Result<Vec<u8>> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        socket.connect(self.server).await?;
        socket.send(message).await?;
        let mut answer = vec![0; DATAGRAM];
        let received = timeout(ANSWER_TIMEOUT, socket.recv(&mut answer)).await;
        answer.truncate(received.context("the DNS server did not answer in time")??);
        Ok(answer)
    }
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let resolver = self.clone();
        Box::pin(async move {
            let found = resolver.addresses(name.as_str()).await?;
            // The client puts the port of its URL in the place of this one.
            let addresses: Vec<_> = found.into_iter().map(|ip| SocketAddr::from((here(ip), 0))).collect();
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
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
acl:
  - id: update
    address: 127.0.0.0/8
    action: update
zone:
  - domain: {ZONE}
    file: {dir}/zone
    acl: update
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run;

    #[test]
    fn update_replaces_and_removes_addresses_at_once() {
        run(async |env| {
            let dns = Dns::start(env).await?;
            let (name, resolver) = (format!("api.x.{ZONE}"), dns.resolver());
            for last in [1, 2] {
                let address = Ipv4Addr::new(127, 77, 0, last);
                dns.set(&name, 1, &Values::A(vec![address])).await?;
                ensure!(resolver.addresses(&name).await? == [address], "the update is not seen");
            }
            dns.set(&name, 1, &Values::A(Vec::new())).await?;
            let gone = resolver.addresses(&name).await;
            ensure!(gone.is_err(), "the name is still there: {gone:?}");
            Ok(())
        });
    }

    #[test]
    fn removal_spares_other_values() {
        run(async |env| {
            let dns = Dns::start(env).await?;
            let (name, resolver, updater) = (format!("owner.x.{ZONE}"), dns.resolver(), dns.updater());
            let owner = |id: &str| Values::Txt(vec![id.to_owned()]);
            ensure!(!updater.remove(&name, &owner("seed-a/1")).await?, "there is no record yet");
            updater.set(&name, 5, &owner("seed-b/2")).await?;
            ensure!(!updater.remove(&name, &owner("seed-a/1")).await?, "the record has another value");
            ensure!(resolver.texts(&name).await? == ["seed-b/2"], "the record of the other seed is gone");
            ensure!(updater.remove(&name, &owner("seed-b/2")).await?, "the record has this value");
            let gone = resolver.texts(&name).await;
            ensure!(gone.is_err(), "the name is still there: {gone:?}");
            Ok(())
        });
    }
}
