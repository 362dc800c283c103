//! Objects are created by some connections at once.

use std::time::Instant;

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use repot_tests::http::send;
use repot_tests::states::Payload;
use reqwest::Method;
use serde_json::{Value, json};

use super::servers::{Servers, TINY, collection};
use crate::body::Body;
use crate::proc;
use crate::servers::Side;

const CONNECTIONS: usize = 8;
/// Bodies that differ; names make objects of them.
const BODIES: usize = 16;

/// Creates one object of about 1 KB, less than Gardener ever writes.
pub async fn tiny(servers: &Servers) -> Result<()> {
    let secret = json!({"name": "ca", "type": "secret", "labels": {"persist": "true"}, "data": {"ca.key": "x".repeat(700)}});
    let object = json!({
        "apiVersion": Side::Direct.api_version(), "kind": "ShootState", "metadata": {"name": "tiny", "namespace": TINY},
        "spec": {"gardener": [secret]},
    });
    servers.api()?.post(&collection(TINY), &object).await?.ok().map(drop)
}

/// Creates so many objects of about so many bytes, named by number.
pub async fn fill(servers: &Servers, namespace: &str, count: usize, bytes: usize) -> Result<Value> {
    let bodies = (0..BODIES.min(count))
        .map(|at| Body::generate(Side::Direct, namespace, bytes, Payload::Realistic, at as u64))
        .collect::<Result<Vec<_>>>()?;
    let apis = (0..CONNECTIONS).map(|_| servers.api()).collect::<Result<Vec<_>>>()?;
    let (path, begun) = (collection(namespace), Instant::now());
    let creations = (0..count).map(|at| {
        let (api, body) = (&apis[at % CONNECTIONS], &bodies[at % bodies.len()]);
        let body = body.with(at as u64);
        let request = api.request(Method::POST, &path).header("content-type", "application/json").body(body);
        async move {
            let begun = Instant::now();
            let answer = send(request).await?;
            ensure!(answer.status == 201, "{answer}");
            Ok(begun.elapsed().as_secs_f64() * 1000.0)
        }
    });
    let mut millis: Vec<f64> = stream::iter(creations).buffer_unordered(CONNECTIONS).try_collect().await?;
    let seconds = begun.elapsed().as_secs_f64();
    millis.sort_by(f64::total_cmp);
    let length = bodies.iter().map(Body::len).sum::<usize>() / bodies.len().max(1);
    Ok(json!({
        "seconds": seconds, "objectsASecond": count as f64 / seconds, "bytesOfOne": length,
        "p50Millis": proc::percentile(&millis, 50.0), "p99Millis": proc::percentile(&millis, 99.0),
    }))
}
