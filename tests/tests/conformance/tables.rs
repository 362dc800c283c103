//! Tables for people, and metadata for machines.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::http::{Answer, send};
use repot_tests::run;
use repot_tests::wait::until;
use reqwest::Method;
use serde_json::{Value, json};

use super::namespace::{
    GROUP, JSON, JSON_PATCH, METADATA, METADATA_LIST, TABLE, TestNamespace, VERSION, ask, expect, header,
    text,
};

const TABLE_V1BETA1: &str = "application/json;as=Table;g=meta.k8s.io;v=v1beta1";

async fn get(place: &TestNamespace, path: &str, accept: &str) -> Result<Answer> {
    ask(&place.api, Method::GET, path, accept).await
}

#[test]
fn tables_come_in_both_versions() {
    run(async |_| {
        let place = TestNamespace::new("tables-versions")?;
        place.create("a").await?;
        for (accept, version) in [
            (TABLE.to_owned(), "meta.k8s.io/v1"),
            (TABLE_V1BETA1.to_owned(), "meta.k8s.io/v1beta1"),
            (format!("{TABLE},{TABLE_V1BETA1},{JSON}"), "meta.k8s.io/v1"),
        ] {
            for path in [place.all(""), place.one("a")] {
                let table = get(&place, &path, &accept).await?.ok()?;
                ensure!(table["kind"] == "Table" && table["apiVersion"] == version, "{table}");
                ensure!(table["rows"][0]["cells"][0] == "a", "{table}");
                ensure!(table["rows"][0]["object"]["apiVersion"] == version, "{table}");
            }
            let event = place.watch("", &accept).await?.next().await?;
            ensure!(event["type"] == "ADDED" && event["object"]["apiVersion"] == version, "{event}");
            ensure!(event["object"]["rows"][0]["cells"][0] == "a", "{event}");
        }
        Ok(())
    });
}

#[test]
fn a_table_has_columns_rows_and_the_metadata_of_its_list() {
    run(async |_| {
        let place = TestNamespace::new("tables-shape")?;
        let mut large = place.object("a");
        large["spec"]["extensions"][0]["state"] = json!("x".repeat(1 << 20));
        ensure!(place.api.post(&place.all(""), &large).await?.status == 201, "not created");
        place.create("b").await?;
        let answer = until("the rest to be counted", Duration::from_secs(30), async || {
            let answer = get(&place, &place.all("?limit=1"), TABLE).await?;
            ensure!(answer.json()?["metadata"]["remainingItemCount"] == 1, "{answer}");
            Ok(answer)
        })
        .await?;
        ensure!(header(&answer, "content-type") == JSON && answer.body.len() < 16 << 10, "{answer}");
        let table = answer.ok()?;
        let columns = table["columnDefinitions"].as_array().context("columns")?;
        for column in columns {
            for key in ["name", "type", "description"] {
                ensure!(column[key].as_str().is_some_and(|value| !value.is_empty()), "{key} of {column}");
            }
            ensure!(column["format"].is_string() && column["priority"].is_u64(), "{column}");
        }
        let (first, last) = (&columns[0], &columns[columns.len() - 1]);
        ensure!(first["name"] == "Name" && first["format"] == "name" && first["priority"] == 0, "{first}");
        ensure!(last["name"] == "Age" && last["priority"] == 0, "{last}");
        ensure!(columns.iter().any(|column| column["priority"] != 0), "nothing is left for -o wide");
        let rows = table["rows"].as_array().context("rows")?;
        ensure!(
            rows.len() == 1 && rows[0]["cells"].as_array().context("cells")?.len() == columns.len(),
            "{table}"
        );
        let meta = &table["metadata"];
        ensure!(text(&meta["resourceVersion"])? != "0" && meta["remainingItemCount"] == 1, "{meta}");
        let next = format!("?limit=1&continue={}", text(&meta["continue"])?);
        let rest = get(&place, &place.all(&next), TABLE).await?.ok()?;
        ensure!(rest["rows"][0]["cells"][0] == "b" && rest["metadata"]["continue"].is_null(), "{rest}");
        Ok(())
    });
}

#[test]
fn rows_carry_what_was_asked_for() {
    run(async |_| {
        let place = TestNamespace::new("tables-rows")?;
        let created = place.create("a").await?;
        for path in [place.all(""), place.one("a")] {
            for (query, kind) in [
                ("", "PartialObjectMetadata"),
                ("?includeObject=Metadata", "PartialObjectMetadata"),
                ("?includeObject=Object", "ShootState"),
            ] {
                let table = get(&place, &format!("{path}{query}"), TABLE).await?.ok()?;
                let object = &table["rows"][0]["object"];
                ensure!(
                    object["kind"] == kind && object["metadata"] == created["metadata"],
                    "{query}: {table}"
                );
                ensure!(object.get("spec").is_some() == (kind == "ShootState"), "{query}: {table}");
            }
            let bare = get(&place, &format!("{path}?includeObject=None"), TABLE).await?.ok()?;
            ensure!(bare["rows"][0].get("object").is_none_or(Value::is_null), "{bare}");
            let wrong = get(&place, &format!("{path}?includeObject=All"), TABLE).await?;
            expect(&wrong, 400, "BadRequest")?;
        }
        let wrong = get(&place, &place.all("?watch=true&includeObject=All"), TABLE).await?;
        expect(&wrong, 400, "BadRequest")?;
        let event = place.watch("&includeObject=Object", TABLE).await?.next().await?;
        ensure!(event["object"]["rows"][0]["object"]["spec"] == created["spec"], "{event}");
        Ok(())
    });
}

#[test]
fn a_watch_names_its_columns_once() {
    run(async |_| {
        let place = TestNamespace::new("tables-watch")?;
        place.create("a").await?;
        let mut events = place.watch("", TABLE).await?;
        let first = events.next().await?;
        let columns = first["object"]["columnDefinitions"].as_array().map_or(0, Vec::len);
        ensure!(first["type"] == "ADDED" && columns > 1, "{first}");
        place.create("b").await?;
        place.api.delete(&place.one("a")).await?.ok()?;
        for (kind, name) in [("ADDED", "b"), ("DELETED", "a")] {
            let event = events.next().await?;
            let table = &event["object"];
            ensure!(event["type"] == kind && table["kind"] == "Table", "{event}");
            ensure!(table["columnDefinitions"].as_array().is_none_or(Vec::is_empty), "{event}");
            ensure!(table["rows"][0]["cells"].as_array().map_or(0, Vec::len) == columns, "{event}");
            ensure!(table["rows"][0]["object"]["metadata"]["name"] == name, "{event}");
        }
        Ok(())
    });
}

#[test]
fn metadata_alone_is_given_in_the_right_shape() {
    run(async |_| {
        let place = TestNamespace::new("metadata-only")?;
        let created = place.create("a").await?;
        for version in ["v1", "v1beta1"] {
            let (one, many) = (
                METADATA.replace("v=v1", &format!("v={version}")),
                METADATA_LIST.replace("v=v1", &format!("v={version}")),
            );
            let api_version = format!("meta.k8s.io/{version}");
            let object = get(&place, &place.one("a"), &one).await?.ok()?;
            ensure!(
                object["kind"] == "PartialObjectMetadata" && object["apiVersion"] == api_version,
                "{object}"
            );
            ensure!(object["metadata"] == created["metadata"] && object.get("spec").is_none(), "{object}");
            let list = get(&place, &place.all(""), &many).await?.ok()?;
            ensure!(
                list["kind"] == "PartialObjectMetadataList" && list["apiVersion"] == api_version,
                "{list}"
            );
            ensure!(list["items"][0]["metadata"] == created["metadata"], "{list}");
            ensure!(list["items"][0].get("spec").is_none(), "{list}");
            let event = place.watch("", &one).await?.next().await?;
            ensure!(event["object"] == object, "{event}");
        }
        // A list is no object and an object no list.
        expect(&get(&place, &place.all(""), METADATA).await?, 406, "NotAcceptable")?;
        expect(&get(&place, &place.one("a"), METADATA_LIST).await?, 406, "NotAcceptable")?;
        expect(&get(&place, &place.all("?watch=true"), METADATA_LIST).await?, 406, "NotAcceptable")?;
        // Changes answer in the form that was asked for, too.
        let patch = json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]);
        let request = place.api.request(Method::PATCH, &place.one("a")).header("Content-Type", JSON_PATCH);
        let patched = send(request.header("Accept", METADATA).body(patch.to_string())).await?.ok()?;
        ensure!(
            patched["kind"] == "PartialObjectMetadata" && patched["metadata"]["labels"]["a"] == "b",
            "{patched}"
        );
        let request = place.api.request(Method::POST, &place.all("")).header("Accept", METADATA);
        let posted = send(request.json(&place.object("b"))).await?.ok()?;
        ensure!(posted["kind"] == "PartialObjectMetadata" && posted.get("spec").is_none(), "{posted}");
        Ok(())
    });
}

#[test]
fn errors_stay_statuses() {
    run(async |_| {
        let place = TestNamespace::new("errors-untransformed")?;
        for accept in [TABLE, METADATA] {
            expect(&get(&place, &place.one("missing"), accept).await?, 404, "NotFound")?;
            expect(
                &get(&place, &place.all("?watch=true&labelSelector=a%20b"), accept).await?,
                400,
                "BadRequest",
            )?;
        }
        Ok(())
    });
}

#[test]
fn documents_have_no_table() {
    run(async |_| {
        let place = TestNamespace::new("documents")?;
        let resources = format!("/apis/{GROUP}/{VERSION}");
        for path in ["/apis", resources.as_str()] {
            for accept in [TABLE, METADATA] {
                expect(&get(&place, path, accept).await?, 406, "NotAcceptable")?;
            }
            get(&place, path, &format!("{TABLE},{JSON}")).await?.ok()?;
        }
        Ok(())
    });
}
