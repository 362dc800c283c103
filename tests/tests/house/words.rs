//! Words: public items say what they are, and no type or function gets a name that only this project knows.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use super::{root, sources};

/// Where the sources of the project are.
const CODE: &[&str] = &[
    "apiserver",
    "certs",
    "cli",
    "controllers",
    "etcd",
    "samples",
    "storage",
    "tests/src",
    "tests/tests",
    "webhook",
];
/// A shorter doc comment repeats the name.
const LEAST_WORDS: usize = 4;
/// How many public items still have a shorter one. The number only falls.
const SHORT_COMMENTS: usize = 591;
/// What declares a name.
const DECLARES: &[&str] = &["struct", "enum", "trait", "type", "fn", "mod", "const", "static"];

/// Names that a reader has to look up, what the field calls the same, and how many declarations have them. The numbers only fall.
const PRIVATE: &[(&str, &str, usize)] = &[
    ("ailments", "health_problems", 2),
    ("Bed", "TestEnv", 4),
    ("Beginner", "Bootstrapper", 1),
    ("Beginning", "StartMode", 1),
    ("Board", "StatusReporter", 1),
    ("bring_to_rest", "persist_new", 1),
    ("by_heart", "from_ledger", 1),
    ("complain", "record_last_error", 1),
    ("Door", "GatewayEndpoint", 3),
    ("era", "generation", 0),
    ("fell_ill", "mark_unhealthy", 1),
    ("Finale", "FinalSnapshot", 1),
    ("fit_place", "default_name_and_namespace", 1),
    ("Flight", "InFlightCall", 2),
    ("frugal", "prefers_compression", 6),
    ("Heard", "PeerReport", 1),
    ("house", "architecture", 4),
    ("Hub", "WatchCache", 1),
    ("joints", "boundaries", 0),
    ("Known", "MembershipStatus", 5),
    ("last_words", "termination_message", 2),
    ("lead_to", "set_backends", 1),
    ("let_change", "call_mutating", 1),
    ("Mark", "OwnershipMarker", 3),
    ("MARKERS", "ANNOTATION_CHANGES", 1),
    ("Needs", "MemoryEstimate", 3),
    ("neighbours", "group_conflict", 2),
    ("no_return", "point_of_no_return", 0),
    ("nudge", "request_progress", 7),
    ("off_the_workers", "spawn_blocking_if_large", 0),
    ("Opening", "Projection", 4),
    ("Otherwise", "OnFailure", 0),
    ("Over", "LeaseExpired", 1),
    ("Past", "OwnershipHistory", 1),
    ("Patience", "Timeout", 0),
    ("Place", "StoreRef", 22),
    ("Plant", "ControlPlaneFixture", 1),
    ("Room", "MemoryPermit", 2),
    ("Said", "AgentStatus", 3),
    ("Scene", "StepContext", 4),
    ("Seat", "MemberSlot", 5),
    ("Series", "HealthHistory", 1),
    ("Settled", "BackupCache", 1),
    ("Shelf", "BackupStore", 1),
    ("sings", "failpoint", 2),
    ("Site", "ControlPlane", 2),
    ("Story", "JobHistory", 2),
    ("Taken", "BackupRecord", 3),
    ("Term", "LeaseDeadline", 1),
    ("Travel", "SeedChange", 1),
    ("Trouble", "StoreError", 4),
    ("Wake", "NamespaceTrigger", 1),
    ("whereabouts", "data_locations", 0),
    ("Who", "Principal", 2),
    ("wholly", "with_hash", 0),
    ("Why", "Reason", 1),
    ("Wish", "DesiredMembership", 1),
    ("writing_during", "fenced_client", 1),
];

fn files() -> Vec<PathBuf> {
    CODE.iter().flat_map(|dir| sources(&root().join(dir))).collect()
}

/// Line numbers of public items whose doc comment is one line of fewer than [`LEAST_WORDS`] words.
fn short_comments(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let is_comment = |at: usize| lines.get(at).is_some_and(|line| line.starts_with("///"));
    let alone = (0..lines.len()).filter(|at| is_comment(*at) && !is_comment(at + 1));
    let alone = alone.filter(|at| at.checked_sub(1).is_none_or(|before| !is_comment(before)));
    let is_public = |at: &usize| {
        let item = lines[at + 1..].iter().find(|line| !line.starts_with("#["));
        item.is_some_and(|line| line.starts_with("pub "))
    };
    let words = |at: &usize| lines[*at].trim_start_matches('/').split_whitespace().count();
    alone.filter(is_public).filter(|at| words(at) < LEAST_WORDS).map(|at| at + 1).collect()
}

/// The names that a text declares.
fn declared(text: &str) -> impl Iterator<Item = &str> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| {
        let words: Vec<&str> =
            line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect();
        let pairs: Vec<&str> =
            words.windows(2).filter(|pair| DECLARES.contains(&pair[0])).map(|pair| pair[1]).collect();
        pairs
    })
}

#[test]
fn short_doc_comments_of_public_items_only_become_fewer() {
    let mut found = Vec::new();
    let files = files();
    assert!(files.len() > 500, "only {} files were read", files.len());
    for file in files {
        let text = fs::read_to_string(&file).expect("a source");
        found.extend(short_comments(&text).into_iter().map(|line| format!("{}:{line}", file.display())));
    }
    let count = found.len();
    assert!(
        count <= SHORT_COMMENTS,
        "{count} doc comments of fewer than {LEAST_WORDS} words:\n{}",
        found.join("\n")
    );
    assert!(count == SHORT_COMMENTS, "only {count} are left: lower the number");
}

#[test]
fn private_names_only_become_fewer() {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for file in files().into_iter().filter(|file| !file.ends_with("house/words.rs")) {
        let text = fs::read_to_string(&file).expect("a source");
        for name in declared(&text) {
            *counts.entry(name.to_owned()).or_default() += 1;
        }
    }
    for (name, instead, left) in PRIVATE {
        let found = counts.get(*name).copied().unwrap_or_default();
        assert!(found <= *left, "{found} declarations are called {name}: the field says {instead}");
        assert!(
            found == *left,
            "only {found} declarations are called {name} now: lower the number in the table"
        );
    }
}

#[test]
fn short_comments_and_declarations_are_found() {
    let text = "/// The name.\n#[must_use]\npub fn name() {}\n\n/// A longer comment, which says something.\npub struct Wish;\n\
                /// Two\n/// lines.\npub enum E {}\n/// Private.\nfn house() {}\n// struct Bed\n";
    assert_eq!(short_comments(text), [1]);
    assert_eq!(declared(text).collect::<Vec<_>>(), ["name", "Wish", "E", "house"]);
}
