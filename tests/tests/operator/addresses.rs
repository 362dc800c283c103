use anyhow::{Context, Result, ensure};
use repot_tests::run;
use serde_json::{Value, json};

use super::world::{Member, TestNamespace, spec};

/// Peer URLs of each member, by the order of their names.
async fn peer_urls(member: &Member) -> Result<Vec<Vec<String>>> {
    let out: Value = serde_json::from_str(&member.ctl(&["member", "list", "-w", "json"]).await?)?;
    let mut members = out["members"].as_array().context("no members")?.clone();
    members.sort_by_key(|member| member["name"].to_string());
    members.iter().map(|member| Ok(serde_json::from_value(member["peerURLs"].clone())?)).collect()
}

#[test]
#[ignore = "minutes, in make soak"]
fn members_that_exist_get_other_peer_urls_and_find_each_other_by_them() {
    run(async |_| {
        let namespace = "operator-addresses";
        let place = TestNamespace::make(namespace).await?;
        place.apply(spec(3)).await?;
        place.until_members(3, "main").await?;
        let member = place.member(0).await?;
        member.put("a", "1").await?;
        let own = |at: u32| format!("http://main-{at}.main-peer.{namespace}.svc:2380");
        let further = |at: u32| format!("http://main-{at}.main-peer.{namespace}.svc.cluster.local:2380");
        let until = async |what: &str, expected: &[Vec<String>]| {
            place.until_members(3, "main").await?;
            let found = peer_urls(&member).await?;
            ensure!(found == expected, "{what}: {found:?}");
            Ok(())
        };

        let of = |at: u32| json!({"memberName": format!("main-{at}"), "urls": [further(at)]});
        let all: Vec<Value> = (0..3).map(of).collect();
        place.patch(json!({"spec": {"etcd": {"additionalAdvertisePeerURLs": all}}})).await?;
        until("further ones", &[0, 1, 2].map(|at| vec![own(at), further(at)])).await?;
        // None of the first ones is left: members are known by the slot at which they answer.
        place.patch(json!({"spec": {"etcd": {"advertiseOnlyAdditionalPeerURLs": true}}})).await?;
        until("those alone", &[0, 1, 2].map(|at| vec![further(at)])).await?;
        for at in [1, 2] {
            place.pods.kubectl(&["delete", "pod", &format!("main-{at}")]).await?;
            place.until_members(3, "main").await?;
            ensure!(place.member(at).await?.read("a").await? == "1", "main-{at} has lost its data");
        }
        member.put("b", "2").await?;
        let back = json!({"additionalAdvertisePeerURLs": null, "advertiseOnlyAdditionalPeerURLs": null});
        place.patch(json!({"spec": {"etcd": back}})).await?;
        until("the first ones again", &[0, 1, 2].map(|at| vec![own(at)])).await
    });
}
