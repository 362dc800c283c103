//! What a member makes of its volume.

use std::fs;

use anyhow::{Context, Result, ensure};
use etcd_client::{MemberAddOptions, WatchOptions};
use repot_etcd_core::snapshot::Compression;
use repot_tests::run;
use repot_tests::tool;
use serde_json::json;
use tokio::process::Command;

use super::world::{Cluster, address};
use crate::etcd::world::{World, dump, url};

#[test]
fn three_members_found_an_etcd_and_survive_each_other() {
    run(async |env| {
        let cluster = Cluster::new(env, 3)?;
        let mut agents = cluster.start_all(env).await?;
        let client = cluster.client(&agents).await?;
        for at in 0..50 {
            client.kv_client().put(format!("/key/{at}"), at.to_string(), None).await?;
        }
        let mut leaders = 0;
        for agent in &agents {
            let status = agent.status().await?;
            leaders += usize::from(status["leader"] == json!(true));
            assert_eq!(
                (&status["phase"], &status["volumes"]),
                (&json!("Serving"), &json!("main-etcd")),
                "{status}"
            );
        }
        assert_eq!(leaders, 1);
        // One is lost with everything but its volume, and comes back.
        agents[1].kill_alone()?;
        agents[1].no_etcd().await?;
        agents[1].process.restart()?;
        agents[1].ready().await?;
        let client = cluster.client(&agents[1..2]).await?;
        let (_, keys) = dump(&client).await?;
        assert_eq!(keys.len(), 50);
        Ok(())
    });
}

#[test]
fn three_empty_members_are_filled_from_snapshots_and_no_revision_goes_back() {
    run(async |env| {
        let world = World::start(env).await?;
        world.write("early", 60).await?;
        let full = world.full(false).await?;
        world.write("late", 40).await?;
        world.delta(full.name.last, Compression::Gzip).await?;
        let (revision, before) = dump(&world.client).await?;
        let mut cluster = Cluster::new(env, 3)?;
        cluster.config["restore"] = json!({ "store": { "url": url(&world.dir) } });
        let mut agents = cluster.start_all(env).await?;
        let client = cluster.client(&agents).await?;
        let (bumped, after) = dump(&client).await?;
        assert_eq!(before, after, "keys differ");
        ensure!(bumped.0 >= revision.0 + 1_000_000_000, "{bumped} after {revision}");
        // Whoever watches from before is told that it has missed something.
        let options = WatchOptions::new().with_all_keys().with_start_revision(revision.next().0);
        let mut watch = client.watch_client().watch("", Some(options)).await?;
        let message = loop {
            let message = watch.message().await?.context("a message")?;
            if message.canceled() || !message.events().is_empty() {
                break message;
            }
        };
        assert!(message.compact_revision() > revision.0, "{message:?}");
        // It is one cluster, and each member holds the same. One that came when the others served need not have restored.
        let mut restored = 0;
        for (at, agent) in agents.iter().enumerate() {
            let status = agent.status().await?;
            let from = &status["restored"]["revision"];
            assert!(from.is_null() || *from == json!(revision.0), "{status}");
            restored += usize::from(!from.is_null());
            assert_eq!(dump(&cluster.client(&agents[at..=at]).await?).await?.1, after, "member {at}");
        }
        assert!(restored >= 2, "{restored} members have restored");
        client.kv_client().put("after", "it", None).await?;
        // The second start finds data and leaves it alone, although the file still says what to restore.
        agents[0].process.restart()?;
        agents[0].ready().await?;
        let (now, _) = dump(&cluster.client(&agents[..1]).await?).await?;
        assert!(now > bumped);
        Ok(())
    });
}

#[test]
fn nothing_is_founded_where_there_is_nothing_to_restore() {
    run(async |env| {
        let mut cluster = Cluster::new(env, 1)?;
        cluster.config["restore"] = json!({ "store": { "url": url(&env.make_dir("nothing")?) } });
        let mut agent = cluster.start(env, 0)?;
        let failed = |status: &serde_json::Value| {
            status["message"].as_str().is_some_and(|m| m.contains("RestoreFailed"))
        };
        let status = agent.says("the failure", failed).await?;
        assert!(status["message"].to_string().contains("no full snapshot"), "{status}");
        assert!(agent.etcds()?.is_empty());
        assert!(!agent.data.join("new.etcd").exists());
        Ok(())
    });
}

#[test]
fn a_volume_of_somebody_else_is_not_touched() {
    run(async |env| {
        let mut cluster = Cluster::new(env, 1)?;
        let mut agent = cluster.start(env, 0)?;
        agent.ready().await?;
        agent.process.stop(super::world::DEADLINE).await?;
        agent.no_etcd().await?;
        let before = listing(&agent.data)?;
        cluster.config["volumes"] = json!("other-etcd");
        cluster.config["clusterToken"] = json!("4711/other-etcd");
        let mut agent = cluster.start(env, 0)?;
        let status = agent.says("the refusal", |status| status["phase"] == "Refused").await?;
        let message = status["message"].as_str().unwrap_or_default();
        assert!(
            message.contains("WrongVolume") && message.contains("\"main-etcd\" in place of \"other-etcd\""),
            "{message}"
        );
        assert!(agent.etcds()?.is_empty());
        assert_eq!(agent.get("/readyz").await?.status, 503);
        assert_eq!(before, listing(&agent.data)?);
        Ok(())
    });
}

fn listing(dir: &std::path::Path) -> Result<Vec<(String, u64)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => all.extend(listing(&entry.path())?),
            false => all.push((entry.path().display().to_string(), entry.metadata()?.len())),
        }
    }
    all.sort();
    Ok(all)
}

#[test]
fn a_member_of_an_etcd_that_exists_waits_to_be_added_and_joins_as_a_learner() {
    run(async |env| {
        let mut cluster = Cluster::new(env, 1)?;
        let founders = cluster.start_all(env).await?;
        let client = cluster.client(&founders).await?;
        client.kv_client().put("/before", "it", None).await?;
        cluster.add_member(1)?;
        cluster.config["clusterState"] = json!("existing");
        cluster.config["clientEndpoints"] = cluster.config["members"][0]["clientUrls"].clone();
        let mut joiner = cluster.start(env, 1)?;
        joiner.says("that it waits", |status| status["message"].to_string().contains("NotAMember")).await?;
        assert!(joiner.etcds()?.is_empty());
        let peer = format!("http://{}:{}", address(1), cluster.ports.peer);
        let options = MemberAddOptions::new().with_is_learner();
        client.cluster_client().member_add([peer], Some(options)).await?;
        let status = joiner.says("that it learns", |status| status["learner"] == json!(true)).await?;
        assert_eq!(joiner.get("/readyz").await?.status, 503, "a learner serves no clients");
        // etcd promotes it when it has what the leader has.
        let id = u64::from_str_radix(status["member"]["id"].as_str().context("an id")?, 16)?;
        let promote = async || Ok(client.cluster_client().member_promote(id).await.map(drop)?);
        repot_tests::wait::until("the learner to be promoted", super::world::DEADLINE, promote).await?;
        joiner.ready().await?;
        // A member that has been running and has lost its volume does not begin anew.
        joiner.process.kill();
        joiner.no_etcd().await?;
        let lost = env.path().join("lost");
        fs::rename(&joiner.data, &lost)?;
        let mut joiner = cluster.start(env, 1)?;
        // Two voters without one have no quorum, and nobody can say anything.
        joiner
            .says("that nobody answers", |status| status["message"].to_string().contains("ClusterSilent"))
            .await?;
        joiner.process.kill();
        fs::remove_dir_all(&joiner.data)?;
        fs::rename(&lost, &joiner.data)?;
        let mut joiner = cluster.start(env, 1)?;
        joiner.ready().await
    });
}

#[test]
fn a_founder_that_lost_its_volume_asks_to_be_added_again() {
    run(async |env| {
        let cluster = Cluster::new(env, 3)?;
        let mut agents = cluster.start_all(env).await?;
        agents[2].process.kill();
        agents[2].no_etcd().await?;
        fs::remove_dir_all(&agents[2].data)?;
        // The file still says that the members found the etcd.
        let mut agent = cluster.start(env, 2)?;
        let status =
            agent.says("that it has to rejoin", |status| status["needsRejoin"] == json!(true)).await?;
        assert!(status["message"].to_string().contains("VolumeLost"), "{status}");
        assert!(agent.etcds()?.is_empty());
        Ok(())
    });
}

#[test]
fn a_file_that_is_wrong_is_refused_with_every_reason() {
    run(async |env| {
        let mut cluster = Cluster::new(env, 1)?;
        cluster.config["volumes"] = json!("");
        cluster.config["snapshots"] = json!({ "fullSchedule": "often" });
        cluster.config["dataDir"] = json!("/nowhere");
        let file = env.path().join("agent.yaml");
        fs::write(&file, cluster.config.to_string())?;
        let repot = repot_tests::binaries::profile_dir()?.join("repot");
        let mut command = Command::new(repot);
        command.arg("etcd-agent").arg("--check").arg("--config").arg(&file).env("POD_NAME", "main-7");
        let output = tool::run(command, b"").await?;
        assert_eq!(output.code, 2, "{}", output.stderr);
        for says in ["volumes is empty", "snapshots.fullSchedule", "none has the pod \"main-7\"", "main-0"] {
            assert!(output.stderr.contains(says), "{says}: {}", output.stderr);
        }
        Ok(())
    });
}
