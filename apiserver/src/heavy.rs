//! Work that keeps a CPU busy for milliseconds: large bodies are decoded and compared, long answers encoded and compressed.
//!
//! It runs on threads of its own, one for each CPU, at a lower priority than the threads that serve connections: a short
//! request does not wait for a long one. Users take turns: who sends many large bodies waits for itself, and another user's
//! work begins when the work that runs now ends.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::shares::Flow;

/// Bodies and answers up to this size are worked on where the request runs, in bytes.
const LIGHT: usize = 256 << 10;
/// How much lower the priority is, as a Unix nice value: the kernel gives such a thread a third of the CPU time of one that
/// serves connections while both want to run.
const NICE: i32 = 5;

/// The work panicked. Its panic is in the log.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the work on a request panicked")]
pub struct Panicked;

/// The threads. Clones share them; they end with the last clone.
#[derive(Clone, Debug)]
pub struct HeavyWork(Arc<Owner>);

/// Ends the threads when it is dropped.
#[derive(Debug)]
struct Owner(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    turns: Mutex<Turns>,
    changed: Condvar,
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

/// Jobs that wait, by user, and the users in the order of their turns.
#[derive(Default)]
struct Turns {
    jobs: HashMap<Flow, VecDeque<Waiting>>,
    order: VecDeque<Flow>,
    ended: bool,
}

impl HeavyWork {
    /// Starts one thread for each CPU.
    ///
    /// # Errors
    /// When the system allows no more threads.
    pub fn start() -> std::io::Result<Self> {
        Self::with_threads(thread::available_parallelism().map_or(1, usize::from))
    }

    fn with_threads(count: usize) -> std::io::Result<Self> {
        let owner = Owner(Arc::default());
        for number in 0..count {
            let shared = Arc::clone(&owner.0);
            thread::Builder::new().name(format!("heavy-{number}")).spawn(move || shared.serve())?;
        }
        Ok(Self(Arc::new(owner)))
    }

    /// The threads on behalf of a user.
    #[must_use]
    pub fn of(&self, flow: Flow) -> UserWork {
        UserWork { threads: self.clone(), flow }
    }
}

/// The threads on behalf of one user.
#[derive(Clone, Debug)]
pub struct UserWork {
    threads: HeavyWork,
    flow: Flow,
}

impl UserWork {
    /// Does `work` on something of so many bytes: at once where it is short, else as [`UserWork::run`] does it.
    ///
    /// # Errors
    /// [`Panicked`].
    pub async fn run_sized<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Panicked> {
        if bytes <= LIGHT { Ok(work()) } else { self.run(work).await }
    }

    /// Does `work` when it is the user's turn. When the future is dropped, work that has not begun is dropped with it; work that
    /// has begun goes on.
    ///
    /// # Errors
    /// [`Panicked`].
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Panicked> {
        let (done, result) = oneshot::channel();
        let job: Job = Box::new(move || drop(done.send(work())));
        let asked = Asked(Arc::new(Mutex::new(Some(job))));
        let shared = &self.threads.0.0;
        shared.turns.lock().push(&self.flow, Arc::clone(&asked.0));
        shared.changed.notify_one();
        result.await.map_err(|_| Panicked)
    }
}

#[cfg(test)]
impl UserWork {
    /// Threads of their own, for one user.
    pub(crate) fn for_tests() -> Self {
        HeavyWork::with_threads(1).expect("threads").of(Flow::User("a".into()))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.turns.lock().ended = true;
        self.0.changed.notify_all();
    }
}

impl Shared {
    /// Works until the owner is gone.
    fn serve(&self) {
        // Where the system refuses, the work is done at the usual priority.
        let _ = rustix::process::nice(NICE);
        while let Some(waiting) = self.next() {
            let Some(job) = waiting.lock().take() else { continue };
            // The panic hook has written it to the log, and the request learns of it as its channel closes.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }

    fn next(&self) -> Option<Waiting> {
        let mut turns = self.turns.lock();
        loop {
            if turns.ended {
                return None;
            }
            match turns.pop() {
                Some(job) => return Some(job),
                None => self.changed.wait(&mut turns),
            }
        }
    }
}

impl Turns {
    fn push(&mut self, flow: &Flow, job: Waiting) {
        match self.jobs.entry(flow.clone()) {
            Entry::Occupied(mut waiting) => waiting.get_mut().push_back(job),
            Entry::Vacant(none) => {
                none.insert(VecDeque::from([job]));
                self.order.push_back(flow.clone());
            }
        }
    }

    /// The first job of the user whose turn it is; a user who has more of them comes last then.
    fn pop(&mut self) -> Option<Waiting> {
        let flow = self.order.pop_front()?;
        let Entry::Occupied(mut waiting) = self.jobs.entry(flow.clone()) else { return None };
        let job = waiting.get_mut().pop_front();
        if waiting.get().is_empty() {
            waiting.remove();
        } else {
            self.order.push_back(flow);
        }
        job
    }
}

impl std::fmt::Debug for Turns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turns").field("users", &self.order.len()).field("ended", &self.ended).finish()
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

    type Held<'a> = BoxFuture<'a, Result<(), Panicked>>;

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
        let heavy = HeavyWork::with_threads(1).expect("threads");
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
        let heavy = HeavyWork::with_threads(1).expect("threads");
        let priority = || rustix::process::getpriority_process(None).expect("a priority");
        let here = priority();
        assert_eq!(heavy.of(user("a")).run(priority).await.expect("no panic"), (here + NICE).min(19));
    }

    #[tokio::test]
    async fn users_take_turns_however_much_one_of_them_has_sent() {
        let heavy = HeavyWork::with_threads(1).expect("threads");
        let (order, busy) = (Arc::new(Mutex::new(Vec::new())), heavy.of(user("busy")));
        let (mut first, began, open) = held(&busy);
        assert!((&mut first).now_or_never().is_none());
        began.recv().expect("work");
        let note = |name: &'static str| {
            let (work, order) = (heavy.of(user(name)), Arc::clone(&order));
            async move { work.run(move || order.lock().push(name)).await }.boxed()
        };
        let mut all = vec![first, note("busy"), note("busy"), note("busy"), note("other"), note("other")];
        // Each is polled once, in this order, and so has its place in the queue.
        assert!(all[1..].iter_mut().all(|work| work.now_or_never().is_none()));
        open.send(()).expect("work");
        join_all(all).await;
        assert_eq!(*order.lock(), ["busy", "other", "busy", "other", "busy"]);
    }

    #[tokio::test]
    async fn a_panic_ends_one_piece_of_work_and_not_the_thread() {
        let heavy = HeavyWork::with_threads(1).expect("threads");
        assert!(heavy.of(user("a")).run(|| panic!("on purpose")).await.is_err());
        assert_eq!(heavy.of(user("a")).run(|| 7).await.expect("no panic"), 7);
    }

    #[tokio::test]
    async fn work_that_nobody_waits_for_is_not_begun_and_threads_end_with_the_last_clone() {
        let heavy = HeavyWork::with_threads(1).expect("threads");
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
