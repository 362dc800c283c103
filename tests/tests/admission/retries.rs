//! Writes that meet others between reading and writing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::wait::until;
use repot_tests::webhook::Reply;
use repot_tests::{TestEnv, run};
use serde_json::{Value, json};

use super::world::{MERGE, Other, TestNamespace};
use crate::etcd_kinds::world::{GROUP, VERSION, hosted_etcd};

const DEADLINE: Duration = Duration::from_secs(30);

/// What a manager owns of an object, as text.
fn owned(object: &Value, manager: &str) -> Result<String> {
    let entries = object["metadata"]["managedFields"].as_array().context("no managedFields")?;
    let own = entries.iter().filter(|entry| entry["manager"] == manager);
    Ok(own.map(|entry| entry["fieldsV1"].to_string()).collect())
}

/// Another server, which serves a kind that may be replaced without a version, and asks a webhook about it at this path.
async fn start(env: &TestEnv, place: &TestNamespace, path: &str) -> Result<(Other, String, Value)> {
    let other = place.world.another(env).await?;
    let kinds = json!([{
        "operations": ["UPDATE"], "apiGroups": [GROUP], "apiVersions": [VERSION], "resources": ["hostedetcds"],
    }]);
    place.mutating(&place.namespace, &[place.hook(path, &json!({"rules": kinds}))]).await?;
    let collection = format!("/apis/{GROUP}/{VERSION}/namespaces/{}/hostedetcds", place.namespace);
    let mut object = hosted_etcd("a");
    object["metadata"]["namespace"] = json!(place.namespace);
    let created = other.api.post(&collection, &object).await?;
    ensure!(created.status == 201, "{created}");
    let one = format!("{collection}/a");
    let touch = json!({"metadata": {"annotations": {"touched": "yes"}}});
    until("the server to know the webhook", DEADLINE, async || {
        other.api.patch(&format!("{one}?dryRun=All"), MERGE, &touch).await?.ok()?;
        ensure!(!place.server.asked(path).is_empty(), "it was not asked yet");
        Ok(())
    })
    .await?;
    object["metadata"]["uid"] = created.json()?["metadata"]["uid"].clone();
    Ok((other, one, object))
}

#[test]
fn an_update_that_is_tried_again_begins_with_what_is_there_then() {
    run(async |env| {
        let place = TestNamespace::make("retries").await?;
        let (server, path, mut object) = start(env, &place, "/between").await?;
        // While the update is judged, somebody else sets one of the labels that it is about to set.
        let (api, between, first) =
            (server.api.clone(), format!("{path}?fieldManager=other"), AtomicBool::new(true));
        place.server.on("/between", move |_| {
            if first.swap(false, Ordering::SeqCst) {
                let patch = json!({"metadata": {"labels": {"shared": "yes"}}});
                let sent = async { api.patch(&between, MERGE, &patch).await?.ok() };
                let sent = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(sent));
                if sent.is_err() {
                    return Reply::deny("the write between was refused");
                }
            }
            Reply::allow()
        });
        let before = place.server.asked("/between").len();
        object["metadata"]["labels"] = json!({"shared": "yes", "own": "yes"});
        let updated = server.api.put(&format!("{path}?fieldManager=writer"), &object).await?.ok()?;
        let asked = place.server.asked("/between").len() - before;
        ensure!(asked == 3, "the webhook was asked {asked} times: there was no second try");
        ensure!(updated["metadata"]["labels"] == object["metadata"]["labels"], "{updated}");
        // As kube-apiserver has it: who writes what is there already comes to own nothing by it.
        let (writer, other) = (owned(&updated, "writer")?, owned(&updated, "other")?);
        ensure!(other.contains("f:shared"), "{updated}");
        ensure!(writer.contains("f:own") && !writer.contains("f:shared"), "{updated}");
        Ok(())
    });
}

#[test]
fn an_update_of_another_object_is_refused_before_anybody_is_asked() {
    run(async |env| {
        let place = TestNamespace::make("strangers").await?;
        let (server, path, mut object) = start(env, &place, "/all").await?;
        let before = place.server.asked("/all").len();
        object["metadata"]["uid"] = json!("00000000-0000-4000-8000-000000000000");
        let refused = server.api.put(&path, &object).await?;
        ensure!(refused.status == 409 && refused.json()?["reason"] == "Conflict", "{refused}");
        let words = "Precondition failed: UID in precondition: 00000000-0000-4000-8000-000000000000, UID in object meta: ";
        ensure!(refused.to_string().contains(words), "{refused}");
        ensure!(place.server.asked("/all").len() == before, "a webhook was asked");
        Ok(())
    });
}
