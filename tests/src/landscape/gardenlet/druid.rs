//! A stand-in for etcd-druid, as far as gardenlet waits for it: it carries out EtcdCopyBackupsTasks between the directories of two stores,
//! and leaves out what is there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::{MERGE, POLL, TASKS};
use crate::http::Api;
use crate::landscape::{Seed, ShootName, etcd};

/// A running stand-in. It ends when it is dropped.
pub struct Druid {
    copies: Arc<Mutex<Vec<Copied>>>,
    task: JoinHandle<()>,
}

/// What one task found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Snapshots that it copied.
    pub new: usize,
    /// Snapshots that were there.
    pub present: usize,
}

impl Druid {
    /// Starts it at a destination, for one Shoot. A task takes at least so long.
    pub fn start(source: &Seed, destination: &Seed, shoot: &ShootName, takes: Duration) -> Self {
        let prefix = format!("{}/{}", shoot.backup_entry(), etcd::MAIN);
        let (from, to) = (source.store.files(&prefix), destination.store.files(&prefix));
        let path = format!("{TASKS}/{}/etcdcopybackupstasks/{}", shoot.technical_id(), shoot.name);
        let (api, copies) = (destination.cluster.api().clone(), Arc::new(Mutex::new(Vec::new())));
        let told = copies.clone();
        let task = tokio::spawn(async move {
            loop {
                // There is no task most of the time.
                let _ = look(&api, &path, (&from, &to), &told, takes).await;
                sleep(POLL).await;
            }
        });
        Self { copies, task }
    }

    /// What each task found.
    pub fn copies(&self) -> Vec<Copied> {
        self.copies.lock().clone()
    }
}

impl Drop for Druid {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn look(
    api: &Api,
    path: &str,
    (from, to): (&Path, &Path),
    told: &Mutex<Vec<Copied>>,
    takes: Duration,
) -> Result<()> {
    let task = api.get(path).await?.ok()?;
    if task["status"]["conditions"].is_array() {
        return Ok(());
    }
    let (source, target) = (snapshots(from)?, snapshots(to)?);
    let mut copied = Copied { new: 0, present: 0 };
    for (name, relative) in &source {
        if target.contains_key(name) {
            copied.present += 1;
            continue;
        }
        let path = to.join(relative);
        fs::create_dir_all(path.parent().unwrap_or(to))?;
        fs::copy(from.join(relative), path)?;
        copied.new += 1;
    }
    told.lock().push(copied);
    sleep(takes).await;
    let time = "2026-01-01T00:00:00Z";
    let status = json!({"status": {"observedGeneration": task["metadata"]["generation"], "conditions": [{
        "type": "Succeeded", "status": "True", "reason": "Copied", "message": "copied",
        "lastTransitionTime": time, "lastUpdateTime": time,
    }]}});
    api.patch(&format!("{path}/status"), MERGE, &status).await?.ok().map(drop)
}

/// The snapshots below a directory: their names, and where they are.
fn snapshots(root: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten() {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                directories.push(path);
            } else if (name.starts_with("Full-") || name.starts_with("Incr-")) && !name.ends_with(".cluster")
            {
                found.insert(name, path.strip_prefix(root)?.to_owned());
            }
        }
    }
    Ok(found)
}
