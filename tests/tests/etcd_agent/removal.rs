//! A member that is removed from its cluster, and what becomes of its data.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use etcd_client::MemberAddOptions;
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::world::{Agent, Cluster, DEADLINE, address};
use crate::etcd::world::dump;

async fn post(agent: &Agent, path: &str) -> Result<(u16, Value)> {
    let answer = agent.post(path).await?;
    Ok((answer.status, answer.json()?))
}

/// A member that does not lead.
async fn follower(agents: &[Agent]) -> Result<usize> {
    for (at, agent) in agents.iter().enumerate() {
        if agent.status().await?["leader"] == json!(false) {
            return Ok(at);
        }
    }
    anyhow::bail!("everybody leads")
}

async fn known(volume: &Path) -> Result<()> {
    let file = volume.join("new.etcd/member/repot-member.json");
    until("the member to be written down", DEADLINE, async || {
        ensure!(file.exists(), "there is no {}", file.display());
        Ok(())
    })
    .await
}

#[test]
fn a_member_that_was_removed_sets_its_data_aside_and_joins_anew() {
    run(async |env| {
        let cluster = Cluster::new(env, 3)?;
        let mut agents = cluster.start_all(env).await?;
        cluster.client(&agents).await?.kv_client().put("/before", "it", None).await?;
        for agent in &agents {
            known(&agent.data).await?;
        }
        let at = follower(&agents).await?;
        let mut gone = agents.remove(at);
        let before = gone.status().await?["member"]["id"].as_str().context("an id")?.to_owned();
        gone.process.kill();
        gone.no_etcd().await?;
        // The file still says that the members found the etcd.
        let other = &agents[0];
        assert_eq!(post(other, "/member/remove").await?.0, 400);
        let (status, said) = post(other, "/member/remove?name=m7").await?;
        assert!(status == 404 && said.to_string().contains("m0"), "{said}");
        // etcd refuses (409) for as long as it has not heard from the other member for five seconds.
        let removed = until("etcd to take the removal", DEADLINE, async || {
            let (status, said) = post(other, &format!("/member/remove?name=m{at}")).await?;
            ensure!(status == 200, "{status}: {said}");
            Ok(said["removed"]["id"].clone())
        });
        assert_eq!(removed.await?, json!(before));
        let mut gone = cluster.start(env, at)?;
        gone.says("that it was removed", |status| status["message"].to_string().contains("Removed")).await?;
        assert!(gone.etcds()?.is_empty());
        assert!(gone.data.join("new.etcd/member/wal").exists());
        let client = cluster.client(&agents).await?;
        let peer = format!("http://{}:{}", address(at), cluster.ports.peer);
        let options = MemberAddOptions::new().with_is_learner();
        let add = async || {
            Ok(client.cluster_client().member_add([peer.clone()], Some(options.clone())).await.map(drop)?)
        };
        until("the member to be added", DEADLINE, add).await?;
        let status = gone.says("that it learns", |status| status["learner"] == json!(true)).await?;
        let after = status["member"]["id"].as_str().context("an id")?.to_owned();
        assert_ne!(before, after);
        let id = u64::from_str_radix(&after, 16)?;
        let promote = async || Ok(client.cluster_client().member_promote(id).await.map(drop)?);
        until("the learner to be promoted", DEADLINE, promote).await?;
        gone.ready().await?;
        assert!(gone.data.join(format!("new.etcd.removed-{before}/member/wal")).exists());
        let (_, keys) = dump(&cluster.client(std::slice::from_ref(&gone)).await?).await?;
        assert_eq!(keys.len(), 1);
        // It is not removed for ever.
        known(&gone.data).await?;
        gone.process.restart()?;
        gone.ready().await?;
        assert_eq!(gone.status().await?["member"]["id"], json!(after));
        Ok(())
    });
}

#[test]
fn a_member_that_was_removed_knows_it_when_nobody_else_is_left() {
    run(async |env| {
        let cluster = Cluster::new(env, 3)?;
        let mut agents = cluster.start_all(env).await?;
        for agent in &agents {
            known(&agent.data).await?;
        }
        let at = follower(&agents).await?;
        let mut gone = agents.remove(at);
        until("etcd to take the removal", DEADLINE, async || {
            let (status, said) = post(&agents[0], &format!("/member/remove?name=m{at}")).await?;
            ensure!(status == 200, "{status}: {said}");
            Ok(())
        })
        .await?;
        let removed = |status: &Value| status["removed"] == json!(true);
        gone.says("that it was removed", removed).await?;
        gone.process.kill();
        gone.no_etcd().await?;
        for other in &mut agents {
            other.process.kill();
            other.no_etcd().await?;
        }
        let mut gone = cluster.start(env, at)?;
        gone.says("that it was removed", removed).await?;
        ensure!(gone.etcds()?.is_empty(), "etcd runs");
        Ok(())
    });
}

#[test]
fn neither_the_leader_nor_the_quorum_is_removed() {
    run(async |env| {
        let cluster = Cluster::new(env, 3)?;
        let mut agents = cluster.start_all(env).await?;
        for agent in &agents {
            let status = agent.status().await?;
            let name = status["member"]["name"].as_str().context("a name")?.to_owned();
            if status["leader"] == json!(true) {
                let (code, said) = post(agent, &format!("/member/remove?name={name}")).await?;
                assert!(code == 409 && said.to_string().contains("move the leader"), "{said}");
            }
        }
        // With one of three gone, a second one is needed.
        let lost = agents.remove(agents.len() - 1);
        lost.kill_alone()?;
        lost.no_etcd().await?;
        for agent in &mut agents {
            agent.ready().await?;
        }
        for agent in &agents {
            let status = agent.status().await?;
            let name = status["member"]["name"].as_str().context("a name")?;
            if status["leader"] == json!(false) {
                let (code, said) = post(agent, &format!("/member/remove?name={name}")).await?;
                assert_eq!(code, 409, "{said}");
                return Ok(());
            }
        }
        anyhow::bail!("nobody follows")
    });
}
