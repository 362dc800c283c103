//! Zones of a network are cut off, and far away, as rules of nftables say.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Result, ensure};
use kube::{Client, Config};
use repot_tests::access::{Access, Credential};
use repot_tests::http::Api;
use repot_tests::pods::NodeNetwork;
use repot_tests::relay::Link;
use repot_tests::run;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;

const OUTSIDE: Ipv4Addr = Ipv4Addr::new(10, 250, 0, 9);
const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 250, 1, 9);
const PORT: u16 = 7;
const TIMEOUT: Duration = Duration::from_secs(2);
const TABLE: &str = "isolated";

/// A network without a cluster, with a server in a zone that only it and another zone know.
struct Zones {
    network: NodeNetwork,
    server: SocketAddr,
}

impl Zones {
    async fn connects(&self, from: Ipv4Addr) -> bool {
        self.network.connects(from, self.server, TIMEOUT).await
    }
}

#[test]
fn zone_that_is_isolated_reaches_itself_alone_and_a_far_one_is_far() {
    run(async |env| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let nobody = "https://127.0.0.1:1";
        let access =
            Access { server: nobody.to_owned(), ca_pem: String::new(), credential: Credential::Anonymous };
        let client = Client::try_from(Config::new(nobody.parse()?))?;
        let network =
            NodeNetwork::start(env, "zones", listener.local_addr()?, (client, Api::new(&access)?)).await?;
        let (_sender, link) = watch::channel(Link::default());
        let server = SocketAddr::from((INSIDE, PORT));
        network.add_address(OUTSIDE).await?;
        let relay = tokio::spawn(network.network().open(server, listener.local_addr()?, link).await?);
        let zones = Zones { network, server };
        follow(&zones).await?;
        relay.abort();
        Ok(())
    });
}

async fn follow(zones: &Zones) -> Result<()> {
    let (firewall, zone) = (zones.network.firewall(), ["10.250.1.0/24".to_owned(), NodeNetwork::pods_of(1)]);
    ensure!(zones.connects(OUTSIDE).await, "zones reach each other at first");
    firewall.release(TABLE).await?;
    for _ in 0..2 {
        firewall.isolate(TABLE, &zone).await?;
        ensure!(zones.connects(INSIDE).await, "the zone does not reach itself");
        ensure!(!zones.connects(OUTSIDE).await, "another zone reaches it");
        ensure!(firewall.dropped(TABLE).await? > 0, "no packet was dropped");
    }
    firewall.release(TABLE).await?;
    ensure!(zones.connects(OUTSIDE).await, "the rule is still there");
    ensure!(firewall.dropped(TABLE).await.is_err(), "the table is still there");

    let delay = Duration::from_millis(50);
    let slow = firewall.slow_down(&zone, delay, 0).await?;
    let start = Instant::now();
    ensure!(zones.connects(OUTSIDE).await, "the zone is not reached");
    ensure!(start.elapsed() >= 2 * delay, "a connection took {:?}", start.elapsed());
    drop(slow);
    let lossy = firewall.slow_down(&zone, Duration::ZERO, 100).await?;
    ensure!(!zones.connects(OUTSIDE).await, "no packet was lost");
    drop(lossy);
    Ok(())
}
