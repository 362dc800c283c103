//! Small wrongs are planted in the code, and each has to be found by the test that the table names.
//!
//! Only a build with the feature `canaries` has them, and only `hunt` goes through them, for minutes: `make canaries`. What is
//! here runs always: that the table is true to the sources, and the document to the table.

use std::{collections::BTreeSet, fmt::Write, path::Path};

#[cfg(feature = "canaries")]
mod hunt;
mod table;

use table::{ALL, Program, Wrong};

fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn source(place: &str) -> String {
    let path = crate_dir().join("src").join(place);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn each_is_planted_once_where_the_table_says() {
    let listed: BTreeSet<_> = ALL.iter().map(|wrong| wrong.name).collect();
    assert_eq!(listed.len(), ALL.len(), "one is named twice");
    let list = source("canary.rs");
    let list = list.split_once("\ncanaries! {").unwrap().1.split_once('}').unwrap().0;
    assert_eq!(list.split_whitespace().collect::<BTreeSet<_>>(), listed);
    for Wrong { name, place, .. } in ALL {
        let count = source(place).matches(&format!("Canary::{name}.is_planted()")).count();
        assert_eq!(count, 1, "{name} in {place}");
    }
}

/// The part of the document that says what is planted.
fn document() -> String {
    let new = ALL.iter().filter(|wrong| wrong.new).count();
    let mut text = format!(
        "There are {} of them. {new} were found by none of the tests of storage that need no etcd when they were planted; the tests that find these were written then, and are marked.\n\n\
         | planted in `storage/src` | what it does wrong | found by |\n|---|---|---|\n",
        ALL.len()
    );
    for wrong in ALL {
        let program = if wrong.program == Program::Lib { "" } else { "it " };
        let new = if wrong.new { ", new" } else { "" };
        writeln!(
            text,
            "| {} `{}` | {} | `{program}{}`{new} |",
            wrong.name, wrong.place, wrong.what, wrong.test
        )
        .unwrap();
    }
    text
}

/// `UPDATE_GOLDENS=1` brings the document up to date.
#[test]
fn the_document_says_what_is_planted() {
    const MARKS: [&str; 2] = ["<!-- canaries -->\n", "<!-- end of canaries -->"];
    let path = crate_dir().parent().unwrap().join("docs/design/storage-faults.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(MARKS[0]).unwrap();
    let (rests, after) = rest.split_once(MARKS[1]).unwrap();
    let made = document();
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::write(&path, [before, MARKS[0], &made, MARKS[1], after].concat()).unwrap();
    } else {
        assert!(
            rests == made,
            "docs/design/storage-faults.md is not what the table says; UPDATE_GOLDENS=1 renews it"
        );
    }
}
