//! A process that writes objects is killed at any moment: what it acknowledged is there, whole, and nothing by half.
//!
//! The test binary runs itself as the writer. State `n` of an object follows from its name and `n`, so a reader can tell
//! from the head what the payload must be.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, Stdio},
};

use super::*;

const DIR: &str = "REPOT_TEST_STORE_CRASH_DIR";
const TIERED: &str = "REPOT_TEST_STORE_CRASH_TIERED";
const ENDPOINT: &str = "REPOT_TEST_STORE_CRASH_ENDPOINT";
const WRITERS: u64 = 3;
const OBJECTS: u64 = 4;

/// Run as a test, this proves that writer and checker agree while nothing crashes; run by the tests below, it writes
/// until it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_and_checker_agree() {
    if let Some(dir) = std::env::var_os(DIR) {
        let options = embedded::Options { min_free_bytes: 0, ..embedded::Options::default() };
        let backend = Embedded::open(Path::new(&dir), options).await.unwrap();
        return write(Arc::new(backend), u64::MAX).await;
    }
    if let Some(dir) = std::env::var_os(TIERED) {
        return write(tiered_in(Path::new(&dir)).await, u64::MAX).await;
    }
    if let Some(endpoint) = std::env::var_os(ENDPOINT) {
        let options = backend::etcd::Options {
            lease: Duration::from_secs(2),
            ..backend::etcd::Options::new(vec![endpoint.into_string().unwrap()], "/repot.dev")
        };
        return write(Arc::new(Etcd::connect(options).await.unwrap()), u64::MAX).await;
    }
    let lab = Lab::embedded().await;
    write(lab.backend().await, 12).await;
    let mut acknowledged = (0..WRITERS).flat_map(|w| (0..OBJECTS).map(move |o| ((w, o), 3))).collect();
    check(&lab, &mut acknowledged).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embedded_keeps_what_was_acknowledged_when_killed() {
    kill_again_and_again(&Lab::embedded().await, 12).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_keep_what_was_acknowledged_when_their_writer_is_killed() {
    kill_again_and_again(&Lab::tiered().await, 8).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_keeps_what_was_acknowledged_when_its_writer_is_killed() {
    kill_again_and_again(&Lab::etcd().await, 8).await;
}

async fn kill_again_and_again(lab: &Lab, rounds: u64) {
    let mut acknowledged = HashMap::new();
    for round in 0..rounds {
        let mut child = spawn(lab);
        // At another moment each time, some while it still opens the store.
        let moment = Duration::from_micros((round * 104_729 * 7) % 1_000_000);
        let killer = std::thread::spawn({
            let id = child.id().to_string();
            let mut waiting = child.stderr.take().unwrap();
            move || {
                if round % 5 != 4 {
                    // The first line says that a write was acknowledged, however slow the machine is.
                    let _ = waiting.read(&mut [0; 1]);
                }
                std::thread::sleep(moment);
                assert!(Command::new("kill").args(["-9", &id]).status().unwrap().success());
            }
        });
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            note(&line.unwrap(), &mut acknowledged);
        }
        killer.join().unwrap();
        assert!(!child.wait().unwrap().success());
        check(lab, &mut acknowledged).await;
    }
    let written: u64 = acknowledged.values().sum();
    assert!(written >= rounds - rounds / 5, "hardly a write: {acknowledged:?}");
    clean(lab, acknowledged.len()).await;
}

fn spawn(lab: &Lab) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "store::crash::writer_and_checker_agree", "--nocapture", "--test-threads=1"]);
    match lab {
        Lab::Embedded(dir) => command.env(DIR, dir.path()),
        Lab::Tiered(dir) => command.env(TIERED, dir.path()),
        Lab::Etcd(process) => command.env(ENDPOINT, process.endpoint()),
    };
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Takes down `ack <writer> <object> <state> .`; the last line may be cut, others are the test harness's.
fn note(line: &str, acknowledged: &mut HashMap<(u64, u64), u64>) {
    let words: Vec<_> = line.split(' ').collect();
    if let ["ack", writer, object, state, "."] = words[..] {
        let object = (writer.parse().unwrap(), object.parse().unwrap());
        acknowledged.insert(object, state.parse().unwrap());
    }
}

async fn write(backend: Arc<dyn Backend>, count: u64) {
    let store = Store::open(backend, mk_keyring(), StoreOptions::default()).await.unwrap();
    println!(); // the test harness has left a line unfinished
    let writers: Vec<_> = (0..WRITERS).map(|w| tokio::spawn(write_as(store.clone(), w, count))).collect();
    for writer in writers {
        writer.await.unwrap();
    }
    store.close().await;
}

async fn write_as(store: Store, writer: u64, count: u64) {
    // Not always the same one first: some processes live for few writes.
    let mut first = 0;
    for object in 0..OBJECTS {
        first += u64::from(store.get(&object_key(writer, object)).await.unwrap().is_some());
    }
    for n in first..first.saturating_add(count) {
        let object = n % OBJECTS;
        let key = object_key(writer, object);
        let current = store.get(&key).await.unwrap();
        let state = current.as_ref().map_or(0, |current| label(current).parse::<u64>().unwrap()) + 1;
        let uid = Uuid::from_u128((writer << 32 | object).into());
        let draft = mk_draft(uid, &state.to_string(), content(writer, object, state));
        match current {
            Some(current) => store.update(&current, draft).await.unwrap(),
            None => store.create(&key, draft).await.unwrap(),
        };
        println!("ack {writer} {object} {state} .");
        if n == first {
            eprintln!("writes");
        }
    }
}

/// From 1 KiB to 4 MiB; one part stays the same between states, so that chunks are taken over.
fn content(writer: u64, object: u64, state: u64) -> Vec<Bytes> {
    let seed = writer * 100 + object;
    match state % 4 {
        0 => vec![mk_noise(seed * 1000 + state, 1024)],
        1 => vec![mk_noise(seed, 300_000), mk_noise(seed * 1000 + state, 100_000)],
        2 => vec![mk_noise(seed, 300_000), mk_noise(seed * 1000 + state, 3_900_000)],
        _ => vec![mk_noise(seed, 300_000), mk_machines(seed * 1000 + state, 30_000)],
    }
}

fn object_key(writer: u64, object: u64) -> Key {
    mk_key(&format!("w{writer}-{object}"))
}

/// Opens the store and holds it against what was acknowledged. What was found is from then on as good as acknowledged.
async fn check(lab: &Lab, acknowledged: &mut HashMap<(u64, u64), u64>) {
    let store = lab.open().await;
    for (writer, object) in (0..WRITERS).flat_map(|w| (0..OBJECTS).map(move |o| (w, o))) {
        let last = acknowledged.get(&(writer, object)).copied().unwrap_or(0);
        let Some(found) = store.get(&object_key(writer, object)).await.unwrap() else {
            assert_eq!(last, 0, "an acknowledged object is gone");
            continue;
        };
        let state: u64 = label(&found).parse().unwrap();
        assert!(state == last || state == last + 1, "state {state}, {last} was acknowledged");
        assert!(store.payload_bytes(&found).await.unwrap() == joined(&content(writer, object, state)));
        acknowledged.insert((writer, object), state);
    }
    store.close().await;
}

/// In the end the collector finds what the killed left, and nothing else.
async fn clean(lab: &Lab, objects: usize) {
    let store = lab.open().await;
    let begin = std::time::Instant::now();
    loop {
        let report = store.collect().await.unwrap();
        if report.in_flight == 0 && report.removed == 0 {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "intents of the dead do not go: {report:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let left = store.audit().await.unwrap();
    assert_eq!((left.removed, left.in_flight), (0, 0), "a manifest told of all garbage");
    let everything = store.list_cached(&mk_scope(None), None).await.unwrap();
    assert_eq!(everything.objects.len(), objects);
    for object in everything.objects {
        let object = object.unwrap();
        assert_eq!(store.payload_bytes(&object).await.unwrap().len() as u64, object.payload_len);
    }
    store.close().await;
}
