//! Small values that were read lately, as they are now: reading one of them again takes neither the disk nor another thread.
//!
//! What is in here is the newest version of its key at every moment. The committer changes it together with the newest revision,
//! under the lock that readers take.

use bytes::Bytes;
use parking_lot::Mutex;
use quick_cache::{Weighter, unsync::Cache};

use super::{
    super::{KeyValue, Revision},
    layout::Head,
};

/// Longer values are not kept, in bytes.
const LARGEST: usize = 32 << 10;
/// What an entry takes beside its key and value, in bytes.
const OVERHEAD: usize = 160;
/// How long a value usually is, in bytes: for the first size of the table.
const USUAL: u64 = 2 << 10;

/// Values by key, each of them the newest version.
pub(super) struct Recent(Mutex<Inner>);

struct Inner {
    newest: Revision,
    values: Cache<Bytes, KeyValue, Weight>,
}

#[derive(Clone)]
struct Weight;

impl Weighter<Bytes, KeyValue> for Weight {
    fn weight(&self, key: &Bytes, kv: &KeyValue) -> u64 {
        (2 * key.len() + kv.value.len() + OVERHEAD) as u64
    }
}

/// A key that a transaction has changed, and its value; of a removed one the value is empty.
pub(super) struct Change {
    pub(super) key: Bytes,
    pub(super) head: Head,
    pub(super) value: Bytes,
}

impl Recent {
    /// None yet, in a store whose newest revision is this. `bytes`: how much is kept.
    pub(super) fn new(newest: Revision, bytes: u64) -> Self {
        let items = usize::try_from(bytes / USUAL).unwrap_or(usize::MAX);
        Self(Mutex::new(Inner { newest, values: Cache::with_weighter(items, bytes, Weight) }))
    }

    /// The value of a key as of the newest revision, and that revision. `None`: it is not in here.
    pub(super) fn get(&self, key: &Bytes) -> Option<(KeyValue, Revision)> {
        let inner = self.0.lock();
        inner.values.get(key).map(|kv| (kv.clone(), inner.newest))
    }

    /// Keeps what a read found that saw revision `at`; not where anything was written since, which it may not have seen.
    pub(super) fn keep(&self, kv: &KeyValue, at: Revision) {
        if kv.value.len() > LARGEST {
            return;
        }
        let key = copied(&kv.key);
        let kept = KeyValue { key: key.clone(), value: copied(&kv.value), ..kv.clone() };
        let mut inner = self.0.lock();
        if inner.newest == at {
            inner.values.insert(key, kept);
        }
    }

    /// Makes the changes of a group known, and its revision. `set_newest`: makes the revision known elsewhere; who reads it there
    /// finds the changes in here.
    pub(super) fn publish(&self, newest: Revision, changes: Vec<Change>, set_newest: impl FnOnce()) {
        let mut inner = self.0.lock();
        for Change { key, head, value } in changes {
            let Some((key, _)) = inner.values.remove(&key) else { continue };
            if !head.removed && value.len() <= LARGEST {
                let (created, modified) = (Revision(head.created), Revision(head.modified));
                let kv = KeyValue { key: key.clone(), value: copied(&value), created, modified };
                inner.values.insert(key, kv);
            }
        }
        inner.newest = newest;
        set_newest();
    }
}

/// Bytes of their own: a slice of a larger buffer would keep all of that in memory.
fn copied(slice: &Bytes) -> Bytes {
    Bytes::copy_from_slice(slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kv(key: &'static str, value: &'static str, modified: u64) -> KeyValue {
        let (key, value) = (Bytes::from_static(key.as_bytes()), Bytes::from_static(value.as_bytes()));
        KeyValue { key, value, created: Revision(1), modified: Revision(modified) }
    }

    fn put(key: &'static str, value: Vec<u8>, revision: u64) -> Change {
        let head = Head { removed: false, created: 1, ..Head::removal(revision, 0) };
        Change { key: Bytes::from_static(key.as_bytes()), head, value: value.into() }
    }

    fn value(recent: &Recent, key: &'static str) -> Option<(Bytes, u64, u64)> {
        let (kv, newest) = recent.get(&Bytes::from_static(key.as_bytes()))?;
        Some((kv.value, kv.modified.0, newest.0))
    }

    #[test]
    fn what_was_read_is_current_after_every_write() {
        let recent = Recent::new(Revision(3), 1 << 20);
        assert_eq!(value(&recent, "a"), None);
        recent.keep(&kv("a", "one", 2), Revision(3));
        assert_eq!(value(&recent, "a"), Some((Bytes::from_static(b"one"), 2, 3)));
        recent.publish(Revision(4), vec![put("b", b"x".to_vec(), 4)], || ());
        assert_eq!(value(&recent, "a"), Some((Bytes::from_static(b"one"), 2, 4)));
        assert_eq!(value(&recent, "b"), None, "what nobody reads is not kept");
        let changes = vec![put("a", b"two".to_vec(), 5), put("a", b"three".to_vec(), 6)];
        recent.publish(Revision(6), changes, || ());
        assert_eq!(value(&recent, "a"), Some((Bytes::from_static(b"three"), 6, 6)));
        let removed = Change { head: Head::removal(7, 0), ..put("a", Vec::new(), 7) };
        recent.publish(Revision(7), vec![removed], || ());
        assert_eq!(value(&recent, "a"), None);
    }

    #[test]
    fn a_read_that_may_have_missed_a_write_is_not_kept() {
        let recent = Recent::new(Revision(3), 1 << 20);
        recent.publish(Revision(4), vec![put("a", b"new".to_vec(), 4)], || ());
        recent.keep(&kv("a", "old", 2), Revision(3));
        assert_eq!(value(&recent, "a"), None);
    }

    #[test]
    fn long_values_are_not_kept_and_all_together_stay_within_their_bytes() {
        let recent = Recent::new(Revision(1), 100_000);
        let long = KeyValue { value: vec![0; LARGEST + 1].into(), ..kv("long", "", 1) };
        recent.keep(&long, Revision(1));
        assert_eq!(value(&recent, "long"), None);
        recent.keep(&kv("a", "short", 1), Revision(1));
        recent.publish(Revision(2), vec![put("a", vec![0; LARGEST + 1], 2)], || ());
        assert_eq!(value(&recent, "a"), None, "an old value stayed where the new one is too long");
        for number in 0..1000 {
            let key = Bytes::from(format!("key-{number}"));
            recent.keep(&KeyValue { key, value: vec![0; 1000].into(), ..kv("", "", 1) }, Revision(2));
        }
        let weight = recent.0.lock().values.weight();
        assert!((50_000..=100_000).contains(&weight), "{weight}");
    }

    #[test]
    fn a_slice_does_not_keep_its_buffer_in_memory() {
        let recent = Recent::new(Revision(1), 1 << 20);
        let buffer = Bytes::from(vec![7; 1 << 20]);
        recent.keep(
            &KeyValue { value: buffer.slice(..10), key: buffer.slice(..3), ..kv("", "", 1) },
            Revision(1),
        );
        assert!(buffer.is_unique(), "a value that was read holds its buffer");
        let head = Head { removed: false, created: 1, ..Head::removal(2, 0) };
        let change = Change { key: buffer.slice(..3), head, value: buffer.slice(..20) };
        recent.publish(Revision(2), vec![change], || ());
        assert!(buffer.is_unique(), "a value that was written holds its buffer");
        assert_eq!(recent.get(&Bytes::from_static(&[7, 7, 7])).map(|(kv, _)| kv.value.len()), Some(20));
    }

    #[test]
    fn who_reads_a_revision_finds_its_changes() {
        let recent = Recent::new(Revision(1), 1 << 20);
        recent.keep(&kv("a", "old", 1), Revision(1));
        let told = Mutex::new(false);
        recent.publish(Revision(2), vec![put("a", b"new".to_vec(), 2)], || {
            assert!(recent.0.try_lock().is_none(), "others read between the changes and their revision");
            *told.lock() = true;
        });
        assert!(*told.lock());
        assert_eq!(value(&recent, "a"), Some((Bytes::from_static(b"new"), 2, 2)));
    }
}
