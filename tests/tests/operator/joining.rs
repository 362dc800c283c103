use anyhow::{Result, ensure};
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::reports::told;
use super::tls::{Authorities, with_tls};
use super::world::{DEADLINE, TestNamespace, etcd, holds, reason, spec};

const FINALIZER: &str = "migration.gardener.cloud/etcd-membership";

/// An Etcd with certificates whose members join those of another namespace, as if that were another seed.
fn joining(other: &str) -> Value {
    let url = |at: u32, port: u16| format!("https://main-{at}.main-peer.{other}.svc:{port}");
    let members: Vec<Value> =
        (0..3).map(|at| json!({"name": format!("main-{at}"), "peerUrls": [url(at, 2380)]})).collect();
    let mut spec = with_tls(spec(3), true);
    spec["memberNamePrefix"] = "b".into();
    spec["etcd"]["bootstrapWithExistingCluster"] =
        json!({"members": members, "clientEndpoints": [url(0, 2379), url(1, 2379), url(2, 2379)]});
    spec
}

#[test]
#[ignore = "minutes, in make soak"]
fn members_join_the_etcd_of_another_seed_go_back_and_take_it_over() {
    run(async |env| {
        let authorities = Authorities::make(env)?;
        let source = authorities.place("operator-join-a").await?;
        source.apply(with_tls(spec(3), true)).await?;
        source.until_members(3, "main").await?;
        let member = source.member(0).await?;
        member.put("a", "1").await?;

        let place = authorities.place("operator-join-b").await?;
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
#[ignore = "minutes, in make soak"]
fn members_of_an_etcd_that_is_deleted_leave_that_of_another_seed_first() {
    run(async |env| {
        let authorities = Authorities::make(env)?;
        let source = authorities.place("operator-delete-a").await?;
        source.apply(with_tls(spec(3), true)).await?;
        source.until_members(3, "main").await?;
        let member = source.member(0).await?;
        member.put("a", "1").await?;
        let place = authorities.place("operator-delete-b").await?;
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

/// Five voters, of which three are those of the Etcd that somebody deletes: without them the other two have no quorum.
#[test]
#[ignore = "minutes, in make soak"]
fn an_etcd_that_was_joined_stays_while_members_of_another_seed_need_its_own() {
    run(async |env| {
        let authorities = Authorities::make(env)?;
        let source = authorities.place("operator-needed-a").await?;
        source.apply(with_tls(spec(3), true)).await?;
        source.until_members(3, "main").await?;
        let member = source.member(0).await?;
        member.put("a", "1").await?;
        let place = authorities.place("operator-needed-b").await?;
        place.apply(joining("operator-needed-a")).await?;
        place
            .until("joined", |status| holds(status, "BootstrappedWithExistingCluster") == Some(true))
            .await?;
        let seen = |status: &Value| {
            let unknown = &status["unknownMembers"];
            unknown["dependOnOwn"] == true
                && unknown["voters"] == 5
                && unknown["members"].as_array().map(Vec::len) == Some(3)
        };
        let etcd = source.until("members of another seed", seen).await?;
        ensure!(etcd["metadata"]["finalizers"].to_string().contains(FINALIZER), "{}", etcd["metadata"]);

        // In the foreground Kubernetes deletes the StatefulSet nevertheless, and it is made anew on the same volumes.
        for cascade in ["background", "foreground"] {
            let cascade = format!("--cascade={cascade}");
            source.pods.kubectl(&["delete", "etcd", "main", "--wait=false", &cascade]).await?;
            let needed = |status: &Value| reason(status, "ScaleOperationComplete") == "NeededByOthers";
            source.until("that others need it", needed).await?;
            until("writes with five voters", DEADLINE, async || {
                source.member(0).await?.ctl(&["put", "b", "2"]).await?;
                ensure!(voters(&source.member(0).await?).await? == 5, "a voter is missing");
                Ok(())
            })
            .await?;
        }
        // The others leave, and nobody needs it any more.
        place.patch(json!({"spec": {"replicas": 0}})).await?;
        place.until_stopped().await?;
        source.pods.until_gone("etcd", "main").await?;
        source.pods.until_gone("pod", "main-0").await
    });
}

/// Six voters, three on each site: the move goes on or back, whatever comes first, and some site has a quorum.
#[test]
#[ignore = "minutes, in make soak"]
fn an_etcd_that_is_deleted_with_as_many_voters_as_the_other_leaves_a_quorum() {
    run(async |env| {
        let authorities = Authorities::make(env)?;
        let source = authorities.place("operator-even-a").await?;
        source.apply(with_tls(spec(3), true)).await?;
        source.until_members(3, "main").await?;
        let member = source.member(0).await?;
        member.put("a", "1").await?;
        let place = authorities.place("operator-even-b").await?;
        place.apply(joining("operator-even-a")).await?;
        place
            .until("joined", |status| holds(status, "BootstrappedWithExistingCluster") == Some(true))
            .await?;
        place.patch(json!({"spec": {"etcd": {"bootstrapWithExistingCluster": null}}})).await?;
        let here = place.member(0).await?;
        until("the third voter", DEADLINE, async || {
            let list = here.ctl(&["member", "list"]).await?;
            let third = list.lines().any(|line| line.contains("b-main-2") && line.ends_with("false"));
            ensure!(third, "{list}");
            Ok(())
        })
        .await?;
        place.pods.kubectl(&["delete", "etcd", "main", "--wait=false"]).await?;
        let mut back = false;
        until("the end of the way, forward or back", DEADLINE, async || {
            let left = place.names("etcd").await?;
            back = left.is_empty();
            let why = match left.is_empty() {
                true => String::new(),
                false => reason(&place.pods.get("etcd", "main").await?["status"], "ScaleOperationComplete"),
            };
            ensure!(back || why == "SourceMembersRemoved", "{why}");
            Ok(())
        })
        .await?;
        let serves = if back { &member } else { &here };
        serves.put("b", "2").await?;
        ensure!(serves.read("a").await? == "1", "the data is gone (back: {back})");
        Ok(())
    });
}

/// A mistake that would end in two halves: the endpoints of the other etcd are those of two.
#[test]
fn endpoints_of_two_clusters_are_told_and_nobody_joins_either() {
    run(async |_| {
        let place = TestNamespace::make("operator-foreign").await?;
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

/// Members that others reach through load balancers: no name in their certificates leads to the address from which they call.
#[test]
#[ignore = "minutes, in make soak"]
fn members_behind_load_balancers_are_let_in_where_their_names_are_not_compared_with_addresses() {
    const BALANCER: &str = "server.example.com";
    run(async |env| {
        let authorities = Authorities::make(env)?;
        let source = authorities.place("operator-sans-a").await?;
        source.apply(with_tls(spec(3), false)).await?;
        source.until_members(3, "main").await?;
        source.member(0).await?.put("a", "1").await?;

        let place = authorities.place_with("operator-sans-b", &[BALANCER]).await?;
        let mut members = Vec::new();
        for at in 0..3 {
            let runner = &place.pods.world.runner;
            let port = runner.publish(&format!("main-{at}.main-peer.operator-sans-b.svc"), 2380).await?;
            let url = format!("https://{BALANCER}:{}", runner.expose(port)?.port());
            members.push(json!({"memberName": format!("b-main-{at}"), "urls": [url]}));
        }
        let mut joins = joining("operator-sans-a");
        joins["etcd"]["additionalAdvertisePeerURLs"] = members.into();
        joins["etcd"]["advertiseOnlyAdditionalPeerURLs"] = true.into();
        place.apply(joins).await?;
        // It is added, and those that it asks for the members of the etcd let it in nowhere.
        let refused = |status: &Value| status["members"][0]["reason"] == "Failing";
        let etcd = place.until("an etcd that cannot start", refused).await?;
        let why = reason(&etcd["status"], "ScaleOperationComplete");
        ensure!(why == "LearnerNotStarted", "{}", etcd["status"]);

        let skips = json!({"peerUrlTls": {"skipClientSANVerification": true}});
        source.patch(json!({"spec": {"etcd": skips}})).await?;
        place
            .until("joined", |status| holds(status, "BootstrappedWithExistingCluster") == Some(true))
            .await?;
        ensure!(voters(&source.member(0).await?).await? == 5, "they have not joined");
        ensure!(place.member(0).await?.read("a").await? == "1", "the data did not come along");
        Ok(())
    });
}

async fn voters(member: &super::world::Member) -> Result<usize> {
    let out: Value = serde_json::from_str(&member.ctl(&["member", "list", "-w", "json"]).await?)?;
    let members = out["members"].as_array().cloned().unwrap_or_default();
    Ok(members.iter().filter(|member| member["isLearner"] != true).count())
}
