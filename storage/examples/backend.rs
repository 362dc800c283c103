//! Measures a backend: `commits`, `chunks`, `fill <MiB>`, `crash <MiB>`, `open`, `churn`, each with `--dir DIR` for the
//! embedded one or `--etcd URL`.
//!
//! `crash` fills the store and ends itself by SIGKILL in the middle of a write; `open` then tells how long it takes
//! until the first answer; `churn` overwrites and compacts again and again.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use repot_storage::backend::{
    Backend, Embedded, Etcd, Op, RangeRequest, Result, Txn, embedded::Options, etcd, prefix_range,
};

const CHUNK: usize = 256 << 10;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let dir = option(&arguments, "--dir").unwrap_or_else(|| "target/backend-bench".into());
    let mib = arguments.get(1).and_then(|text| text.parse().ok()).unwrap_or(120);
    let begin = Instant::now();
    let store: Arc<dyn Backend> = match option(&arguments, "--etcd") {
        Some(url) => Arc::new(Etcd::connect(etcd::Options::new(vec![url], "/measured")).await?),
        None => Arc::new(Embedded::open(&dir, Options::default()).await?),
    };
    println!("open: {:?}", begin.elapsed());
    match arguments.first().map(String::as_str) {
        Some("commits") => {
            commits(&store, 1, 2000).await?;
            commits(&store, 16, 1000).await?;
        }
        Some("chunks") => chunks(&store).await?,
        Some("fill") => fill(&store, mib).await?,
        Some("crash") => crash(store, mib).await?,
        Some("open") => open(&store, begin).await?,
        Some("churn") => churn(&store).await?,
        _ => println!("usage: backend commits|chunks|fill|crash|open|churn [MiB] [--dir DIR]"),
    }
    Ok(())
}

fn option(arguments: &[String], name: &str) -> Option<String> {
    let at = arguments.iter().position(|argument| argument == name)?;
    arguments.get(at + 1).cloned()
}

/// Bytes that do not compress.
fn noise(seed: u64, len: usize) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = (0..len.div_ceil(8)).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(len).collect::<Vec<_>>().into()
}

fn puts(prefix: &str, from: usize, count: usize, len: usize) -> Txn {
    let put = |index: usize| Op::Put(format!("{prefix}/{index:08}").into(), noise(index as u64, len));
    Txn { compares: vec![], ops: (from..from + count).map(put).collect() }
}

async fn commits(store: &Arc<dyn Backend>, writers: usize, each: usize) -> Result<()> {
    let begin = Instant::now();
    let mut tasks = Vec::new();
    for writer in 0..writers {
        let store = Arc::clone(store);
        tasks.push(tokio::spawn(async move {
            let mut times = Vec::new();
            for index in 0..each {
                let txn = puts(&format!("/small/{writer}"), index, 1, 1024);
                let begin = Instant::now();
                store.txn(txn).await?;
                times.push(begin.elapsed());
            }
            Ok::<_, repot_storage::backend::Error>(times)
        }));
    }
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.expect("the writer did not panic")?);
    }
    times.sort();
    let rate = times.len() as f64 / begin.elapsed().as_secs_f64();
    println!("commits of 1 KiB, {writers} writers: {rate:.0}/s, {}", spread(&times));
    Ok(())
}

async fn chunks(store: &Arc<dyn Backend>) -> Result<()> {
    let each = (store.limits().txn_bytes / (CHUNK + 64)).min(4);
    let txns: Vec<_> = (0..100).map(|round| puts("/chunks", round * each, each, CHUNK)).collect();
    let (begin, mut times) = (Instant::now(), Vec::new());
    for txn in txns {
        let begin = Instant::now();
        store.txn(txn).await?;
        times.push(begin.elapsed());
    }
    times.sort();
    let rate = 26.2144 * each as f64 / begin.elapsed().as_secs_f64();
    println!("put of {each} x 256 KiB: {rate:.0} MB/s, {}", spread(&times));
    let at = store.revision().await?;
    let mut times = Vec::new();
    for index in (0..100 * each).rev() {
        let begin = Instant::now();
        let found = store.get(format!("/chunks/{index:08}").into(), Some(at)).await?;
        times.push(begin.elapsed());
        assert_eq!(found.expect("it was put").value.len(), CHUNK);
    }
    times.sort();
    println!("get of 256 KiB: {}", spread(&times));
    let begin = Instant::now();
    let keys = (100..140).map(|index| format!("/chunks/{index:08}").into()).collect();
    let found = store.get_many(keys, at).await?;
    println!("get_many of {} x 256 KiB: {:?}", found.iter().flatten().count(), begin.elapsed());
    println!("resident {} MiB", resident_mib());
    Ok(())
}

async fn fill(store: &Arc<dyn Backend>, mib: usize) -> Result<()> {
    let (begin, mut worst, mut peak) = (Instant::now(), Duration::ZERO, 0);
    for round in 0..mib {
        let txn = puts("/fill", round * 4, 4, CHUNK);
        let begin = Instant::now();
        store.txn(txn).await?;
        worst = worst.max(begin.elapsed());
        peak = peak.max(resident_mib());
    }
    let rate = mib as f64 * 1.048_576 / begin.elapsed().as_secs_f64();
    println!("filled {mib} MiB: {rate:.0} MB/s, worst commit {worst:?}");
    println!(
        "resident {} MiB, at most {peak} MiB, at rest {} MiB",
        resident_mib(),
        store.size().await? >> 20
    );
    tokio::time::sleep(Duration::from_secs(3)).await;
    println!("after a rest: resident {} MiB, at rest {} MiB", resident_mib(), store.size().await? >> 20);
    Ok(())
}

async fn crash(store: Arc<dyn Backend>, mib: usize) -> Result<()> {
    fill(&store, mib).await?;
    for writer in 0..4 {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for round in 0.. {
                let _ = store.txn(puts(&format!("/last/{writer}"), round, 4, CHUNK)).await;
            }
        });
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let me = std::process::id().to_string();
    std::process::Command::new("kill").args(["-9", &me]).status().expect("kill runs");
    unreachable!("killed");
}

async fn open(store: &Arc<dyn Backend>, begin: Instant) -> Result<()> {
    let found = store.get("/fill/00000002".into(), None).await?;
    println!("first get after {:?}, found {}", begin.elapsed(), found.is_some());
    let page =
        RangeRequest { keys: prefix_range(b"/last/"), at: None, limit: 0, max_bytes: 0, keys_only: true };
    println!("keys of the last writers: {}", store.range(page).await?.kvs.len());
    println!("resident {} MiB, at rest {} MiB", resident_mib(), store.size().await? >> 20);
    Ok(())
}

/// Writes 100 MiB again and again with a compaction now and then, beside a writer of small things.
async fn churn(store: &Arc<dyn Backend>) -> Result<()> {
    let small = Arc::clone(store);
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let beside = tokio::spawn(async move {
        let (mut worst, mut count) = (Duration::ZERO, 0);
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            let begin = Instant::now();
            let _ = small.txn(puts("/beside", count % 100, 1, 1024)).await;
            worst = worst.max(begin.elapsed());
            count += 1;
        }
        (worst, count)
    });
    for round in 0..10 {
        for index in 0..100 {
            store.txn(puts("/churn", (index * 7 + round * 13) % 100 * 4, 4, CHUNK)).await?;
        }
        let begin = Instant::now();
        store.compact(store.revision().await?).await?;
        let took = begin.elapsed();
        println!(
            "round {round}: compaction {took:?}, at rest {} MiB, resident {} MiB",
            store.size().await? >> 20,
            resident_mib()
        );
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    println!(
        "worst commit beside it and their number: {:?}",
        beside.await.expect("the writer did not panic")
    );
    Ok(())
}

fn spread(sorted: &[Duration]) -> String {
    let at = |part: usize| sorted[(sorted.len() - 1) * part / 100];
    format!("p50 {:?} p99 {:?} max {:?}", at(50), at(99), at(100))
}

fn resident_mib() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = pages.split(' ').nth(1).and_then(|text| text.parse::<usize>().ok()).unwrap_or(0);
    (pages * 4096) >> 20
}
