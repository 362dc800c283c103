//! ResourceQuotas, counted by a real kube-controller-manager.

use std::time::Duration;

use anyhow::{Result, ensure};
use repot_tests::run;
use repot_tests::wait::{Hopeless, until};
use serde_json::{Value, json};

use super::world::{GROUP, TestNamespace, failure};

/// The controller learns of new resources every half minute.
const COUNTED_DEADLINE: Duration = Duration::from_secs(120);

async fn limit(place: &TestNamespace, hard: &str) -> Result<()> {
    let counted = format!("count/shootstates.{GROUP}");
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "states", "namespace": place.namespace}, "spec": {"hard": {counted: hard}},
    });
    place.world.garden.apply(&[quota]).await
}

async fn used(place: &TestNamespace, expected: &str) -> Result<()> {
    let path = format!("/api/v1/namespaces/{}/resourcequotas/states", place.namespace);
    let counted = format!("count/shootstates.{GROUP}");
    until("the quota to be counted", COUNTED_DEADLINE, async || {
        let quota = place.api.get(&path).await?.ok()?;
        let status: &Value = &quota["status"];
        ensure!(status["hard"][&counted].is_string() && status["used"][&counted] == expected, "{status}");
        Ok(())
    })
    .await
}

#[test]
fn a_quota_refuses_what_is_beyond_it() {
    run(async |_| {
        let place = TestNamespace::make("quota").await?;
        limit(&place, "2").await?;
        used(&place, "0").await?;
        let dry = format!("{}?dryRun=All", place.collection());
        place.api.post(&dry, &place.object("tried")).await?.ok()?;
        used(&place, "0").await?;
        place.create("a").await?.ok()?;
        place.create("b").await?.ok()?;
        used(&place, "2").await?;
        let counted = format!("count/shootstates.{GROUP}");
        let expected = format!(
            "shootstates.{GROUP} \"c\" is forbidden: exceeded quota: states, requested: {counted}=1, used: {counted}=2, \
             limited: {counted}=2"
        );
        for path in [place.collection(), dry] {
            let answer = place.api.post(&path, &place.object("c")).await?;
            ensure!(failure(&answer)? == (403, expected.clone()), "{answer}");
            ensure!(answer.json()?["reason"] == "Forbidden", "{answer}");
        }
        // Who changes what is there takes no place; who deletes gives one back, when the controller has counted.
        let labels = json!({"metadata": {"labels": {"x": "y"}}});
        place.api.patch(&place.path("a"), super::world::MERGE, &labels).await?.ok()?;
        place.api.delete(&place.path("b")).await?.ok()?;
        used(&place, "1").await?;
        place.create("c").await?.ok()?;
        Ok(())
    });
}

#[test]
fn one_of_many_who_want_the_last_place_has_it() {
    run(async |_| {
        let place = TestNamespace::make("race").await?;
        limit(&place, "3").await?;
        used(&place, "0").await?;
        let (mut wanted, mut created, mut refused) = ((0..12).collect::<Vec<usize>>(), 0, 0);
        until("nobody to meet another's change of the quota", COUNTED_DEADLINE, async || {
            let create =
                async |n: usize| place.api.post(&place.collection(), &place.object(&format!("r{n}"))).await;
            let answers = futures::future::join_all(wanted.iter().map(|n| create(*n))).await;
            let mut again = Vec::new();
            for (n, answer) in wanted.iter().zip(answers) {
                let answer = answer?;
                match answer.status {
                    201 => created += 1,
                    409 => again.push(*n),
                    403 if failure(&answer)?.1.contains("exceeded quota: states") => refused += 1,
                    _ => return Err(Hopeless(answer.to_string()).into()),
                }
            }
            wanted = again;
            ensure!(wanted.is_empty(), "{} met a conflict", wanted.len());
            Ok(())
        })
        .await?;
        ensure!((created, refused) == (3, 9), "{created} were created, {refused} were refused");
        let listed = place.api.get(&place.collection()).await?.ok()?;
        ensure!(listed["items"].as_array().map(Vec::len) == Some(3), "{listed}");
        Ok(())
    });
}

/// Two servers charge one quota. The version of the quota decides, so they create no more than it allows in one round. Each has a store
/// of its own, and the controller counts the objects of the first one only: what it writes later says nothing about the race.
#[test]
fn two_servers_charge_one_quota() {
    run(async |env| {
        let place = TestNamespace::make("two-servers").await?;
        limit(&place, "3").await?;
        used(&place, "0").await?;
        let other = place.world.another(env).await?;
        let many = (0..12_usize).map(|n| {
            let api = if n.is_multiple_of(2) { &place.api } else { &other.api };
            let (path, object) = (place.collection(), place.object(&format!("r{n}")));
            async move { api.post(&path, &object).await }
        });
        let answers = futures::future::join_all(many).await;
        let mut codes = Vec::new();
        for answer in answers {
            let answer = answer?;
            ensure!(matches!(answer.status, 201 | 403 | 409), "{answer}");
            codes.push(answer.status);
        }
        let created = codes.iter().filter(|code| **code == 201).count();
        ensure!((1..=3).contains(&created) && codes.contains(&403), "{codes:?}");
        Ok(())
    });
}
