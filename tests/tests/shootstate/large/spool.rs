//! Where bodies wait for room: a directory that is full or missing, and what is found in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use repot_tests::repot::Dev;
use repot_tests::run;
use reqwest::Method;
use serde_json::{Value, json};

use super::blob::{Blob, noise};
use crate::shootstate::world::{collection, path, small};

const LIMIT: &str = "--max-object-bytes=33554432";

/// A file system of a few MiB, as long as it is there.
struct Little(PathBuf);

impl Little {
    fn mount(dir: &Path, size: &str) -> Result<Self> {
        let option = format!("size={size}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &option, "spool"]).arg(dir).status();
        ensure!(mounted.context("failed to run mount")?.success(), "mount failed: it takes root");
        Ok(Self(dir.to_owned()))
    }
}

impl Drop for Little {
    fn drop(&mut self) {
        // Lazily: the server may still have a file there.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn a_full_spool_is_told_and_nothing_else_suffers() {
    run(async |env| {
        let dir = env.make_dir("spool")?;
        let _little = Little::mount(&dir, "4m")?;
        let mut dev = Dev::start(env, [LIMIT.to_owned(), format!("--spool-dir={}", dir.display())]).await?;
        let api = dev.api()?;
        let blob = Blob::new(0, &noise(20 << 20));
        let answer = blob.send(&api, Method::POST, &collection("default")).await?;
        let (code, status) = (answer.status(), answer.json::<Value>().await?);
        let message = status["message"].as_str().unwrap_or_default();
        ensure!(code == 507 && status["reason"] == "InsufficientStorage", "{code}: {status}");
        ensure!(message.contains("--spool-dir"), "{message}");
        let log = dev.repot().process().log();
        ensure!(log.contains(&format!("{} has no space left", dir.display())), "{log}");
        ensure!(api.get(&path(&blob.name)).await?.status == 404, "something of it was stored");
        // What need not wait is written, and the refused one left nothing behind.
        api.post(&collection("default"), &small("little", &json!(1))).await?.ok()?;
        Blob::new(1, &noise(8 << 20)).create(&api).await?;
        Blob::new(2, &noise(3 << 20)).create(&api).await?;
        ensure!(std::fs::read_dir(&dir)?.count() == 0, "something is left in {}", dir.display());
        Ok(())
    });
}

#[test]
fn a_spool_that_is_missing_is_told_at_start() {
    run(async |env| {
        let missing = env.path().join("missing");
        let flag = format!("--spool-dir={}", missing.display());
        let Err(error) = Dev::start(env, [LIMIT.to_owned(), flag]).await else { bail!("it started") };
        let text = format!("{error:#}");
        ensure!(text.contains("--spool-dir") && text.contains("missing"), "{text}");
        Ok(())
    });
}
