//! How long an EtcdRestore takes the API down, by the size of the etcd: what a migration without a warm standby would need.

use anyhow::{Context as _, Result, ensure};
use repot_tests::run;
use serde_json::{Value, json};

use super::control_plane::{ControlPlaneFixture, Front, Load};
use super::migration::LONG;
use super::world::object;

/// Values of 100 KiB.
const VALUE: usize = 100 << 10;
const MIB: usize = 1 << 20;

/// Restores a backup of so much into three members behind a kube-apiserver, which reads none of it. The seconds without API.
async fn restore(name: &str, bytes: usize) -> Result<u64> {
    let load = Load { keys: bytes / VALUE, bytes: VALUE };
    let fixture = ControlPlaneFixture::start_with(name, 3, Front::KubeApiserver, load).await?;
    let ns = &fixture.ns;
    ns.apply(&[object("EtcdBackup", "b", json!({"clusterRef": {"name": "main"}}))]).await?;
    let backup = ns.ends_within("etcdbackup", "b", "Succeeded", LONG).await?;
    let name: &Value = &backup["status"]["backupName"];
    let spec = json!({"clusterRef": {"name": "main"}, "source": {"backupName": name}, "stepTimeout": "15m"});
    ns.apply(&[object("EtcdRestore", "r", spec)]).await?;
    let ended = ns.ends_within("etcdrestore", "r", "Succeeded", LONG).await?;
    fixture.api_is_up().await?;
    let keys = fixture.count().await?;
    ensure!(keys == load.keys as u64, "{keys} keys are left of {}", load.keys);
    println!("{} MiB: {}", bytes / MIB, ended["status"]["steps"]);
    ended["status"]["apiDownSeconds"].as_u64().context("the outage is not told")
}

#[test]
#[ignore = "minutes, in make soak: it fills 2 GiB"]
fn restore_takes_the_api_down_for_longer_the_more_the_etcd_holds() {
    run(async |_| {
        let mut outages = Vec::new();
        for mib in [20, 200, 2000] {
            let seconds = restore(&format!("restore-{mib}"), mib * MIB).await?;
            println!("{mib} MiB in the etcd: no API for {seconds} s");
            outages.push(seconds);
        }
        ensure!(outages.is_sorted(), "{outages:?}");
        Ok(())
    });
}
