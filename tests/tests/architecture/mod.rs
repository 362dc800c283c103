//! Rules of the architecture that no compiler knows: who may use whom, what pure crates may not meet, how long files get.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use repot_rules::table::RULES;
use serde_json::Value;

mod circles;
mod fuzzers;
mod imports;
mod ledger;
mod mutations;
mod sources;
mod words;

/// Who may use whom (`tests` may use everybody). Crates that are still to come are listed too: their arrows are decided.
const ARROWS: &[(&str, &[&str])] = &[
    ("repot-apimachinery", &[]),
    ("repot-api", &["repot-apimachinery"]),
    ("repot-storage", &[]),
    ("repot-certs", &[]),
    ("repot-telemetry", &[]),
    ("repot-samples", &[]),
    ("repot-extension", &["repot-api", "repot-apimachinery"]),
    ("repot-rules", &["repot-api", "repot-apimachinery"]),
    ("repot-etcd-core", &["repot-api", "repot-apimachinery"]),
    ("repot-plan", &["repot-etcd-core", "repot-api", "repot-apimachinery"]),
    (
        "repot-apiserver",
        &["repot-api", "repot-apimachinery", "repot-storage", "repot-certs", "repot-telemetry"],
    ),
    ("repot-webhook", &["repot-rules", "repot-api", "repot-apimachinery", "repot-certs", "repot-telemetry"]),
    ("repot-etcd", &["repot-etcd-core", "repot-api", "repot-apimachinery", "repot-storage", "repot-certs"]),
    (
        "repot-controllers",
        &[
            "repot-plan",
            "repot-etcd-core",
            "repot-api",
            "repot-apimachinery",
            "repot-etcd",
            "repot-extension",
            "repot-certs",
            "repot-rules",
        ],
    ),
    (
        "repot-console",
        &[
            "repot-controllers",
            "repot-plan",
            "repot-api",
            "repot-apimachinery",
            "repot-certs",
            "repot-etcd-core",
            "repot-rules",
            "repot-webhook",
        ],
    ),
    (
        "repot",
        &[
            "repot-console",
            "repot-apiserver",
            "repot-webhook",
            "repot-controllers",
            "repot-etcd",
            "repot-storage",
            "repot-certs",
            "repot-telemetry",
            "repot-api",
            "repot-apimachinery",
            "repot-rules",
            "repot-plan",
            "repot-etcd-core",
            "repot-samples",
        ],
    ),
];

/// Crates that never meet a clock, a client, a file or a random number, and the words by which one would.
const PURE: &[(&str, &str)] = &[
    ("repot-apimachinery", "apiserver/apimachinery"),
    ("repot-api", "apiserver/api"),
    ("repot-rules", "webhook/rules"),
    ("repot-plan", "controllers/plan"),
    ("repot-etcd-core", "etcd/core"),
];
const IMPURE: &[&str] = &[
    "std::time::SystemTime",
    "std::time::Instant",
    "SystemTime::now",
    "Instant::now",
    "Timestamp::now",
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "tokio::",
    "rand::",
    "Uuid::new",
    "kube::",
    "reqwest::",
];
/// `jiff` gives points in time their type; its clock is among [`IMPURE`].
const PURE_DEPENDENCIES: &[&str] =
    &["bytes", "jiff", "memchr", "serde", "serde-saphyr", "serde_json", "thiserror"];

const FILE_LINES: usize = 400;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the workspace")
}

fn metadata() -> Value {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--locked", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo metadata");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Dependencies that are built into each crate (not those of its tests).
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let metadata = metadata();
    let text = |value: &Value| value.as_str().expect("a string").to_owned();
    let packages = metadata["packages"].as_array().expect("packages");
    let of = |package: &Value| {
        let all = package["dependencies"].as_array().expect("dependencies").iter();
        all.filter(|d| d["kind"].is_null()).map(|d| text(&d["name"])).collect()
    };
    packages.iter().map(|package| (text(&package["name"]), of(package))).collect()
}

#[test]
fn arrows_between_crates_are_the_drawn_ones() {
    for (name, uses) in dependencies() {
        if name == "repot-tests" {
            continue;
        }
        let (_, allowed) =
            ARROWS.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("{name} is not drawn"));
        for used in uses.iter().filter(|used| used.starts_with("repot")) {
            assert!(allowed.contains(&used.as_str()), "{name} may not use {used}");
        }
    }
}

#[test]
fn pure_crates_depend_on_nothing_that_does_io() {
    let all = dependencies();
    for (name, _) in PURE {
        let used = all.get(*name).unwrap_or_else(|| panic!("there is no {name}"));
        for used in used {
            let is_pure = PURE.iter().any(|(pure, _)| pure == used);
            assert!(is_pure || PURE_DEPENDENCIES.contains(&used.as_str()), "{name} may not use {used}");
        }
    }
}

#[test]
fn pure_crates_meet_no_clock_client_file_or_random_number() {
    let mut checked = 0;
    for file in PURE.iter().flat_map(|(_, dir)| sources(&root().join(dir).join("src"))) {
        let text = fs::read_to_string(&file).expect("a source");
        for word in IMPURE {
            assert!(!text.contains(word), "{} meets {word}", file.display());
        }
        let named = imports::named(&text, IMPURE);
        assert!(named.is_empty(), "{} meets {named:?}", file.display());
        checked += 1;
    }
    assert!(checked > 5, "only {checked} files were checked");
}

#[test]
fn each_admission_rule_is_a_file_of_its_name() {
    let dir = root().join("webhook/rules/src");
    let chapters = fs::read_dir(&dir).expect("chapters").map(|entry| entry.expect("an entry").path());
    let files =
        chapters.filter(|path| path.is_dir() && !path.ends_with("tests")).flat_map(|path| sources(&path));
    let stem =
        |path: PathBuf| path.file_stem().and_then(|stem| stem.to_str()).expect("a name").replace('_', "-");
    let mut files: Vec<String> = files.map(stem).filter(|name| name != "mod").collect();
    for rule in RULES {
        // Its chapter is not said twice: `live-distance` is `live/distance.rs`.
        let short = rule.name.split_once('-').map_or(rule.name, |(_, rest)| rest);
        let at = files.iter().position(|file| file == rule.name || file == short);
        files.remove(at.unwrap_or_else(|| panic!("rule {} has no file", rule.name)));
    }
    assert!(files.is_empty(), "no rules are in {files:?}");
}

#[test]
fn storage_and_apimachinery_know_no_kind_and_the_apiserver_no_key_of_a_backend() {
    let forbid = |dir: &str, words: &[&str]| {
        let files = sources(&root().join(dir));
        assert!(files.len() > 5, "{dir} has only {} files", files.len());
        let is_test = |file: &PathBuf| {
            let inner = file.strip_prefix(root()).unwrap_or(file);
            inner.components().any(|part| part.as_os_str() == "tests") || file.ends_with("tests.rs")
        };
        for file in files.into_iter().filter(|file| !is_test(file)) {
            let text = fs::read_to_string(&file).expect("a source");
            // What tests and comments show as examples is no knowledge.
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
                for word in words {
                    assert!(!line.contains(word), "{} knows {word}: {line}", file.display());
                }
            }
        }
    };
    forbid("storage/src", &["ShootState", "shootstates", "gardener"]);
    forbid("apiserver/apimachinery/src", &["ShootState", "shootstates", "gardener", "Shoot", "etcd"]);
    forbid("apiserver/src", &["/registry/", "/chunks/", "etcd_client", "fjall"]);
}

#[test]
fn files_stay_short() {
    for dir in [
        "cli",
        "apiserver",
        "webhook",
        "controllers",
        "storage",
        "etcd",
        "extension",
        "certs",
        "telemetry",
        "fuzz",
        "tests",
    ] {
        for file in sources(&root().join(dir)) {
            let text = fs::read_to_string(&file).expect("a source");
            let code = text.split("#[cfg(test)]").next().unwrap_or_default().lines().count();
            assert!(code <= FILE_LINES, "{} has {code} lines", file.display());
        }
    }
}

fn sources(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        if path.is_dir() && !path.ends_with("target") {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found
}
