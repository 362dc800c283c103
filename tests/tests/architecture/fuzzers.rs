//! Fuzzers: a workspace of their own, which has to keep up with this one.

use std::collections::BTreeSet;
use std::fs;

use toml::Value;

use super::root;

/// What only fuzzers are built with.
const THEIRS: &[&str] = &["arbitrary", "libfuzzer-sys", "repot-fuzz"];
const CORPUS_BYTES: u64 = 1_500_000;

fn read_toml(file: &str) -> Value {
    let text = fs::read_to_string(root().join(file)).expect("a file");
    toml::from_str(&text).expect("TOML")
}

fn names(dir: &str) -> BTreeSet<String> {
    let entries =
        fs::read_dir(root().join(dir)).expect("a directory").map(|entry| entry.expect("an entry").path());
    entries.map(|path| path.file_stem().and_then(|stem| stem.to_str()).expect("a name").to_owned()).collect()
}

#[test]
fn each_fuzzer_has_a_corpus_and_is_told_of() {
    let corpora = names("fuzz/corpus");
    assert_eq!(names("fuzz/fuzz_targets"), corpora);
    let manifest = read_toml("fuzz/Cargo.toml");
    let programs = manifest["bin"].as_array().expect("programs").iter();
    let programs: BTreeSet<_> =
        programs.map(|bin| bin["name"].as_str().expect("a name").to_owned()).collect();
    assert_eq!(programs, corpora);
    let page = fs::read_to_string(root().join("docs/design/storage-faults.md")).expect("the page");
    let part = page.split("\n## ").find(|part| part.starts_with("Any bytes")).expect("a part about it");
    for name in &corpora {
        assert!(part.contains(&format!("`{name}`")), "nothing tells of {name}");
    }
}

#[test]
fn fuzzers_try_what_is_built() {
    let versions = |file: &str| {
        let lock = read_toml(file);
        let packages = lock["package"].as_array().expect("packages").iter();
        let of = |package: &Value, what: &str| package[what].as_str().expect("a string").to_owned();
        packages.map(|package| (of(package, "name"), of(package, "version"))).collect::<BTreeSet<_>>()
    };
    let ours = versions("Cargo.lock");
    for package in versions("fuzz/Cargo.lock") {
        let known = ours.contains(&package) || THEIRS.contains(&package.0.as_str());
        assert!(
            known,
            "fuzz/Cargo.lock has {package:?}, and Cargo.lock has not: copy it and run `cargo metadata` in fuzz"
        );
    }
}

#[test]
fn corpora_stay_small() {
    let mut bytes = 0;
    for corpus in names("fuzz/corpus") {
        for entry in fs::read_dir(root().join("fuzz/corpus").join(corpus)).expect("a corpus") {
            bytes += entry.expect("an entry").metadata().expect("a file").len();
        }
    }
    assert!(bytes > 0 && bytes <= CORPUS_BYTES, "they have {bytes} bytes");
}
