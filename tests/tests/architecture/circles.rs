//! Circles between files: files of one crate that use each other, directly or by way of others. Whoever reads one of them has to
//! read all.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::{imports, root, sources};

/// Crates whose files are checked.
const CRATES: &[&str] = &[
    "apiserver",
    "apiserver/api",
    "apiserver/apimachinery",
    "certs",
    "cli",
    "controllers",
    "controllers/plan",
    "etcd",
    "etcd/core",
    "extension",
    "samples",
    "storage",
    "telemetry",
    "webhook",
    "webhook/rules",
];

/// A module and its path in the crate: `apiserver/src/endpoints/watch/mod.rs` is `endpoints`, `watch`.
type Module = Vec<String>;

/// The modules of a crate, and which others each of them uses. A module and those inside it are one thing: what they use of each other
/// does not count, and neither do tests.
fn uses(dir: &Path) -> BTreeMap<Module, BTreeSet<Module>> {
    let source = dir.join("src");
    let mut texts = BTreeMap::new();
    for file in sources(&source) {
        let text = fs::read_to_string(&file).expect("a source");
        let code = text.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
        texts.insert(module(file.strip_prefix(&source).expect("below src")), code);
    }
    texts.retain(|module, _| !module.is_empty() && !module.iter().any(|name| name == "tests"));
    let used = |(module, text): (&Module, &String)| {
        let paths = imports::paths(text);
        let found = paths.iter().filter_map(|path| target(path, module, &texts));
        let apart = |other: &Module| !other.starts_with(module) && !module.starts_with(other);
        (module.clone(), found.filter(apart).collect())
    };
    texts.iter().map(used).collect()
}

fn module(file: &Path) -> Module {
    let mut names: Module =
        file.with_extension("").iter().map(|name| name.to_string_lossy().into_owned()).collect();
    if names.last().is_some_and(|name| ["mod", "lib", "main"].contains(&name.as_str())) {
        names.pop();
    }
    names
}

/// The module of the same crate in which a path ends.
fn target(path: &str, from: &Module, modules: &BTreeMap<Module, String>) -> Option<Module> {
    let mut segments = path.split("::");
    let mut base: Module = match segments.next()? {
        "crate" => Vec::new(),
        "self" => from.clone(),
        "super" => from[..from.len().checked_sub(1)?].to_vec(),
        _ => return None,
    };
    for segment in segments {
        match segment {
            "super" => _ = base.pop()?,
            name => base.push(name.to_owned()),
        }
    }
    while !base.is_empty() && !modules.contains_key(&base) {
        base.pop();
    }
    (!base.is_empty()).then_some(base)
}

/// Modules from which a way leads back to themselves.
fn in_circles(uses: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<&Module> {
    let leads_back = |start: &&Module| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![*start]);
        while let Some(module) = open.pop() {
            for next in uses.get(module).into_iter().flatten() {
                if next == *start {
                    return true;
                }
                if seen.insert(next) {
                    open.push(next);
                }
            }
        }
        false
    };
    uses.keys().filter(leads_back).collect()
}

#[test]
fn no_files_are_in_a_circle() {
    let mut found = BTreeSet::new();
    for name in CRATES {
        let uses = uses(&root().join(name));
        assert!(!uses.is_empty(), "{name} has no sources");
        let circles = in_circles(&uses);
        found.extend(circles.iter().map(|module| format!("{name} {}", module.join("::"))));
    }
    assert!(found.is_empty(), "in a circle: {found:#?}");
}

#[test]
fn circles_are_seen_in_every_form_of_path() {
    let name = |text: &str| text.split("::").map(str::to_owned).collect::<Module>();
    let modules: BTreeMap<Module, String> =
        ["a", "a::b", "c"].map(|module| (name(module), String::new())).into();
    for (path, from, expected) in [
        ("crate::a::b::Item", "c", Some("a::b")),
        ("crate::a::Item", "c", Some("a")),
        ("super::super::c::f", "a::b", Some("c")),
        ("super::b::Item", "a::x", Some("a::b")),
        ("self::b", "a", Some("a::b")),
        ("std::fs", "a", None),
        ("crate::Item", "a", None),
    ] {
        assert_eq!(target(path, &name(from), &modules), expected.map(name), "{path}");
    }
    let edge = |from: &str, to: &[&str]| (name(from), to.iter().map(|to| name(to)).collect());
    let uses = [edge("a", &["c"]), edge("c", &["d", "e"]), edge("d", &["a"]), edge("e", &[])].into();
    assert_eq!(in_circles(&uses), [&name("a"), &name("c"), &name("d")]);
}
