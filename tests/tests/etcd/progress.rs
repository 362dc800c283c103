//! A copy that tells over HTTP how far it is.

use std::time::Duration;

use anyhow::{Result, ensure};
use repot_etcd_core::copy_progress::{CopyPhase, CopyProgress, PATH};
use repot_tests::s3::S3Server;
use repot_tests::wait::until;
use repot_tests::{port, run, tool};
use tokio::time::sleep;

use super::copying::fill;
use super::remote::{at, open};
use super::world::DEADLINE;

/// Asks a copy until it tells what the check wants.
async fn told(url: &str, what: &str, check: impl Fn(&CopyProgress) -> bool) -> Result<CopyProgress> {
    let mut last = None;
    until(what, DEADLINE, async || {
        let progress = ask(url).await?;
        ensure!(check(&progress), "{progress:?}");
        last = Some(progress);
        Ok(())
    })
    .await?;
    last.ok_or_else(|| anyhow::anyhow!("nothing was told"))
}

async fn ask(url: &str) -> Result<CopyProgress> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    Ok(client.get(url).send().await?.error_for_status()?.json().await?)
}

#[test]
fn a_copy_tells_how_far_it_is_within_a_snapshot_and_that_it_stands_still() {
    run(async |env| {
        let s3 = S3Server::start(env).await?;
        fill(&open(&s3, "a")?, 2, 2_000_000).await?;
        s3.relay.change(|link| link.throttle_to_client = Some(512 << 10));
        let (a, b, port) = (s3.url("a"), s3.url("b"), port::reserve()?.to_string());
        let told_at = ["--progress-port", &port, "--progress-address", "127.0.0.1"];
        let copy = ["copy", "--source", &a, "--target", &b, "--parallel", "1", "--output", "json"];
        let args = [&copy[..], &told_at].concat();
        let copy = at(&s3, &args)?;
        let url = format!("http://127.0.0.1:{port}{PATH}");
        let watch = async {
            let begun = told(&url, "its first bytes", |told| told.bytes_sent > 0).await?;
            ensure!(begun.phase == CopyPhase::Copying, "{begun:?}");
            ensure!((begun.snapshots, begun.snapshots_total) == (0, 2), "{begun:?}");
            ensure!(begun.bytes == 0 && begun.bytes_total > 4_000_000, "{begun:?}");
            let moved = |told: &CopyProgress| told.bytes_sent > begun.bytes_sent && told.snapshots == 0;
            let moved = told(&url, "more of the first snapshot", moved).await?;
            ensure!(moved.last_progress > begun.last_progress, "{begun:?}, then {moved:?}");
            s3.relay.stall();
            until("it to stand still", DEADLINE, async || {
                let before = ask(&url).await?;
                sleep(Duration::from_secs(1)).await;
                let after = ask(&url).await?;
                ensure!(before == after, "{before:?}, then {after:?}");
                Ok(())
            })
            .await?;
            s3.relay.heal();
            let one = told(&url, "one of them", |told| told.snapshots == 1).await?;
            ensure!(one.bytes > 2_000_000 && one.bytes < one.bytes_total && one.failed == 0, "{one:?}");
            anyhow::Ok(())
        };
        let (output, watched) = tokio::join!(tool::run(copy, b""), watch);
        watched?;
        ensure!(output?.json()?["failed"] == serde_json::json!([]), "not all is copied");

        // What is there already is looked at while it waits.
        s3.relay.change(|link| link.throttle_to_client = None);
        let wait = ["--wait-for-final", "5s", "--on-deadline", "copy"];
        let again = at(&s3, &[&args[..], &wait].concat())?;
        let waits = |told: &CopyProgress| told.phase == CopyPhase::WaitingForFinalSnapshot;
        let (output, waited) = tokio::join!(tool::run(again, b""), told(&url, "it to wait", waits));
        ensure!(waited?.bytes_sent == 0, "what is whole at the target was sent again");
        output?.json().map(drop)
    });
}
