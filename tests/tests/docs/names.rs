//! What pages name is there: flags, metrics, reasons and files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Page, pages, read, root};

/// Flags of other programs that pages name.
const FOREIGN: &[&str] = &[
    "auth-token",
    "bin",
    "bytes",
    "certificate-authority",
    "cluster",
    "create-namespace",
    "data-dir",
    "embed-certs",
    "enable-aggregator-routing",
    "feature-gates",
    "for",
    "force-conflicts",
    "from-file",
    "help",
    "keep",
    "lib",
    "locked",
    "millis",
    "multi-arch",
    "name",
    "nocapture",
    "node-monitor-grace-period",
    "overwrite",
    "past",
    "quick",
    "raw",
    "release",
    "replicas",
    "reset-then-reuse-values",
    "rounds",
    "seconds",
    "server-side",
    "set",
    "size",
    "test",
    "timeout",
    "token",
    "type",
    "update",
    "user",
    "values",
    "wait",
    "workspace",
];
/// Directories of crates, which hold sources.
const CRATES: &[&str] =
    &["apiserver", "certs", "cli", "controllers", "etcd", "extension", "storage", "telemetry", "webhook"];
/// What a path in the repository begins with.
const TOPS: &[&str] = &[
    "apiserver/",
    "certs/",
    "cli/",
    "controllers/",
    "deploy/",
    "docs/",
    "etcd/",
    "extension/",
    "fuzz/",
    "storage/",
    "telemetry/",
    "tests/",
    "webhook/",
];
/// Paths that exist only where somebody has run a program.
const LOCAL: &[&str] = &["fuzz/found", "fuzz/artifacts"];

#[test]
fn flags_that_pages_name_exist() {
    let known: BTreeSet<String> = pages()
        .iter()
        .filter(|page| page.path.starts_with("docs/reference/flags/"))
        .flat_map(|page| page.text.lines().filter_map(flag_of_item).map(str::to_owned).collect::<Vec<_>>())
        .collect();
    assert!(known.len() > 100, "only {} flags", known.len());
    let rehearsal = flags_of_rehearse();
    assert!(rehearsal.contains("requests-per-second"), "{rehearsal:?}");
    let mut unknown = Vec::new();
    for page in pages().iter().filter(|page| !page.path.starts_with("docs/reference/flags/")) {
        for flag in codes(page).iter().flat_map(|code| flags(code)) {
            if !known.contains(&flag) && !rehearsal.contains(&flag) && !FOREIGN.contains(&flag.as_str()) {
                unknown.push(format!("{}: --{flag}", page.path));
            }
        }
    }
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
}

/// Flags of the program `rehearse`, to which `repot rehearse` passes what it gets: fields behind `#[arg(long`.
fn flags_of_rehearse() -> BTreeSet<String> {
    let source = read("tests/src/bin/rehearse/arguments.rs");
    let mut flags = BTreeSet::new();
    for after in source.text.split("#[arg(long").skip(1) {
        let field = after.lines().find_map(|line| line.trim().strip_prefix("pub ")?.split_once(':'));
        flags.extend(field.map(|(name, _)| name.replace('_', "-")));
    }
    flags
}

/// `name` of an item of a generated page, which begins with "- `--name VALUE`".
fn flag_of_item(line: &str) -> Option<&str> {
    line.strip_prefix("- `--")?.split([' ', '`']).next()
}

fn flags(code: &str) -> Vec<String> {
    let name =
        |text: &str| text.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect::<String>();
    let words = code.split([' ', '\n', '(', '"', '\'']);
    let names = words.filter_map(|word| word.strip_prefix("--")).map(name);
    names.filter(|name| !name.is_empty()).collect()
}

#[test]
fn metrics_that_pages_name_exist() {
    let sources = sources();
    let literals: BTreeSet<&str> = sources.split('"').collect();
    // Names that are put together, such as `format!("repot_etcd_agent_{name}")`.
    let prefixes: Vec<&str> =
        literals.iter().filter_map(|text| text.split_once("_{")).map(|(prefix, _)| prefix).collect();
    let exists = |name: &str| {
        let rest = |prefix: &&str| name.strip_prefix(*prefix)?.strip_prefix('_');
        literals.contains(name)
            || prefixes.iter().any(|p| rest(p).is_some_and(|rest| literals.contains(rest)))
    };
    let (mut checked, mut unknown) = (0, Vec::new());
    for page in pages() {
        for name in codes(&page).into_iter().filter(|code| is_metric(code)) {
            checked += 1;
            if !exists(&name) {
                unknown.push(format!("{}: {name}", page.path));
            }
        }
    }
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
    assert!(checked > 60, "only {checked} metrics");
    assert!(!exists("repot_namespace_stars"));
}

fn is_metric(code: &str) -> bool {
    let word = code.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    word && !code.ends_with('_')
        && ["repot_", "apiserver_", "process_"].iter().any(|prefix| code.starts_with(prefix))
        && code != "apiserver_id_hash"
}

#[test]
fn reasons_in_the_reference_exist() {
    let sources = sources();
    let words: BTreeSet<&str> = sources.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let page = read("docs/reference/conditions.md");
    let reason = |code: &str| {
        code.starts_with(|c: char| c.is_ascii_uppercase()) && code.chars().all(|c| c.is_ascii_alphanumeric())
    };
    let reasons: Vec<_> = codes(&page).into_iter().filter(|code| reason(code)).collect();
    let unknown: Vec<_> = reasons.iter().filter(|reason| !words.contains(reason.as_str())).collect();
    assert!(unknown.is_empty(), "{unknown:?} are in {} only", page.path);
    assert!(reasons.len() > 60, "only {} reasons", reasons.len());
}

#[test]
fn files_that_pages_name_exist() {
    let (mut checked, mut missing) = (0, Vec::new());
    for page in pages() {
        for code in codes(&page) {
            let path = code.trim_end_matches(['/', '.']);
            let plain = path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
            if !plain || !TOPS.iter().any(|top| code.starts_with(top)) || LOCAL.contains(&path) {
                continue;
            }
            checked += 1;
            if !root().join(path).exists() {
                missing.push(format!("{}: {path}", page.path));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(checked > 60, "only {checked} paths");
}

#[test]
fn names_are_found_in_code_only() {
    let text = "Use `--one VALUE` and `a --two=b`, not --three.\n\n```sh\nrepot x --four\n```\n";
    let page = Page { path: "docs/sample.md".to_owned(), text: text.to_owned() };
    let found: Vec<_> = codes(&page).iter().flat_map(|code| flags(code)).collect();
    assert_eq!(found, ["one", "two", "four"]);
}

/// The pieces of code of a page: those within lines, and blocks.
fn codes(page: &Page) -> Vec<String> {
    let inline = |(_, paragraph): (usize, String)| {
        paragraph.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()
    };
    let blocks = page.text.split("\n```").skip(1).step_by(2);
    page.paragraphs().into_iter().flat_map(inline).chain(blocks.map(str::to_owned)).collect()
}

/// All sources of the crates, in one text.
fn sources() -> String {
    let mut text = String::new();
    for dir in CRATES {
        append(&root().join(dir), &mut text);
    }
    text
}

fn append(dir: &Path, text: &mut String) {
    let paths = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path());
    for path in paths.collect::<Vec<PathBuf>>() {
        if path.is_dir() {
            append(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(&path).expect("a source"));
        }
    }
}
