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
    "extension",
    "samples",
    "storage",
    "telemetry",
    "tests/src",
    "tests/tests",
    "webhook",
];
/// A shorter doc comment repeats the name.
const LEAST_WORDS: usize = 4;
/// What declares a name.
const DECLARES: &[&str] = &["struct", "enum", "trait", "type", "fn", "mod", "const", "static"];

/// Names that only this project knew, and what the field calls the same. No declaration has them any more.
const PRIVATE: &[(&str, &str)] = &[
    ("ailments", "health_problems"),
    ("Bed", "TestEnv"),
    ("Beginner", "Bootstrapper"),
    ("Beginning", "StartMode"),
    ("Board", "StatusReporter"),
    ("bring_to_rest", "persist_new"),
    ("by_heart", "from_ledger"),
    ("Canary", "Mutation"),
    ("canary", "mutation"),
    ("canaries", "mutations"),
    ("complain", "record_last_error"),
    ("Door", "GatewayEndpoint"),
    ("era", "generation"),
    ("fell_ill", "mark_unhealthy"),
    ("Finale", "FinalSnapshot"),
    ("fit_place", "default_name_and_namespace"),
    ("Flight", "InFlightCall"),
    ("frugal", "prefers_compression"),
    ("Heard", "PeerReport"),
    ("house", "architecture"),
    ("Hub", "WatchCache"),
    ("is_planted", "is_active"),
    ("joints", "boundaries"),
    ("Known", "MembershipStatus"),
    ("last_words", "termination_message"),
    ("lead_to", "set_backends"),
    ("let_change", "call_mutating"),
    ("Mark", "OwnershipMarker"),
    ("MARKERS", "ANNOTATION_CHANGES"),
    ("Needs", "MemoryEstimate"),
    ("neighbours", "group_conflict"),
    ("no_return", "point_of_no_return"),
    ("nudge", "request_progress"),
    ("off_the_workers", "spawn_blocking_if_large"),
    ("Opening", "Projection"),
    ("Otherwise", "OnFailure"),
    ("Over", "LeaseExpired"),
    ("Past", "OwnershipHistory"),
    ("Patience", "Timeout"),
    ("Place", "StoreRef"),
    ("Plant", "ControlPlaneFixture"),
    ("Room", "MemoryPermit"),
    ("Said", "AgentStatus"),
    ("Scene", "StepContext"),
    ("Seat", "MemberSlot"),
    ("Series", "HealthHistory"),
    ("Settled", "BackupCache"),
    ("Shelf", "BackupStore"),
    ("sings", "failpoint"),
    ("Site", "ControlPlane"),
    ("Story", "JobHistory"),
    ("Taken", "BackupRecord"),
    ("Term", "LeaseDeadline"),
    ("Travel", "SeedChange"),
    ("Trouble", "StoreError"),
    ("Wake", "NamespaceTrigger"),
    ("whereabouts", "data_locations"),
    ("Who", "Principal"),
    ("wholly", "with_hash"),
    ("Why", "Reason"),
    ("Wish", "DesiredMembership"),
    ("writing_during", "fenced_client"),
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
fn doc_comments_of_public_items_say_more_than_the_name() {
    let mut found = Vec::new();
    let files = files();
    assert!(files.len() > 500, "only {} files were read", files.len());
    for file in files {
        let text = fs::read_to_string(&file).expect("a source");
        found.extend(short_comments(&text).into_iter().map(|line| format!("{}:{line}", file.display())));
    }
    assert!(found.is_empty(), "doc comments of fewer than {LEAST_WORDS} words:\n{}", found.join("\n"));
}

#[test]
fn no_declaration_has_a_private_name() {
    let denied: BTreeMap<&str, &str> = PRIVATE.iter().copied().collect();
    let mut found = Vec::new();
    for file in files().into_iter().filter(|file| !file.ends_with("architecture/words.rs")) {
        let text = fs::read_to_string(&file).expect("a source");
        let names = declared(&text).filter_map(|name| denied.get_key_value(name));
        found.extend(names.map(|(name, instead)| format!("{}: {name}, better {instead}", file.display())));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn short_comments_and_declarations_are_found() {
    let text = "/// The name.\n#[must_use]\npub fn name() {}\n\n/// A longer comment, which says something.\npub struct Wish;\n\
                /// Two\n/// lines.\npub enum E {}\n/// Private.\nfn house() {}\n// struct Bed\n";
    assert_eq!(short_comments(text), [1]);
    assert_eq!(declared(text).collect::<Vec<_>>(), ["name", "Wish", "E", "house"]);
}
