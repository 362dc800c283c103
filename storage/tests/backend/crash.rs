//! The embedded store under `kill -9`: what was acknowledged stays, nothing is there by half.
//!
//! A test runs its own binary again, with nothing but itself, as the process that is killed. Every writer numbers its transactions; a transaction with number `n` writes
//! `seq` and two values that follow from `n`, so a checker can tell from `seq` what all the rest must be.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::StreamExt;
use repot_storage::backend::{
    Backend, Compare, Embedded, Error, Op, Outcome, RangeRequest, Revision, Txn, WatchItem,
    embedded::Options, prefix_range,
};

use super::embedded::{noise, open, put, put_mib};

const DIR: &str = "REPOT_TEST_CRASH_DIR";
const WRITERS: u64 = 4;
const ROUNDS: u64 = 32;
/// Values of one writer; older ones are overwritten.
const SLOTS: u64 = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_and_checker_agree() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 60).await;
    let acknowledged = (0..WRITERS).map(|writer| (writer, (60, Revision(0)))).collect();
    check(dir.path(), &acknowledged).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_what_was_acknowledged_when_killed() {
    if let Some(dir) = victim() {
        return write(&dir, u64::MAX).await;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = HashMap::new();
    for round in 0..ROUNDS {
        let mut child = spawn("keeps_what_was_acknowledged_when_killed", dir.path());
        // Killed at another moment each time; some are within the start, before the first answer.
        let moment = Duration::from_micros((round * 7919) % 120_000);
        let killer = kill_after(&mut child, round % 5 != 0, moment);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for line in lines {
            note(&line.unwrap(), &mut acknowledged);
        }
        killer.join().unwrap();
        child.wait().unwrap();
        // What is there now was there at the start of the next process, acknowledged or not.
        acknowledged = check(dir.path(), &acknowledged).await;
    }
    assert!(
        acknowledged.values().all(|(last, _)| *last > 10),
        "hardly anything was written: {acknowledged:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_goes_on_where_it_was_killed() {
    if let Some(dir) = victim() {
        let store = open(&dir).await;
        eprintln!("compacting");
        return store.compact(store.revision().await.unwrap()).await.unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    // How long a compaction takes depends on the disk: go on until some were met at work.
    let (mut begun, mut cut, mut round) = (0, 0, 0u64);
    while begun < 3 || cut < 3 || round < 8 {
        assert!(round < 60, "{begun} began, {cut} were cut");
        round += 1;
        let store = open(dir.path()).await;
        for part in 0..40u64 {
            let ops = (0..100).map(|key| Op::Put(format!("/k/{key:02}").into(), noise(part, 20))).collect();
            store.txn(Txn { compares: vec![], ops }).await.unwrap();
        }
        let (before, newest) = (store.oldest().await.unwrap(), store.revision().await.unwrap());
        store.close().await;
        let mut child = spawn("compaction_goes_on_where_it_was_killed", dir.path());
        let killer = kill_after(&mut child, true, Duration::from_micros(round * 1700 % 20_000));
        cut += usize::from(!child.wait().unwrap().success());
        killer.join().unwrap();

        let store = open(dir.path()).await;
        let oldest = store.oldest().await.unwrap();
        assert!([before, newest].contains(&oldest));
        begun += usize::from(oldest == newest);
        check_keys(&store, newest).await;
        store.compact(newest).await.unwrap();
        check_keys(&store, newest).await;
        assert_eq!(store.revision().await.unwrap(), newest);
        store.close().await;
    }
}

async fn check_keys(store: &Embedded, newest: Revision) {
    let all =
        RangeRequest { keys: prefix_range(b""), at: Some(newest), limit: 0, max_bytes: 0, keys_only: false };
    let found = store.range(all).await.unwrap().kvs;
    assert_eq!(found.len(), 100);
    assert!(found.iter().all(|found| found.modified == newest && found.value == noise(39, 20)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opens_quickly_after_a_crash_whatever_its_size() {
    if let Some(dir) = victim() {
        let store = open(&dir).await;
        for mib in 0.. {
            put_mib(&store, mib * 4).await;
            if mib == 256 {
                eprintln!("filled");
            }
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let mut child = spawn("opens_quickly_after_a_crash_whatever_its_size", dir.path());
    kill_after(&mut child, true, Duration::from_millis(30)).join().unwrap();
    child.wait().unwrap();
    let begin = Instant::now();
    let store = open(dir.path()).await;
    let found = store.get("/chunks/000003".into(), None).await.unwrap().unwrap();
    let took = begin.elapsed();
    assert!(found.value == noise(3, 256 << 10));
    assert!(store.get("/chunks/001024".into(), None).await.unwrap().is_some(), "the store was not filled");
    assert!(took < Duration::from_secs(1), "the first answer took {took:?}");
}

/// What a full disk or a dying one does: from some point on, no write to the journal succeeds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn takes_no_more_writes_after_one_failed() {
    const NAME: &str = "takes_no_more_writes_after_one_failed";
    if let Some(dir) = victim() {
        return write_until_it_fails(&dir).await;
    }
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).await.close().await;
    // The journal has its length already; the limit, in KiB or half of that, is on where may be written. The signal that
    // would end the process is ignored, so that the write fails instead.
    let script = "trap '' XFSZ; ulimit -f 600; exec \"$@\"";
    let me = std::env::current_exe().unwrap();
    let output = Command::new("bash")
        .args([
            "-c",
            script,
            "bash",
            me.to_str().unwrap(),
            "--exact",
            &format!("backend::crash::{NAME}"),
            "--nocapture",
        ])
        .env(DIR, dir.path())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told} {}", String::from_utf8_lossy(&output.stderr));
    let kept: u64 = told.lines().find_map(|line| line.split_once("kept ")?.1.parse().ok()).expect("it tells");
    let store = open(dir.path()).await;
    for number in 1..=kept {
        let found = store.get(format!("/k/{number}").into(), None).await.unwrap();
        assert!(found.is_some_and(|found| found.value == noise(number, 3000)), "{number} of {kept} is lost");
    }
    assert_eq!(store.get(format!("/k/{}", kept + 2).into(), None).await.unwrap(), None);
    put(&store, "/again", "writes".into()).await;
}

async fn write_until_it_fails(dir: &Path) {
    let store = open(dir).await;
    let txn = |number: u64| {
        let op = Op::Put(format!("/k/{number}").into(), noise(number, 3000));
        store.txn(Txn { compares: vec![], ops: vec![op] })
    };
    let mut number = 1;
    let failed = loop {
        match txn(number).await {
            Ok(_) => number += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(failed, Error::Unknown(_)), "{failed:?}");
    // A smaller one would succeed, were it tried.
    let refused = store.txn(Txn { compares: vec![], ops: vec![Op::Put("/small".into(), "x".into())] }).await;
    assert!(matches!(&refused, Err(Error::Unavailable(why)) if why.contains("opened again")), "{refused:?}");
    assert!(matches!(txn(number + 1).await, Err(Error::Unavailable(_))));
    // What was acknowledged can still be read.
    assert!(store.get(format!("/k/{}", number - 1).into(), None).await.unwrap().is_some());
    println!("\nkept {}", number - 1);
}

/// The directory to work on in the process that is to be killed.
fn victim() -> Option<PathBuf> {
    std::env::var_os(DIR).map(PathBuf::from)
}

/// Runs one test of this file again as a process of its own.
fn spawn(test: &str, dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("backend::crash::{test}"), "--nocapture", "--test-threads=1"])
        .env(DIR, dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Kills the process some time after it was started, or after it said the first thing on stderr.
fn kill_after(child: &mut Child, speaks: bool, moment: Duration) -> JoinHandle<()> {
    let id = child.id().to_string();
    let mut words = child.stderr.take().unwrap();
    std::thread::spawn(move || {
        if speaks {
            words.read_exact(&mut [0; 1]).unwrap();
        }
        // Not a wait for something to happen: the moment is what the test is about.
        std::thread::sleep(moment);
        // It may have ended by itself.
        let _ = Command::new("kill").args(["-9", &id]).stderr(Stdio::null()).status();
    })
}

/// Takes down `ack <writer> <number> <revision>`. The last line may be cut, and the test harness writes
/// in front of the first.
fn note(line: &str, acknowledged: &mut HashMap<u64, (u64, Revision)>) {
    let Some(at) = line.find("ack ") else { return };
    let words: Vec<_> = line[at..].split(' ').collect();
    if let ["ack", writer, number, revision, "."] = words[..] {
        let entry = (number.parse().unwrap(), Revision(revision.parse().unwrap()));
        acknowledged.insert(writer.parse().unwrap(), entry);
    }
}

async fn write(dir: &Path, count: u64) {
    let store = Arc::new(Embedded::open(dir, Options::default()).await.unwrap());
    eprintln!("writing");
    let writers = (0..WRITERS).map(|writer| tokio::spawn(write_as(Arc::clone(&store), writer, count)));
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    store.close().await;
}

async fn write_as(store: Arc<Embedded>, writer: u64, count: u64) {
    let seq = seq_key(writer);
    let (mut number, mut modified) = match store.get(seq.clone(), None).await.unwrap() {
        Some(found) => (parse(&found.value), found.modified),
        None => (0, Revision(0)),
    };
    for _ in 0..count {
        number += 1;
        let mut ops = vec![Op::Put(seq.clone(), number.to_string().into())];
        for part in ["a", "b"] {
            ops.push(Op::Put(slot_key(writer, part, number), content(writer, part, number)));
        }
        // Odd ones remove a key and even ones put it, so that removals are under test too.
        ops.push(match number % 2 {
            0 => Op::Put(format!("/w/{writer}/even").into(), number.to_string().into()),
            _ => Op::Delete(format!("/w/{writer}/even").into()),
        });
        let compares = vec![Compare::ModifiedAt(seq.clone(), modified)];
        let outcome = store.txn(Txn { compares, ops }).await.unwrap();
        let Outcome::Committed(revision) = outcome else { panic!("nobody else writes here") };
        modified = revision;
        println!("ack {writer} {number} {revision} .");
        if writer == 0 && number.is_multiple_of(50) {
            store.compact(Revision(revision.0 - 20)).await.unwrap();
        }
    }
}

/// Opens the store and holds it against what was acknowledged. Gives what is there.
async fn check(dir: &Path, acknowledged: &HashMap<u64, (u64, Revision)>) -> HashMap<u64, (u64, Revision)> {
    let store = Embedded::open(dir, Options::default()).await.unwrap();
    let mut present = HashMap::new();
    for writer in 0..WRITERS {
        let found = store.get(seq_key(writer), None).await.unwrap();
        let number = found.as_ref().map_or(0, |found| parse(&found.value));
        let (last, revision) = acknowledged.get(&writer).copied().unwrap_or_default();
        assert!(number >= last, "writer {writer}: {last} was acknowledged, {number} is there");
        assert!(number <= last + 1, "writer {writer}: {number} after {last}");
        let modified = found.map_or(Revision(0), |found| found.modified);
        assert!(modified >= revision);
        check_values(&store, writer, number).await;
        present.insert(writer, (number, modified));
    }
    check_log(&store, &present).await;
    store.close().await;
    present
}

async fn check_values(store: &Embedded, writer: u64, number: u64) {
    for latest in number.saturating_sub(SLOTS - 1).max(1)..=number {
        for part in ["a", "b"] {
            let found = store.get(slot_key(writer, part, latest), None).await.unwrap();
            let found =
                found.unwrap_or_else(|| panic!("writer {writer}: {part} of {latest} of {number} is missing"));
            assert!(
                found.value == content(writer, part, latest),
                "writer {writer}: {part} of {latest} differs"
            );
        }
    }
    let even = store.get(format!("/w/{writer}/even").into(), None).await.unwrap();
    let expected = (number.is_multiple_of(2) && number > 0).then(|| number.to_string());
    assert_eq!(even.map(|found| found.value), expected.map(Bytes::from));
}

/// The log since the last compaction tells whole transactions, numbered without a gap, up to what is present.
async fn check_log(store: &Embedded, present: &HashMap<u64, (u64, Revision)>) {
    let (oldest, newest) = (store.oldest().await.unwrap(), store.revision().await.unwrap());
    let mut stream = store.watch("/w/".into(), oldest, Duration::from_millis(1)).await.unwrap();
    let mut last: HashMap<u64, u64> = HashMap::new();
    loop {
        match stream.next().await.unwrap().unwrap() {
            WatchItem::Progress(revision) if revision >= newest => break,
            WatchItem::Progress(_) => {}
            WatchItem::Events(events) => {
                for transaction in events.chunk_by(|a, b| a.revision == b.revision) {
                    // The first removal of a key that was never there is no change.
                    assert!(transaction.len() == 4 || transaction.len() == 3, "{transaction:?}");
                    let seq = transaction.iter().find(|event| event.key.ends_with(b"/seq")).unwrap();
                    let writer = u64::from(seq.key[3] - b'0');
                    let number = parse(&seq.now.as_ref().unwrap().value);
                    assert!(last.insert(writer, number).is_none_or(|before| before + 1 == number));
                }
            }
        }
    }
    for (writer, number) in last {
        assert_eq!(present[&writer].0, number);
    }
    let all = RangeRequest {
        keys: prefix_range(b"/w/"),
        at: Some(newest),
        limit: 0,
        max_bytes: 0,
        keys_only: true,
    };
    assert!(store.range(all).await.unwrap().kvs.iter().all(|found| found.modified <= newest));
}

fn seq_key(writer: u64) -> Bytes {
    format!("/w/{writer}/seq").into()
}

fn slot_key(writer: u64, part: &str, number: u64) -> Bytes {
    format!("/w/{writer}/{part}/{}", number % SLOTS).into()
}

/// Small ones and large ones, so that both ways of resting are under test.
fn content(writer: u64, part: &str, number: u64) -> Bytes {
    let len = [10, 700, 5_000, 60_000][(number % 4) as usize];
    format!("{writer}{part}{number} ").into_bytes().into_iter().cycle().take(len).collect()
}

fn parse(value: &[u8]) -> u64 {
    std::str::from_utf8(value).unwrap().parse().unwrap()
}
