use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use etcd_client::{Client, ConnectOptions};
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::reports::told;
use super::world::{DEADLINE, TestNamespace, holds, reason, spec};

/// Writes numbered keys as fast as they are acknowledged, and remembers how many were.
struct Writer {
    acknowledged: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Writer {
    async fn start(port: u16) -> Result<Self> {
        let options = ConnectOptions::new().with_timeout(std::time::Duration::from_secs(3));
        let client = Client::connect([format!("http://127.0.0.1:{port}")], Some(options)).await?;
        let acknowledged = Arc::new(AtomicU64::new(0));
        let count = acknowledged.clone();
        let task = tokio::spawn(async move {
            let mut kv = client.kv_client();
            loop {
                let next = count.load(Ordering::Relaxed);
                // One that failed is written again under the same name.
                if kv.put(format!("n/{next:08}"), "x", None).await.is_ok() {
                    count.store(next + 1, Ordering::Relaxed);
                }
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        });
        Ok(Self { acknowledged, task })
    }

    async fn goes_on(&self) -> Result<()> {
        let before = self.acknowledged.load(Ordering::Relaxed);
        until("further writes", DEADLINE, async || {
            ensure!(self.acknowledged.load(Ordering::Relaxed) > before + 10, "none came");
            Ok(())
        })
        .await
    }

    /// Ends it; how many writes were acknowledged.
    async fn stop(self) -> u64 {
        self.task.abort();
        let _ = self.task.await;
        self.acknowledged.load(Ordering::Relaxed)
    }
}

#[test]
fn members_come_and_go_one_by_one_under_a_writer_and_nothing_is_lost() {
    run(async |_| {
        let place = TestNamespace::make("operator-scale").await?;
        place.apply(spec(1)).await?;
        place.until_members(1, "main").await?;
        let member = place.member(0).await?;
        member.put("a", "1").await?;
        let writer = Writer::start(member.port).await?;
        writer.goes_on().await?;

        place.pods.kubectl(&["scale", "etcd/main", "--replicas=3"]).await?;
        let etcd = place.until_members(3, "main").await?;
        ensure!(roles(&etcd) == ["Leader", "Member", "Member"], "{}", etcd["status"]["members"]);
        ensure!(place.member(2).await?.read("a").await? == "1", "the new member has no data");
        writer.goes_on().await?;

        place.pods.kubectl(&["scale", "etcd/main", "--replicas=1"]).await?;
        place.until_members(1, "main").await?;
        writer.goes_on().await?;
        ensure!(member.members().await? == ["main-0"], "{:?}", member.members().await?);
        // Data of members that were removed must not be started again.
        place.pods.until_gone("pvc", "main-main-1").await?;
        place.pods.until_gone("pvc", "main-main-2").await?;
        ensure!(place.names("pvc").await? == ["main-main-0"], "{:?}", place.names("pvc").await?);

        // So they can come again.
        place.pods.kubectl(&["scale", "etcd/main", "--replicas=3"]).await?;
        place.until_members(3, "main").await?;
        let acknowledged = writer.stop().await;
        let held = place
            .member(1)
            .await?
            .ctl(&["get", "n/", "--prefix", "--count-only", "--write-out=fields"])
            .await?;
        let held: u64 =
            held.lines().find_map(|line| line.strip_prefix("\"Count\" : ")).unwrap_or("0").parse()?;
        ensure!(
            held >= acknowledged && acknowledged > 30,
            "{acknowledged} were acknowledged, and {held} are there"
        );
        Ok(())
    });
}

fn roles(etcd: &Value) -> Vec<String> {
    let members = etcd["status"]["members"].as_array().cloned().unwrap_or_default();
    let mut roles: Vec<String> =
        members.iter().filter_map(|member| member["role"].as_str().map(str::to_owned)).collect();
    roles.sort();
    roles
}

#[test]
fn a_member_whose_volume_is_lost_is_replaced_and_none_is_removed_without_a_quorum() {
    run(async |_| {
        let place = TestNamespace::make("operator-lost").await?;
        place.apply(spec(3)).await?;
        let etcd = place.until_members(3, "main").await?;
        let before = id_of(&etcd, "main-1");
        let member = place.member(0).await?;
        member.put("a", "1").await?;
        place.pods.kubectl(&["delete", "pvc", "main-main-1", "--wait=false"]).await?;
        // As long as its Pod uses it, it is there; but it does not stay.
        let going = |status: &Value| reason(status, "DataVolumesReady") == "VolumesNotBound";
        let etcd = place.until("a volume that goes", going).await?;
        ensure!(holds(&etcd["status"], "DataVolumesReady") == Some(false), "{}", etcd["status"]);
        place.pods.kubectl(&["delete", "pod", "main-1"]).await?;
        place
            .until("another member in its place", |status| {
                status["members"].as_array().is_some_and(|members| {
                    members.iter().any(|m| m["name"] == "main-1" && m["id"].as_str() != Some(&before))
                })
            })
            .await?;
        place.until_members(3, "main").await?;
        told(&place, "Warning", "MemberLost").await?;
        place.until("volumes that stay", |status| holds(status, "DataVolumesReady") == Some(true)).await?;
        ensure!(place.member(1).await?.read("a").await? == "1", "it has no data");

        // With one of three gone there is no second one to give. Which one goes depends on the leader, which is replaced last.
        let bad = json!({"spec": {"etcd": {"image": "none"}}});
        place.patch(bad).await?;
        place.until("a member that cannot start", |status| status["readyReplicas"] == 2).await?;
        place.patch(json!({"spec": {"replicas": 5}})).await?;
        let refused =
            place.until("a reason", |status| holds(status, "ScaleOperationComplete") == Some(false)).await?;
        let why = reason(&refused["status"], "ScaleOperationComplete");
        ensure!(why == "VoterUnsteady", "{why}");
        ensure!(member.members().await?.len() == 3, "a member was added");
        member.put("b", "2").await
    });
}

fn id_of(etcd: &Value, name: &str) -> String {
    let members = etcd["status"]["members"].as_array().cloned().unwrap_or_default();
    let member = members.iter().find(|member| member["name"] == name);
    member.and_then(|member| member["id"].as_str()).unwrap_or_default().to_owned()
}
