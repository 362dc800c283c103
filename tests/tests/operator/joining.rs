use anyhow::{Result, ensure};
use repot_tests::run;
use serde_json::{Value, json};

use super::reports::told;
use super::world::{Place, etcd, holds, reason, spec};

/// An Etcd whose members join those of another namespace, as if that were another seed.
fn joining(other: &str) -> Value {
    let url = |at: u32, port: u16| format!("http://main-{at}.main-peer.{other}.svc:{port}");
    let members: Vec<Value> =
        (0..3).map(|at| json!({"name": format!("main-{at}"), "peerUrls": [url(at, 2380)]})).collect();
    let mut spec = spec(3);
    spec["memberNamePrefix"] = "b".into();
    spec["etcd"]["bootstrapWithExistingCluster"] =
        json!({"members": members, "clientEndpoints": [url(0, 2379), url(1, 2379), url(2, 2379)]});
    spec
}

#[test]
fn members_join_the_etcd_of_another_seed_go_back_and_take_it_over() {
    run(async |_| {
        let source = Place::make("operator-join-a").await?;
        source.apply(spec(3)).await?;
        source.until_members(3, "main").await?;
        let member = source.member(0).await?;
        member.put("a", "1").await?;

        let place = Place::make("operator-join-b").await?;
        place.apply(joining("operator-join-a")).await?;
        let joined = |status: &Value| holds(status, "BootstrappedWithExistingCluster") == Some(true);
        place.until("joined", joined).await?;
        // With three and three voters neither site would have a quorum alone.
        ensure!(voters(&member).await? == 5, "{} voters", voters(&member).await?);

        place.patch(json!({"spec": {"replicas": 0}})).await?;
        place.until_stopped().await?;
        ensure!(member.members().await? == ["main-0", "main-1", "main-2"], "{:?}", member.members().await?);

        place.pods.kubectl(&["delete", "etcd", "main"]).await?;
        place.pods.until_gone("etcd", "main").await?;
        place.pods.kubectl(&["delete", "pvc", "--all"]).await?;
        place.apply(joining("operator-join-a")).await?;
        place.until("joined", joined).await?;
        place.patch(json!({"spec": {"etcd": {"bootstrapWithExistingCluster": null}}})).await?;
        let etcd = place.until_members(3, "main").await?;
        ensure!(etcd["status"]["bootstrapWithExistingCluster"]["released"] == true, "{}", etcd["status"]);
        let here = place.member(0).await?;
        ensure!(here.members().await? == ["b-main-0", "b-main-1", "b-main-2"], "{:?}", here.members().await?);
        ensure!(here.read("a").await? == "1", "the data did not come along");
        // The other side has lost its members, and says so instead of doing something about it.
        let left = source.until("without a quorum", |status| holds(status, "Ready") == Some(false)).await?;
        ensure!(reason(&left["status"], "Ready") == "QuorumLost", "{}", left["status"]);
        Ok(())
    });
}

/// Five voters, of which two are those of an Etcd that somebody deletes.
#[test]
fn members_of_an_etcd_that_is_deleted_leave_that_of_another_seed_first() {
    run(async |_| {
        let source = Place::make("operator-delete-a").await?;
        source.apply(spec(3)).await?;
        source.until_members(3, "main").await?;
        let member = source.member(0).await?;
        member.put("a", "1").await?;
        let place = Place::make("operator-delete-b").await?;
        let joined = |status: &Value| holds(status, "BootstrappedWithExistingCluster") == Some(true);
        // In the foreground all that belongs to the Etcd is deleted before it.
        for cascade in ["background", "foreground"] {
            place.apply(joining("operator-delete-a")).await?;
            place.until("joined", joined).await?;
            ensure!(voters(&member).await? == 5, "{} voters", voters(&member).await?);
            let cascade = format!("--cascade={cascade}");
            place.pods.kubectl(&["delete", "etcd", "main", "--wait=false", &cascade]).await?;
            place.pods.until_gone("etcd", "main").await?;
            let left = member.members().await?;
            ensure!(left == ["main-0", "main-1", "main-2"], "{cascade}: {left:?}");
            ensure!(member.read("a").await? == "1", "the data is gone");
            place.pods.until_gone("pod", "main-0").await?;
            place.pods.kubectl(&["delete", "pvc", "--all"]).await?;
        }
        Ok(())
    });
}

/// A mistake that would end in two halves: the endpoints of the other etcd are those of two.
#[test]
fn endpoints_of_two_clusters_are_told_and_nobody_joins_either() {
    run(async |_| {
        let place = Place::make("operator-foreign").await?;
        let others = ["one", "other"];
        place.pods.apply(&others.map(|name| etcd(name, spec(1)))).await?;
        for name in others {
            let serves = |status: &Value| holds(status, "ClusterIDMismatch") == Some(false);
            place.until_of(name, "a member that tells its cluster", serves).await?;
        }
        let url = |name: &str, port: u16| format!("http://{name}-0.{name}-peer.operator-foreign.svc:{port}");
        let members = others.map(|name| json!({"name": format!("{name}-0"), "peerUrls": [url(name, 2380)]}));
        let mut joins = spec(3);
        joins["etcd"]["bootstrapWithExistingCluster"] =
            json!({"members": members, "clientEndpoints": others.map(|name| url(name, 2379))});
        place.apply(joins).await?;
        let differ = |status: &Value| holds(status, "ClusterIDMismatch") == Some(true);
        let told_of = place.until("clusters that differ", differ).await?;
        let why = reason(&told_of["status"], "ClusterIDMismatch");
        ensure!(why == "ForeignCluster", "{}", told_of["status"]);
        told(&place, "Warning", "ForeignCluster").await?;
        // Its Pods may wait with empty volumes; they are members of nothing.
        for name in others {
            let members = place.member_of(name, 0).await?.members().await?;
            ensure!(members == [format!("{name}-0")], "{members:?}");
        }
        Ok(())
    });
}

async fn voters(member: &super::world::Member) -> Result<usize> {
    let out: Value = serde_json::from_str(&member.ctl(&["member", "list", "-w", "json"]).await?)?;
    let members = out["members"].as_array().cloned().unwrap_or_default();
    Ok(members.iter().filter(|member| member["isLearner"] != true).count())
}
