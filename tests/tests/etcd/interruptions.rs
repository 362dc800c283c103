//! An object store whose connections break, that is gone for a while, or that does not come back.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_etcd::snapshot::store::Mode;
use repot_tests::run;
use repot_tests::s3::S3Server;
use repot_tests::test_env::TestEnv;
use repot_tests::tool::{self, Output};
use repot_tests::wait::until;

use super::copying::fill;
use super::remote::{at, content, mk_name, open, open_patiently, put, snapshots};
use super::world::DEADLINE;

/// Waits until so many snapshots are at a place.
async fn arrived(dir: &Path, count: usize) -> Result<()> {
    until("snapshots to be copied", DEADLINE, async || {
        let found = content(dir)?.keys().filter(|name| name.starts_with("v2/")).count();
        ensure!(found >= count, "{found} are there");
        Ok(())
    })
    .await
}

/// A copy between two prefixes, slow enough to be disturbed.
async fn disturbed(
    env: &TestEnv,
    disturb: impl AsyncFnOnce(&S3Server) -> Result<()>,
    patience: &str,
) -> Result<(S3Server, Output)> {
    let s3 = S3Server::start(env).await?;
    fill(&open(&s3, "a")?, 40, 400_000).await?;
    let throttle = Some(1 << 20);
    s3.relay.change(|link| (link.throttle_to_target, link.throttle_to_client) = (throttle, throttle));
    let (a, b) = (s3.url("a"), s3.url("b"));
    let mut copy = at(&s3, &["copy", "--source", &a, "--target", &b, "--output", "json", "--parallel", "2"])?;
    copy.env("STORE_PATIENCE_SECONDS", patience);
    let work = async {
        arrived(&s3.files("b"), 3).await?;
        disturb(&s3).await
    };
    let (output, disturbed) = tokio::join!(tool::run(copy, b""), work);
    disturbed?;
    Ok((s3, output?))
}

#[test]
fn a_store_that_comes_back_in_time_is_hardly_noticed() {
    run(async |env| {
        let disturb = async |s3: &S3Server| {
            for _ in 0..3 {
                s3.relay.cut();
                // Longer than a connection lives on, and shorter than the patience.
                tokio::time::sleep(Duration::from_millis(700)).await;
                s3.relay.heal();
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            Ok(())
        };
        let (s3, output) = disturbed(env, disturb, "60").await?;
        let said = output.json()?;
        assert_eq!(said["failed"], serde_json::json!([]), "{said}");
        assert_eq!(content(&s3.files("b"))?, content(&s3.files("a"))?);
        Ok(())
    });
}

/// Connections break at any moment of a request: before it is sent, in its middle, in the middle of the answer.
#[test]
fn connections_that_break_at_any_moment_fail_no_copy() {
    run(async |env| {
        let s3 = S3Server::start(env).await?;
        fill(&open(&s3, "a")?, 40, 60_000).await?;
        let throttle = Some(8 << 20);
        s3.relay.change(|link| (link.throttle_to_target, link.throttle_to_client) = (throttle, throttle));
        let breaks = async {
            let mut pause = (0..).map(|turn: u64| Duration::from_millis(3 + turn * 37 % 101));
            loop {
                s3.relay.cut();
                tokio::time::sleep(Duration::from_millis(2)).await;
                s3.relay.heal();
                tokio::time::sleep(pause.next().unwrap_or_default()).await;
            }
        };
        let copies = async {
            for turn in 0..10 {
                let (a, b) = (s3.url("a"), s3.url(&format!("b{turn}")));
                let args = ["copy", "--source", &a, "--target", &b, "--output", "json", "--parallel", "4"];
                let said = snapshots(&s3, &args).await?.json()?;
                assert_eq!(said["failed"], serde_json::json!([]), "{said}");
                assert_eq!(content(&s3.files(&format!("b{turn}")))?, content(&s3.files("a"))?);
            }
            anyhow::Ok(())
        };
        tokio::select! {
            copied = copies => copied,
            () = breaks => unreachable!("it goes on for ever"),
        }
    });
}

#[test]
fn a_store_that_is_gone_is_a_clean_failure_that_is_taken_up() {
    run(async |env| {
        let disturb = async |s3: &S3Server| {
            s3.relay.cut();
            Ok(())
        };
        let (s3, output) = disturbed(env, disturb, "1").await?;
        assert_eq!(output.code, 1, "{output:?}");
        assert!(!output.stderr.contains(s3.secret()), "{}", output.stderr);
        // What is there is whole.
        let (begun, all) = (content(&s3.files("b"))?, content(&s3.files("a"))?);
        let whole = begun.iter().filter(|(name, _)| name.starts_with("v2/"));
        let whole: Vec<_> =
            whole.map(|(name, bytes)| assert_eq!(all.get(name), Some(bytes), "{name}")).collect();
        ensure!((3..40).contains(&whole.len()), "{} were copied", whole.len());
        let unthrottled = None;
        s3.relay
            .change(|link| (link.throttle_to_target, link.throttle_to_client) = (unthrottled, unthrottled));
        s3.relay.heal();
        let (a, b) = (s3.url("a"), s3.url("b"));
        let said =
            snapshots(&s3, &["copy", "--source", &a, "--target", &b, "--output", "json"]).await?.json()?;
        let outcomes = said["snapshots"].as_array().context("a list")?;
        let present = outcomes.iter().filter(|one| one["outcome"] == "present").count();
        assert!(present + 2 >= whole.len() && outcomes.len() == 40, "{said}");
        assert_eq!(content(&s3.files("b"))?, all);
        Ok(())
    });
}

#[test]
fn an_upload_in_parts_that_is_cut_off_leaves_nothing_in_its_place() {
    run(async |env| {
        let s3 = S3Server::start(env).await?;
        let store = open_patiently(&s3, "a", 1)?;
        s3.relay.change(|link| link.throttle_to_target = Some(4 << 20));
        let name = mk_name(9);
        let cut = async {
            until("a part to be sent", DEADLINE, async || {
                ensure!(!s3.uploads()?.is_empty(), "none is there");
                Ok(())
            })
            .await?;
            s3.relay.cut();
            anyhow::Ok(())
        };
        let (outcome, cut) = tokio::join!(put(&store, &name, 40 << 20, Mode::Create), cut);
        cut?;
        let error = outcome.expect_err("the store is gone");
        assert!(error.to_string().contains("failed to write s3://"), "{error:#}");
        assert!(content(&s3.files("a"))?.is_empty());
        s3.relay.change(|link| link.throttle_to_target = None);
        s3.relay.heal();
        assert!(open(&s3, "a")?.list().await?.is_empty());
        put(&store, &name, 40 << 20, Mode::Create).await?;
        assert_eq!(store.list().await?.len(), 1);
        Ok(())
    });
}
