//! An etcd with authentication: nobody gets the rights of the gateway, whose certificate members see.

use std::time::Duration;

use anyhow::{Result, ensure};
use repot_etcd::gateway::Handle;
use repot_tests::etcd::EtcdCluster;
use repot_tests::run;
use repot_tests::wait::until;
use tokio::time::timeout;

use super::world::{DEADLINE, client, endpoints, open, start};

/// Users with passwords, and the common name of the gateway's certificate, which is the administrator's, too.
async fn add_users(etcd: &EtcdCluster) -> Result<()> {
    for args in [
        &["put", "a", "1"][..],
        &["put", "b", "2"],
        &["user", "add", "root:pw"],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "etcd", "--no-password"],
        &["user", "grant-role", "etcd", "root"],
        &["role", "add", "reader"],
        &["role", "grant-permission", "reader", "read", "a"],
        &["user", "add", "reader:pw"],
        &["user", "grant-role", "reader", "reader"],
    ] {
        etcd.etcdctl(args).await?.text()?;
    }
    Ok(())
}

/// What etcdctl says through a gateway, whether it fails or not.
async fn ctl(etcd: &EtcdCluster, gateway: &Handle, args: &[&str]) -> Result<String> {
    let url = format!("https://{}", gateway.addr());
    let said = etcd.etcdctl_at(&url, &[&["--command-timeout=3s"], args].concat()).await?;
    Ok(said.text().map_or_else(|error| format!("{error:#}"), |text| text.trim().to_owned()))
}

async fn becomes(etcd: &EtcdCluster, gateway: &Handle, expected: &str) -> Result<()> {
    until(&format!("{expected:?} for whoever shows no token"), DEADLINE, async || {
        let said = ctl(etcd, gateway, &["get", "a", "--print-value-only"]).await?;
        ensure!(said.contains(expected), "{said}");
        Ok(())
    })
    .await
}

#[test]
fn clients_act_as_themselves_by_their_tokens_and_never_as_the_gateway() {
    run(async |env| {
        let etcd = start(env, 1).await?;
        add_users(&etcd).await?;
        let gateway = open(&etcd, endpoints(&etcd.endpoints(), true)).await?;
        becomes(&etcd, &gateway, "1").await?;
        until("what is known of users", DEADLINE, async || {
            ensure!(gateway.status().auth_enabled == Some(false), "{:?}", gateway.status());
            Ok(())
        })
        .await?;
        let mut watch = client(&etcd, &gateway).await?.watch("b", None).await?;

        etcd.etcdctl(&["auth", "enable"]).await?.text()?;
        // The certificate alone makes an administrator at a member.
        ensure!(etcd.etcdctl(&["get", "b", "--print-value-only"]).await?.text()?.trim() == "2");
        // Nothing is known by a gateway that has just started: etcd is told not to take its certificate for the client's.
        let fresh = open(&etcd, endpoints(&etcd.endpoints(), true)).await?;
        let said = ctl(&etcd, &fresh, &["get", "b", "--print-value-only"]).await?;
        ensure!(said.contains("user name is empty") || said.contains("FailedPrecondition"), "{said}");
        becomes(&etcd, &gateway, "etcd has authentication enabled").await?;
        ensure!(gateway.status().auth_enabled == Some(true), "{:?}", gateway.status());
        let said = ctl(&etcd, &gateway, &["put", "c", "3"]).await?;
        ensure!(said.contains("FailedPrecondition"), "{said}");
        // Streams from before would go on with the rights of the gateway.
        let ended =
            timeout(Duration::from_secs(30), async { while let Ok(Some(_)) = watch.message().await {} });
        ensure!(ended.await.is_ok(), "a watch from before goes on");

        for (user, args, expected) in [
            ("root:pw", &["put", "c", "3"][..], "OK"),
            ("root:pw", &["get", "b", "--print-value-only"], "2"),
            ("root:pw", &["user", "list"], "reader"),
            ("reader:pw", &["get", "a", "--print-value-only"], "1"),
            ("reader:pw", &["get", "b", "--print-value-only"], "permission denied"),
            ("reader:pw", &["put", "a", "2"], "permission denied"),
            ("reader:wrong", &["get", "a"], "authentication failed"),
        ] {
            let said = ctl(&etcd, &gateway, &[&["--user", user], args].concat()).await?;
            ensure!(said.contains(expected), "{user} {args:?}: {said}");
        }
        // A gateway whose own user is no administrator is refused, and learns by that.
        etcd.etcdctl(&["user", "revoke-role", "etcd", "root"]).await?.text()?;
        let other = open(&etcd, endpoints(&etcd.endpoints(), true)).await?;
        becomes(&etcd, &other, "etcd has authentication enabled").await?;
        let grant = ["--user=root:pw", "user", "grant-role", "etcd", "root"];
        ensure!(ctl(&etcd, &gateway, &grant).await?.contains("granted"), "no role was granted");
        etcd.etcdctl(&["auth", "disable"]).await?.text()?;
        becomes(&etcd, &gateway, "1").await
    });
}
