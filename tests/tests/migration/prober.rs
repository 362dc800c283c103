//! A client of the Shoot that asks all the time, and knows for how long nobody answered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use repot_tests::http::Api;
use tokio::task::JoinHandle;
use tokio::time::{interval, timeout};

const PERIOD: Duration = Duration::from_millis(100);
/// A request without an answer after this time has failed.
const PATIENCE: Duration = Duration::from_secs(1);

/// Asks until it is dropped.
pub struct Prober {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    last_answer: Option<Instant>,
    /// The longest time from one answer to the next, with failures in between.
    longest: Duration,
    failing: bool,
}

impl Prober {
    /// Starts to ask for a small object of the Shoot.
    pub fn start(api: Api) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let task = tokio::spawn(ask(api, seen.clone()));
        Self { seen, task }
    }

    /// The longest time from one answer to the next, with failures in between; zero where none has failed. A single late answer of a
    /// busy machine, before or after, does not count as a part of it.
    pub fn outage(&self) -> Duration {
        self.seen.lock().outage(Instant::now())
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn ask(api: Api, seen: Arc<Mutex<Seen>>) {
    let mut ticks = interval(PERIOD);
    loop {
        ticks.tick().await;
        let answer = timeout(PATIENCE, api.get("/api/v1/namespaces/default")).await;
        let answered = matches!(answer, Ok(Ok(answer)) if answer.status == 200);
        seen.lock().note(answered, Instant::now());
    }
}

impl Seen {
    fn note(&mut self, answered: bool, now: Instant) {
        if !answered {
            self.failing = true;
            return;
        }
        self.longest = self.outage(now);
        (self.failing, self.last_answer) = (false, Some(now));
    }

    fn outage(&self, now: Instant) -> Duration {
        let open = self.last_answer.filter(|_| self.failing).map(|last| now.duration_since(last));
        self.longest.max(open.unwrap_or_default())
    }
}

#[test]
fn outage_is_the_longest_time_between_answers_with_failures_in_between() {
    let (start, mut seen) = (Instant::now(), Seen::default());
    let mut note = |second, answered| seen.note(answered, start + Duration::from_secs(second));
    for (second, answered) in
        [(0, true), (1, false), (2, true), (30, true), (31, false), (41, true), (50, true)]
    {
        note(second, answered);
    }
    assert_eq!(seen.longest, Duration::from_secs(11));
    seen.note(false, start + Duration::from_secs(51));
    assert_eq!(seen.outage(start + Duration::from_secs(70)), Duration::from_secs(20));
}
