use std::time::Duration;

use anyhow::{Result, ensure};
use repot_tests::etcd::{EtcdCluster, EtcdOptions};
use repot_tests::wait::until;
use repot_tests::{binaries, run, tool};
use tokio::process::Command;

#[test]
fn cluster_of_three_survives_death_and_return_of_a_member() {
    run(async |env| {
        let mut cluster = EtcdCluster::start(env, 3).await?;
        put(&cluster, "before", "1").await?;

        cluster.member(0).kill();
        // The first endpoint is dead and the leader may have been: etcdctl and the cluster need a moment.
        until("a write with two of three members", Duration::from_secs(30), async || {
            put(&cluster, "during", "2").await
        })
        .await?;

        cluster.member(0).restart().await?;
        let alone = cluster.member(0).client_url().to_owned();
        for (key, value) in [("before", "1"), ("during", "2")] {
            let seen =
                cluster.etcdctl(&["--endpoints", &alone, "get", key, "--print-value-only"]).await?.text()?;
            ensure!(seen.trim() == value, "{key} is {seen:?} at the member that returned");
        }
        Ok(())
    });
}

#[test]
fn cluster_with_tls_saves_a_snapshot_and_refuses_strangers() {
    run(async |env| {
        let options = EtcdOptions { tls: true, ..EtcdOptions::default() };
        let cluster = EtcdCluster::start_with(env, 1, options).await?;
        put(&cluster, "kept", "yes").await?;
        let snapshot = env.path().join("snapshot.db");
        cluster.save_snapshot(0, &snapshot).await?;
        let mut etcdutl = Command::new(binaries::find("etcdutl")?);
        etcdutl.args(["snapshot", "status", "--write-out", "json"]).arg(&snapshot);
        let status = tool::run(etcdutl, b"").await?.json()?;
        // An empty etcd is at revision 1, and each write adds one.
        ensure!(status["revision"] == 2, "{status}");

        let tls = cluster.tls().expect("it has TLS");
        let stranger = reqwest_without_certificate(&std::fs::read(&tls.ca)?)?;
        let refused = stranger.get(format!("{}/version", cluster.endpoints()[0])).send().await;
        ensure!(refused.is_err(), "a client without a certificate was answered: {refused:?}");
        Ok(())
    });
}

fn reqwest_without_certificate(ca_pem: &[u8]) -> Result<reqwest::Client> {
    let roots = reqwest::Certificate::from_pem_bundle(ca_pem)?;
    Ok(reqwest::Client::builder().tls_certs_only(roots).no_proxy().build()?)
}

async fn put(cluster: &EtcdCluster, key: &str, value: &str) -> Result<()> {
    cluster.etcdctl(&["put", key, value]).await?.text().map(drop)
}
