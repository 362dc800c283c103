//! Agents and members that take connections and never answer: each call to them ends by its deadline, and the status says what is
//! waited for.

use anyhow::{Context, Result, ensure};
use repot_tests::run;
use serde_json::{Value, json};

use super::gateway::{of, with_gateways};
use super::tls::Authorities;
use super::world::{TestNamespace, reason};

const SCALE: &str = "ScaleOperationComplete";

fn message(status: &Value, kind: &str) -> String {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let found = conditions.into_iter().find(|condition| condition["type"] == kind);
    found.and_then(|condition| condition["message"].as_str()).unwrap_or_default().to_owned()
}

/// Waits until the scaling is held up for this reason, and gives the message.
async fn held_up(place: &TestNamespace, why: &str) -> Result<String> {
    let etcd = place.until(why, |status| reason(status, SCALE) == why).await?;
    Ok(message(&etcd["status"], SCALE))
}

/// Lets a member lead.
async fn lead(place: &TestNamespace, wanted: &str) -> Result<()> {
    let etcd = place.until("a leader", |status| status["members"].to_string().contains("Leader")).await?;
    let leader = of(&etcd, "role", "Leader")?["name"].as_str().context("a leader")?.to_owned();
    if leader == wanted {
        return Ok(());
    }
    let id = of(&etcd, "name", wanted)?["id"].as_str().context("an id")?.to_owned();
    place
        .member(leader.trim_start_matches("main-").parse()?)
        .await?
        .ctl(&["move-leader", &id])
        .await
        .map(drop)
}

#[test]
fn an_agent_that_never_answers_holds_up_a_leader_and_a_removal_and_its_name_is_told() {
    run(async |bed| {
        let authorities = Authorities::make(bed)?;
        let place = authorities.place("operator-silent-agent").await?;
        place.apply(with_gateways()).await?;
        place.until_members(3, "main").await?;
        lead(&place, "main-2").await?;
        let runner = &place.pods.world.runner;
        // Its etcd and its gateway's listener are there; the agent takes connections and says nothing.
        runner.freeze_with_argument("operator-silent-agent", "main-0", "etcd", "--config")?;
        place.pods.kubectl(&["scale", "etcd/main", "--replicas=2"]).await?;
        let why = held_up(&place, "WritesNotHeld").await?;
        ensure!(why.contains("the leader stays"), "{why}");
        lead(&place, "main-1").await?;
        let why = held_up(&place, "ClientsNotGone").await?;
        ensure!(why.contains("main-2 stays") && why.contains("main-0."), "{why}");
        // Other changes are still taken up: no pass hangs.
        place
            .patch(
                json!({"metadata": {"annotations": {"migration.gardener.cloud/without-gateways": "true"}}}),
            )
            .await?;
        place
            .until("two members", |status| status["members"].as_array().is_some_and(|all| all.len() == 2))
            .await?;
        runner.resume("operator-silent-agent", "main-0", "etcd")?;
        place.until_members(2, "main").await.map(drop)
    });
}

#[test]
fn a_member_that_never_answers_holds_up_a_removal_and_other_changes_are_taken_up() {
    run(async |bed| {
        let authorities = Authorities::make(bed)?;
        let place = authorities.place("operator-silent-etcd").await?;
        place.apply(with_gateways()).await?;
        place.until_members(3, "main").await?;
        lead(&place, "main-1").await?;
        let runner = &place.pods.world.runner;
        runner.freeze("operator-silent-etcd", "main-0", "etcd")?;
        place.pods.kubectl(&["scale", "etcd/main", "--replicas=1"]).await?;
        let why = held_up(&place, "VoterUnsteady").await?;
        ensure!(why.contains("is not connected"), "{why}");
        // A pass that hung would not see that all is to stay as it was.
        place.pods.kubectl(&["scale", "etcd/main", "--replicas=3"]).await?;
        let settled = |status: &Value| reason(status, SCALE) != "VoterUnsteady";
        let etcd = place.until("no change of members", settled).await?;
        ensure!(of(&etcd, "name", "main-2").is_ok(), "a member was removed: {}", etcd["status"]);
        runner.resume("operator-silent-etcd", "main-0", "etcd")?;
        place.until_members(3, "main").await.map(drop)
    });
}
