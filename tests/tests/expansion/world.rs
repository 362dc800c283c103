//! Two sites, a gateway on each, and the driver that holds writes in both.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_client::Client;
use futures::future::{BoxFuture, FutureExt, try_join_all};
use repot_certs::clients::Authorities;
use repot_certs::tls::{Options as TlsOptions, Serving, ServingFiles};
use repot_controllers::members::{Change, Driver, Gateways, Limits, Outcome, Pass};
use repot_etcd::gateway::{Endpoint, Gateway, Handle, Limits as GatewayLimits, Options};
use repot_etcd::link;
use repot_etcd_core::members::Desired;
use repot_tests::sites::{SiteName, SiteOptions, Sites};
use repot_tests::test_env::TestEnv;
use repot_tests::wait::POLL_INTERVAL;
use tokio::time::{Instant, sleep};

use crate::members::world::World;

pub const DEADLINE: Duration = Duration::from_secs(180);
const BOTH: [SiteName; 2] = [SiteName::Source, SiteName::Destination];

/// To the other site, as soon as the third member there can join.
pub const AWAY: Desired = Desired { source: 0, destination: 3, source_before: 3, release_source: true };
/// Back, or where it was.
pub const HOME: Desired = Desired { source: 3, destination: 0, source_before: 3, release_source: false };

/// The gateways of both sites, and the members that each may use.
pub struct Fleet {
    gateways: Vec<GatewayFixture>,
    access: link::Options,
    members: tokio::sync::Mutex<Vec<String>>,
}

/// A gateway, and where members are for it.
struct GatewayFixture {
    site: SiteName,
    handle: Handle,
    urls: Vec<(String, Endpoint)>,
}

pub struct Moving<'a> {
    pub world: World<'a>,
    pub fleet: Arc<Fleet>,
}

impl Fleet {
    async fn open(sites: &Sites, members: Vec<String>) -> Result<Self> {
        let mut gateways = Vec::new();
        for site in BOTH {
            let mut urls = Vec::new();
            for (at, name) in
                BOTH.into_iter().flat_map(|at| sites.names(at).into_iter().map(move |n| (at, n)))
            {
                let endpoint = Endpoint { url: sites.url(&name, site)?, near: at == site };
                urls.push((name, endpoint));
            }
            let first = urls.iter().filter(|(name, _)| members.contains(name)).map(|(_, e)| e.clone());
            gateways.push(GatewayFixture { site, handle: open(sites, first.collect()).await?, urls });
        }
        Ok(Self { gateways, members: members.into(), access: sites.access(Vec::new()) })
    }

    /// How a client reaches the gateway on this site.
    pub fn access(&self, site: SiteName) -> link::Options {
        let gateways = self.gateways.iter().filter(|gateway| gateway.site == site);
        let endpoints = gateways.map(|gateway| format!("https://{}", gateway.handle.addr())).collect();
        link::Options { endpoints, ..self.access.clone() }
    }

    pub fn accesses(&self) -> [link::Options; 2] {
        BOTH.map(|site| self.access(site))
    }

    /// A member that clients may use from now on.
    pub async fn join(&self, slot: &str) -> Result<()> {
        let mut members = self.members.lock().await;
        if !members.iter().any(|member| member == slot) {
            members.push(slot.to_owned());
        }
        self.tell(&members).await
    }

    async fn tell(&self, members: &[String]) -> Result<()> {
        let told = self.gateways.iter().map(async |gateway| {
            let is_used = |(name, _): &&(String, Endpoint)| members.contains(name);
            let used: Vec<_> = gateway.urls.iter().filter(is_used).map(|(_, url)| url.clone()).collect();
            gateway.handle.set_endpoints(&used, Duration::from_secs(10)).await
        });
        try_join_all(told).await?;
        Ok(())
    }
}

impl Gateways for Fleet {
    fn hold<'a>(&'a self, leader: &'a str, longest: Duration) -> BoxFuture<'a, Result<Duration, String>> {
        let is_near =
            |gateway: &&GatewayFixture| gateway.urls.iter().any(|(name, url)| name == leader && url.near);
        let (near, far): (Vec<_>, Vec<_>) = self.gateways.iter().partition(is_near);
        async move {
            let mut left = longest;
            for gateway in far.into_iter().chain(near) {
                left = gateway.handle.hold(left).await.map_err(|error| error.to_string())?;
            }
            Ok(left)
        }
        .boxed()
    }

    fn release(&self) -> BoxFuture<'_, ()> {
        self.gateways.iter().for_each(|gateway| gateway.handle.release());
        async {}.boxed()
    }

    fn leave(&self, slot: &str) -> BoxFuture<'_, Result<(), String>> {
        let slot = slot.to_owned();
        async move {
            let mut members = self.members.lock().await;
            members.retain(|member| *member != slot);
            self.tell(&members).await.map_err(|error| format!("{error:#}"))
        }
        .boxed()
    }
}

impl<'a> Moving<'a> {
    /// Three members at the source, places for three at the destination, and a gateway on each site.
    pub async fn start(env: &'a TestEnv, round_trip: Duration) -> Result<Self> {
        let options = SiteOptions { source: 3, destination: 3, round_trip, compares_names: false };
        let mut world = World::start(env, options, 3).await?;
        let fleet = Arc::new(Fleet::open(&world.sites, world.sites.names(SiteName::Source)).await?);
        // Elections take ten round trips, and writes that are on their way less.
        let longest = 2 * (10 * round_trip).max(Duration::from_secs(2));
        let limits = Limits { look: Duration::from_secs(3) + 4 * round_trip, ..Limits::default() };
        world.driver = Driver::new(world.sites.access(Vec::new()), limits).behind(fleet.clone(), longest);
        Ok(Self { world, fleet })
    }

    /// One pass, after which the gateways know of whoever votes.
    pub async fn pass(&mut self) -> Result<Pass> {
        let pass = self.world.pass().await?;
        if let Outcome::Changed(Change::Promoted { slot }) = &pass.outcome {
            self.fleet.join(slot).await?;
        }
        Ok(pass)
    }

    /// Passes until one is as it should be.
    pub async fn until(&mut self, what: &str, is: impl Fn(&Self, &Outcome) -> bool) -> Result<Pass> {
        let end = Instant::now() + DEADLINE;
        loop {
            let pass = self.pass().await?;
            if is(self, &pass.outcome) {
                return Ok(pass);
            }
            ensure!(Instant::now() < end, "waited for {what}: {:?}", pass.outcome);
            sleep(pass.again.clamp(POLL_INTERVAL, Duration::from_millis(200)).min(again(&pass))).await;
        }
    }

    /// Passes until so many changes were made; fewer, where no more are needed.
    pub async fn advance(&mut self, changes: usize) -> Result<()> {
        let is = |_: &Self, outcome: &Outcome| matches!(outcome, Outcome::Changed(_) | Outcome::Done);
        while self.world.changes.len() < changes {
            if self.until("a change", is).await?.outcome == Outcome::Done {
                break;
            }
        }
        Ok(())
    }

    /// Passes until the members are these.
    pub async fn until_done(&mut self, site: SiteName) -> Result<()> {
        let done = self.until("the members", |_, outcome| *outcome == Outcome::Done).await?;
        let seen = done.seen.as_ref().context("nothing was seen")?;
        let names = self.world.sites.names(site);
        let mut members: Vec<_> = seen.members.iter().map(|member| member.slot.clone()).collect();
        members.sort_unstable();
        ensure!(members == names, "{members:?}");
        Ok(())
    }
}

/// A gateway with certificates on both sides.
async fn open(sites: &Sites, endpoints: Vec<Endpoint>) -> Result<Handle> {
    let (certificate, key, ca) = sites.serving_files();
    let options = Options {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        serving: Some(Serving::load(TlsOptions::from(ServingFiles { certificate, key }))?),
        clients: Some(Authorities::load(ca)?),
        endpoints,
        access: sites.access(Vec::new()),
        limits: GatewayLimits::default(),
    };
    Ok(Gateway::start(options).await?)
}

/// A client of one member on its own site.
pub async fn client_of(sites: &Sites, name: &str, site: SiteName) -> Result<Client> {
    Ok(link::connect(&sites.access(vec![sites.url(name, site)?])).await?)
}

/// Nothing comes between a change and the next where that is due at once.
fn again(pass: &Pass) -> Duration {
    if matches!(pass.outcome, Outcome::Changed(_)) { Duration::ZERO } else { Duration::MAX }
}
