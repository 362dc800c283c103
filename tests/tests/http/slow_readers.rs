//! One user with one request whose response is not read: what the request no longer needs is free for others.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::access::Access;
use repot_tests::http::Api;
use repot_tests::wait::until;
use repot_tests::{TestEnv, run};
use reqwest::Method;
use serde_json::{Value, json};

use super::starvation::{Hoarder, certificate, world_with};
use crate::shootstate::world::{World, collection, large, path, small};

const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
/// So long a list comes in JSON all the same.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const ROLES: Duration = Duration::from_secs(60);
/// How long another user waits. Without a slow reader it takes less than a second.
const SOON: Duration = Duration::from_secs(8);

/// A server, a user of it, and the credentials of one that reads nothing.
async fn world(env: &TestEnv) -> Result<(World, Api, Access)> {
    let mut world = world_with(env, &[], &["alice", "mallory"]).await?;
    let alice = Api::new(&world.directly(certificate(&world, "alice")?)?)?;
    let mallory = world.directly(certificate(&world, "mallory")?)?;
    for who in [&alice, &Api::new(&mallory)?] {
        until("the roles", ROLES, async || who.get(&collection("default")).await?.ok().map(drop)).await?;
    }
    Ok((world, alice, mallory))
}

/// An object of many small fields.
fn wide(name: &str, fields: usize) -> Value {
    let mut object = small(name, &json!(1));
    object["spec"]["extensions"] = (0..fields).map(|number| json!({"kind": number.to_string()})).collect();
    object
}

#[test]
fn a_refusal_that_is_not_read_keeps_no_memory_from_others() {
    run(async |env| {
        let (_world, alice, mallory) = world(env).await?;
        let (list, mut fields) = (collection("default"), 40_000);
        // As many fields as one request may create: nearly half of the memory for large requests, since replacing it takes twice
        // as much.
        let mut object = loop {
            let wide = wide("wide", fields);
            let created = alice.post(&list, &wide).await?;
            match created.status {
                413 => fields = fields * 9 / 10,
                _ => break created.ok()?,
            }
        };
        let hoarder = Hoarder::dial(&mallory, 0).await?;
        let body = wide("Not A Name", fields).to_string();
        let refused = hoarder.send(Method::POST, &list, &[], body)?.await?;
        ensure!(refused.status() == 422, "{refused:?}");
        object["spec"]["extensions"][0]["state"] = json!(2);
        let replaced = alice.request(Method::PUT, &path("wide")).json(&object).send().await?;
        ensure!(replaced.status() == 200, "{replaced:?}");
        drop(refused);
        Ok(())
    });
}

#[test]
fn a_list_that_is_not_read_leaves_others_their_large_responses() {
    run(async |env| {
        let (world, alice, mallory) = world(env).await?;
        world.create(&large("large", 4 << 20)).await?;
        // More than all responses on their way may hold.
        let notes = "x".repeat(250 << 10);
        for number in 0..210 {
            let mut object = small(&format!("noted-{number}"), &json!(1));
            object["metadata"]["annotations"] = json!({"note": notes});
            world.create(&object).await?;
        }
        let hoarder = Hoarder::dial(&mallory, 0).await?;
        let (list, large) = (collection("default"), path("large"));
        for accept in [METADATA, TABLE, PROTOBUF] {
            let listed = hoarder.send(Method::GET, &list, &[("Accept", accept)], String::new())?.await?;
            ensure!(listed.status() == 200, "{listed:?}");
            let read = tokio::time::timeout(SOON, alice.get(&large)).await;
            let read = read.with_context(|| format!("beside {accept}"))??;
            ensure!(read.status == 200, "{}", read.status);
            drop(listed);
            let whole = alice.request(Method::GET, &list).header("Accept", accept).send().await?;
            ensure!(whole.status() == 200, "{whole:?}");
            let whole: Value = serde_json::from_slice(&whole.bytes().await?)?;
            let shown = ["items", "rows"].iter().filter_map(|list| whole[list].as_array()).next();
            ensure!(shown.is_some_and(|shown| shown.len() == 211), "{accept}: not all is shown");
        }
        Ok(())
    });
}
