//! An etcd whose snapshots are behind.

use anyhow::{Context, Result, ensure};
use repot_etcd_core::snapshot::SnapshotName;
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::standby::StandbyFixture;
use crate::etcd_agent::world::DEADLINE;

const VALUE: usize = 400 << 10;
/// etcd sends so many revisions to a watch at once.
const VALUES: u64 = 1000;

/// Bytes that cannot be compressed.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(VALUE / 8).flatten().collect()
}

#[test]
#[ignore = "an etcd of 400 MB: make soak"]
fn deltas_that_are_far_behind_do_not_cost_the_lease() {
    run(async |env| -> Result<()> {
        let mut fixture =
            StandbyFixture::with_owner(env, 1, json!({ "interval": "1s", "timeout": "1s" })).await?;
        let etcds = fixture.old.etcds()?;
        fixture.s3.process().kill();
        let client = fixture.world.old.client(std::slice::from_ref(&fixture.old)).await?;
        let mut last = 0;
        for seed in 0..VALUES {
            let put = client.kv_client().put(format!("/noise/{seed}"), noise(seed), None).await?;
            last = put.header().context("a header")?.revision();
        }
        fixture.s3.process().restart()?;
        fixture.s3.wait_until_ready().await?;
        until("all of it to be in deltas", DEADLINE, async || {
            // Whoever asks ends the pause after a failure.
            let _ = fixture.old.get("/snapshot/delta").await?;
            let status = fixture.old.status().await?;
            let delta = status["backup"]["delta"].as_str().context("no delta")?;
            let delta: SnapshotName = delta.parse()?;
            ensure!(delta.last.0 >= last, "{delta}, and revision {last} is wanted");
            Ok(())
        })
        .await?;
        ensure!(fixture.old.etcds()? == etcds, "etcd was ended meanwhile");
        ensure!(fixture.old.status().await?["phase"] == Value::from("Serving"));
        Ok(())
    });
}
