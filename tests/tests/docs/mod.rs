//! The documentation: the form of its pages, their links, what they name, their examples, and the pages that are generated.

mod examples;
mod form;
mod kinds;
mod links;
mod names;

use std::fs;
use std::path::{Path, PathBuf};

/// Pages that are written by other tests; their tables may be wider than a page that a person writes.
const GENERATED: &[&str] = &[
    "docs/reference/rules.md",
    "docs/reference/classic-migration.md",
    "docs/reference/zone-isolation.md",
    "docs/reference/classic-migration-faults.md",
    "docs/reference/forced-migration.md",
    "docs/reference/live-migration.md",
    "docs/reference/gardenlet-migration.md",
    "docs/reference/classic-gardenlet-migration.md",
    "docs/reference/etcd-workflows.md",
    "docs/reference/etcd-faults.md",
    "docs/design/storage-faults.md",
];
/// Pages outside of `docs/`.
const OTHERS: &[&str] = &["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "deploy/README.md"];

/// A page of the documentation.
struct Page {
    /// The path in the repository.
    path: String,
    text: String,
}

impl Page {
    fn is_generated(&self) -> bool {
        GENERATED.contains(&self.path.as_str())
    }

    /// The lines outside of blocks of code, with their numbers.
    fn prose(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut code = false;
        self.text.lines().enumerate().filter_map(move |(at, line)| {
            let fence = line.starts_with("```");
            code ^= fence;
            (!code && !fence).then_some((at + 1, line))
        })
    }

    /// The paragraphs outside of blocks of code, each with the number of its first line: code within a line may go on in the next.
    fn paragraphs(&self) -> Vec<(usize, String)> {
        let mut found: Vec<(usize, String)> = Vec::new();
        let mut before = 0;
        for (at, line) in self.prose() {
            match found.last_mut().filter(|_| at == before + 1 && !line.trim().is_empty()) {
                Some((_, text)) if !text.trim().is_empty() => {
                    text.push('\n');
                    text.push_str(line);
                }
                _ => found.push((at, line.to_owned())),
            }
            before = at;
        }
        found
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the workspace")
}

fn read(path: &str) -> Page {
    let text = fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    Page { path: path.to_owned(), text }
}

/// All pages, those of `docs/` in the order of their paths.
fn pages() -> Vec<Page> {
    let mut paths: Vec<String> = OTHERS.iter().map(|&path| path.to_owned()).collect();
    let mut found = Vec::new();
    collect(Path::new("docs"), &mut found);
    found.sort();
    paths.extend(found);
    assert!(paths.len() > 50, "only {} pages", paths.len());
    paths.iter().map(|path| read(path)).collect()
}

fn collect(dir: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(root().join(dir)).expect("a directory") {
        let path = dir.join(entry.expect("an entry").file_name());
        if root().join(&path).is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path.to_str().expect("UTF-8").to_owned());
        }
    }
}
