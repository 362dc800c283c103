//! CPU profiles of this process: a timer interrupts whatever runs, and its stack is noted ([`pprof`]).
//!
//! One profile is taken at a time. Nothing is sampled, and no memory is held for it, before the first.

mod encode;
mod memory;
mod message;
mod panics;

use std::{
    convert::Infallible,
    ffi::c_void,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use backtrace::Frame;
use encode::{Stack, Symbol, Timing, encode, mapped_files};
pub use panics::caught;
use parking_lot::Mutex;
use pprof::{ProfilerGuardBuilder, UnresolvedReport};
use tokio::sync::oneshot;

/// Samples in a second of CPU time. Not a round number, so that periodic work is not always met at the same point.
const FREQUENCY: i32 = 99;
/// Frames in which the stack is taken, at most: they come before what was interrupted.
const HANDLER_FRAMES: usize = 6;
/// The function that takes a stack, in symbols.
const HANDLER: &str = "perf_signal_handler";

/// Why there is no profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Another profile is being taken.
    #[error("another CPU profile is being taken")]
    Busy,
    /// The system refused something, such as a temporary file.
    #[error("failed to take a CPU profile: {0}")]
    Failed(String),
}

/// Takes CPU profiles of this process, one at a time. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CpuProfiler(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// To the thread that takes all profiles. Each takes some 70 MiB at its start; on threads of a pool, every arena of the allocator
    /// would come to keep as much.
    thread: Option<mpsc::Sender<Job>>,
    busy: bool,
}

/// A profile that somebody waits for.
struct Job {
    frequency: i32,
    duration: Duration,
    /// Its other end is dropped when nobody waits any more.
    abandoned: mpsc::Receiver<Infallible>,
    turn: Turn,
    done: oneshot::Sender<Result<Vec<u8>, Error>>,
}

/// Lets the next profile begin when it is dropped.
struct Turn(Arc<Mutex<State>>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.lock().busy = false;
    }
}

impl CpuProfiler {
    /// Sets a hook for panics, once in a process: see [`caught`].
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it changes the process")]
    pub fn new() -> Self {
        panics::shield();
        Self(Arc::default())
    }

    /// Samples for so long. The result is a profile of pprof in gzip. Sampling ends early where this is dropped.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn record(&self, duration: Duration) -> Result<Vec<u8>, Error> {
        self.record_at(FREQUENCY, duration).await
    }

    async fn record_at(&self, frequency: i32, duration: Duration) -> Result<Vec<u8>, Error> {
        let (thread, turn) = self.claim()?;
        let (_waiting, abandoned) = mpsc::channel();
        let (done, result) = oneshot::channel();
        if thread.send(Job { frequency, duration, abandoned, turn, done }).is_err() {
            // It has ended: the next profile starts another. The job is dropped here, and its result with it.
            self.0.lock().thread = None;
        }
        result.await.unwrap_or_else(|_| Err(failed("its thread has ended")))
    }

    /// The thread, for one job.
    fn claim(&self) -> Result<(mpsc::Sender<Job>, Turn), Error> {
        let mut state = self.0.lock();
        if state.busy {
            return Err(Error::Busy);
        }
        let thread = match &state.thread {
            Some(thread) => thread.clone(),
            None => start_thread().map_err(failed)?,
        };
        state.thread = Some(thread.clone());
        state.busy = true;
        Ok((thread, Turn(Arc::clone(&self.0))))
    }
}

fn start_thread() -> std::io::Result<mpsc::Sender<Job>> {
    let (sender, jobs) = mpsc::channel::<Job>();
    thread::Builder::new().name("profiler".into()).spawn(move || jobs.into_iter().for_each(Job::run))?;
    Ok(sender)
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Failed(error.to_string())
}

impl Job {
    fn run(self) {
        let result = self.sample();
        let Self { turn, done, .. } = self;
        drop(turn);
        // Nobody may wait any more.
        let _ = done.send(result);
    }

    fn sample(&self) -> Result<Vec<u8>, Error> {
        if let Some(why) = memory::shortage() {
            return Err(Error::Failed(why));
        }
        let guard = ProfilerGuardBuilder::default().frequency(self.frequency).build().map_err(failed)?;
        if self.abandoned.recv_timeout(self.duration) == Err(mpsc::RecvTimeoutError::Disconnected) {
            return Err(failed("nobody waits for it"));
        }
        let report = guard.report().build_unresolved().map_err(failed)?;
        // Looking for symbols is not sampled.
        drop(guard);
        let (began, duration) = (report.timing.start_time, report.timing.duration);
        let timing = Timing { began, duration, frequency: self.frequency.into() };
        let maps = std::fs::read_to_string("/proc/self/maps").map_err(failed)?;
        let encoded = encode(&stacks(&report), &timing, &mapped_files(&maps), symbols).map_err(failed);
        backtrace::clear_symbol_cache();
        encoded
    }
}

fn stacks(report: &UnresolvedReport) -> Vec<Stack> {
    let stacks = report.data.iter().map(|(found, count)| {
        let name = found.thread_name.get(..found.thread_name_length).unwrap_or_default();
        stack(&found.frames, name, *count)
    });
    stacks.filter(|stack| !stack.addresses.is_empty()).collect()
}

fn stack(frames: &[Frame], thread: &[u8], count: isize) -> Stack {
    let interrupted = frames.get(handler_frames(frames)..).unwrap_or_default();
    let address = |(at, frame): (usize, &Frame)| {
        // A caller's address is that after its call, which may belong to the next function already.
        (frame.ip() as u64).saturating_sub(u64::from(at > 0))
    };
    Stack {
        addresses: interrupted.iter().enumerate().map(address).collect(),
        thread: String::from_utf8_lossy(thread).into_owned(),
        count: u64::try_from(count).unwrap_or_default(),
    }
}

/// How many frames are those of the handler of the signal and of what the kernel calls it by. The latter begins its function, which
/// no address after a call does; where there are no unwind tables for it, symbols may tell.
fn handler_frames(frames: &[Frame]) -> usize {
    let first = || frames.iter().take(HANDLER_FRAMES).enumerate().skip(1);
    let begins = |frame: &Frame| (frame.ip() as usize).wrapping_sub(frame.symbol_address() as usize) <= 1;
    let trampoline = first().find(|(_, frame)| begins(frame)).map(|(at, _)| at + 1);
    let named = || {
        let is_handler =
            |frame: &Frame| symbols(frame.ip() as u64 - 1).iter().any(|s| s.system_name == HANDLER);
        frames.iter().take(HANDLER_FRAMES).position(is_handler).map(|at| at + 2)
    };
    trampoline.or_else(named).unwrap_or(0)
}

/// The functions at an address, the innermost one first.
fn symbols(address: u64) -> Vec<Symbol> {
    let mut found = Vec::new();
    // It is taken for an address after a call.
    backtrace::resolve((address + 1) as *mut c_void, |symbol| {
        let Some(name) = symbol.name() else { return };
        let file = symbol.filename().map(|path| path.display().to_string());
        found.push(Symbol {
            name: format!("{name:#}"),
            system_name: name.as_str().unwrap_or_default().to_owned(),
            file: file.unwrap_or_default(),
            line: symbol.lineno().map_or(0, i64::from),
        });
    });
    found
}

#[cfg(test)]
mod tests;
