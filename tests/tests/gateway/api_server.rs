//! A real kube-apiserver behind it.

use std::time::Duration;

use anyhow::{Result, ensure};
use repot_tests::garden::{Garden, GardenOptions};
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::json;

use super::world::{DEADLINE, endpoints, open, start};

const PATH: &str = "/api/v1/namespaces/default/configmaps";

#[test]
fn kube_apiserver_serves_from_it_while_writes_are_held_and_members_die() {
    run(async |env| {
        let mut etcd = start(env, 3).await?;
        let gateway = open(&etcd, endpoints(&etcd.endpoints(), true)).await?;
        let options = GardenOptions {
            etcd_servers: vec![format!("https://{}", gateway.addr())],
            etcd_tls: etcd.tls().cloned(),
            ..GardenOptions::default()
        };
        let garden = Garden::start_with(env, options).await?;
        create(&garden, "before").await?;
        gateway.hold(Duration::from_secs(2)).await?;
        create(&garden, "held").await?;
        let found =
            etcd.etcdctl(&["get", "/registry/configmaps/default/held", "--keys-only"]).await?.text()?;
        ensure!(found.contains("held"), "{found:?}");
        etcd.member(0).kill();
        until("writes with two members", DEADLINE, async || create(&garden, "after").await).await?;
        // Its caches follow by watches through the gateway.
        until("its watch cache to follow", DEADLINE, async || {
            let list = garden.api().get(&format!("{PATH}?resourceVersion=0")).await?.ok()?;
            let names: Vec<_> = list["items"].as_array().into_iter().flatten().collect();
            let there = |name: &str| names.iter().any(|item| item["metadata"]["name"] == name);
            ensure!(["before", "held", "after"].iter().all(|name| there(name)), "{list}");
            Ok(())
        })
        .await
    });
}

async fn create(garden: &Garden, name: &str) -> Result<()> {
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } });
    let answer = garden.api().post(PATH, &object).await?;
    ensure!(answer.status == 201 || answer.status == 409, "{answer}");
    Ok(())
}
