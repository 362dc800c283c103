//! Writes whose outcome the server does not learn in time.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use repot_tests::etcd::{EtcdCluster, EtcdOptions};
use repot_tests::http::{Api, send};
use repot_tests::relay::Relay;
use repot_tests::run;
use repot_tests::wait::until;
use reqwest::Method;
use serde_json::{Value, json};

use super::world::{World, collection, path, small};

const DEADLINE: Duration = Duration::from_secs(60);
/// Longer than any request here has.
const FOR_GOOD: Duration = Duration::from_secs(600);

fn address(url: &str) -> Result<SocketAddr> {
    Ok(url.trim_start_matches("http://").parse()?)
}

/// What is on its way is lost, and new connections are fast.
fn reconnect(relay: &Relay) {
    relay.cut();
    relay.change(|link| (link.delay_to_client, link.delay_to_target) = (Duration::ZERO, Duration::ZERO));
    relay.heal();
}

/// Creates an object in two seconds at most; the answer has to be that nobody knows.
async fn create_late(api: &Api, name: &str) -> Result<()> {
    let request = api.request(Method::POST, &format!("{}?timeout=2s", collection("default")));
    let answer = send(request.json(&small(name, &json!(1)))).await?;
    let status: Value = answer.json()?;
    ensure!(answer.status == 504 && status["reason"] == "Timeout", "{answer}");
    ensure!(!answer.headers.contains_key("retry-after"), "as if it were safe to try again: {answer}");
    Ok(())
}

#[test]
fn a_write_whose_answer_comes_too_late_is_504_and_has_happened() {
    run(async |env| {
        let mut etcd = EtcdCluster::start_with(env, 1, EtcdOptions::default()).await?;
        let relay = Relay::start(&[address(etcd.member(0).client_url())?]).await?;
        let mut world = World::garden_on_endpoint(env, &format!("http://{}", relay.address())).await?;
        // Past the kube-apiserver, which has a timeout of its own.
        let api = Api::new(&world.as_master()?)?;
        world.create(&small("before", &json!(1))).await?;

        // What is asked arrives, and what is answered does not.
        relay.change(|link| link.delay_to_client = FOR_GOOD);
        create_late(&api, "arrived").await?;
        reconnect(&relay);
        until("the write to be seen", DEADLINE, async || api.get(&path("arrived")).await?.ok().map(drop))
            .await?;

        // What is asked does not arrive, and the answer is the same.
        relay.change(|link| link.delay_to_target = FOR_GOOD);
        create_late(&api, "unknown").await?;
        reconnect(&relay);
        until("the store to answer", DEADLINE, async || api.get(&path("before")).await?.ok().map(drop))
            .await?;
        let log = world.repot().process().log();
        ensure!(!log.contains("panicked"), "something panicked");
        drop(etcd);
        Ok(())
    });
}
