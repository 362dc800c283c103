//! The ground a test stands on: a throw-away directory, a runtime, a time limit, and the logs when something went wrong.

use std::any::Any;
use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context, Error, Result};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::binaries::testbed_dir;
use crate::test_logs;
use crate::turn::{self, Size};

/// After this long a test is stuck, however slow the machine.
const TIME_LIMIT: Duration = Duration::from_secs(600);
/// The same for a test that starts whole control planes, and perhaps the landscape that others use after it.
const LARGE_LIMIT: Duration = Duration::from_secs(1500);
/// The same in `make soak`.
const SOAK_LIMIT: Duration = Duration::from_secs(2 * 3600);
/// How long something that tests share runs on when none of them uses it: the next test may begin.
const LINGERS: Duration = Duration::from_secs(10);
/// Marks the directory of a failed test, which is kept.
const FAILED: &str = "FAILED";
/// For so long: three members of etcd leave half a GiB each time.
const KEPT_FOR: Duration = Duration::from_secs(2 * 3600);

/// A throw-away directory that everything a test starts writes below.
///
/// It vanishes with the value, unless the thread is panicking: then it stays, and the ends of its logs are printed.
pub struct TestEnv {
    dir: TempDir,
    made: AtomicUsize,
}

impl TestEnv {
    /// Makes the directory `target/testbed/run/<name>.<process id>.<random>`.
    pub fn new(name: &str) -> Result<Self> {
        let parent = testbed_dir().join("run");
        fs::create_dir_all(&parent).with_context(|| format!("failed to make {}", parent.display()))?;
        static SWEEP: Once = Once::new();
        SWEEP.call_once(|| sweep(&parent));
        let prefix = format!("{}.{}.", name.replace("::", "-"), std::process::id());
        Self::new_in(&parent, &prefix)
    }

    /// Makes a directory in another one, with this beginning of its name.
    pub fn new_in(parent: &Path, prefix: &str) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix(prefix).tempdir_in(parent)?;
        Ok(Self { dir, made: AtomicUsize::new(0) })
    }

    /// Path of the directory of the test.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Makes a directory of its own for a part of the test: `<name>`, then `<name>-2` and so on.
    pub fn make_dir(&self, name: &str) -> Result<PathBuf> {
        let mut path = self.path().join(name);
        while let Err(error) = fs::create_dir(&path) {
            if error.kind() != io::ErrorKind::AlreadyExists {
                return Err(error).with_context(|| format!("failed to make {}", path.display()));
            }
            path = self.path().join(format!("{name}-{}", self.made.fetch_add(1, Ordering::Relaxed) + 2));
        }
        Ok(path)
    }

    fn keep_for_inspection(&mut self) {
        self.dir.disable_cleanup(true);
        report(self.path());
        for dir in shared_dirs().lock().map(|dirs| dirs.clone()).unwrap_or_default() {
            report(&dir);
        }
    }
}

impl Drop for TestEnv {
    fn drop(&mut self) {
        // Where a test has failed, what it shared with others is kept as well.
        if self.path().join(FAILED).exists() {
            self.dir.disable_cleanup(true);
        } else if std::thread::panicking() {
            self.keep_for_inspection();
        }
    }
}

/// Runs one test: `run(async |env| { … Ok(()) })` inside an ordinary `#[test]`.
///
/// Panics when the test fails or takes longer than ten minutes (25 for a large one, two hours in `make soak`); the directory is then kept and the ends of all logs are printed.
pub fn run(test: impl AsyncFnOnce(&TestEnv) -> Result<()>) {
    run_sized(Size::Small, test);
}

/// As [`run`], for a test that starts whole control planes: no more than one other test runs beside it.
pub fn run_large(test: impl AsyncFnOnce(&TestEnv) -> Result<()>) {
    run_sized(Size::Large, test);
}

thread_local! {
    /// What the test on this thread has used of what tests share: it stays until the end of the test.
    static USED: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

fn run_sized(size: Size, test: impl AsyncFnOnce(&TestEnv) -> Result<()>) {
    let name = std::thread::current().name().unwrap_or("test").to_owned();
    let outcome = make_runtime().and_then(|runtime| {
        let env = TestEnv::new(&name)?;
        let limit = limit(size);
        let outcome = runtime.block_on(async {
            let _turn = turn::take(size).await;
            timeout(limit, test(&env)).await
        });
        // Nothing may wait for a blocking task here: a test that failed has left its servers in any state.
        runtime.shutdown_background();
        USED.take();
        match outcome {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => panic!("{}", explain(&error)),
            Err(_) => panic!("{name} did not end within {limit:?}"),
        }
    });
    if let Err(error) = outcome {
        panic!("failed to prepare {name}: {}", explain(&error));
    }
}

fn limit(size: Size) -> Duration {
    match size {
        _ if std::env::var_os("REPOT_SOAK").is_some() => SOAK_LIMIT,
        Size::Small => TIME_LIMIT,
        Size::Large => LARGE_LIMIT,
    }
}

/// The chain of causes, a line each. (The debug form may add a backtrace, which only shows the testbed itself.)
fn explain(error: &Error) -> String {
    error.chain().map(ToString::to_string).collect::<Vec<_>>().join("\n  because: ")
}

/// What several tests of one process use together: started by the first of them, and ended when none has used it for a while. Tests of one
/// module run one after the other, so it ends soon after the last of them, and leaves the machine to others.
///
/// Tests must not stop or reconfigure what they share. A start that failed is reported to every user of it.
pub struct Shared<T: 'static> {
    start: fn(&TestEnv) -> Result<T>,
    slot: Mutex<Option<std::result::Result<Arc<Started<T>>, String>>>,
    claims: AtomicUsize,
}

struct Started<T> {
    value: T,
    _env: TestEnv,
}

/// Keeps a value that is [`Shared`] from ending, without starting it: for a test that waits for its turn.
pub struct Claim<T: Send + Sync + 'static>(&'static Shared<T>);

/// Keeps a value that is [`Shared`] for as long as it lives.
pub struct SharedRef<T: Send + Sync + 'static> {
    started: Arc<Started<T>>,
    of: &'static Shared<T>,
}

impl<T: Send + Sync> Shared<T> {
    /// For a `static`: `start` runs at the first [`Shared::value`], and again after an end.
    pub const fn new(start: fn(&TestEnv) -> Result<T>) -> Self {
        Self { start, slot: Mutex::new(None), claims: AtomicUsize::new(0) }
    }

    /// A claim to the value.
    pub fn claim(&'static self) -> Claim<T> {
        self.claims.fetch_add(1, Ordering::Relaxed);
        Claim(self)
    }

    /// The shared value, started when it does not run. It stays for as long as the reference lives, and until the end of the test on
    /// whose thread this is called.
    ///
    /// Errors: the failure of the start, as text, for every caller.
    pub fn value(&'static self) -> Result<SharedRef<T>> {
        // Others wait here for one that starts it.
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        let started = slot.get_or_insert_with(|| self.make().map(Arc::new).map_err(|error| explain(&error)));
        let started = started.as_ref().map_err(|text| anyhow::anyhow!("{text}"))?;
        let found = SharedRef { started: Arc::clone(started), of: self };
        USED.with_borrow_mut(|used| used.push(Box::new(found.clone())));
        Ok(found)
    }

    fn make(&self) -> Result<Started<T>> {
        let env = TestEnv::new("shared")?;
        if let Ok(mut dirs) = shared_dirs().lock() {
            dirs.push(env.path().to_owned());
        }
        // A thread of its own: the caller may be inside a runtime, where blocking on another one is refused.
        let value = std::thread::scope(|scope| {
            scope.spawn(|| (self.start)(&env)).join().unwrap_or_else(|_| anyhow::bail!("the start panicked"))
        })?;
        Ok(Started { value, _env: env })
    }

    /// Ends the value unless somebody uses it. It is dropped on this thread, which no runtime waits for.
    fn end_unused(&self) {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        let is_unused = self.claims.load(Ordering::Relaxed) == 0
            && matches!(&*slot, Some(Ok(started)) if Arc::strong_count(started) == 1);
        let ended = if is_unused { slot.take() } else { None };
        drop(slot);
        drop(ended);
    }
}

impl<T: Send + Sync> std::ops::Deref for SharedRef<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.started.value
    }
}

impl<T: Send + Sync> Clone for SharedRef<T> {
    fn clone(&self) -> Self {
        Self { started: Arc::clone(&self.started), of: self.of }
    }
}

impl<T: Send + Sync> Drop for SharedRef<T> {
    fn drop(&mut self) {
        // One is in the slot, this is the other one. Two that are dropped at once may both see three: then the value stays until it is
        // used again, or the process ends.
        if Arc::strong_count(&self.started) > 2 {
            return;
        }
        end_later(self.of);
    }
}

impl<T: Send + Sync> Drop for Claim<T> {
    fn drop(&mut self) {
        self.0.claims.fetch_sub(1, Ordering::Relaxed);
        end_later(self.0);
    }
}

fn end_later<T: Send + Sync>(shared: &'static Shared<T>) {
    std::thread::spawn(move || {
        std::thread::sleep(LINGERS);
        shared.end_unused();
    });
}

/// Runs the asynchronous start of something [`Shared`] on a runtime that lives as long as the process.
pub fn start_shared<T>(start: impl Future<Output = Result<T>>) -> Result<T> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if RUNTIME.get().is_none() {
        // Two first callers at once make two runtimes and one stays; the other has no tasks yet.
        if let Err(extra) = RUNTIME.set(make_runtime()?) {
            extra.shutdown_background();
        }
    }
    RUNTIME.get().context("the shared runtime is gone")?.block_on(start)
}

fn make_runtime() -> Result<Runtime> {
    // Fails only when another test of this process was here before.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    Ok(Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

fn shared_dirs() -> &'static Mutex<Vec<PathBuf>> {
    static DIRS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    &DIRS
}

/// Removes what ended runs left behind, except what tests that failed lately keep on purpose.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let owner = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.split('.').nth(1));
        let lives = owner.is_none_or(|pid| Path::new("/proc").join(pid).exists());
        if !lives && !failed_lately(&path) {
            // Another test process may sweep the same directory at the same time.
            let _ = fs::remove_dir_all(&path);
        }
    }
}

fn failed_lately(dir: &Path) -> bool {
    let failed = fs::metadata(dir.join(FAILED)).and_then(|mark| mark.modified()).ok();
    failed.and_then(|time| time.elapsed().ok()).is_some_and(|age| age < KEPT_FOR)
}

/// Keeps the directory of a failed test, and prints its logs.
fn report(dir: &Path) {
    let _ = fs::write(dir.join(FAILED), "");
    test_logs::print(dir);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_vanishes_after_success_and_stays_after_failure() {
        let mut seen = Vec::new();
        run(async |env| {
            seen.push(env.path().to_owned());
            Ok(())
        });
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            run(async |env| {
                seen.push(env.path().to_owned());
                anyhow::bail!("on purpose, by a test of the testbed")
            });
        }));
        assert!(failed.is_err());
        assert!(!seen[0].exists(), "{} is still there", seen[0].display());
        assert!(seen[1].join(FAILED).exists(), "{} is not kept", seen[1].display());
        fs::remove_dir_all(&seen[1]).expect("nobody else removes it");
    }

    #[test]
    fn sweeps_what_dead_processes_left_but_not_failures() {
        let parent = tempfile::tempdir().expect("a directory");
        let make = |name: &str| {
            let dir = parent.path().join(name);
            fs::create_dir(&dir).expect("a directory");
            dir
        };
        // Process ids end below 2^22 on Linux.
        let (left, failed, old) = (make("a.4999999.x"), make("b.4999999.y"), make("d.4999999.y"));
        let ours = make(&format!("c.{}.z", std::process::id()));
        fs::write(failed.join(FAILED), "").expect("a file");
        let mark = fs::File::create(old.join(FAILED)).expect("a file");
        mark.set_modified(std::time::SystemTime::now() - 2 * KEPT_FOR).expect("an old file");
        sweep(parent.path());
        assert_eq!([left, failed, old, ours].map(|dir| dir.exists()), [false, true, false, true]);
    }

    #[test]
    fn shared_value_is_made_once_and_its_tasks_go_on() {
        type Answer = tokio::sync::mpsc::UnboundedSender<tokio::sync::oneshot::Sender<u32>>;
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        static SHARED: Shared<Answer> = Shared::new(|_| {
            start_shared(async {
                STARTED.fetch_add(1, Ordering::Relaxed);
                let (questions, mut inbox) = tokio::sync::mpsc::unbounded_channel();
                tokio::spawn(async move {
                    while let Some(answer) = inbox.recv().await {
                        let answer: tokio::sync::oneshot::Sender<u32> = answer;
                        answer.send(42).ok();
                    }
                });
                Ok(questions)
            })
        });
        for _ in 0..2 {
            run(async |_| {
                let (answer, receiver) = tokio::sync::oneshot::channel();
                SHARED.value()?.send(answer)?;
                anyhow::ensure!(receiver.await? == 42, "a wrong answer");
                Ok(())
            });
        }
        assert_eq!(STARTED.load(Ordering::Relaxed), 1);
    }
}
