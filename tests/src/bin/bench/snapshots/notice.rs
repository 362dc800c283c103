//! How soon a copy that waits for the final snapshot notices it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use jiff::Timestamp;
use repot_etcd::snapshot::copy::wait_for_final;
use repot_etcd::snapshot::store::{Mode, Store};
use repot_etcd_core::snapshot::{Compression, Kind, Revision, SnapshotName};
use repot_tests::s3::S3Server;

use super::Bench;
use super::fixture::{Chance, World, open};

const TIMES: usize = 20;
const LIMIT: Duration = Duration::from_secs(60);
/// As often as it looks, in milliseconds; so every moment between two looks is as likely.
const PERIOD: u64 = 500;

pub(super) async fn bench(bench: &mut Bench<'_>, _: &World) -> Result<()> {
    let cell = "notice the final snapshot";
    if !bench.wants(cell) {
        return Ok(());
    }
    let dir = bench.env.make_dir("final")?;
    let mut rows = Vec::new();
    let store = open(&dir)?;
    rows.push(("file", observe(|at| Ok(store.below_prefix(&[&at.to_string()]))).await?));
    let server = S3Server::start(bench.env).await?;
    let store = Store::open(&server.url("final"), &server.environment())?;
    for (name, round_trip) in [("S3, round trip 0 ms", 0), ("S3, round trip 100 ms", 100)] {
        server.relay.set_round_trip(Duration::from_millis(round_trip));
        let place = |at: usize| Ok(store.below_prefix(&[&round_trip.to_string(), &at.to_string()]));
        rows.push((name, observe(place).await?));
    }
    for (name, millis) in rows {
        bench.report.add_times(cell, &format!("repot snapshots copy, {name}"), millis);
    }
    bench.say(cell);
    Ok(())
}

/// Milliseconds from the moment when it is there to the moment when it is known of.
async fn observe(place: impl Fn(usize) -> Result<Store>) -> Result<Vec<f64>> {
    let mut chance = Chance::new(3);
    let mut all = Vec::new();
    for at in 0..TIMES {
        let store = place(at)?;
        put(&store, false, 1).await?;
        let waiter = store.clone();
        let noticed = tokio::spawn(async move {
            let found = wait_for_final(&waiter, LIMIT).await;
            found.map(|found| (found, Instant::now()))
        });
        tokio::time::sleep(Duration::from_millis(PERIOD + chance.below(PERIOD))).await;
        let there = put(&store, true, 2).await?;
        let (found, known) = noticed.await??;
        found.context("it did not notice it")?;
        all.push(known.saturating_duration_since(there).as_secs_f64() * 1000.0);
    }
    Ok(all)
}

/// Puts a snapshot there and tells since when it is.
async fn put(store: &Store, is_final: bool, last: i64) -> Result<Instant> {
    let name = SnapshotName {
        kind: Kind::Full,
        start: Revision(0),
        last: Revision(last),
        created: Timestamp::now().as_second(),
        compression: Compression::None,
        is_final,
    };
    let mut upload = store.upload(&name, Mode::Create).await?;
    upload.write(Bytes::from(vec![7; 10_000])).await?;
    upload.finish().await?;
    Ok(Instant::now())
}
