//! The same move where the gateways are those of the members' agents, and the driver reaches them over HTTP.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use repot_controllers::members::{
    Change, DesiredMembership, Driver, GatewayEndpoint, HttpGateways, Limits, MemberSlot, Outcome,
};
use repot_etcd::link;
use repot_etcd_core::agent::config::GatewayMember;
use repot_etcd_core::members::Desired;
use repot_tests::test_env::TestEnv;
use repot_tests::wait::until;
use repot_tests::{port, run};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::load::Load;
use super::moves::{describe, reach};
use super::world::{AWAY, DEADLINE};
use crate::etcd::world::url as store_url;
use crate::etcd_agent::world::{Agent, Cluster, address};

/// Members of each site; those of the source come first.
const COUNT: usize = 3;
/// How long writes may be held.
const LONGEST: Duration = Duration::from_secs(4);
const REQUESTS: usize = 2_000;

/// Agents of both sites, each with a gateway.
struct World {
    cluster: Cluster,
    gateway: u16,
    agents: Vec<Agent>,
    gateways: Arc<HttpGateways>,
    driver: Driver,
    wanted: DesiredMembership,
    changes: Vec<Change>,
    /// Members that clients are led to.
    used: Vec<String>,
}

fn name(at: usize) -> String {
    format!("m{at}")
}

fn is_source(at: usize) -> bool {
    at < COUNT
}

/// A client of agents, as the operator has one.
fn http(cluster: &Cluster) -> Result<reqwest::Client> {
    let tls = cluster.tls.as_ref().context("certificates")?;
    let identity = format!("{}{}", tls.client.cert_pem, tls.client.key_pem);
    let client = reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(tls.ca.pem().as_bytes())?])
        .identity(reqwest::Identity::from_pem(identity.as_bytes())?);
    Ok(client.build()?)
}

impl World {
    /// Three members at the source, and agents at the destination whose gateways lead there.
    async fn start(env: &TestEnv) -> Result<Self> {
        let (mut cluster, gateway) = (Cluster::with_tls(env, COUNT)?, port::reserve()?);
        cluster.config["gateway"] = json!({ "port": gateway });
        cluster.config["store"] = json!({ "url": store_url(&env.make_dir("source-store")?) });
        let mut agents = cluster.start_all(env).await?;
        let client_port = cluster.ports.client;
        let urls: Vec<String> =
            (0..2 * COUNT).map(|at| format!("https://{}:{client_port}", address(at))).collect();
        for at in COUNT..2 * COUNT {
            cluster.add_member(at)?;
        }
        let members = cluster.config["members"].as_array_mut().context("members")?;
        // To the destination, members of the source have no Pods.
        members.iter_mut().take(COUNT).filter_map(Value::as_object_mut).for_each(|m| drop(m.remove("pod")));
        cluster.config["store"] = json!({ "url": store_url(&env.make_dir("destination-store")?) });
        cluster.config["clusterState"] = json!("existing");
        cluster.config["clientEndpoints"] = json!(urls[..COUNT]);
        let far = |at: usize| json!({ "name": name(at), "url": urls[at] });
        cluster.config["gateway"]["members"] = (0..COUNT).map(far).collect();
        for at in COUNT..2 * COUNT {
            agents.push(cluster.start(env, at)?);
        }
        let slot = |at: usize| MemberSlot {
            name: name(at),
            peer_urls: vec![format!("https://{}:{}", address(at), cluster.ports.peer)],
            client_url: urls[at].clone(),
        };
        let endpoint = |here: usize| {
            let member = |at: usize| {
                let near = is_source(at) == is_source(here);
                GatewayMember { name: name(at), url: urls[at].clone(), near }
            };
            GatewayEndpoint {
                agent: format!("https://{}:{}", address(here), cluster.ports.agent),
                members: (0..2 * COUNT).map(member).collect(),
            }
        };
        let gateways = (0..2 * COUNT).map(endpoint).collect();
        let gateways = Arc::new(HttpGateways::new(http(&cluster)?, gateways));
        let wanted = DesiredMembership {
            source: (0..COUNT).map(slot).collect(),
            destination: (COUNT..2 * COUNT).map(slot).collect(),
            desired: Desired { release_source: false, ..AWAY },
            lost: Default::default(),
            readdress: None,
        };
        let driver =
            Driver::new(cluster.access(Vec::new()), Limits::default()).behind(gateways.clone(), LONGEST);
        let used = (0..COUNT).map(name).collect();
        Ok(Self { cluster, gateway, agents, gateways, driver, wanted, changes: Vec::new(), used })
    }

    fn gateway(&self, at: usize) -> link::Options {
        self.cluster.access(vec![format!("https://{}:{}", address(at), self.gateway)])
    }

    /// Passes until the members of the destination have joined, as far as they can before the source is released.
    async fn join(&mut self, load: Option<&Load>) -> Result<()> {
        self.pass_until(
            load,
            |outcome| matches!(outcome, Outcome::Waiting(why) if why.reason == "SourceNotReleased"),
        )
        .await
    }

    /// Passes until the members are those of the destination.
    async fn go(&mut self, load: &Load) -> Result<()> {
        self.join(Some(load)).await?;
        self.wanted.desired = AWAY;
        self.pass_until(Some(load), |outcome| *outcome == Outcome::Done).await
    }

    async fn pass_until(&mut self, load: Option<&Load>, is: impl Fn(&Outcome) -> bool) -> Result<()> {
        let end = Instant::now() + DEADLINE;
        loop {
            let pass = self.driver.pass(&self.wanted).await;
            match &pass.outcome {
                Outcome::Changed(change) => {
                    println!("{change:?}");
                    if let Some(load) = load {
                        load.begin(&describe(change));
                    }
                    self.changes.push(change.clone());
                    self.follow(change).await?;
                    continue;
                }
                outcome if is(outcome) => return Ok(()),
                Outcome::Waiting(_) => {}
                Outcome::Done => bail!("nothing is left to do"),
                Outcome::Refused(why) => bail!("{why:?}"),
            }
            ensure!(Instant::now() < end, "waited for the members: {:?}", pass.outcome);
            sleep(pass.again.min(Duration::from_millis(200))).await;
        }
    }

    async fn follow(&mut self, change: &Change) -> Result<()> {
        match change {
            Change::Promoted { slot } => self.used.push(slot.clone()),
            Change::Removed { slot } => self.used.retain(|used| used != slot),
            Change::Added { .. } | Change::Leads { .. } | Change::Updated { .. } => return Ok(()),
        }
        self.gateways.set_backends(&self.used).await.map_err(|why| anyhow!(why))
    }

    async fn standing(&self, at: usize) -> Result<Value> {
        self.agents[at].get("/gateway").await?.ok()
    }
}

#[test]
fn etcd_moves_behind_the_gateways_of_its_agents_and_no_request_fails() {
    run(async |env| {
        let mut world = World::start(env).await?;
        until("the gateways of the destination", DEADLINE, async || world.standing(COUNT).await.map(drop))
            .await?;
        let load = Load::start([world.gateway(0), world.gateway(COUNT)], 2).await?;
        load.begin("three at the source");
        reach(&load, REQUESTS / 10).await?;
        world.go(&load).await?;
        load.begin("three at the destination");
        reach(&load, REQUESTS).await?;

        let changes: Vec<String> = world.changes.iter().map(describe).collect();
        let leads = changes.iter().position(|change| change.starts_with("leads"));
        ensure!(leads == Some(7) && changes.len() == 10, "{changes:?}");
        for at in [0, COUNT] {
            let standing = world.standing(at).await?;
            let members = standing["members"].as_array().context("members")?;
            let found: Vec<_> = members.iter().map(|m| (m["name"].as_str(), m["near"].as_bool())).collect();
            let expected = ["m3", "m4", "m5"].map(|name| (Some(name), Some(at >= COUNT)));
            ensure!(found == expected && standing["held"].is_null(), "{standing}");
        }
        let client = world.cluster.client(&world.agents[COUNT..]).await?;
        let report = load.finish(&client).await?;
        println!(
            "{} requests, {} acknowledged, {} failed, {} watches resumed",
            report.requests,
            report.acknowledged,
            report.failures.len(),
            report.resumed
        );
        ensure!(report.failures.is_empty(), "{:?}", report.failures);
        ensure!(report.resumed == 0, "{} watches had to begin anew", report.resumed);
        Ok(())
    });
}

/// Each seed has a store and certificates of its own, and on two seeds with namespaces of one name the host of a member over there is
/// that of a member here.
#[test]
fn snapshots_are_asked_of_the_seed_whose_member_leads() {
    run(async |env| {
        let mut world = World::start(env).await?;
        world.join(None).await?;
        let (source, destination) = world.agents.split_at(COUNT);
        for agent in destination {
            for kind in ["full", "delta"] {
                let answer = agent.get(&format!("/snapshot/{kind}")).await?;
                ensure!(answer.status == 503, "{kind}: {answer}");
            }
            // What is in the store of this seed, any of its agents tells.
            let latest = agent.get("/snapshot/latest").await?.ok()?;
            ensure!(latest["fullSnapshot"].is_null(), "{latest}");
        }
        // The third one does not vote yet, and is not told who leads.
        for agent in &destination[..COUNT - 1] {
            let answer = agent.get("/snapshot/full").await?;
            let said = answer.json()?["error"].to_string();
            ensure!(said.contains("another seed") && said.contains("leads"), "{answer}");
        }
        // Whoever leads or not: on the seed of the leader all of them answer.
        for agent in source {
            let taken = agent.get("/snapshot/full").await?.ok()?;
            ensure!(taken["kind"] == "Full", "{taken}");
        }
        Ok(())
    });
}
