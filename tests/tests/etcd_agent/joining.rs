//! A member that joins, and is told of members by one that has not heard of it yet.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use etcd_client::MemberAddOptions;
use repot_tests::wait::until;
use repot_tests::{binaries, run};
use serde_json::json;

use super::world::{Cluster, DEADLINE, address};

/// Before this file is there, etcd is started as by somebody who knows of a member more, and ends as it does when the one that it
/// asks knows of one less.
const HEARD: &str = "heard";

/// What is in the command line of an etcd that was started.
fn lists(log: &Path) -> Vec<String> {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn program(dir: &Path, etcd: &Path) -> Result<()> {
    let (file, heard, log) = (dir.join("etcd-early"), dir.join(HEARD), dir.join("lists"));
    let script = format!(
        r#"#!/bin/sh
for word in "$@"; do
  case "$word" in --initial-cluster=*) list="${{word#--initial-cluster=}}";; esac
done
echo "$list" >> {log}
if [ ! -e {heard} ]; then
  exec {etcd} "$@" --initial-cluster="$list,early=http://127.0.0.9:1"
fi
exec {etcd} "$@"
"#,
        log = log.display(),
        heard = heard.display(),
        etcd = etcd.display(),
    );
    fs::write(&file, script)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

#[test]
fn member_whose_etcd_ends_because_another_has_not_heard_of_it_starts_again_with_the_newest_list() {
    run(async |env| {
        let mut cluster = Cluster::new(env, 3)?;
        let agents = cluster.start_all(env).await?;
        let urls: Vec<_> =
            (0..3).map(|at| format!("http://{}:{}", address(at), cluster.ports.client)).collect();
        cluster.add_member(3)?;
        cluster.config["clusterState"] = json!("existing");
        cluster.config["clientEndpoints"] = json!(urls);
        program(&cluster.dir, &binaries::find("etcd")?)?;
        cluster.etcd = cluster.dir.join("etcd-early");
        let log = cluster.dir.join("lists");
        let client = cluster.client(&agents).await?;
        let peer = format!("http://{}:{}", address(3), cluster.ports.peer);
        let learner = MemberAddOptions::new().with_is_learner();
        let add = async || {
            Ok(client.cluster_client().member_add([peer.clone()], Some(learner.clone())).await.map(drop)?)
        };
        until("the member to be added", DEADLINE, add).await?;
        let mut joins = cluster.start(env, 3)?;
        until("two attempts", DEADLINE, async || {
            ensure!(lists(&log).len() >= 2, "{:?}", lists(&log));
            Ok(())
        })
        .await?;
        ensure!(lists(&log).iter().all(|list| list.contains("m2=")), "{:?}", lists(&log));

        // Whoever would start with the first list for ever would never join.
        let leads = agents[2].status().await?["leader"] == json!(true);
        if leads {
            let id = agents[0].status().await?["member"]["id"].as_str().context("an id")?.to_owned();
            let leader = cluster.client(&agents[2..]).await?;
            leader.maintenance_client().move_leader(u64::from_str_radix(&id, 16)?).await?;
        }
        until("m2 to be removed", DEADLINE, async || {
            agents[0].post("/member/remove?name=m2").await?.ok().map(drop)
        })
        .await?;
        fs::write(cluster.dir.join(HEARD), "")?;
        let status = joins.says("that it learns", |status| status["learner"] == json!(true)).await?;
        ensure!(status["phase"] == "Serving" && status["needsRejoin"] == false, "{status}");
        let last = lists(&log).pop().unwrap_or_default();
        ensure!(last.contains("m3=") && !last.contains("m2="), "{last}");
        Ok(())
    });
}
