//! The audit log: events wait in a [`Queue`], and one thread redacts and writes them.

use std::{
    io::{self, Write},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::{runtime::Handle, sync::oneshot, time::timeout_at};

use super::{
    delivery::{Batch, Bucket, Mode},
    event::Event,
    queue::{Entry, Queue, Share, Waiting},
    rotation::{Rotated, Rotation},
};
use crate::{metrics, shares::Flow};

/// Events of authenticated requests that may wait where requests wait for them.
const BLOCKING_EVENTS: usize = 10_000;
/// An event that finds no place waits for at least this long, even when the time of its request is up.
const LEAST_WAIT: Duration = Duration::from_secs(5);
/// At a stop, what is queued has so long to be written.
const CLOSING: Duration = Duration::from_secs(10);
/// Lost events are told this often at most.
const TELL_INTERVAL: Duration = Duration::from_secs(10);

/// Audit log: takes events and writes them to a file or to standard output.
pub struct Log {
    mode: Mode,
    queue: Arc<Queue>,
    /// Ends when the last event is written.
    done: Mutex<Option<oneshot::Receiver<()>>>,
}

/// What became of an event.
enum Handed {
    /// It is in the buffer, and nobody waits for it.
    Buffered,
    /// The event cannot be written and is counted as lost.
    Lost,
    /// Tells whether it was written.
    Waiting(oneshot::Receiver<bool>),
}

impl Log {
    /// Begins to write to a file; `-`: to standard output. `batch` counts in [`Mode::Batch`] only.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: &Path, rotation: Rotation, mode: Mode, batch: Batch) -> io::Result<Self> {
        let output = match path.to_str() {
            Some("-") => Output::Stdout,
            _ => Output::File(Rotated::open(path.to_owned(), rotation)?),
        };
        let batch = match mode {
            Mode::Batch => batch,
            // Whoever waits is told as soon as the event is written.
            _ => Batch { buffer_size: BLOCKING_EVENTS, ..Batch::default() },
        };
        let queue = Arc::new(Queue::new(batch.buffer_size));
        let (end, done) = oneshot::channel();
        let events = queue.clone();
        std::thread::Builder::new().name("audit".into()).spawn(move || {
            write_all(&events, batch, output);
            let _ = end.send(());
        })?;
        Ok(Self { mode, queue, done: Mutex::new(Some(done)) })
    }

    /// Whether a request fails when its arrival cannot be recorded.
    pub(super) fn is_strict(&self) -> bool {
        self.mode == Mode::BlockingStrict
    }

    /// Hands an event over at once, whether or not somebody waits for the returned future. In batch mode nobody has to. Else it
    /// ends when the event is written, or at `deadline`; an event that is in the queue by then is written later.
    ///
    /// Its value: whether the event is written, or buffered in batch mode.
    pub(super) fn store(
        &self,
        event: Event,
        (share, flow): (Share, Flow),
        deadline: Instant,
    ) -> impl Future<Output = bool> + Send + use<> {
        let handed = self.hand_over(Waiting { event, share, flow, written: None }, deadline);
        async move {
            match handed {
                Handed::Buffered => true,
                Handed::Lost => false,
                Handed::Waiting(written) => {
                    matches!(timeout_at(deadline.into(), written).await, Ok(Ok(true)))
                }
            }
        }
    }

    fn hand_over(&self, waiting: Waiting, deadline: Instant) -> Handed {
        let share = waiting.share;
        if self.mode == Mode::Batch {
            return match self.queue.try_push(waiting, true) {
                Ok(()) => Handed::Buffered,
                Err(_) => lost("buffered", share, "the buffer of audit events is full"),
            };
        }
        let (tell, told) = oneshot::channel();
        let waiting = Waiting { written: Some(tell), ..waiting };
        let Err(waiting) = self.queue.try_push(waiting, false) else { return Handed::Waiting(told) };
        let (Some(permit), Ok(runtime)) = (self.queue.wait_outside(&waiting), Handle::try_current()) else {
            return lost("log", share, "too many audit events wait for a place in the queue");
        };
        let queue = self.queue.clone();
        runtime.spawn(async move {
            let _permit = permit;
            let deadline = deadline.max(Instant::now() + LEAST_WAIT);
            match timeout_at(deadline.into(), queue.push_later(*waiting)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => drop(lost("log", share, "the audit log is closed")),
                Err(_) => drop(lost("log", share, "the audit log does not take events in time")),
            }
        });
        Handed::Waiting(told)
    }

    /// Writes what is queued, and takes no more. What cannot be written in ten seconds is lost.
    pub(super) async fn close(&self) {
        self.queue.close();
        let Some(done) = self.done.lock().take() else { return };
        if tokio::time::timeout(CLOSING, done).await.is_err() {
            for share in Share::ALL {
                for _ in 0..self.queue.len(share) {
                    lost("log", share, "the audit log did not take all events before the stop");
                }
            }
        }
    }
}

/// Counts an event that is lost, and tells so from time to time.
fn lost(plugin: &str, share: Share, why: &str) -> Handed {
    static TOLD: Mutex<Option<Instant>> = Mutex::new(None);
    static SINCE: AtomicU64 = AtomicU64::new(0);
    metrics::AUDIT_ERRORS.with_label_values(&[plugin]).inc();
    metrics::AUDIT_DROPPED.with_label_values(&[share.name()]).inc();
    let events = SINCE.fetch_add(1, Ordering::Relaxed) + 1;
    let mut told = TOLD.lock();
    if told.is_none_or(|at| at.elapsed() >= TELL_INTERVAL) {
        *told = Some(Instant::now());
        SINCE.fetch_sub(events, Ordering::Relaxed);
        tracing::error!(plugin, requests = share.name(), events, why, "audit events were lost");
    }
    Handed::Lost
}

fn write_all(queue: &Queue, batch: Batch, mut output: Output) {
    let mut bucket = batch.throttle.map(|throttle| Bucket::new(throttle, Instant::now()));
    while let Some(entries) = queue.take(batch.max_size, batch.max_wait) {
        if let Some(bucket) = &mut bucket {
            queue.pause(bucket.take(Instant::now()));
        }
        for Entry { event, share, written: told, places } in entries {
            let written = output.write_event(event);
            drop(places);
            match &written {
                Ok(()) => metrics::AUDIT_EVENTS.inc(),
                Err(error) => drop(lost("log", share, &error.to_string())),
            }
            if let Some(told) = told {
                // The request may have given up waiting.
                let _ = told.send(written.is_ok());
            }
        }
    }
}

enum Output {
    Stdout,
    File(Rotated),
}

impl Output {
    fn write_event(&mut self, event: Event) -> io::Result<()> {
        // One event that cannot be printed must not end the thread.
        let line = catch_unwind(AssertUnwindSafe(|| event.line()));
        let line = line.map_err(|_| io::Error::other("an audit event cannot be printed"))?;
        let line = line.map_err(io::Error::other)?;
        match self {
            Self::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(&line)?;
                out.flush()
            }
            Self::File(file) => file.write(&line),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{BufRead, BufReader},
        process::Command,
    };

    use futures::{StreamExt, stream::FuturesUnordered};

    use super::*;

    const NO_ROTATION: Rotation = Rotation { most_bytes: u64::MAX, backups: 0, age: Duration::ZERO };
    /// What a pipe holds, and an event that needs a part of it.
    const PIPE: usize = 64 << 10;
    const EVENT: usize = 2 << 10;

    /// A log into a pipe that nobody reads until the test does.
    struct Slow {
        log: Log,
        pipe: BufReader<File>,
        _dir: tempfile::TempDir,
    }

    impl Slow {
        fn new(mode: Mode, batch: Batch) -> Self {
            let dir = tempfile::tempdir().expect("a directory");
            let path = dir.path().join("pipe");
            assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo").success());
            // Opened for both, so that neither side waits for the other.
            let pipe = File::options().read(true).write(true).open(&path).expect("opened");
            let log = Log::open(&path, NO_ROTATION, mode, batch).expect("a log");
            Self { log, pipe: BufReader::new(pipe), _dir: dir }
        }

        fn read(&mut self, events: usize) -> Vec<String> {
            let mut uris = Vec::new();
            while uris.len() < events {
                let mut line = String::new();
                self.pipe.read_line(&mut line).expect("a line");
                let event: serde_json::Value = serde_json::from_str(&line).expect("an event");
                uris.push(event["requestURI"].as_str().expect("a URI").trim_end_matches('x').to_owned());
            }
            uris
        }
    }

    fn event(name: &str) -> Event {
        Event::of_uri(&format!("/{name}{}", "x".repeat(EVENT)))
    }

    /// An event of one user.
    fn of(share: Share) -> (Share, Flow) {
        (share, Flow::User("alice".into()))
    }

    fn far() -> Instant {
        Instant::now() + Duration::from_secs(600)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn in_blocking_mode_every_request_waits_until_its_event_is_written() {
        const EVENTS: usize = 300;
        let mut slow = Slow::new(Mode::Blocking, Batch::default());
        let mut stored: FuturesUnordered<_> =
            (0..EVENTS).map(|n| slow.log.store(event(&format!("{n}-")), of(Share::Known), far())).collect();
        let mut written = 0;
        while written < PIPE / EVENT / 2 {
            assert_eq!(stored.next().await, Some(true));
            written += 1;
        }
        // Nobody reads the pipe: more than it holds cannot have been written, and nobody is told so.
        while let Some(told) = futures::FutureExt::now_or_never(stored.next()) {
            assert_eq!(told, Some(true));
            written += 1;
        }
        assert!(written <= PIPE / EVENT, "{written} events are said to be in {PIPE} bytes");
        let read = tokio::task::spawn_blocking(move || slow.read(EVENTS)).await.expect("read");
        assert_eq!(stored.filter(|stored| std::future::ready(*stored)).count().await, EVENTS - written);
        assert_eq!(read, (0..EVENTS).map(|n| format!("/{n}-")).collect::<Vec<_>>());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_event_whose_request_stopped_to_wait_is_written_later() {
        let mut slow = Slow::new(Mode::Blocking, Batch::default());
        let full: Vec<_> =
            (0..2 * PIPE / EVENT).map(|_| slow.log.store(event("-"), of(Share::Known), far())).collect();
        let soon = Instant::now() + Duration::from_millis(50);
        assert!(!slow.log.store(event("late-"), of(Share::Known), soon).await);
        drop(full);
        let events = 2 * PIPE / EVENT + 1;
        let read = tokio::task::spawn_blocking(move || slow.read(events)).await.expect("read");
        assert_eq!(read.last().map(String::as_str), Some("/late-"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn in_batch_mode_a_flood_of_refused_requests_displaces_no_other_event() {
        const KNOWN: usize = 100;
        let mut slow = Slow::new(Mode::Batch, Batch { buffer_size: KNOWN, ..Batch::default() });
        for n in 0..KNOWN {
            let mut noise = 0;
            for _ in 0..50 {
                noise += usize::from(slow.log.store(event("noise-"), of(Share::Refused), far()).await);
                noise += usize::from(slow.log.store(event("noise-"), of(Share::Throttled), far()).await);
            }
            assert!(noise < 100, "the flood is no flood");
            assert!(
                slow.log.store(event(&format!("{n}-")), of(Share::Known), far()).await,
                "{n} was displaced"
            );
        }
        let read = tokio::task::spawn_blocking(move || {
            let mut read = Vec::new();
            while read.len() < KNOWN {
                read.extend(slow.read(1).into_iter().filter(|uri| !uri.starts_with("/noise")));
            }
            read
        });
        assert_eq!(read.await.expect("read"), (0..KNOWN).map(|n| format!("/{n}-")).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn what_finds_no_place_in_the_buffer_is_counted() {
        let count = |share: Share| metrics::AUDIT_DROPPED.with_label_values(&[share.name()]).get();
        let before = Share::ALL.map(count);
        let slow = Slow::new(Mode::Batch, Batch { buffer_size: 10, ..Batch::default() });
        let mut lost = [0; 3];
        for _ in 0..100 {
            for (at, share) in Share::ALL.into_iter().enumerate() {
                lost[at] += u64::from(!slow.log.store(event("-"), of(share), far()).await);
            }
        }
        // The pipe and the thread that writes hold some beside the buffer.
        let held = PIPE / EVENT + 1;
        let least = [100 - 10 - held, 100 - 1 - held, 100 - 1 - held];
        assert!(lost.iter().zip(least).all(|(lost, least)| *lost as usize >= least), "{lost:?}");
        // Other tests of this process lose events, too.
        for (at, share) in Share::ALL.into_iter().enumerate() {
            assert!(count(share) >= before[at] + lost[at]);
        }
    }

    #[tokio::test]
    async fn what_cannot_be_written_is_told_and_counted() {
        let count = || metrics::AUDIT_ERRORS.with_label_values(&["log"]).get();
        for mode in [Mode::Blocking, Mode::BlockingStrict] {
            let before = count();
            let log = Log::open(Path::new("/dev/full"), NO_ROTATION, mode, Batch::default()).expect("a log");
            assert!(!log.store(event("-"), of(Share::Known), far()).await);
            assert!(count() > before);
        }
    }

    #[tokio::test]
    async fn a_stop_writes_what_is_queued_and_takes_no_more() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("audit.log");
        // It would wait for an hour for its second batch.
        let throttle = Some(super::super::delivery::Throttle { qps: 1.0 / 3600.0, burst: 1 });
        let batch = Batch { max_size: 2, max_wait: Duration::from_secs(3600), throttle, ..Batch::default() };
        let log = Log::open(&path, NO_ROTATION, Mode::Batch, batch).expect("a log");
        for n in 0..5 {
            assert!(log.store(event(&n.to_string()), of(Share::Known), far()).await);
        }
        log.close().await;
        assert_eq!(std::fs::read_to_string(&path).expect("read").lines().count(), 5);
        assert!(!log.store(event("late"), of(Share::Known), far()).await);
    }
}
