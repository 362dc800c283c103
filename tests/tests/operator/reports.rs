use anyhow::{Context, Result, ensure};
use repot_tests::wait::until;
use repot_tests::{operator, run};
use serde_json::{Value, json};

use super::world::{DEADLINE, Member, TestNamespace, holds, reason, spec};

/// Reasons of Events on the Etcd `main`, with their types.
async fn events(place: &TestNamespace) -> Result<Vec<(String, String)>> {
    let out = place.pods.kubectl(&["get", "events.events.k8s.io", "-o", "json"]).await?;
    let all: Value = serde_json::from_str(&out)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items = all["items"].as_array().context("no items")?.iter();
    let ours =
        items.filter(|event| event["regarding"]["kind"] == "Etcd" && event["regarding"]["name"] == "main");
    Ok(ours.map(|event| (text(&event["type"]), text(&event["reason"]))).collect())
}

/// Waits until an Event on the Etcd `main` tells this.
pub async fn told(place: &TestNamespace, kind: &str, what: &str) -> Result<()> {
    until(&format!("an Event {what}"), DEADLINE, async || {
        let events = events(place).await?;
        ensure!(events.iter().any(|event| *event == (kind.to_owned(), what.to_owned())), "{events:?}");
        Ok(())
    })
    .await
}

async fn lease(place: &TestNamespace, name: &str) -> Result<Value> {
    Ok(serde_json::from_str(&place.pods.kubectl(&["get", "lease", name, "-o", "json"]).await?)?)
}

/// The ids of a member and its cluster, and its role, as a Lease has them.
fn holder(lease: &Value) -> Result<[String; 3]> {
    let holder = lease["spec"]["holderIdentity"].as_str().context("no holder")?;
    let parts: Vec<String> = holder.split(':').map(str::to_owned).collect();
    parts.try_into().ok().with_context(|| holder.to_owned())
}

/// The id of the member without a name.
async fn stranger(member: &Member) -> Result<String> {
    let out: Value = serde_json::from_str(&member.ctl(&["member", "list", "-w", "json"]).await?)?;
    let members = out["members"].as_array().context("no members")?;
    let stranger = members.iter().find(|member| member["name"].as_str().is_none_or(str::is_empty));
    let id = stranger.and_then(|member| member["ID"].as_u64()).with_context(|| out.to_string())?;
    Ok(format!("{id:x}"))
}

#[test]
#[ignore = "minutes, in make soak"]
fn leases_and_events_tell_of_members_and_conditions_of_volumes_clusters_and_backups() {
    run(async |env| {
        let place = TestNamespace::make("operator-reports").await?;
        let mut wanted = spec(1);
        let dir = operator::make_store(env)?.display().to_string();
        wanted["backup"]["store"] = json!({"provider": "Local", "container": dir, "prefix": "a"});
        place.apply(wanted).await?;
        place.until_members(1, "main").await?;
        let well = |status: &Value| {
            holds(status, "DataVolumesReady") == Some(true)
                && holds(status, "ClusterIDMismatch") == Some(false)
                && holds(status, "BackupReady") == Some(true)
        };
        place.until("well in all", well).await?;
        let mut first = Value::Null;
        until("a lease", DEADLINE, async || {
            first = lease(&place, "main-0").await?;
            Ok(())
        })
        .await?;
        let etcd = place.until("an id", |status| status["members"][0]["id"].is_string()).await?;
        let [id, cluster, role] = holder(&first)?;
        ensure!(role == "Leader" && etcd["status"]["members"][0]["id"] == id.as_str(), "{first}");
        until("the lease to be renewed", DEADLINE, async || {
            let now = lease(&place, "main-0").await?;
            ensure!(now["spec"]["renewTime"] != first["spec"]["renewTime"], "{now}");
            Ok(())
        })
        .await?;

        place.pods.kubectl(&["scale", "etcd/main", "--replicas=3"]).await?;
        place.until_members(3, "main").await?;
        for event in ["MemberAdded", "MemberPromoted"] {
            told(&place, "Normal", event).await?;
        }
        until("leases of voters of one cluster", DEADLINE, async || {
            for at in [1, 2] {
                let holder = holder(&lease(&place, &format!("main-{at}")).await?)?;
                ensure!(holder[1] == cluster && holder[2] == "Member", "{holder:?}");
            }
            Ok(())
        })
        .await?;

        // Somebody adds a member whom nobody knows: that is told, and nothing is changed meanwhile.
        let member = place.member(0).await?;
        let add = ["member", "add", "stranger", "--learner", "--peer-urls=http://127.0.0.9:1"];
        // etcd takes none before its members have been connected for a while.
        until("the stranger to be added", DEADLINE, async || member.ctl(&add).await.map(drop)).await?;
        let unknown = |status: &Value| reason(status, "ScaleOperationComplete") == "UnknownMember";
        place.until("the stranger to be noticed", unknown).await?;
        told(&place, "Warning", "UnknownMember").await?;
        member.ctl(&["member", "remove", &stranger(&member).await?]).await?;

        place.patch(json!({"spec": {"replicas": 1}})).await?;
        place.until_members(1, "main").await?;
        told(&place, "Normal", "MemberRemoved").await?;
        until("leases of members that are gone to be gone", DEADLINE, async || {
            ensure!(place.names("lease").await? == ["main-0"], "{:?}", place.names("lease").await?);
            Ok(())
        })
        .await?;

        // A store that cannot be written.
        std::fs::remove_dir_all(&dir)?;
        std::fs::write(&dir, "no directory")?;
        member.put("a", "1").await?;
        let failing = |status: &Value| reason(status, "BackupReady") == "SnapshotsFail";
        place.until("failing", failing).await.map(drop)
    });
}
