//! One program under the clock, and several in turns.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::process::Command;

use crate::proc;

/// Between two looks at memory and CPU time of a program and its children.
const LOOK: Duration = Duration::from_millis(25);
/// Between two looks whether a program that does not end by itself is done.
const POLL: Duration = Duration::from_millis(5);
/// After this a program is stuck.
const LIMIT: Duration = Duration::from_secs(1800);

/// Where a run puts what it makes; removed after it.
#[derive(Clone, Debug)]
pub struct WorkDir {
    /// A directory that is empty before each round.
    pub dir: PathBuf,
    /// Used once in a run of the benchmark, for object stores.
    pub name: String,
}

/// What one run took.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// From its start to its end.
    pub seconds: f64,
    /// CPU time of it and its children.
    pub cpu: f64,
    /// The most that it and its children had resident at once, in MiB; files they map count.
    pub peak_mib: f64,
}

type Make<'a> = Box<dyn Fn(&WorkDir) -> Result<Command> + 'a>;
type Check<'a> = Box<dyn Fn(&WorkDir) -> Result<()> + 'a>;

/// One who takes part.
pub struct Side<'a> {
    /// The name of the program in tables.
    pub name: &'static str,
    make: Make<'a>,
    check: Check<'a>,
    /// What it logs when it is done, where it does not end by itself.
    done: Option<&'static str>,
    /// Its runs so far.
    pub runs: Vec<Run>,
}

impl<'a> Side<'a> {
    /// A program, and how what it made is known to be whole.
    pub fn new(
        name: &'static str,
        make: impl Fn(&WorkDir) -> Result<Command> + 'a,
        check: impl Fn(&WorkDir) -> Result<()> + 'a,
    ) -> Self {
        Self { name, make: Box::new(make), check: Box::new(check), done: None, runs: Vec::new() }
    }

    /// It goes on for ever, and is done when it has logged this.
    pub fn until_logged(mut self, text: &'static str) -> Self {
        self.done = Some(text);
        self
    }
}

/// Where runs take place.
pub struct Ground {
    dir: PathBuf,
    rounds: usize,
    used: usize,
}

impl Ground {
    pub fn new(dir: PathBuf, rounds: usize) -> Self {
        Self { dir, rounds, used: 0 }
    }

    /// All take turns, so that what happens to the machine happens to all of them. Nothing that an earlier run left to be
    /// written to disk is left when the clock starts.
    pub async fn measure(&mut self, sides: &mut [Side<'_>]) -> Result<()> {
        let count = sides.len();
        for turn in 0..self.rounds * count {
            let side = &mut sides[(turn + turn / count) % count];
            let run = self.run(side).await.with_context(|| side.name)?;
            side.runs.push(run);
        }
        Ok(())
    }

    async fn run(&mut self, side: &Side<'_>) -> Result<Run> {
        self.used += 1;
        let name = format!("run-{}", self.used);
        let place = WorkDir { dir: self.dir.join(&name), name };
        fs::create_dir(&place.dir)?;
        let log = self.dir.join("log");
        let mut command = (side.make)(&place)?;
        command
            .stdin(Stdio::null())
            .stdout(File::create(&log)?)
            .stderr(File::options().append(true).open(&log)?);
        rustix::fs::sync();
        let run = clock(command, side.done, &log).await;
        let run = run.with_context(|| format!("its log ends:\n{}", end_of(&log)))?;
        (side.check)(&place)?;
        fs::remove_dir_all(&place.dir)?;
        Ok(run)
    }
}

async fn clock(mut command: Command, done: Option<&str>, log: &Path) -> Result<Run> {
    let start = Instant::now();
    let mut child = command.kill_on_drop(true).spawn()?;
    let sampler = Sampler::start(child.id().context("it ended at once")?);
    let outcome = tokio::time::timeout(LIMIT, async {
        match done {
            None => {
                let status = child.wait().await?;
                ensure!(status.success(), "it ended with {status}");
            }
            Some(text) => {
                while !fs::read_to_string(log)?.contains(text) {
                    if let Some(status) = child.try_wait()? {
                        bail!("it ended with {status}");
                    }
                    tokio::time::sleep(POLL).await;
                }
            }
        }
        Ok(start.elapsed().as_secs_f64())
    })
    .await;
    let (cpu, peak_mib) = sampler.stop();
    if done.is_some() {
        child.kill().await?;
    }
    Ok(Run { seconds: outcome.context("it does not end")??, cpu, peak_mib })
}

fn end_of(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

/// Looks at a process and all below it until it is told to stop.
struct Sampler {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(f64, f64)>,
}

impl Sampler {
    fn start(pid: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut cpu, mut peak) = (BTreeMap::new(), 0.0_f64);
            while !told.load(Ordering::Relaxed) {
                let mut now = 0.0;
                for pid in tree(pid) {
                    let Ok(memory) = proc::memory(pid) else { continue };
                    now += memory.now;
                    peak = peak.max(memory.peak);
                    cpu.insert(pid, proc::cpu_seconds(pid));
                }
                peak = peak.max(now);
                std::thread::sleep(LOOK);
            }
            (cpu.values().sum(), peak)
        });
        Self { stop, thread }
    }

    fn stop(self) -> (f64, f64) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

/// A process and everything it started, where the kernel tells.
fn tree(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut at = 0;
    while let Some(pid) = all.get(at).copied() {
        at += 1;
        let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for task in tasks.flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            all.extend(children.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
        }
    }
    all
}
