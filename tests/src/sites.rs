//! Members of one etcd on two sites, with a link between the sites that a test can make slow, stall and cut.
//!
//! A member is known by a name, as it is in the world: each site has an `/etc/hosts` of its own, in a mount namespace of its
//! processes, where names of the own site are at 127.0.0.1 and names of the other one at 127.0.0.2, where relays listen. A client
//! is on one of the sites, too: [`Sites::url`] says where a member is for it.
//!
//! Clients and members show certificates. That of a member has its name alone, as those of Pods have, and a member of the other site
//! is seen at an address that is not that of the name: `--peer-skip-client-san-verification` lets it in all the same.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_etcd::link;
use tempfile::{Builder, TempDir};

use crate::access::{Access, Credential};
use crate::http::Api;
use crate::pki::{Ca, Leaf, Usage};
use crate::process::{Process, Spec};
use crate::relay::Relay;
use crate::test_env::TestEnv;
use crate::{binaries, port};

const START_DEADLINE: Duration = Duration::from_secs(60);
/// Where the other site is.
const ABROAD: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// One of the two sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteName {
    /// Where the etcd begins.
    Source,
    /// Where it may go.
    Destination,
}

/// What the sites are like.
#[derive(Clone, Copy, Debug)]
pub struct SiteOptions {
    /// Places for members at the source.
    pub source: usize,
    /// Places for members at the destination.
    pub destination: usize,
    /// Time that a byte takes from one site to the other and back.
    pub round_trip: Duration,
    /// Whether members compare the address of another one with the names in its certificate: then none of the other site is let in.
    pub compares_names: bool,
}

/// Both sites. Their processes end when it is dropped.
pub struct Sites {
    places: Vec<MemberAddress>,
    relays: Vec<Relay>,
    heartbeat: Duration,
    data: TempDir,
    tls: Tls,
}

/// Certificates of one authority.
struct Tls {
    ca: Ca,
    client: Leaf,
    /// `ca.crt`, and for each member `<name>-server.crt`, `<name>-peer.crt` and their keys.
    dir: PathBuf,
    compares_names: bool,
}

/// A place for a member.
struct MemberAddress {
    site: SiteName,
    name: String,
    client_port: u16,
    peer_port: u16,
    hosts: PathBuf,
    process: Option<Process>,
}

impl Sites {
    /// Two sites without members.
    pub async fn new(env: &TestEnv, options: SiteOptions) -> Result<Self> {
        let dir = env.make_dir("sites")?;
        let mut places = Vec::new();
        for (site, count) in
            [(SiteName::Source, options.source), (SiteName::Destination, options.destination)]
        {
            for at in 0..count {
                let name = format!("{}-{at}", site.word());
                let hosts = dir.join(format!("hosts-{}", site.word()));
                let (client_port, peer_port) = (port::reserve()?, port::reserve()?);
                places.push(MemberAddress { site, name, client_port, peer_port, hosts, process: None });
            }
        }
        for here in [SiteName::Source, SiteName::Destination] {
            let line = |place: &MemberAddress| {
                let address = if place.site == here { Ipv4Addr::LOCALHOST } else { ABROAD };
                format!("{address} {}\n", place.host())
            };
            let lines: String = places.iter().map(line).collect();
            fs::write(dir.join(format!("hosts-{}", here.word())), format!("127.0.0.1 localhost\n{lines}"))?;
        }
        let mut relays = Vec::new();
        for port in places.iter().flat_map(|place| [place.client_port, place.peer_port]) {
            let target = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let relay = Relay::start_at((ABROAD, port).into(), &[target]).await?;
            relay.set_round_trip(options.round_trip);
            relays.push(relay);
        }
        // As long as a round trip takes, at least etcd's own.
        let heartbeat = options.round_trip.max(Duration::from_millis(100));
        let tls = Tls::new(env.make_dir("sites-tls")?, &places, options.compares_names)?;
        Ok(Self { places, relays, heartbeat, data: make_data_dir()?, tls })
    }

    /// How a client reaches something at these URLs.
    pub fn access(&self, endpoints: Vec<String>) -> link::Options {
        let Tls { ca, client, .. } = &self.tls;
        link::Options {
            endpoints,
            ca: Some(ca.pem().into_bytes()),
            identity: Some((client.cert_pem.clone().into(), client.key_pem.clone().into())),
            ..link::Options::default()
        }
    }

    /// Files of a server on a site that clients of members may call: its certificate, its key, and who signs those of clients.
    pub fn serving_files(&self) -> (PathBuf, PathBuf, PathBuf) {
        let file = |name: &str| self.tls.dir.join(name);
        (file("gateway.crt"), file("gateway.key"), file("ca.crt"))
    }

    /// Names of all places at a site, taken or not.
    pub fn names(&self, site: SiteName) -> Vec<String> {
        self.places.iter().filter(|place| place.site == site).map(|place| place.name.clone()).collect()
    }

    /// The URL at which a member is for other members, on both sites.
    pub fn peer_url(&self, name: &str) -> Result<String> {
        let place = self.place(name)?;
        Ok(format!("https://{}:{}", place.host(), place.peer_port))
    }

    /// The URL at which a member is for a client on this site.
    pub fn url(&self, name: &str, from: SiteName) -> Result<String> {
        let place = self.place(name)?;
        let address = if place.site == from { Ipv4Addr::LOCALHOST } else { ABROAD };
        Ok(format!("https://{address}:{}", place.client_port))
    }

    /// Starts the first members of the source, which found the cluster, and waits until each serves.
    pub async fn found(&mut self, env: &TestEnv, count: usize) -> Result<()> {
        let names: Vec<String> = self.names(SiteName::Source).into_iter().take(count).collect();
        ensure!(names.len() == count, "there are only {} places", names.len());
        let all =
            names.iter().map(|name| Ok((name.clone(), self.peer_url(name)?))).collect::<Result<Vec<_>>>()?;
        for name in &names {
            self.launch(env, name, &all, "new")?;
        }
        for name in &names {
            self.wait_until_ready(name).await?;
        }
        Ok(())
    }

    /// Starts a member on an empty data directory, to join these members (names and peer URLs, its own among them).
    pub fn join(&mut self, env: &TestEnv, name: &str, members: &[(String, String)]) -> Result<()> {
        self.launch(env, name, members, "existing")
    }

    /// Ends a member at once (SIGKILL) and forgets its data.
    pub fn discard(&mut self, name: &str) -> Result<()> {
        self.place_mut(name)?.process = None;
        Ok(())
    }

    /// The process of a member.
    pub fn process(&mut self, name: &str) -> Result<&mut Process> {
        self.place_mut(name)?.process.as_mut().with_context(|| format!("{name} was not started"))
    }

    /// Whether the member of that name was started and not discarded.
    pub fn is_started(&self, name: &str) -> bool {
        self.place(name).is_ok_and(|place| place.process.is_some())
    }

    /// Waits until the member answers a linearizable read.
    pub async fn wait_until_ready(&mut self, name: &str) -> Result<()> {
        let server = self.url(name, self.place(name)?.site)?;
        let credential = Credential::Certificate(self.tls.client.clone());
        let probe = Api::new(&Access { server, ca_pem: self.tls.ca.pem(), credential })?;
        let process = self.process(name)?;
        process.ready(START_DEADLINE, async || crate::etcd::check_health(&probe).await).await
    }

    /// Changes the link, at once, for all connections between the sites.
    pub fn link(&self, change: impl Fn(&Relay)) {
        self.relays.iter().for_each(change);
    }

    fn place(&self, name: &str) -> Result<&MemberAddress> {
        self.places.iter().find(|place| place.name == name).with_context(|| format!("no place {name}"))
    }

    fn place_mut(&mut self, name: &str) -> Result<&mut MemberAddress> {
        self.places.iter_mut().find(|place| place.name == name).with_context(|| format!("no place {name}"))
    }

    fn launch(&mut self, env: &TestEnv, name: &str, all: &[(String, String)], state: &str) -> Result<()> {
        let (heartbeat, peer, certificates) = (self.heartbeat, self.peer_url(name)?, self.tls.flags(name));
        let dir = Builder::new().prefix(name).disable_cleanup(true).tempdir_in(&self.data)?;
        let place = self.place_mut(name)?;
        let local = |port| format!("https://127.0.0.1:{port}");
        let cluster: Vec<_> = all.iter().map(|(name, url)| format!("{name}={url}")).collect();
        let spec = place
            .spec()?
            .flag("name", name)
            .flag("data-dir", dir.path())
            .flag("listen-client-urls", local(place.client_port))
            .flag("advertise-client-urls", local(place.client_port))
            .flag("listen-peer-urls", local(place.peer_port))
            .flag("initial-advertise-peer-urls", peer)
            .flag("initial-cluster", cluster.join(","))
            .flag("initial-cluster-state", state)
            .flag("heartbeat-interval", heartbeat.as_millis().to_string())
            .flag("election-timeout", (heartbeat * 10).as_millis().to_string());
        let spec = certificates.into_iter().fold(spec, |spec, (flag, value)| spec.flag(&flag, value));
        place.process = Some(Process::start(env, spec)?);
        Ok(())
    }
}

impl Tls {
    fn new(dir: PathBuf, places: &[MemberAddress], compares_names: bool) -> Result<Self> {
        let ca = Ca::new("sites-ca")?;
        ca.write(&dir, "ca")?;
        let loopback = ["127.0.0.1", "127.0.0.2"];
        for place in places {
            ca.leaf(&place.name, &[], &loopback, Usage::Peer)?
                .write(&dir, &format!("{}-server", place.name))?;
            ca.leaf(&place.name, &[], &[&place.host()], Usage::Peer)?
                .write(&dir, &format!("{}-peer", place.name))?;
        }
        ca.server(&loopback)?.write(&dir, "gateway")?;
        Ok(Self { client: ca.client("somebody", &[])?, ca, dir, compares_names })
    }

    /// What a member is told.
    fn flags(&self, name: &str) -> Vec<(String, String)> {
        let mut flags = Vec::new();
        for (side, prefix) in [("server", ""), ("peer", "peer-")] {
            let file = |name: String| self.dir.join(name).display().to_string();
            flags.extend([
                (format!("{prefix}cert-file"), file(format!("{name}-{side}.crt"))),
                (format!("{prefix}key-file"), file(format!("{name}-{side}.key"))),
                (format!("{prefix}trusted-ca-file"), file("ca.crt".to_owned())),
                (format!("{prefix}client-cert-auth"), "true".to_owned()),
            ]);
        }
        flags.extend(
            (!self.compares_names).then(|| ("peer-skip-client-san-verification".into(), "true".into())),
        );
        flags
    }
}

/// Where all data of the members is: in memory, where there is such a place. Members that share one disk wait for each other's
/// syncs, which members on two sites never do.
fn make_data_dir() -> Result<TempDir> {
    let builder = || Builder::new().prefix("repot-sites-").tempdir_in("/dev/shm");
    Ok(builder().or_else(|_| TempDir::new())?)
}

impl SiteName {
    /// The other one of the two sites.
    pub fn other(self) -> Self {
        match self {
            Self::Source => Self::Destination,
            Self::Destination => Self::Source,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Destination => "destination",
        }
    }
}

impl MemberAddress {
    fn host(&self) -> String {
        format!("{}.peer", self.name)
    }

    /// etcd with the names of its site: only processes in this mount namespace see them.
    fn spec(&self) -> Result<Spec> {
        let mut spec = Spec::new(&self.name, "unshare").arg("--mount");
        if !rustix::process::getuid().is_root() {
            spec = spec.arg("--map-root-user");
        }
        let script = r#"mount --bind "$0" /etc/hosts && exec "$@""#;
        Ok(spec.args(["sh", "-c", script]).arg(&self.hosts).arg(binaries::find("etcd")?))
    }
}
