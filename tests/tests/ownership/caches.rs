//! A cache between agents and the zone: CoreDNS, which says of cached answers that they are authoritative, and unbound.

use std::net::Ipv4Addr;

use anyhow::{Context, Result, ensure};
use repot_etcd::owner::message::{self, Name};
use repot_tests::dns::{Fate, TTL, ZONE};
use repot_tests::dns_cache::{DnsCache, Kind};
use repot_tests::run;
use repot_tests::test_env::TestEnv;
use repot_tests::wait::until;
use serde_json::{Value, json};
use tokio::net::UdpSocket;
use tokio::time::timeout;

use super::world::{NEW, OLD, OwnershipFixture, RECORD, Writer, client_url, never_both};
use crate::etcd_agent::world::DEADLINE;

/// The same, with a cache that both sides ask.
async fn with_cache(env: &TestEnv, ttl: u32, kind: Kind) -> Result<(OwnershipFixture, DnsCache)> {
    let mut world = OwnershipFixture::new(env, 1).await?;
    world.dns.set_ttl(ttl).await?;
    let cache = DnsCache::start(env, &world.dns, kind).await?;
    for side in [&mut world.old, &mut world.new] {
        side.config["owner"]["servers"] = json!([cache.address()]);
    }
    Ok((world, cache))
}

#[test]
fn two_sides_behind_core_dns_never_serve_both() {
    never_serve_both_behind(Kind::CoreDns);
}

#[test]
fn two_sides_behind_unbound_never_serve_both() {
    never_serve_both_behind(Kind::Unbound);
}

fn never_serve_both_behind(kind: Kind) {
    run(async |env| {
        let (world, _cache) = with_cache(env, TTL, kind).await?;
        let old = world.old.start_all(env).await?.remove(0);
        let old_writer = Writer::start(client_url(&world.old, 0), OLD);
        old_writer.goes_on().await?;
        world.hand_over(&[NEW]).await?;
        let (new, new_writer) = world.take_over(env).await?;
        new_writer.goes_on().await?;
        old_writer.is_all_in(&world.new.client(&[new]).await?).await?;
        drop(old);
        never_both(&old_writer, &new_writer)
    });
}

#[test]
fn a_record_that_caches_keep_for_longer_than_is_configured_is_not_believed() {
    const LONG: u32 = 20;
    run(async |env| {
        let (world, cache) = with_cache(env, LONG, Kind::CoreDns).await?;
        let mut old = world.old.start(env, 0)?;
        let refused =
            |status: &Value| status["owner"]["message"].to_string().contains("longer than the ttl of 1s");
        old.says("that the TTL is too long", refused).await?;
        // What comes out of the cache looks as if it came from the zone, and is counted down.
        assert!(says_authoritative(&cache).await?);
        // Nor in the last second, when only the rest of it is short.
        let older = |status: &Value| {
            status["owner"]["message"].to_string().contains("may be older than the ttl of 1s")
        };
        let status = old.says("that the answer may be old", older).await?;
        assert_eq!(
            (&status["owner"]["verdict"], &status["phase"]),
            (&json!("StayDown"), &json!("Stopped")),
            "{status}"
        );
        assert!(old.etcds()?.is_empty(), "there is an etcd");
        // Once the record is as it should be, and what was cached is forgotten.
        world.dns.set_ttl(TTL).await?;
        old.ready().await
    });
}

#[test]
fn cache_that_keeps_all_for_longer_than_the_record_says_is_not_believed() {
    run(async |env| {
        let (world, _cache) = with_cache(env, TTL, Kind::UnboundAtLeast(20)).await?;
        let mut old = world.old.start(env, 0)?;
        let refused =
            |status: &Value| status["owner"]["message"].to_string().contains("longer than the ttl of 1s");
        old.says("that the TTL is too long", refused).await?;
        ensure!(old.etcds()?.is_empty(), "there is an etcd");
        Ok(())
    });
}

/// The resolver of the machine may be one that hands out old answers with a short TTL, which nobody can notice.
#[test]
fn without_servers_no_resolver_of_the_machine_is_asked() {
    run(async |env| {
        let mut world = OwnershipFixture::new(env, 1).await?;
        for servers in [json!(null), json!([])] {
            let owner = world.old.config["owner"].as_object_mut().context("an owner")?;
            owner.insert("servers".to_owned(), servers.clone());
            owner.retain(|_, value| !value.is_null());
            let mut agent = world.old.start(env, 0)?;
            let ended =
                until("the agent to end", DEADLINE, async || agent.process.exited().context("it runs"));
            let status = ended.await?;
            ensure!(!status.success(), "{servers}: it ended well");
            let log = agent.process.log();
            ensure!(log.contains("owner.servers is empty"), "{servers}: {log}");
            ensure!(agent.etcds()?.is_empty(), "{servers}: there is an etcd");
        }
        Ok(())
    });
}

#[test]
fn name_servers_of_the_zone_are_asked_past_a_core_dns_that_hands_out_old_answers() {
    name_servers_are_asked_past(Kind::CoreDnsStale);
}

#[test]
fn name_servers_of_the_zone_are_asked_past_an_unbound_that_hands_out_old_answers() {
    name_servers_are_asked_past(Kind::UnboundExpired);
}

fn name_servers_are_asked_past(kind: Kind) {
    run(async |env| {
        let mut world = OwnershipFixture::new(env, 1).await?;
        let cache = DnsCache::start(env, &world.dns, kind).await?;
        let _port_53 = world.dns.open_port_53().await?;
        for side in [&mut world.old, &mut world.new] {
            side.config["owner"]["servers"] = json!([format!("ns:{ZONE}@{}", cache.address())]);
        }
        let old = world.old.start_all(env).await?.remove(0);
        let old_writer = Writer::start(client_url(&world.old, 0), OLD);
        old_writer.goes_on().await?;
        ensure!(asked(&cache).await?.contains(OLD), "the cache has heard nothing");
        // From now on the cache hears nothing of the zone.
        world.dns.wire.set(Fate::Lost);
        world.hand_over(&[NEW]).await?;
        let (new, new_writer) = world.take_over(env).await?;
        new_writer.goes_on().await?;
        ensure!(asked(&cache).await?.contains(OLD), "the cache has heard of it");
        old_writer.is_all_in(&world.new.client(&[new]).await?).await?;
        drop(old);
        never_both(&old_writer, &new_writer)
    });
}

/// What a cache says of the record.
async fn asked(cache: &DnsCache) -> Result<String> {
    let answer = exchange(cache).await?;
    let name = Name::parse(&format!("{RECORD}.{ZONE}"))?;
    Ok(format!("{:?}", message::answer(&answer, 1, &name)))
}

/// Whether the answer for the record says that it is authoritative.
async fn says_authoritative(cache: &DnsCache) -> Result<bool> {
    let answer = exchange(cache).await?;
    ensure!(answer.len() > 4, "{} bytes", answer.len());
    Ok(answer[2] & 0x04 != 0)
}

async fn exchange(cache: &DnsCache) -> Result<Vec<u8>> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    socket.connect(cache.address()).await?;
    let name = Name::parse(&format!("{RECORD}.{ZONE}"))?;
    socket.send(&message::question(1, &name)).await?;
    let mut answer = [0; 512];
    let length = timeout(DEADLINE, socket.recv(&mut answer)).await??;
    Ok(answer[..length].to_vec())
}
