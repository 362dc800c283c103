//! A thread that keeps packets of a network for a while, as a long way does: nftables hands them over.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use nfq::{Message, Queue, Verdict};

use super::wire::Wire;

/// How exact the delay is.
const TICK: Duration = Duration::from_millis(1);
/// Packets that may be kept at a time; further ones pass at once.
const MOST: u32 = 16_384;
/// The number of the next queue. Numbers are those of a network, and no network gets so many.
static NEXT: AtomicU16 = AtomicU16::new(1);

/// Keeps packets of one queue until it is dropped; then they pass at once.
pub(super) struct SlowPackets {
    number: u16,
    stop: Arc<AtomicBool>,
}

impl SlowPackets {
    /// Takes the packets that rules of the hub send to its queue.
    pub(super) fn start(wire: &Wire, delay: Duration) -> Result<Self> {
        let (number, stop) = (NEXT.fetch_add(1, Ordering::Relaxed), Arc::new(AtomicBool::new(false)));
        let mut queue = wire.within(move || {
            let mut queue = Queue::open()?;
            queue.bind(number)?;
            queue.set_queue_max_len(number, MOST)?;
            queue.set_fail_open(number, true)?;
            queue.set_nonblocking(true);
            Ok(queue)
        })?;
        let stopped = stop.clone();
        let work = move || {
            let mut kept = VecDeque::new();
            while !stopped.load(Ordering::Relaxed) {
                if pass_on(&mut queue, &mut kept, delay).is_err() {
                    return;
                }
                thread::sleep(TICK);
            }
            // The queue ends with the thread, and the kernel drops what is in it.
            drop(pass_on(&mut queue, &mut kept, Duration::ZERO));
        };
        let spawned = thread::Builder::new().name("slow-packets".to_owned()).spawn(work);
        spawned.map_err(|error| anyhow!("no thread for packets: {error}"))?;
        Ok(Self { number, stop })
    }

    /// The number of the queue.
    pub(super) fn number(&self) -> u16 {
        self.number
    }

    /// The name of the table whose rules lead to it.
    pub(super) fn table(&self) -> String {
        format!("slow_{}", self.number)
    }
}

impl Drop for SlowPackets {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Takes what has come, and lets go what has been kept for long enough.
fn pass_on(
    queue: &mut Queue,
    kept: &mut VecDeque<(Instant, Message)>,
    delay: Duration,
) -> std::io::Result<()> {
    let now = Instant::now();
    loop {
        match queue.recv() {
            Ok(message) => kept.push_back((now, message)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            // Packets came faster than they were taken; those are lost, as on a real way.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => break,
            Err(error) => return Err(error),
        }
    }
    while kept.front().is_some_and(|(came, _)| now.duration_since(*came) >= delay) {
        if let Some((_, mut message)) = kept.pop_front() {
            message.set_verdict(Verdict::Accept);
            queue.verdict(message)?;
        }
    }
    Ok(())
}
