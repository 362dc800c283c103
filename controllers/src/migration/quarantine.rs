//! The command by which an operator takes away the credentials of a dead seed.
//!
//! DNS fences an etcd, and not a machine-controller-manager that is cut off with its seed: that one has credentials of the cloud. Only the
//! operator knows where these are from. So a command of the operator revokes them, called as `COMMAND revoke SEED`, and says whether they
//! are, called as `COMMAND check SEED`: exit status 0 says that nobody can use them any more.
//!
//! Calls run beside the passes of migrations, one at a time for a seed, since a dead seed may have hundreds of Shoots. Each has a limit of
//! time, with all processes that it has started, and its output is cut.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use repot_plan::migration::observed::Quarantine;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Command,
    sync::Semaphore,
    time::{Instant, timeout},
};

/// The longest that a call may take.
const LIMIT: Duration = Duration::from_secs(60);
/// What a call has said counts for so long after its end: somebody may give a seed that was repaired its credentials back.
const FRESH: Duration = Duration::from_secs(10);
/// The shortest time from one revocation of a seed to the next.
const REVOKE_AGAIN: Duration = Duration::from_secs(60);
/// How long standard error is read after the end of a call: something that it has started may hold it open.
const REST: Duration = Duration::from_secs(1);
/// Calls that run at a time, for all seeds together.
const AT_ONCE: usize = 4;
/// Bytes of standard error that are read. Of the rest nothing is kept.
const MOST_READ: usize = 4 << 10;
/// Characters of it that a message shows.
const MOST_SHOWN: usize = 300;

/// The command of the operator.
#[derive(Clone, Debug)]
pub struct QuarantineCommand {
    program: PathBuf,
    limit: Duration,
    turns: Arc<Semaphore>,
    seeds: Arc<Mutex<BTreeMap<String, SeedState>>>,
}

/// What is known of the credentials of one seed.
#[derive(Debug, Default)]
struct SeedState {
    said: Option<(Instant, Quarantine)>,
    /// Whether a call runs.
    runs: bool,
    /// When the latest revocation was begun.
    revoked: Option<Instant>,
}

impl QuarantineCommand {
    /// Calls this program. It is looked for when it is called.
    #[must_use]
    pub fn new(program: PathBuf) -> Self {
        Self { program, limit: LIMIT, turns: Arc::new(Semaphore::new(AT_ONCE)), seeds: Arc::default() }
    }

    /// Whether the credentials of a seed are revoked, by what the command has said within ten seconds. Where it has not, it is asked,
    /// and nobody waits for it.
    #[must_use]
    pub fn check(&self, seed: &str) -> Quarantine {
        let mut seeds = self.lock();
        let state = seeds.entry(seed.to_owned()).or_default();
        let fresh = state.said.as_ref().filter(|(at, _)| at.elapsed() < FRESH);
        if let Some((_, said)) = fresh {
            return said.clone();
        }
        if !state.runs {
            self.start(state, seed, false);
        }
        match &state.said {
            Some((_, Quarantine::Open(why))) => Quarantine::Open(why.clone()),
            _ => Quarantine::Open("the command is being asked".to_owned()),
        }
    }

    /// Begins to revoke the credentials of a seed, and asks then whether they are. It does nothing while other calls run, and within a
    /// minute of the latest revocation: whoever wants it asks again. [`QuarantineCommand::check`] tells what came of it.
    pub fn revoke(&self, seed: &str) {
        let mut seeds = self.lock();
        let state = seeds.entry(seed.to_owned()).or_default();
        let is_recent = state.revoked.is_some_and(|at| at.elapsed() < REVOKE_AGAIN);
        // Not after a wait: what was decided on would be old then.
        if !state.runs && !is_recent && self.turns.available_permits() > 0 {
            state.revoked = Some(Instant::now());
            self.start(state, seed, true);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, SeedState>> {
        self.seeds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self, state: &mut SeedState, seed: &str, revokes: bool) {
        state.runs = true;
        let (command, seed) = (self.clone(), seed.to_owned());
        tokio::spawn(async move {
            let said = command.ask(&seed, revokes).await;
            tracing::info!(seed, revokes, ?said, "asked the command that revokes credentials");
            let mut seeds = command.lock();
            let state = seeds.entry(seed).or_default();
            (state.said, state.runs) = (Some((Instant::now(), said)), false);
        });
    }

    async fn ask(&self, seed: &str, revokes: bool) -> Quarantine {
        // It is never closed.
        let _turn = self.turns.acquire().await;
        let revoked = if revokes { self.call("revoke", seed).await } else { Ok(()) };
        let checked = match revoked {
            Ok(()) => self.call("check", seed).await,
            Err(why) => Err(why),
        };
        checked.map_or_else(Quarantine::Open, |()| Quarantine::Revoked)
    }

    async fn call(&self, verb: &str, seed: &str) -> Result<(), String> {
        let outcome = run(&self.program, [verb, seed], self.limit).await;
        outcome.map_err(|why| format!("{} {verb} {seed}: {why}", self.program.display()))
    }
}

/// Kills a process with all that it has started.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // It fails where nobody is left, which is what is wanted.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

/// Runs a program to its end. Whatever is left of its processes then is killed.
async fn run(program: &Path, args: [&str; 2], limit: Duration) -> Result<(), String> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("failed to start: {error}"))?;
    let leader = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let _group = Group(leader);
    let stderr = child.stderr.take();
    let work = async {
        let said = Mutex::new(Vec::new());
        let reading = async {
            if let Some(stderr) = stderr {
                read_some(stderr, &said).await;
            }
        };
        tokio::pin!(reading);
        let status = tokio::select! {
            status = child.wait() => {
                let _ = timeout(REST, reading).await;
                status
            }
            () = &mut reading => child.wait().await,
        };
        let text = std::mem::take(&mut *said.lock().unwrap_or_else(PoisonError::into_inner));
        (status, first_line(&text))
    };
    match timeout(limit, work).await {
        Err(_) => Err(format!("did not end within {} s and was killed", limit.as_secs())),
        Ok((Err(error), _)) => Err(format!("failed to wait for it: {error}")),
        Ok((Ok(status), _)) if status.success() => Ok(()),
        Ok((Ok(status), said)) if said.is_empty() => Err(status.to_string()),
        Ok((Ok(status), said)) => Err(format!("{status}: {said}")),
    }
}

/// Reads to the end, so that nobody waits for a reader, and keeps the beginning.
async fn read_some(mut from: impl AsyncRead + Unpin, kept: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MOST_READ - kept.len();
        kept.extend_from_slice(&buffer[..length.min(room)]);
    }
}

/// The first line that is not empty, as far as it is shown.
fn first_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.chars().filter(|c| !c.is_control()).take(MOST_SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A shell script as a command, and its directory. Another process writes it: a file that this one has open for writing is also
    /// open in whatever another test starts just then, and cannot be run as long as it is.
    fn command(script: &str) -> (tempfile::TempDir, QuarantineCommand) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("command");
        let text = format!("#!/bin/sh\ncd {}\n{script}\n", dir.path().display());
        let write = ["-c", "printf %s \"$1\" >\"$0\" && chmod 700 \"$0\""];
        let written = std::process::Command::new("sh").args(write).arg(&path).arg(text).status();
        assert!(written.expect("a shell").success(), "the script is not written");
        (dir, QuarantineCommand::new(path))
    }

    /// What the command says in the end.
    async fn said(command: &QuarantineCommand, seed: &str) -> Quarantine {
        let begun = Instant::now();
        loop {
            match command.check(seed) {
                Quarantine::Open(why) if why == "the command is being asked" => {
                    assert!(begun.elapsed() < Duration::from_secs(60), "it is never asked");
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                other => return other,
            }
        }
    }

    /// Waits until no call runs.
    async fn until_idle(command: &QuarantineCommand) {
        while command.lock().values().any(|state| state.runs) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn open(said: Quarantine) -> String {
        let Quarantine::Open(why) = said else { panic!("{said:?}") };
        why
    }

    #[tokio::test]
    async fn command_says_when_credentials_are_revoked() {
        let script = "case $1 in check) test -f revoked-$2 || { echo still valid >&2; exit 1; };; \
                      revoke) touch revoked-$2;; esac";
        let (_dir, command) = command(script);
        let why = open(said(&command, "seed-a").await);
        assert!(why.ends_with("check seed-a: exit status: 1: still valid"), "{why}");
        command.revoke("seed-a");
        until_idle(&command).await;
        assert_eq!(command.check("seed-a"), Quarantine::Revoked);
        open(said(&command, "seed-b").await);
    }

    #[tokio::test]
    async fn one_call_runs_at_a_time_and_counts_for_a_while() {
        let (dir, command) = command("echo $1 >>calls; sleep 0.2; exit 1");
        for _ in 0..50 {
            let _ = command.check("seed-a");
            command.revoke("seed-a");
        }
        open(said(&command, "seed-a").await);
        for _ in 0..50 {
            let _ = command.check("seed-a");
        }
        until_idle(&command).await;
        let calls = || fs::read_to_string(dir.path().join("calls")).expect("calls");
        assert_eq!(calls(), "check\n");
        for _ in 0..3 {
            command.revoke("seed-a");
            until_idle(&command).await;
        }
        assert_eq!(calls(), "check\nrevoke\n", "revoked again within a minute, or checked after a failure");
    }

    #[tokio::test]
    async fn credentials_that_were_revoked_long_ago_are_asked_for_again() {
        let (_dir, command) = command("exit 0");
        let long_ago = Instant::now().checked_sub(FRESH).expect("a machine that runs for a while");
        let said_then = Some((long_ago, Quarantine::Revoked));
        command.lock().insert("seed-a".to_owned(), SeedState { said: said_then, ..SeedState::default() });
        assert_eq!(open(command.check("seed-a")), "the command is being asked");
        assert_eq!(said(&command, "seed-a").await, Quarantine::Revoked);
    }

    #[tokio::test]
    async fn call_that_does_not_end_is_killed_with_all_that_it_has_started() {
        let (dir, mut command) = command("sleep 1000 & echo $! >child; wait");
        command.limit = Duration::from_millis(500);
        let begun = Instant::now();
        let why = open(said(&command, "seed-a").await);
        assert!(why.contains("was killed") && begun.elapsed() < Duration::from_secs(30), "{why}");
        let child = fs::read_to_string(dir.path().join("child")).expect("a child");
        let status = format!("/proc/{}/status", child.trim());
        let is_there = || fs::read_to_string(&status).is_ok_and(|text| !text.contains("State:\tZ"));
        while is_there() {
            assert!(begun.elapsed() < Duration::from_secs(30), "{child} lives");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn call_that_leaves_a_process_behind_counts_by_its_own_end() {
        let (_dir, command) = command("sleep 1000 & exit 0");
        let begun = Instant::now();
        assert_eq!(said(&command, "seed-a").await, Quarantine::Revoked);
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn long_output_is_cut_and_keeps_nobody_waiting() {
        let (_dir, command) = command("yes x | tr -d '\\n' | head -c 1000000 >&2; exit 3");
        let why = open(said(&command, "seed-a").await);
        assert!(why.contains("exit status: 3: xxx") && why.len() < 2 * MOST_SHOWN, "{} bytes", why.len());
    }

    #[tokio::test]
    async fn program_that_is_missing_revokes_nothing() {
        let command = QuarantineCommand::new("/nowhere/command".into());
        let why = open(said(&command, "seed-a").await);
        assert!(why.contains("/nowhere/command check seed-a: failed to start"), "{why}");
    }
}
