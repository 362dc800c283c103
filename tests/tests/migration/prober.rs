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
    /// When the last answer came before the first failure.
    from: Option<Instant>,
    /// When the first answer came after the last failure.
    to: Option<Instant>,
    last_answer: Option<Instant>,
    failing: bool,
}

impl Prober {
    /// Starts to ask for a small object of the Shoot.
    pub fn start(api: Api) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let task = tokio::spawn(ask(api, seen.clone()));
        Self { seen, task }
    }

    /// From the last answer before all failures to the first answer after them; zero where none has failed.
    pub fn outage(&self) -> Duration {
        let seen = self.seen.lock();
        match (seen.from, seen.to) {
            (Some(from), Some(to)) => to.duration_since(from),
            (Some(from), None) => from.elapsed(),
            _ => Duration::ZERO,
        }
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
            self.from = self.from.or(self.last_answer);
            return;
        }
        if std::mem::take(&mut self.failing) {
            self.to = Some(now);
        }
        self.last_answer = Some(now);
    }
}
