//! The embedded store after a power failure: the last write reached the disk only in parts.

use std::path::{Path, PathBuf};

use repot_storage::backend::{Backend, Embedded, Error, Op, Revision, Txn, embedded::Options};

use super::embedded::{noise, open, put};

/// A store of which the last commits can be damaged.
struct TornStore {
    dir: tempfile::TempDir,
    /// Where the last commit begins and ends in the journal.
    last: std::ops::Range<usize>,
    /// Where the one before begins.
    earlier: usize,
}

/// Three commits; the last writes small values and a large one.
async fn mk_scene() -> TornStore {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    put(&store, "/first", noise(1, 20_000)).await;
    let earlier = end(&journal(dir.path()));
    put(&store, "/kept", noise(2, 20_000)).await;
    let begin = end(&journal(dir.path()));
    let ops = vec![
        Op::Put("/last/a".into(), noise(3, 500)),
        Op::Put("/last/b".into(), noise(4, 50_000)),
        Op::Delete("/first".into()),
        Op::Put("/last/c".into(), noise(5, 500)),
    ];
    store.txn(Txn { compares: vec![], ops }).await.unwrap();
    let last = begin..end(&journal(dir.path()));
    // What is at rest now is taken before anything is closed or flushed for the occasion.
    let image = tempfile::tempdir().unwrap();
    copy(dir.path(), image.path());
    store.close().await;
    assert!(last.len() > 51_000);
    TornStore { dir: image, last, earlier }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.metadata().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

fn journal(dir: &Path) -> Vec<u8> {
    std::fs::read(journal_path(dir)).unwrap()
}

fn journal_path(dir: &Path) -> PathBuf {
    let all = std::fs::read_dir(dir.join("store")).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|extension| extension == "jnl")).max().unwrap()
}

/// The journal is a file of zeros that is filled from the start.
fn end(journal: &[u8]) -> usize {
    journal.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

impl TornStore {
    /// A copy of the store with a damaged journal.
    fn damaged(&self, damage: impl FnOnce(&mut Vec<u8>)) -> tempfile::TempDir {
        let copied = tempfile::tempdir().unwrap();
        copy(self.dir.path(), copied.path());
        let mut bytes = journal(copied.path());
        damage(&mut bytes);
        std::fs::write(journal_path(copied.path()), bytes).unwrap();
        copied
    }
}

/// What was acknowledged before is there; the last commit is there as a whole or not at all. Says which.
async fn check(dir: &Path) -> bool {
    let store = open(dir).await;
    assert_eq!(store.get("/kept".into(), None).await.unwrap().unwrap().value, noise(2, 20_000));
    let first = store.get("/first".into(), None).await.unwrap();
    let mut last = Vec::new();
    for (key, seed, len) in [("/last/a", 3, 500), ("/last/b", 4, 50_000), ("/last/c", 5, 500)] {
        let found = store.get(key.into(), None).await.unwrap();
        assert!(found.as_ref().is_none_or(|found| found.value == noise(seed, len)), "{key} is damaged");
        last.push(found.is_some());
    }
    let whole = first.is_none();
    assert_eq!(last, [whole; 3], "half a transaction");
    let newest = Revision(if whole { 3 } else { 2 });
    assert_eq!(store.revision().await.unwrap(), newest);
    assert_eq!(put(&store, "/next", noise(6, 20_000)).await, Revision(newest.0 + 1));
    store.close().await;
    let store = open(dir).await;
    assert_eq!(store.get("/next".into(), None).await.unwrap().unwrap().value, noise(6, 20_000));
    whole
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_undamaged_journal_keeps_everything() {
    let world = mk_scene().await;
    assert!(check(world.damaged(|_| {}).path()).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_ends_too_early_is_discarded() {
    let world = mk_scene().await;
    let len = world.last.len();
    for part in [0, 1, 5, 13, 14, 60, 600, len / 2, len - 12, len - 4, len - 1] {
        let at = world.last.start + part;
        let cut = world.damaged(|journal| journal.truncate(at));
        assert!(!check(cut.path()).await, "cut at {part}");
        let zeros = world.damaged(|journal| journal[at..].fill(0));
        assert!(!check(zeros.path()).await, "zeros from {part}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_with_a_hole_is_discarded() {
    let world = mk_scene().await;
    for page in world.last.start / 4096..=world.last.end / 4096 {
        let from = (page * 4096).max(world.last.start);
        let to = ((page + 1) * 4096).min(world.last.end);
        let hole = world.damaged(|journal| journal[from..to].fill(0));
        assert!(!check(hole.path()).await, "a hole from {from} to {to}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_before_an_acknowledged_write_is_not_swept_under_the_carpet() {
    let world = mk_scene().await;
    // Within a value of the commit before the last: what follows it is intact and was acknowledged.
    let damaged = world.damaged(|journal| journal[world.earlier + 10_000] ^= 1);
    let refused = Embedded::open(damaged.path(), Options::default()).await.unwrap_err();
    assert!(matches!(refused, Error::Corrupt(_)), "{refused:?}");
    assert!(refused.to_string().contains(&damaged.path().display().to_string()), "{refused}");
}
