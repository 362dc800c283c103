//! Which Shoot is synchronized next: changes are gathered, failures wait longer each time. Pure but for the type of its times.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::parts::Parts;

/// How long changes are gathered and failures wait.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// A Shoot is synchronized when it has not changed for so long.
    pub quiet: Duration,
    /// A Shoot that changes all the time is synchronized after so long.
    pub longest: Duration,
    /// The wait after the first failure; it doubles with each further one.
    pub after_failure: Duration,
    /// The longest wait after a failure.
    pub after_failures: Duration,
    /// Every Shoot is synchronized after so long, whether anything was seen to change or not.
    pub resync: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            quiet: Duration::from_secs(2),
            longest: Duration::from_secs(10),
            after_failure: Duration::from_secs(1),
            after_failures: Duration::from_secs(300),
            resync: Duration::from_secs(1800),
        }
    }
}

/// Shoots that have changed, failed or are being synchronized, by the namespace of their control plane.
#[derive(Debug)]
pub struct Queue {
    timing: Timing,
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug, Default)]
struct Entry {
    /// The first and the last change that no synchronization has seen.
    changed: Option<(Instant, Instant)>,
    /// What these changes are about.
    parts: Parts,
    is_running: bool,
    /// The first change that the synchronization which runs has to see.
    running_since: Option<Instant>,
    failures: u32,
    not_before: Option<Instant>,
}

impl Entry {
    fn due(&self, timing: &Timing) -> Option<Instant> {
        let (first, last) = self.changed?;
        let due = (last + timing.quiet).min(first + timing.longest);
        (!self.is_running).then(|| self.not_before.map_or(due, |not_before| due.max(not_before)))
    }
}

impl Queue {
    /// Makes an empty queue.
    #[must_use]
    pub fn new(timing: Timing) -> Self {
        Self { timing, entries: BTreeMap::new() }
    }

    /// Records a change of some parts.
    pub fn touch(&mut self, namespace: &str, parts: Parts, now: Instant) {
        if !self.entries.contains_key(namespace) {
            self.entries.insert(namespace.to_owned(), Entry::default());
        }
        if let Some(entry) = self.entries.get_mut(namespace) {
            let first = entry.changed.map_or(now, |(first, _)| first);
            entry.changed = Some((first, now));
            entry.parts = entry.parts.union(parts);
        }
    }

    /// Takes the Shoot that is due for the longest time, with the parts that changed. It is not given again before [`Queue::end`].
    pub fn start(&mut self, now: Instant) -> Option<(String, Parts)> {
        let due =
            self.entries.iter_mut().filter_map(|(name, entry)| Some((entry.due(&self.timing)?, name, entry)));
        let (_, name, entry) = due.filter(|(due, ..)| *due <= now).min_by_key(|(due, ..)| *due)?;
        entry.running_since = entry.changed.map(|(first, _)| first);
        (entry.is_running, entry.changed) = (true, None);
        Some((name.clone(), std::mem::take(&mut entry.parts)))
    }

    /// When the next Shoot is due.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.entries.values().filter_map(|entry| entry.due(&self.timing)).min()
    }

    /// How many Shoots wait or are being synchronized.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no Shoot waits or is being synchronized.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Records the end of a synchronization, and gives the age of the first change that it has seen. One that failed is repeated for all
    /// parts, and has seen none.
    pub fn end(&mut self, namespace: &str, has_succeeded: bool, now: Instant) -> Option<Duration> {
        let entry = self.entries.get_mut(namespace)?;
        entry.is_running = false;
        let since = entry.running_since.take();
        if has_succeeded {
            (entry.failures, entry.not_before) = (0, None);
            if entry.changed.is_none() {
                self.entries.remove(namespace);
            }
            return since.map(|since| now - since);
        }
        let wait = self.timing.after_failure.saturating_mul(1 << entry.failures.min(16));
        entry.failures += 1;
        entry.not_before = Some(now + wait.min(self.timing.after_failures));
        let (first, _) = *entry.changed.get_or_insert((now, now));
        entry.changed = Some((since.map_or(first, |since| since.min(first)), now));
        entry.parts = Parts::ALL;
        None
    }

    /// Forgets a Shoot whose namespace is gone.
    pub fn forget(&mut self, namespace: &str) {
        self.entries.retain(|name, entry| name != namespace || entry.is_running);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[tokio::test]
    async fn changes_are_gathered_until_it_is_quiet() {
        let (start, mut queue) = (Instant::now(), Queue::new(Timing::default()));
        queue.touch("a", Parts::SECRETS, start);
        queue.touch("a", Parts::SECRETS, start + seconds(1));
        assert_eq!(queue.start(start + seconds(2)), None);
        assert_eq!(queue.next_due(), Some(start + seconds(3)));
        assert_eq!(queue.start(start + seconds(3)), Some(("a".to_owned(), Parts::SECRETS)));
        assert_eq!((queue.start(start + seconds(9)), queue.next_due()), (None, None), "it runs");
    }

    #[tokio::test]
    async fn shoot_that_never_rests_is_not_put_off_for_ever() {
        let (start, mut queue) = (Instant::now(), Queue::new(Timing::default()));
        let first = (0..30).find(|at| {
            let now = start + seconds(*at);
            queue.touch("a", Parts::SECRETS, now);
            queue.start(now).is_some()
        });
        assert_eq!(first, Some(10));
    }

    #[tokio::test]
    async fn change_during_a_run_brings_another_run() {
        let (start, mut queue) = (Instant::now(), Queue::new(Timing::default()));
        queue.touch("a", Parts::SECRETS, start);
        assert!(queue.start(start + seconds(2)).is_some());
        queue.touch("a", Parts::SECRETS, start + seconds(3));
        assert_eq!(queue.start(start + seconds(6)), None, "never two at once");
        queue.end("a", true, start + seconds(6));
        assert!(queue.start(start + seconds(6)).is_some());
        queue.end("a", true, start + seconds(7));
        assert!(queue.entries.is_empty());
    }

    #[tokio::test]
    async fn failures_wait_longer_each_time_up_to_a_limit() {
        let (mut now, mut queue) = (Instant::now(), Queue::new(Timing::default()));
        queue.touch("a", Parts::SECRETS, now);
        let mut waits = Vec::new();
        for _ in 0..12 {
            let due = queue.next_due().expect("it is repeated");
            waits.push((due - now).as_secs());
            now = due;
            assert!(queue.start(now).is_some());
            queue.end("a", false, now);
            // A change does not shorten the wait.
            queue.touch("a", Parts::SECRETS, now);
        }
        assert_eq!(waits, [2, 2, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        now = queue.next_due().expect("it is repeated");
        assert!(queue.start(now).is_some());
        queue.end("a", true, now);
        queue.touch("a", Parts::SECRETS, now);
        assert_eq!(queue.next_due(), Some(now + seconds(2)));
    }

    #[tokio::test]
    async fn shoot_that_waits_longest_comes_first() {
        let (start, mut queue) = (Instant::now(), Queue::new(Timing::default()));
        queue.touch("b", Parts::SECRETS, start);
        queue.touch("a", Parts::SECRETS, start + seconds(1));
        queue.touch("gone", Parts::SECRETS, start);
        queue.forget("gone");
        let now = start + seconds(60);
        assert_eq!(
            [queue.start(now), queue.start(now)],
            [Some(("b".to_owned(), Parts::SECRETS)), Some(("a".to_owned(), Parts::SECRETS))]
        );
        assert_eq!(queue.start(now), None);
    }

    #[tokio::test]
    async fn parts_are_gathered_and_all_are_repeated_after_a_failure() {
        let (start, mut queue) = (Instant::now(), Queue::new(Timing::default()));
        queue.touch("a", Parts::MACHINES, start);
        queue.touch("a", Parts::SECRETS, start);
        let now = start + seconds(60);
        assert_eq!(queue.start(now), Some(("a".to_owned(), Parts::MACHINES)));
        queue.touch("a", Parts::OBJECTS, now);
        queue.end("a", true, now);
        assert_eq!(queue.start(now + seconds(60)), Some(("a".to_owned(), Parts::OBJECTS)));
        queue.end("a", false, now + seconds(60));
        assert_eq!(queue.start(now + seconds(120)), Some(("a".to_owned(), Parts::ALL)));
    }
}
