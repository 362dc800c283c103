//! Mutation tests: each mutation of the source makes one fault, and the test that the table names for it must find it.
//!
//! `run` builds the mutated crate and runs these tests, for minutes: `make mutations`. The other tests here always run. They
//! check that the table matches the sources, and the document the table.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

mod run;
mod source;
mod table;

use table::Mutation;

/// The directory of the workspace.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn each_mutation_has_a_name_of_its_own() {
    let mut names = BTreeSet::new();
    for mutation in table::all() {
        assert!(names.insert(mutation.name), "two mutations have the name {}", mutation.name);
    }
    assert!(names.len() > 50, "only {} mutations are in the table", names.len());
}

#[test]
fn each_mutation_replaces_one_text_of_the_source() {
    let mut spans: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for mutation in table::all() {
        let text = read(&root().join("storage/src").join(mutation.file));
        assert_ne!(mutation.from, mutation.to, "mutation {} changes nothing", mutation.name);
        spans.entry(mutation.file).or_default().push((source::span(mutation, &text), mutation.name));
    }
    for (file, mut spans) in spans {
        spans.sort_by_key(|(span, _)| span.start);
        for pair in spans.windows(2) {
            let overlap = pair[1].0.start < pair[0].0.end;
            assert!(!overlap, "mutations {} and {} of {file} overlap", pair[0].1, pair[1].1);
        }
    }
}

#[test]
fn each_mutation_names_a_test_that_exists() {
    let storage = root().join("storage");
    let texts: Vec<String> = ["src", "tests/backend", "tests/store"]
        .iter()
        .flat_map(|dir| sources(&storage.join(dir)))
        .map(|path| read(&path))
        .collect();
    for Mutation { name, test, .. } in table::all() {
        let function = test.name().rsplit("::").next().unwrap_or_default();
        let declaration = format!("fn {function}(");
        assert!(
            texts.iter().any(|text| text.contains(&declaration)),
            "no test `{test}` exists: update the entry of mutation {name} in storage/tests/mutations/table"
        );
    }
}

fn sources(dir: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

/// The part of the document that lists the table.
fn document() -> String {
    let new = table::all().filter(|mutation| mutation.test_is_new).count();
    let mut text = format!(
        "There are {} of them. {new} made faults that no test of storage without etcd found; the tests that find these were \
         written then, and are marked as new.\n\n\
         | mutation of `storage/src` | fault | found by |\n|---|---|---|\n",
        table::all().count()
    );
    for mutation in table::all() {
        let Mutation { name, file, fault, test, test_is_new, .. } = mutation;
        let new = if *test_is_new { ", new" } else { "" };
        writeln!(text, "| {name} `{file}` | {fault} | `{test}`{new} |").unwrap();
    }
    text
}

/// `UPDATE_GOLDENS=1` brings the document up to date.
#[test]
fn the_document_lists_the_table() {
    const MARKS: [&str; 2] = ["<!-- mutations -->\n", "<!-- end of mutations -->"];
    let path = root().join("docs/design/storage-faults.md");
    let text = read(&path);
    let (before, rest) = text.split_once(MARKS[0]).unwrap();
    let (listed, after) = rest.split_once(MARKS[1]).unwrap();
    let table = document();
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        fs::write(&path, [before, MARKS[0], &table, MARKS[1], after].concat()).unwrap();
    } else {
        assert!(
            listed == table,
            "docs/design/storage-faults.md does not list storage/tests/mutations/table; UPDATE_GOLDENS=1 renews it"
        );
    }
}
