//! How many tests run at a time: one that starts whole control planes takes the turns of several others.
//!
//! Tests wait for servers most of the time, so `make test` runs more of them than there are cores. A landscape keeps the cores busy by
//! itself; beside three other tests, or a second landscape, nothing in it is in time.

use std::num::NonZero;
use std::sync::OnceLock;
use std::thread::available_parallelism;

use tokio::sync::{Mutex, MutexGuard, Semaphore, SemaphorePermit};

/// How much of the machine a test needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A few servers, which mostly wait.
    Small,
    /// Whole control planes: no more than one small test runs beside it.
    Large,
}

/// The turn of a test, until it is dropped.
pub struct Turn {
    _share: SemaphorePermit<'static>,
    _large: Option<MutexGuard<'static, ()>>,
}

/// Waits for the turn of a test. Of large tests only one at a time waits among the small ones, so these go on beside the one that runs.
pub async fn take(size: Size) -> Turn {
    static LARGE: Mutex<()> = Mutex::const_new(());
    static TURNS: OnceLock<(Semaphore, u32)> = OnceLock::new();
    let (semaphore, turns) = TURNS.get_or_init(|| {
        let turns = threads(std::env::args(), std::env::var("RUST_TEST_THREADS").ok());
        (Semaphore::new(turns as usize), turns)
    });
    let large = match size {
        Size::Large => Some(LARGE.lock().await),
        Size::Small => None,
    };
    let share = semaphore.acquire_many(share(size, *turns)).await;
    Turn { _share: share.unwrap_or_else(|_| unreachable!("nobody closes this semaphore")), _large: large }
}

fn share(size: Size, threads: u32) -> u32 {
    match size {
        Size::Small => 1,
        Size::Large => threads.saturating_sub(1).max(1),
    }
}

/// The threads of the test program, found as the program itself does it: by its flag, then by its variable, then one for each core.
fn threads(args: impl Iterator<Item = String>, variable: Option<String>) -> u32 {
    let args: Vec<String> = args.collect();
    let joined = args.iter().find_map(|arg| arg.strip_prefix("--test-threads="));
    let apart = args.iter().position(|arg| arg == "--test-threads").and_then(|at| args.get(at + 1));
    let said = joined.or(apart.map(String::as_str)).or(variable.as_deref());
    let cores = || available_parallelism().map_or(1, NonZero::get);
    let threads = said.and_then(|text| text.parse().ok()).unwrap_or_else(cores);
    u32::try_from(threads).unwrap_or(u32::MAX >> 4).clamp(1, u32::MAX >> 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threads_of(args: &[&str], variable: Option<&str>) -> u32 {
        threads(args.iter().map(ToString::to_string), variable.map(str::to_owned))
    }

    #[test]
    fn threads_are_those_of_the_flag_then_of_the_variable_then_the_cores() {
        assert_eq!(threads_of(&["it", "--test-threads", "3", "x"], Some("5")), 3);
        assert_eq!(threads_of(&["it", "--test-threads=7"], Some("5")), 7);
        assert_eq!(threads_of(&["it"], Some("5")), 5);
        let cores = available_parallelism().map_or(1, NonZero::get);
        assert_eq!(threads_of(&["it", "--test-threads"], Some("many")) as usize, cores);
    }

    #[test]
    fn two_large_tests_never_fit_and_one_always_does() {
        for threads in 1..10 {
            let large = share(Size::Large, threads);
            assert!(large <= threads && (threads < 3 || 2 * large > threads), "{large} of {threads}");
        }
    }
}
