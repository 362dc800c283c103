//! All processes of a pod runner, so that they end with it at once, whatever its tasks are doing.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::process::{Process, Spec};
use crate::wait::POLL_INTERVAL;

/// Programs that set up a namespace take milliseconds, but the machine may be busy.
const START_DEADLINE: Duration = Duration::from_secs(30);

/// Who runs, by a name for each: `hub`, `<namespace>/<pod>` and `<namespace>/<pod>/<container>`.
pub(super) struct Roster {
    /// `None` after the end.
    running: Mutex<Option<BTreeMap<String, Running>>>,
}

/// A process that others may signal while somebody waits for its end.
#[derive(Clone)]
pub(super) struct Running(Arc<Mutex<Process>>);

impl Roster {
    pub(super) fn new() -> Self {
        Self { running: Mutex::new(Some(BTreeMap::new())) }
    }

    /// Starts a program under a name; whoever had the name before is killed.
    ///
    /// Errors: when it cannot be started, or all has ended.
    pub(super) fn start(&self, name: &str, dir: PathBuf, spec: Spec) -> Result<Running> {
        let mut running = lock(&self.running);
        let all = running.as_mut().context("the pod runner has ended")?;
        let started = Running(Arc::new(Mutex::new(Process::start_in(dir, spec)?)));
        if let Some(earlier) = all.insert(name.to_owned(), started.clone()) {
            earlier.kill();
        }
        Ok(started)
    }

    pub(super) fn find(&self, name: &str) -> Option<Running> {
        lock(&self.running).as_ref()?.get(name).cloned()
    }

    /// Kills the process of that name; a later one of the same name stays.
    pub(super) fn end(&self, name: &str, process: &Running) {
        process.kill();
        if let Some(all) = lock(&self.running).as_mut()
            && all.get(name).is_some_and(|found| Arc::ptr_eq(&found.0, &process.0))
        {
            all.remove(name);
        }
    }

    /// Kills all whose names begin so.
    pub(super) fn end_all(&self, prefix: &str) {
        let mut running = lock(&self.running);
        for (_, process) in
            running.iter_mut().flat_map(|all| all.extract_if(.., |name, _| name.starts_with(prefix)))
        {
            process.kill();
        }
    }

    /// Kills all, and starts nothing any more.
    pub(super) fn close(&self) {
        for process in lock(&self.running).take().into_iter().flatten() {
            process.1.kill();
        }
    }
}

impl Running {
    pub(super) fn pid(&self) -> u32 {
        lock(&self.0).pid()
    }

    /// What it has written to standard output.
    pub(super) fn output(&self) -> String {
        lock(&self.0).output()
    }

    pub(super) fn kill(&self) {
        lock(&self.0).kill();
    }

    pub(super) fn terminate(&self) {
        lock(&self.0).terminate();
    }

    pub(super) fn pause(&self) {
        lock(&self.0).pause_all();
    }

    pub(super) fn pause_one(&self, command: &str) -> Result<()> {
        lock(&self.0).pause_one(command)
    }

    pub(super) fn resume(&self) {
        lock(&self.0).resume_all();
    }

    /// Its exit code once it has ended, as container runtimes count: 128 and the number of the signal that ended it.
    pub(super) async fn exit(&self) -> i32 {
        loop {
            let exited = lock(&self.0).exited();
            if let Some(status) = exited {
                return status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until a file is there among what it sees as its root; returns when it has ended, too.
    pub(super) async fn wait_for_file(&self, name: &str) {
        let path = Path::new("/proc").join(self.pid().to_string()).join("root").join(name);
        let found = async {
            while !path.exists() {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        tokio::select! { () = found => {}, _ = self.exit() => {} }
    }

    /// Waits until it has printed a line `up`.
    ///
    /// Errors: when it exits before, with its log; or after a while.
    pub(super) async fn wait_until_up(&self) -> Result<()> {
        self.wait_for_line("up").await
    }

    /// The same for another line.
    pub(super) async fn wait_for_line(&self, wanted: &str) -> Result<()> {
        let up = async {
            while !self.output().lines().any(|line| line == wanted) {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        let ended = tokio::select! {
            () = up => None,
            code = self.exit() => Some(format!("it exited with code {code}")),
            () = tokio::time::sleep(START_DEADLINE) => Some("it hangs".to_owned()),
        };
        ensure!(ended.is_none(), "{}\n{}", ended.unwrap_or_default(), lock(&self.0).log());
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panicking thread may have left undone here is a signal that was not sent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
