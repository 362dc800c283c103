//! Work that keeps a CPU busy for milliseconds: large bodies are decoded and compared, long answers encoded and compressed.
//!
//! It runs on threads of its own at a lower priority than the threads that serve connections: a short request does not wait for
//! a long one. Users take turns by the time that their work takes, see [`turns`]: who sends many large bodies waits for itself.
//! There is one thread more than there are CPUs, and one user never has all of them: another user's work begins at once, unless
//! several users have as much to do.

mod turns;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use repot_telemetry::profile;
use tokio::sync::oneshot;

use self::turns::{Turn, Turns};
use crate::shares::Flow;

/// Bodies and answers up to this size are worked on where the request runs, in bytes.
pub(crate) const LIGHT: usize = 256 << 10;
/// How much lower the priority is, as a Unix nice value: the kernel gives such a thread a third of the CPU time of one that
/// serves connections while both want to run.
const NICE: i32 = 5;

/// Why work was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotDone {
    /// It panicked. Its panic is in the log.
    #[error("the work on a request panicked")]
    Panicked,
    /// It was not its turn in time. It has not begun, and will not.
    #[error("the server was busy with other large requests")]
    Busy,
}

/// The threads. Clones share them; they end with the last clone.
#[derive(Clone, Debug)]
pub struct HeavyWork(Arc<Owner>);

/// Ends the threads when it is dropped.
#[derive(Debug)]
struct Owner(Arc<Shared>);

struct Shared {
    waiting: Mutex<Queue>,
    changed: Condvar,
}

struct Queue {
    turns: Turns<Waiting>,
    ended: bool,
}

type Job = Box<dyn FnOnce() + Send>;

/// A job that waits; `None`: it has begun, or nobody waits for it any more.
type Waiting = Arc<Mutex<Option<Job>>>;

/// Drops a job that has not begun, with the body that it holds, when the request is given up.
struct Asked(Waiting);

impl Drop for Asked {
    fn drop(&mut self) {
        let job = self.0.lock().take();
        drop(job);
    }
}

impl Asked {
    /// Gives up a job that has not begun; false: it has begun.
    fn withdraw(&self) -> bool {
        self.0.lock().take().is_some()
    }
}

impl HeavyWork {
    /// Starts one thread for each CPU, and one that no user has beside so many others.
    ///
    /// # Errors
    /// When the system allows no more threads.
    pub fn start() -> std::io::Result<Self> {
        Self::with_threads_for_one(thread::available_parallelism().map_or(1, usize::from))
    }

    /// With so many threads for one user.
    fn with_threads_for_one(count: usize) -> std::io::Result<Self> {
        let queue = Queue { turns: Turns::new(count), ended: false };
        let owner = Owner(Arc::new(Shared { waiting: Mutex::new(queue), changed: Condvar::new() }));
        for number in 0..=count {
            let shared = Arc::clone(&owner.0);
            thread::Builder::new().name(format!("heavy-{number}")).spawn(move || shared.serve())?;
        }
        Ok(Self(Arc::new(owner)))
    }

    /// The threads on behalf of a user.
    #[must_use]
    pub fn of(&self, flow: Flow) -> UserWork {
        UserWork { threads: self.clone(), flow, patience: None }
    }
}

/// The threads on behalf of one user.
#[derive(Clone, Debug)]
pub struct UserWork {
    threads: HeavyWork,
    flow: Flow,
    patience: Option<Duration>,
}

impl UserWork {
    /// Work that does not begin within this time is not done.
    #[must_use]
    pub fn beginning_within(self, patience: Duration) -> Self {
        Self { patience: Some(patience), ..self }
    }

    /// Does `work` on something of so many bytes: at once where it is short, else as [`UserWork::run`] does it.
    ///
    /// # Errors
    /// [`NotDone`].
    pub async fn run_sized<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NotDone> {
        if bytes <= LIGHT { Ok(work()) } else { self.run(work).await }
    }

    /// Does `work` when it is the user's turn. When the future is dropped, work that has not begun is dropped with it; work that
    /// has begun goes on.
    ///
    /// # Errors
    /// [`NotDone`].
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NotDone> {
        let (done, mut result) = oneshot::channel();
        let job: Job = Box::new(move || drop(done.send(work())));
        let asked = Asked(Arc::new(Mutex::new(Some(job))));
        let shared = &self.threads.0.0;
        shared.waiting.lock().turns.push(&self.flow, Arc::clone(&asked.0));
        shared.changed.notify_one();
        if let Some(patience) = self.patience {
            match tokio::time::timeout(patience, &mut result).await {
                Ok(done) => return done.map_err(|_| NotDone::Panicked),
                Err(_) if asked.withdraw() => return Err(NotDone::Busy),
                Err(_) => {}
            }
        }
        result.await.map_err(|_| NotDone::Panicked)
    }
}

#[cfg(test)]
impl UserWork {
    /// Threads of their own, for one user.
    pub(crate) fn for_tests() -> Self {
        HeavyWork::with_threads_for_one(1).expect("threads").of(Flow::User("a".into()))
    }

    /// Keeps the thread busy until the returned value is dropped.
    pub(crate) fn hold(&self) -> std::sync::mpsc::Sender<()> {
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let job: Job = Box::new(move || gate.recv().unwrap_or_default());
        self.threads.0.0.waiting.lock().turns.push(&self.flow, Arc::new(Mutex::new(Some(job))));
        self.threads.0.0.changed.notify_one();
        open
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.waiting.lock().ended = true;
        self.0.changed.notify_all();
    }
}

impl Shared {
    /// Works until the owner is gone.
    fn serve(&self) {
        // Where the system refuses, the work is done at the usual priority.
        let _ = rustix::process::nice(NICE);
        let mut last = None;
        while let Some((turn, waiting)) = self.next(last.take()) {
            last = Some(turn);
            let Some(job) = waiting.lock().take() else { continue };
            // The panic hook has written it to the log, and the request learns of it as its channel closes.
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                profile::caught();
            }
        }
    }

    /// Waits for the next job. `last`: the one that this thread has done.
    fn next(&self, last: Option<Turn>) -> Option<(Turn, Waiting)> {
        let mut queue = self.waiting.lock();
        if let Some(turn) = last {
            queue.turns.end(turn, Instant::now());
        }
        loop {
            if queue.ended {
                return None;
            }
            match queue.turns.begin(Instant::now()) {
                Some(next) => return Some(next),
                None => self.changed.wait(&mut queue),
            }
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("users", &self.waiting.lock().turns.users()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{
        FutureExt,
        future::{BoxFuture, join_all},
    };
    use std::sync::mpsc::{Receiver, Sender, channel};

    fn user(name: &str) -> Flow {
        Flow::User(name.into())
    }

    /// No test waits so long for what has to happen.
    const LATE: Duration = Duration::from_secs(5);

    type Held<'a> = BoxFuture<'a, Result<(), NotDone>>;

    /// Work that tells when it begins, and ends when it is let go.
    fn held(work: &UserWork) -> (Held<'_>, Receiver<()>, Sender<()>) {
        let ((tell, began), (open, gate)) = (channel(), channel::<()>());
        let hold = move || {
            tell.send(()).expect("a test");
            gate.recv().expect("a test");
        };
        (work.run(hold).boxed(), began, open)
    }

    #[tokio::test]
    async fn short_work_is_done_on_the_thread_of_the_request() {
        let heavy = HeavyWork::with_threads_for_one(1).expect("threads");
        let here = thread::current().id();
        assert_eq!(
            heavy.of(user("a")).run_sized(LIGHT, || thread::current().id()).await.expect("no panic"),
            here
        );
        assert_ne!(
            heavy.of(user("a")).run_sized(LIGHT + 1, || thread::current().id()).await.expect("no panic"),
            here
        );
    }

    #[tokio::test]
    async fn long_work_has_a_lower_priority_than_the_thread_of_the_request() {
        let heavy = HeavyWork::with_threads_for_one(1).expect("threads");
        let priority = || rustix::process::getpriority_process(None).expect("a priority");
        let here = priority();
        assert_eq!(heavy.of(user("a")).run(priority).await.expect("no panic"), (here + NICE).min(19));
    }

    #[tokio::test]
    async fn one_user_with_long_work_does_not_keep_the_work_of_another_waiting() {
        let heavy = HeavyWork::with_threads_for_one(1).expect("threads");
        let (busy, other) = (heavy.of(user("busy")), heavy.of(user("other")));
        let (mut first, began, open) = held(&busy);
        assert!((&mut first).now_or_never().is_none());
        began.recv().expect("work");
        let mut second = busy.run(|| ()).boxed();
        assert!((&mut second).now_or_never().is_none());
        for number in 0..3 {
            let done = tokio::time::timeout(LATE, other.run(move || number)).await;
            assert_eq!(done.expect("it waits for another user's work"), Ok(number));
        }
        assert!((&mut second).now_or_never().is_none(), "one user has all threads");
        open.send(()).expect("work");
        join_all([first, second]).await;
    }

    #[tokio::test]
    async fn work_that_does_not_begin_in_time_is_refused_and_work_that_has_begun_is_not() {
        let heavy = HeavyWork::with_threads_for_one(1).expect("threads");
        let work = heavy.of(user("a")).beginning_within(Duration::from_millis(20));
        let (mut first, began, open) = held(&work);
        assert!((&mut first).now_or_never().is_none());
        began.recv().expect("work");
        let begun = Arc::new(());
        let kept = Arc::clone(&begun);
        assert_eq!(work.run(move || drop(kept)).await, Err(NotDone::Busy));
        assert_eq!(Arc::strong_count(&begun), 1, "what the work holds is given back");
        open.send(()).expect("work");
        assert_eq!(first.await, Ok(()), "it had begun");
    }

    #[tokio::test]
    async fn a_panic_ends_one_piece_of_work_and_not_the_thread() {
        let heavy = HeavyWork::with_threads_for_one(1).expect("threads");
        assert!(heavy.of(user("a")).run(|| panic!("on purpose")).await.is_err());
        assert_eq!(heavy.of(user("a")).run(|| 7).await.expect("no panic"), 7);
    }

    #[tokio::test]
    async fn work_that_nobody_waits_for_is_not_begun_and_threads_end_with_the_last_clone() {
        let heavy = HeavyWork::with_threads_for_one(1).expect("threads");
        let (alive, used, work) = (Arc::clone(&heavy.0.0), Arc::new(()), heavy.of(user("a")));
        let (mut first, _began, open) = held(&work);
        let kept = Arc::clone(&used);
        let mut second = work.run(move || panic!("begun with {kept:?}")).boxed();
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        drop(second);
        assert_eq!(Arc::strong_count(&used), 1, "what the work holds is given back at once");
        open.send(()).expect("work");
        first.await.expect("no panic");
        work.run(|| ()).await.expect("no panic");
        drop((heavy, work));
        while Arc::strong_count(&alive) > 1 {
            thread::yield_now();
        }
    }
}
