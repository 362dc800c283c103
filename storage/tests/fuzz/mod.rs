//! What reads stored bytes, given any: what is kept in `fuzz/corpus`, and changes of it.

use std::path::{Path, PathBuf};

use repot_storage::{Keyring, Store, StoreOptions, fuzz};

use crate::store::Lab;

#[path = "../../../fuzz/driver.rs"]
mod driver;

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("fuzz/corpus").join(name)
}

macro_rules! takes_any_bytes {
    ($($target:ident)*) => {
        $(#[test]
        fn $target() {
            driver::fuzz(&corpus(stringify!($target)), fuzz::$target);
        })*
    };
}

takes_any_bytes! {
    record
    chunk
    configuration
    pointer
    paths
}

#[test]
fn wrapped() {
    let target = fuzz::Wrapped::begin();
    driver::fuzz(&corpus("wrapped"), |input| target.attempt(input));
}

#[test]
fn archive() {
    let target = fuzz::Archive::begin();
    driver::fuzz(&corpus("archive"), |input| target.attempt(input));
}

/// Begins the corpora anew, with what the program writes today: to be run by hand where a format changes.
#[test]
#[ignore = "writes into the source tree"]
fn begin_corpora() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let keep = |name: &str, number: usize, bytes: &[u8]| {
        std::fs::create_dir_all(corpus(name)).unwrap();
        std::fs::write(corpus(name).join(format!("sample-{number}")), bytes).unwrap();
    };
    let identity = fuzz::PROVIDERS.replace("  - aesgcm: ", "  - identity: {}\n  - aesgcm: ");
    let identity = identity.rsplit_once("  - identity").unwrap().0.to_owned();
    for (round, config) in [fuzz::PROVIDERS, &identity].into_iter().enumerate() {
        let keys = Keyring::parse(config).unwrap();
        for (number, (name, bytes)) in runtime.block_on(fuzz::samples(&keys)).into_iter().enumerate() {
            keep(name, 100 * round + number, &bytes);
        }
        keep("configuration", round, config.as_bytes());
    }
    for (number, kind) in ["aesgcm", "secretbox", "aescbc"].into_iter().enumerate() {
        let wrapped = [format!("k8s:enc:{kind}:v1:a:").as_bytes(), &[7; 64]].concat();
        keep("wrapped", 500 + number, &wrapped);
    }
    let kms = [
        &b"k8s:enc:kms:v2:main:"[..],
        b"\x0a\x04abcd\x12\x03key\x1a\x02xy\x22\x0a\x0a\x03a.b\x12\x03xyz\x28\x01",
    ];
    keep("wrapped", 503, &kms.concat());
    runtime.block_on(async {
        let lab = Lab::embedded().await;
        let keys = Keyring::parse(&identity).unwrap().into();
        let store = Store::open(lab.backend().await, keys, StoreOptions::default()).await.unwrap();
        for (number, len) in [(1, 10), (2, 70_000)] {
            let uid = uuid::Uuid::from_u128(number.into());
            let draft = crate::store::mk_draft(uid, "a", vec![crate::store::mk_noise(number, len)]);
            store.create(&crate::store::mk_key(&number.to_string()), draft).await.unwrap();
            let mut file = Vec::new();
            store.export(&mut file, |_| {}).await.unwrap();
            keep("archive", number as usize, &file[8..file.len() - 32]);
        }
        store.close().await;
    });
}
