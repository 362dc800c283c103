//! Which tests there are, read from the sources: nothing is built for it, and a test that is not linked in is not found.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use toml::Value;

/// The program whose tests are named without it.
const USUAL: &str = "repot-tests/it";

/// Names of all tests that run without being asked for: the path as `cargo test` prints it, and before it, with a space, the
/// program. That is the package for tests beside the code, `package/name` for the others, and nothing for the usual program.
pub(super) fn tests(workspace: &Path) -> BTreeSet<String> {
    let manifest = read_manifest(workspace);
    let members = manifest["workspace"]["members"].as_array().expect("members");
    let mut found = BTreeSet::new();
    for member in members {
        let dir = workspace.join(member.as_str().expect("a path"));
        let package = read_manifest(&dir)["package"]["name"].as_str().expect("a name").to_owned();
        for root in ["src/lib.rs", "src/main.rs"] {
            Reader::read(workspace, &dir.join(root), &package, &mut found);
        }
        for entry in fs::read_dir(dir.join("tests")).into_iter().flatten().flatten() {
            let root = entry.path();
            if root.extension().is_some_and(|extension| extension == "rs") {
                let stem = root.file_stem().and_then(|stem| stem.to_str()).expect("a name");
                Reader::read(workspace, &root, &format!("{package}/{stem}"), &mut found);
            }
        }
    }
    found
}

fn read_manifest(dir: &Path) -> Value {
    let text = fs::read_to_string(dir.join("Cargo.toml")).expect("a manifest");
    toml::from_str(&text).expect("TOML")
}

/// Walks the modules of one program, as rustfmt prints them.
struct Reader<'a> {
    workspace: &'a Path,
    program: &'a str,
    found: &'a mut BTreeSet<String>,
}

/// A module in a file, with the column at which it closes.
type Inline = (usize, String);

impl Reader<'_> {
    fn read(workspace: &Path, root: &Path, program: &str, found: &mut BTreeSet<String>) {
        let Some(dir) = root.parent().filter(|_| root.is_file()) else { return };
        Reader { workspace, program, found }.file(root, dir, &[]);
    }

    /// `dir`: where the modules of this file are; `path`: the names of the modules around it.
    fn file(&mut self, file: &Path, dir: &Path, path: &[String]) {
        let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let mut inline: Vec<Inline> = Vec::new();
        let (mut test, mut ignored) = (false, false);
        let mut elsewhere = None;
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let code = line.trim_start();
            let column = line.len() - code.len();
            let around =
                || path.iter().chain(inline.iter().map(|(_, name)| name)).cloned().collect::<Vec<_>>();
            if inline.last().is_some_and(|(end, _)| *end == column) && code == "}" {
                inline.pop();
            } else if code == "#[test]" || code.starts_with("#[tokio::test") {
                test = true;
            } else if code.starts_with("#[ignore") {
                ignored = true;
            } else if let Some(place) =
                code.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("\"]"))
            {
                elsewhere = Some(file.with_file_name(place));
            } else if let Some(name) = module(code, " {") {
                inline.push((column, name));
            } else if let Some(name) = module(code, ";") {
                let inner = inline.iter().fold(dir.to_owned(), |dir, (_, name)| dir.join(name));
                self.module(&inner, &name, elsewhere.take(), &around());
            } else if code == "on_every_backend! {" {
                let listed: Vec<&str> =
                    lines.by_ref().map(str::trim).take_while(|line| *line != "}").collect();
                for backend in ["on_embedded", "on_etcd"] {
                    listed.iter().for_each(|name| self.add(&around(), &[backend, name]));
                }
            } else if code.contains("backend_conformance!(super::") {
                behaviours(self.workspace).iter().for_each(|name| self.add(&around(), &[name]));
            } else if let Some(name) = test.then(|| function(code)).flatten() {
                if !ignored && !name.starts_with('$') {
                    self.add(&around(), &[&name]);
                }
                (test, ignored) = (false, false);
            }
        }
    }

    fn module(&mut self, dir: &Path, name: &str, elsewhere: Option<PathBuf>, path: &[String]) {
        let (beside, within) = (dir.join(format!("{name}.rs")), dir.join(name).join("mod.rs"));
        let usual = if beside.is_file() { beside } else { within };
        let file = elsewhere.unwrap_or(usual);
        let path: Vec<String> = path.iter().cloned().chain([name.to_owned()]).collect();
        self.file(&file, &dir.join(name), &path);
    }

    fn add(&mut self, path: &[String], rest: &[&str]) {
        let path: Vec<&str> = path.iter().map(String::as_str).chain(rest.iter().copied()).collect();
        let program = if self.program == USUAL { String::new() } else { format!("{} ", self.program) };
        self.found.insert(format!("{program}{}", path.join("::")));
    }
}

/// The name in `mod name` with this end, whoever may see it.
fn module(code: &str, end: &str) -> Option<String> {
    let (before, rest) = code.split_once("mod ")?;
    let visible = before.is_empty() || before.starts_with("pub");
    let name = rest.strip_suffix(end)?;
    (visible && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')).then(|| name.to_owned())
}

fn function(code: &str) -> Option<String> {
    let rest = code.strip_prefix("async ").unwrap_or(code).strip_prefix("fn ")?;
    Some(rest.split(['(', '<']).next()?.to_owned())
}

/// What the suite of all backends makes tests of.
fn behaviours(workspace: &Path) -> Vec<String> {
    let file = workspace.join("storage/src/backend/conformance/mod.rs");
    let text = fs::read_to_string(file).expect("the suite");
    let lines = text.lines().map(str::trim).skip_while(|line| !line.ends_with("(@tests $lab;"));
    lines.skip(1).take_while(|line| *line != ");").map(str::to_owned).collect()
}

#[test]
fn tests_are_found_by_the_names_that_cargo_prints() {
    let found = tests(&super::root());
    for name in [
        "architecture::sources::tests_are_found_by_the_names_that_cargo_prints",
        "shootstate::reads::forms_are_those_that_were_asked_for",
        "repot-apimachinery selector::tests::selects_by_labels",
        "repot-storage keyring::tests::shows_no_key",
        "repot-storage/it store::basics::on_etcd::survives_reopening",
        "repot-storage/it backend::etcd::conformance::compaction_may_be_repeated",
        "repot tests::flags_are_consistent",
    ] {
        assert!(found.contains(name), "{name} is not found");
    }
    // Modules, helpers and templates are no tests.
    for name in [
        "repot-apimachinery selector::tests::labels",
        "architecture::sources::tests",
        "architecture::sources::function",
    ] {
        assert!(!found.contains(name), "{name} is found");
    }
    assert!(found.iter().all(|name| !name.contains('$')) && found.len() > 200, "{} are found", found.len());
}
