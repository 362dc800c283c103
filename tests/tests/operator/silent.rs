//! Members and agents that take connections and never answer.

use anyhow::{Context, ensure};
use repot_tests::run;
use serde_json::Value;

use super::gateway::{make_leader, with_gateways};
use super::tls::Authorities;
use super::world::{TestNamespace, holds, reason, spec};

/// Reasons of an operator that waits for a gateway.
const HELD_UP: [&str; 2] = ["ClientsNotGone", "WritesNotHeld"];

/// The condition of an etcd that is to have another number of members, and why it has not.
fn waits_for(reasons: &'static [&'static str]) -> impl Fn(&Value) -> bool {
    move |status| {
        holds(status, "ScaleOperationComplete") == Some(false)
            && reasons.contains(&reason(status, "ScaleOperationComplete").as_str())
    }
}

#[test]
fn agent_that_never_answers_keeps_members_until_a_person_says_to_go_on_without_gateways() {
    run(async |env| {
        let authorities = Authorities::make(env)?;
        let place = authorities.place("operator-silent").await?;
        place.apply(with_gateways()).await?;
        place.until_members(3, "main").await?;
        // The first member is the one that stays.
        make_leader(&place, "main-0").await?;
        let member = place.member(0).await?;
        member.put("a", "1").await?;

        // Its gateway may have clients that write by main-2, and nobody can ask it to lead them away.
        let runner = &place.pods.world.runner;
        runner.freeze_one("operator-silent", "main-1", "etcd", "etcd-agent --config")?;
        place.pods.kubectl(&["scale", "etcd/main", "--replicas=1"]).await?;
        let etcd = place.until("a gateway that holds it up", waits_for(&HELD_UP)).await?;
        let conditions = etcd["status"]["conditions"].as_array().context("no conditions")?;
        let scale = conditions.iter().find(|one| one["type"] == "ScaleOperationComplete");
        let text = scale.context("no condition")?["message"].to_string();
        ensure!(text.contains("main-1"), "it does not say whose agent is silent: {text}");
        let members = member.members().await?;
        ensure!(members == ["main-0", "main-1", "main-2"], "{members:?}");
        member.put("b", "2").await?;

        let override_it = ["annotate", "etcd/main", "migration.gardener.cloud/without-gateways=true"];
        place.pods.kubectl(&override_it).await?;
        place.until_members(1, "main").await?;
        ensure!(member.members().await? == ["main-0"], "{:?}", member.members().await?);
        ensure!(member.read("b").await? == "2", "a write is lost");
        Ok(())
    });
}

#[test]
fn no_member_leaves_while_another_one_never_answers() {
    run(async |_| {
        let place = TestNamespace::make("operator-frozen").await?;
        place.apply(spec(3)).await?;
        place.until_members(3, "main").await?;
        let frozen = place.until("a leader", |status| roles(status).contains("Leader")).await?;
        let members = frozen["status"]["members"].as_array().context("no members")?;
        let follower = members.iter().find(|member| member["role"] == "Member").context("no follower")?;
        let follower = follower["name"].as_str().context("a name")?;
        let at = u32::from(follower == "main-0");
        let member = place.member(at).await?;

        place.pods.world.runner.freeze("operator-frozen", follower, "etcd")?;
        place.pods.kubectl(&["scale", "etcd/main", "--replicas=1"]).await?;
        place.until("a quorum that is at risk", waits_for(&["QuorumAtRisk", "VoterUnsteady"])).await?;
        member.put("a", "1").await?;
        let members = member.members().await?;
        ensure!(members == ["main-0", "main-1", "main-2"], "{members:?}");

        place.pods.world.runner.resume("operator-frozen", follower, "etcd")?;
        place.until_members(1, "main").await?;
        ensure!(place.member(0).await?.read("a").await? == "1", "a write is lost");
        Ok(())
    });
}

fn roles(status: &Value) -> String {
    status["members"].to_string()
}
