//! The embedded store on a disk that takes writes and fails to sync them: what is in memory alone is not acknowledged.
//!
//! `kill -9` does not show that, because the kernel keeps what a process wrote. So a test runs itself again in a process in which
//! the C library's syncs fail from a moment on (`no_sync.c`).

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use repot_storage::backend::{Backend, Error, Op, Outcome, Txn};

use super::embedded::{noise, open};

const NAME: &str = "backend::sync::what_is_not_synced_is_not_acknowledged";
/// The directory to work on, and the sign that syncs fail.
const DIR: &str = "REPOT_TEST_SYNC_DIR";
const SIGN: &str = "REPOT_TEST_NO_SYNC";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_synced_is_not_acknowledged() {
    if let (Some(dir), Some(sign)) = (std::env::var_os(DIR), std::env::var_os(SIGN)) {
        return write_without_syncs(Path::new(&dir), Path::new(&sign)).await;
    }
    let dir = tempfile::tempdir().unwrap();
    let (store, sign) = (dir.path().join("store"), dir.path().join("no-sync"));
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture", "--test-threads=1"])
        .env("LD_PRELOAD", library(dir.path()))
        .envs([(DIR, &store), (SIGN, &sign)])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {told}", String::from_utf8_lossy(&output.stdout));
    assert!(told.contains("syncs failed"), "the process did not get to the end: {told}");
    // What was acknowledged is there, and a disk that works again is written to.
    let store = open(&store).await;
    assert_eq!(store.get("/kept".into(), None).await.unwrap().unwrap().value, noise(1, 100));
    assert!(matches!(store.txn(put("/again", 4)).await, Ok(Outcome::Committed(_))));
    store.close().await;
}

fn library(dir: &Path) -> PathBuf {
    let (source, made) =
        (Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/backend/no_sync.c"), dir.join("no_sync.so"));
    let status = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&made).arg(source).status();
    assert!(status.expect("a C compiler").success());
    made
}

fn put(key: &'static str, seed: u64) -> Txn {
    Txn { compares: vec![], ops: vec![Op::Put(key.into(), noise(seed, 100))] }
}

async fn write_without_syncs(dir: &Path, sign: &Path) {
    let store = open(dir).await;
    assert!(matches!(store.txn(put("/kept", 1)).await, Ok(Outcome::Committed(_))));
    std::fs::write(sign, "").unwrap();
    let failed = store.txn(put("/lost", 2)).await;
    assert!(matches!(failed, Err(Error::Unknown(_))), "{failed:?}");
    std::fs::remove_file(sign).unwrap();
    // A sync that succeeds later says nothing of what was written before the one that failed.
    let refused = store.txn(put("/late", 3)).await;
    assert!(matches!(&refused, Err(Error::Unavailable(why)) if why.contains("opened again")), "{refused:?}");
    eprintln!("syncs failed");
}
