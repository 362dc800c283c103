//! Writes that meet others between reading and writing.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use repot_tests::run;
use repot_tests::webhook::Reply;
use serde_json::{Value, json};

use super::world::{MERGE, Place};

/// What a manager owns of an object, as text.
fn owned(object: &Value, manager: &str) -> Result<String> {
    let entries = object["metadata"]["managedFields"].as_array().context("no managedFields")?;
    let own = entries.iter().filter(|entry| entry["manager"] == manager);
    Ok(own.map(|entry| entry["fieldsV1"].to_string()).collect())
}

#[test]
fn an_update_that_is_tried_again_begins_with_what_is_there_then() {
    run(async |_| {
        let place = Place::make("retries").await?;
        let created = place.create("a").await?.ok()?;
        // While the update is judged, somebody else sets one of the labels that it is about to set.
        let (api, path, first) = (place.api.clone(), place.path("a"), AtomicBool::new(true));
        place.server.on("/between", move |asked| {
            let update = asked.review["request"]["operation"] == "UPDATE";
            if update && first.swap(false, Ordering::SeqCst) {
                let path = format!("{path}?fieldManager=other");
                let patch = json!({"metadata": {"labels": {"shared": "yes"}}});
                let sent = async { api.patch(&path, MERGE, &patch).await?.ok() };
                let sent = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(sent));
                if sent.is_err() {
                    return Reply::deny("the write between was refused");
                }
            }
            Reply::allow()
        });
        place.mutating("retries", &[place.hook("/between", &json!({}))]).await?;

        let mut object = place.object("a");
        object["metadata"]["labels"] = json!({"shared": "yes", "own": "yes"});
        object["metadata"]["uid"] = created["metadata"]["uid"].clone();
        let updated =
            place.api.put(&format!("{}?fieldManager=writer", place.path("a")), &object).await?.ok()?;
        ensure!(place.asked_about("/between", "a").len() == 3, "there was no second try");
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
    run(async |_| {
        let place = Place::make("strangers").await?;
        place.create("a").await?.ok()?;
        place.server.on("/all", |_| Reply::allow());
        place.mutating("strangers", &[place.hook("/all", &json!({}))]).await?;
        let mut object = place.object("a");
        object["metadata"]["uid"] = json!("00000000-0000-4000-8000-000000000000");
        let refused = place.api.put(&place.path("a"), &object).await?;
        ensure!(refused.status == 409 && refused.json()?["reason"] == "Conflict", "{refused}");
        let words = "Precondition failed: UID in precondition: 00000000-0000-4000-8000-000000000000, UID in object meta: ";
        ensure!(refused.to_string().contains(words), "{refused}");
        ensure!(place.asked_about("/all", "a").is_empty(), "a webhook was asked");
        Ok(())
    });
}
