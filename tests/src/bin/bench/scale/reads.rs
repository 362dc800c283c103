//! How long a start takes with everything there, and lists that need no payload.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use repot_tests::http::{Api, send};
use reqwest::Method;
use serde_json::{Value, json};

use super::servers::{ALL, SMALL, Servers, collection};
use crate::proc;

const ROUNDS: usize = 5;
/// The server may take as long.
const PATIENCE: Duration = Duration::from_secs(120);
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

/// Kills Repot and starts it: until the first object is served, and until the first list of metadata.
pub async fn restart(servers: &mut Servers, filled: bool) -> Result<Value> {
    servers.repot.kill();
    let begun = Instant::now();
    servers.repot.restart().await?;
    let api = servers.api()?;
    let ready = begun.elapsed().as_secs_f64();
    let mut read = None;
    if filled {
        let path = format!("{}?limit=1", collection(SMALL));
        while begun.elapsed() < PATIENCE && read.is_none() {
            let answered = api.get(&path).await.is_ok_and(|answer| answer.status == 200);
            read = answered.then(|| begun.elapsed().as_secs_f64());
        }
        ensure!(read.is_some(), "nothing is served after {PATIENCE:?}");
    }
    let (_, bytes) = list(&api, ALL, METADATA).await?;
    Ok(json!({
        "readySeconds": ready, "firstObjectSeconds": read, "firstMetadataListSeconds": begun.elapsed().as_secs_f64(),
        "metadataListBytes": bytes,
    }))
}

/// Lists everything without payload.
pub async fn lists(servers: &Servers) -> Result<Value> {
    let api = servers.api()?;
    let mut found = json!({});
    for (name, accept) in [("metadataListMillis", METADATA), ("tableMillis", TABLE)] {
        let mut millis = Vec::new();
        for _ in 0..ROUNDS {
            millis.push(list(&api, ALL, accept).await?.0);
        }
        millis.sort_by(f64::total_cmp);
        found[name] = json!(proc::percentile(&millis, 50.0));
    }
    Ok(found)
}

/// Milliseconds and bytes.
async fn list(api: &Api, path: &str, accept: &str) -> Result<(f64, usize)> {
    let begun = Instant::now();
    let answer = send(api.request(Method::GET, path).header("accept", accept)).await?;
    ensure!(answer.status == 200, "{} answers {}", answer.request, answer.status);
    Ok((begun.elapsed().as_secs_f64() * 1000.0, answer.body.len()))
}
