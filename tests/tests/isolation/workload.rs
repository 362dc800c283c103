//! A zone becomes slow, and its isolation gives clients of a stateful workload back what they had; nothing in the zone is reached then.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use repot_tests::landscape::subnets::Subnets;
use repot_tests::landscape::{ControlPlaneOptions, DEADLINE, ShootNetwork};
use repot_tests::relay::Link;
use repot_tests::wait::until;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::writers::{Seen, Writers};
use super::zonal_etcd::{self, CLIENT_PORT, SERVICE};
use super::{ZONE, ZONES, annotate, in_three_zones, until_shown};
use crate::migration::world::{SEEDS, World, run};

/// How long clients are watched for their latencies.
const WINDOW: Duration = Duration::from_secs(20);
/// One way into the slow zone, and packets of a hundred that are lost there.
const SLOW: (Duration, u32) = (Duration::from_millis(50), 2);
const TIMEOUT: Duration = Duration::from_secs(2);
/// Where a server in the zone listens that is no machine of the Shoot.
const PORT: u16 = 7;

/// Servers that nobody drains, at addresses of two zones.
struct Probe<'a> {
    network: &'a ShootNetwork,
    outside: Ipv4Addr,
    inside: Ipv4Addr,
    _link: watch::Sender<Link>,
    _relays: JoinSet<()>,
}

impl<'a> Probe<'a> {
    async fn start(network: &'a ShootNetwork, subnets: &Subnets, server: u16) -> Result<Self> {
        let outside = subnets.spare_address(ZONES[0])?;
        let inside = subnets.spare_address(ZONE.1)?;
        network.network().add_address(outside).await?;
        let (sender, link) = watch::channel(Link::default());
        let (at, server) = ((inside, PORT).into(), (Ipv4Addr::LOCALHOST, server).into());
        let mut relays = JoinSet::new();
        relays.spawn(network.network().network().open(at, server, link).await?);
        Ok(Self { network, outside, inside, _link: sender, _relays: relays })
    }

    async fn connects(&self, from: Ipv4Addr) -> bool {
        self.network.network().connects(from, SocketAddr::from((self.inside, PORT)), TIMEOUT).await
    }

    /// Servers of the zone are reached from there, and from another zone only if `open`.
    async fn ensure(&self, open: bool) -> Result<()> {
        ensure!(self.connects(self.inside).await, "the zone does not reach itself");
        ensure!(self.connects(self.outside).await == open, "another zone reaches it: {}", !open);
        Ok(())
    }
}

#[test]
#[ignore = "minutes, in make soak"]
fn slow_zone_is_isolated_and_clients_of_a_stateful_workload_get_their_latency_back() {
    run(async |env| {
        let options = ControlPlaneOptions { network: true, ..in_three_zones() };
        let world = World::create(env, "stateful", options).await?;
        let network = world.shoot.network.clone().context("the nodes have no network")?;
        zonal_etcd::create(&world, &network, &env.make_dir("disks")?).await?;
        let (service, _balancer) = serve(&network).await?;
        let writers = Writers::start(service)?;
        let subnets = network.subnets();
        let probe = Probe::start(&network, subnets, world.landscape.cloud.port()).await?;
        probe.ensure(true).await?;
        let before = watch_clients("all zones are well", &writers).await;

        let slow = subnets.slow_down(ZONE.1, SLOW.0, SLOW.1).await?;
        let suffering = watch_clients("a zone is slow", &writers).await;
        ensure!(suffering.p99 > before.p99.max(SLOW.0 * 2), "{before:?}, {suffering:?}");
        let asked = Instant::now();
        annotate(&world, &json!(ZONE.0)).await?;
        until_latency_is_back(&writers, asked, &before).await?;
        until_shown(&world, ("Failover", "Done")).await?;
        let failed = writers.since(asked).failed.len();
        println!("the failover took {:?}, and {failed} writes failed", asked.elapsed());
        let done = Instant::now();
        probe.ensure(false).await?;
        ensure!(subnets.dropped().await? > 0, "no packet was dropped");
        let during = watch_clients("the zone is isolated", &writers).await;
        ensure!(during.p99 < SLOW.0.max(before.p99 * 2), "{before:?}, {during:?}");
        zonal_etcd::until_ready(&world, ZONES.len() - 1).await?;

        drop(slow);
        let asked = Instant::now();
        annotate(&world, &Value::Null).await?;
        until_shown(&world, ("Failback", "Done")).await?;
        zonal_etcd::until_ready(&world, ZONES.len()).await?;
        println!("the failback took {:?}", asked.elapsed());
        probe.ensure(true).await?;
        watch_clients("all zones are used again", &writers).await;
        let since = writers.since(done);
        ensure!(
            since.failed.is_empty(),
            "after the failover {} failed: {:#?}",
            since.failed.len(),
            since.failed
        );
        println!(
            "{} acknowledged writes are there, {} since the failover",
            writers.ensure_none_lost().await?,
            since.writes
        );
        world.stop(SEEDS.0).await
    });
}

/// A load balancer for the Service of the workload.
async fn serve(network: &ShootNetwork) -> Result<(SocketAddr, JoinSet<()>)> {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, repot_tests::port::reserve()?));
    let mut tasks = JoinSet::new();
    tasks.spawn(network.balancer().open(at, SERVICE, CLIENT_PORT).await?);
    Ok((at, tasks))
}

/// What clients see in a while from now on.
async fn watch_clients(what: &str, writers: &Writers) -> Seen {
    let from = Instant::now();
    // Latencies are measured over a time.
    sleep(WINDOW).await;
    let seen = writers.since(from);
    let Seen { writes, failed, p50, p99 } = &seen;
    println!("{what}: {writes} writes, {} failed, p50 {p50:?}, p99 {p99:?}", failed.len());
    seen
}

/// Waits until a few seconds pass in which clients are no slower than the way into the slow zone.
async fn until_latency_is_back(writers: &Writers, asked: Instant, before: &Seen) -> Result<()> {
    const LATELY: Duration = Duration::from_secs(5);
    until("clients to be as fast as before", DEADLINE, async || {
        let lately = writers.since(Instant::now().checked_sub(LATELY).unwrap_or(asked));
        // Less than one way into the slow zone: none of the writes has waited for it.
        let wanted = SLOW.0.max(before.p99 * 2);
        ensure!(lately.writes > 50 && lately.failed.is_empty() && lately.p99 < wanted, "{lately:?}");
        Ok(())
    })
    .await?;
    println!("p99 was below {:?} for {LATELY:?} after {:?}", SLOW.0.max(before.p99 * 2), asked.elapsed());
    Ok(())
}
