//! Real profiles of this test program.

use std::{
    hint::black_box,
    io::Read,
    sync::atomic::{AtomicBool, Ordering},
};

use flate2::read::GzDecoder;
use prost::Message;

use super::{message::Profile, *};

/// Something that takes CPU time under a name of its own.
#[inline(never)]
fn burn_cpu_for_a_profile(stop: &AtomicBool) -> u64 {
    let mut sum = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        for number in 0..1000_u64 {
            sum = black_box(sum.wrapping_mul(31).wrapping_add(number));
        }
    }
    sum
}

fn decode(packed: &[u8]) -> Profile {
    let mut bytes = Vec::new();
    GzDecoder::new(packed).read_to_end(&mut bytes).expect("gzip");
    Profile::decode(bytes.as_slice()).expect("a profile")
}

/// There is one profiler in a process.
static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[inline(never)]
fn panic_below(depth: u32) -> u32 {
    match depth {
        0 => std::panic::panic_any(0_u8),
        _ => black_box(panic_below(depth - 1)) + 1,
    }
}

/// A profiler, in a process that does not print panics of [`panic_below`]: it is set before the hook of the profiler, which calls it.
fn profiler() -> CpuProfiler {
    static QUIET: std::sync::Once = std::sync::Once::new();
    QUIET.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !info.payload().is::<u8>() {
                print(info);
            }
        }));
    });
    CpuProfiler::new()
}

/// Without the hook, the process ends by SIGSEGV here; at opt-level 0, where unwinding leaves other values on the stack, it may not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_that_panic_survive_a_profile_and_are_sampled_again() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let profiler = profiler();
    let stop = Arc::new(AtomicBool::new(false));
    let panicking = || {
        let stop = stop.clone();
        std::thread::Builder::new().name("panicker".into()).spawn(move || {
            let mut panics = 0;
            while !stop.load(Ordering::Relaxed) {
                assert!(std::panic::catch_unwind(|| panic_below(40)).is_err());
                caught();
                panics += 1;
            }
            panics
        })
    };
    let threads: Vec<_> = (0..3).map(|_| panicking().expect("a thread")).collect();
    let profile = decode(&profiler.record_at(997, Duration::from_secs(4)).await.expect("a profile"));
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        assert!(thread.join().expect("the thread") > 100);
    }
    let text = |index: i64| profile.string_table[usize::try_from(index).expect("an index")].as_str();
    let sampled = profile.sample.iter().filter(|s| s.label.iter().any(|l| text(l.str) == "panicker"));
    assert!(sampled.count() > 0, "no thread is sampled any more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_profile_shows_what_runs_and_one_is_taken_at_a_time() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let stop = Arc::new(AtomicBool::new(false));
    let running = stop.clone();
    let thread = std::thread::Builder::new().name("burner".into());
    let thread = thread.spawn(move || burn_cpu_for_a_profile(&running)).expect("a thread");
    let profiler = profiler();
    let first = tokio::spawn({
        let profiler = profiler.clone();
        async move { profiler.record(Duration::from_secs(2)).await }
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(profiler.record(Duration::from_secs(1)).await, Err(Error::Busy));
    let profile = decode(&first.await.expect("the task").expect("a profile"));

    let text = |index: i64| profile.string_table[usize::try_from(index).expect("an index")].as_str();
    let burner: Vec<_> =
        profile.sample.iter().filter(|s| s.label.iter().any(|l| text(l.str) == "burner")).collect();
    let samples: i64 = burner.iter().map(|sample| sample.value[0]).sum();
    // Nine of ten are others' on a machine that is busy.
    assert!(samples > 3, "{samples} samples in two seconds");
    let name_of = |location: u64| {
        let location = &profile.location[usize::try_from(location - 1).expect("an index")];
        let names = location.line.iter().map(|line| {
            let function = &profile.function[usize::try_from(line.function_id - 1).expect("an index")];
            text(function.name)
        });
        names.collect::<Vec<_>>().join(" in ")
    };
    for sample in burner {
        let names: Vec<_> = sample.location_id.iter().map(|location| name_of(*location)).collect();
        assert!(names.iter().any(|name| name.contains("burn_cpu_for_a_profile")), "{names:?}");
        assert!(!names.iter().any(|name| name.contains(HANDLER)), "{names:?}");
        assert!(!names[0].contains("restore_rt"), "{names:?}");
    }

    // A client that goes away ends it, and the next one may begin.
    let abandoned =
        tokio::time::timeout(Duration::from_millis(200), profiler.record(Duration::from_secs(60)));
    assert!(abandoned.await.is_err());
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    loop {
        match profiler.record(Duration::from_millis(100)).await {
            Err(Error::Busy) if std::time::Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            other => break drop(other.expect("a profile")),
        }
    }
    stop.store(true, Ordering::Relaxed);
    thread.join().expect("the thread");
}

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("statm");
    statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).map_or(0, |pages: u64| pages * 4096)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn further_profiles_take_the_memory_of_the_first() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let profiler = profiler();
    let mut after = Vec::new();
    for _ in 0..6 {
        profiler.record(Duration::from_millis(50)).await.expect("a profile");
        after.push(resident() >> 20);
    }
    assert!(after[5] < after[1] + 40, "MiB after each profile: {after:?}");
}
