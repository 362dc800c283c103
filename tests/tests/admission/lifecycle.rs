//! Namespaces that are missing, on their way out, or gone.

use std::time::Duration;

use anyhow::{Result, ensure};
use repot_tests::garden::Garden;
use repot_tests::http::Api;
use repot_tests::repot::{Repot, write_encryption_config};
use repot_tests::wait::until;
use repot_tests::{TestEnv, run};
use serde_json::{Value, json};

use super::world::{GROUP, MERGE, TestNamespace, VERSION, failure};

const NAMESPACES: &str = "/api/v1/namespaces";
const GONE_DEADLINE: Duration = Duration::from_secs(120);

#[test]
fn no_object_comes_into_a_namespace_that_is_missing_or_leaving() {
    run(async |_| {
        let place = TestNamespace::make("leaving").await?;
        let missing = place.collection().replace("/leaving/", "/nowhere/");
        let mut object = place.object("a");
        object["metadata"]["namespace"] = "nowhere".into();
        let answer = place.api.post(&missing, &object).await?;
        ensure!(failure(&answer)? == (404, "namespaces \"nowhere\" not found".to_owned()), "{answer}");

        let mut held = place.object("held");
        held["metadata"]["finalizers"] = json!(["example.com/hold"]);
        place.api.post(&place.collection(), &held).await?.ok()?;
        place.api.delete(&format!("{NAMESPACES}/leaving")).await?.ok()?;
        // As behind kube-apiserver, the server learns of the deletion by its watch, which may be a moment late.
        let answer = until("a creation to be refused", GONE_DEADLINE, async || {
            let answer = place.create("late").await?;
            if answer.status == 201 {
                place.api.delete(&place.path("late")).await?.ok()?;
            }
            ensure!(answer.status == 403, "{answer}");
            Ok(answer)
        })
        .await?;
        let status = answer.json()?;
        ensure!(status["reason"] == "Forbidden", "{answer}");
        let cause = &status["details"]["causes"][0];
        ensure!(
            cause["reason"] == "NamespaceTerminating" && cause["field"] == "metadata.namespace",
            "{answer}"
        );

        // What is there can be changed, and with its last finalizer the namespace can go.
        let labels = json!({"metadata": {"labels": {"x": "y"}}});
        place.api.patch(&place.path("held"), MERGE, &labels).await?.ok()?;
        let free = json!({"metadata": {"finalizers": null}});
        until("the object to be let go", GONE_DEADLINE, async || {
            let answer = place.api.patch(&place.path("held"), MERGE, &free).await?;
            ensure!(matches!(answer.status, 200 | 404), "{answer}");
            Ok(())
        })
        .await?;
        until("the namespace to go", GONE_DEADLINE, async || {
            let answer = place.api.get(&format!("{NAMESPACES}/leaving")).await?;
            ensure!(answer.status == 404, "{answer}");
            Ok(())
        })
        .await?;
        ensure!(!place.exists("held").await?, "the object outlived its namespace");
        // Made again within seconds, it is a namespace like any other.
        let again = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "leaving"}});
        place.api.post(NAMESPACES, &again).await?.ok()?;
        place.create("again").await?.ok()?;
        Ok(())
    });
}

fn object(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "ShootState",
        "metadata": {"name": name, "namespace": namespace}, "spec": {},
    })
}

fn path(namespace: &str, name: &str) -> String {
    format!("/apis/{GROUP}/{VERSION}/namespaces/{namespace}/shootstates/{name}")
}

/// A garden in which nobody empties namespaces, and a Repot that is impatient with orphans.
async fn impatient(env: &TestEnv, grace: &str) -> Result<(Garden, Repot)> {
    let garden = Garden::start(env).await?;
    let keys = write_encryption_config(env.path())?;
    let flags = [
        format!("--storage=embedded:{}", env.make_dir("store")?.display()),
        format!("--encryption-provider-config={}", keys.display()),
        "--orphan-check-interval=300ms".to_owned(),
        format!("--orphan-grace-period={grace}"),
    ];
    let repot = Repot::behind(env, &garden, &[(GROUP, VERSION)], flags).await?;
    Ok((garden, repot))
}

/// Removes a namespace and leaves what is in it, as a creation that comes too late finds it.
async fn snatch(api: &Api, namespace: &str) -> Result<()> {
    let at = format!("{NAMESPACES}/{namespace}");
    api.delete(&at).await?.ok()?;
    let mut leaving = api.get(&at).await?.ok()?;
    leaving["spec"]["finalizers"] = json!([]);
    api.put(&format!("{at}/finalize"), &leaving).await?.ok()?;
    until("the namespace to be gone", GONE_DEADLINE, async || {
        let answer = api.get(&at).await?;
        ensure!(answer.status == 404, "{answer}");
        Ok(())
    })
    .await
}

async fn make(api: &Api, namespace: &str, objects: &[Value]) -> Result<()> {
    let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    api.post(NAMESPACES, &made).await?.ok()?;
    for object in objects {
        api.post(path(namespace, "").trim_end_matches('/'), object).await?.ok()?;
    }
    Ok(())
}

async fn metric(repot: &Repot, garden: &Garden, line: &str) -> Result<f64> {
    let mut access = garden.admin().clone();
    access.server = repot.url().to_owned();
    let text = Api::new(&access)?.get("/metrics").await?;
    let text = String::from_utf8_lossy(&text.body).into_owned();
    let found = text.lines().find_map(|text| text.strip_prefix(line)).unwrap_or("0");
    Ok(found.trim().parse()?)
}

#[test]
fn objects_whose_namespace_is_gone_are_removed_and_no_others() {
    run(async |env| {
        let (garden, repot) = impatient(env, "1s").await?;
        let api = Api::new(garden.admin())?;
        let mut held = object("gone", "held");
        held["metadata"]["finalizers"] = json!(["example.com/hold"]);
        make(&api, "gone", &[object("gone", "plain"), held]).await?;
        make(&api, "stays", &[object("stays", "plain")]).await?;
        snatch(&api, "gone").await?;
        until("the orphan to be removed", GONE_DEADLINE, async || {
            let answer = api.get(&path("gone", "plain")).await?;
            ensure!(answer.status == 404, "{answer}");
            Ok(())
        })
        .await?;
        // A finalizer is honoured, and whoever set it can let the object go.
        until("the deletion of the other to begin", GONE_DEADLINE, async || {
            let held = api.get(&path("gone", "held")).await?.ok()?;
            ensure!(held["metadata"]["deletionTimestamp"].is_string(), "{held}");
            Ok(())
        })
        .await?;
        ensure!(metric(&repot, &garden, "repot_orphaned_objects_removed_total").await? >= 2.0, "not counted");
        api.patch(&path("gone", "held"), MERGE, &json!({"metadata": {"finalizers": null}})).await?.ok()?;
        ensure!(api.get(&path("gone", "held")).await?.status == 404, "it did not go with its finalizer");
        api.get(&path("stays", "plain")).await?.ok()?;
        Ok(())
    });
}

#[test]
fn nothing_is_removed_while_nobody_can_say_which_namespaces_there_are() {
    run(async |env| {
        let (mut garden, mut repot) = impatient(env, "8s").await?;
        let api = Api::new(garden.admin())?;
        make(&api, "kept", &[object("kept", "plain")]).await?;
        snatch(&api, "kept").await?;
        garden.apiserver().kill();
        // More rounds without an answer than the grace period has.
        until("rounds that learn nothing", GONE_DEADLINE, async || {
            let rounds = repot.process().log().matches("looking for orphans failed").count();
            ensure!(rounds >= 40, "{rounds} rounds failed so far");
            Ok(())
        })
        .await?;
        garden.apiserver().restart()?;
        garden.wait_until_ready().await?;
        // What was seen before does not count any more, so there is time to make the namespace again.
        make(&api, "kept", &[]).await?;
        until("the namespace to be found", GONE_DEADLINE, async || {
            let missing = r#"repot_orphaned_objects{reason="NamespaceMissing"}"#;
            let missing = metric(&repot, &garden, missing).await?;
            ensure!(missing == 0.0, "{missing} objects are without a namespace");
            Ok(())
        })
        .await?;
        until("the object to be read again", GONE_DEADLINE, async || {
            let answer = api.get(&path("kept", "plain")).await?;
            ensure!(answer.status == 200, "{answer}");
            Ok(())
        })
        .await?;
        ensure!(
            metric(&repot, &garden, "repot_orphaned_objects_removed_total").await? == 0.0,
            "something was removed"
        );
        Ok(())
    });
}
