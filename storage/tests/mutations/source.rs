//! A copy of the workspace whose storage crate has every mutation compiled in, each one off until `REPOT_MUTATION` names it.
//!
//! So one build serves all mutations, and the sources that are shipped know nothing of them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    root,
    table::{self, Mutation},
};

/// What other directories of crates have besides sources: results of builds and of fuzzers.
const NOT_COPIED: &[&str] = &["target", "coverage", "found", "artifacts"];

/// The module that the mutated crate asks which mutation is active.
const MODULE: &str = r#"
mod mutation {
    static ACTIVE: std::sync::LazyLock<Option<String>> =
        std::sync::LazyLock::new(|| std::env::var("REPOT_MUTATION").ok());

    pub(crate) fn is_active(name: &str) -> bool {
        ACTIVE.as_deref() == Some(name)
    }
}
"#;

/// Writes the mutated copy of the workspace below cargo's target directory, and returns its directory.
///
/// A file that is already there with the same content is not written, so that cargo builds only what has changed.
pub fn write_mutated_workspace() -> PathBuf {
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutations");
    fs::create_dir_all(&copy).unwrap();
    for name in ["Cargo.toml", "Cargo.lock"] {
        copy_file(&root().join(name), &copy.join(name));
    }
    for entry in fs::read_dir(root()).unwrap() {
        let dir = entry.unwrap().path();
        if dir.join("Cargo.toml").is_file() {
            copy_dir(&dir, &copy.join(dir.file_name().unwrap()));
        }
    }
    copy
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(to).unwrap() {
        let old = entry.unwrap();
        if !from.join(old.file_name()).exists() {
            remove(&old.path());
        }
    }
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_file() {
            copy_file(&path, &to.join(name));
        } else if !NOT_COPIED.iter().any(|other| name == *other) {
            copy_dir(&path, &to.join(name));
        }
    }
}

fn remove(path: &Path) {
    if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
}

fn copy_file(from: &Path, to: &Path) {
    let mut content = fs::read(from).unwrap();
    if let Ok(file) = from.strip_prefix(root().join("storage/src"))
        && let Ok(text) = str::from_utf8(&content)
    {
        content = mutated(file.to_str().unwrap(), text).into_bytes();
    }
    if fs::read(to).ok().as_ref() != Some(&content) {
        fs::write(to, content).unwrap();
    }
}

/// The text of a file of `storage/src` with all of its mutations.
fn mutated(file: &str, text: &str) -> String {
    let mut result = text.to_owned();
    let mut mutations: Vec<_> =
        table::all().filter(|mutation| mutation.file == file).map(|m| (span(m, text).start, m)).collect();
    // From the end, so that a replacement does not move those before it.
    mutations.sort_by_key(|(start, _)| std::cmp::Reverse(*start));
    for (_, mutation) in mutations {
        result.replace_range(span(mutation, text), &switch(mutation));
    }
    if file == "lib.rs" {
        result.push_str(MODULE);
    }
    result
}

/// Where the replaced text is in its file.
///
/// # Panics
/// If the file does not have the text, or has it more than once.
pub fn span(mutation: &Mutation, text: &str) -> std::ops::Range<usize> {
    let Mutation { name, file, from, .. } = mutation;
    let starts: Vec<_> = text.match_indices(from).map(|(start, _)| start).collect();
    let [start] = starts[..] else {
        panic!(
            "storage/src/{file} has the text of mutation {name} {} times, not once: update `from` and `to` of this entry in \
             storage/tests/mutations/table to the changed source\n  from: {from}",
            starts.len()
        );
    };
    start..start + from.len()
}

/// Code that does `to` while the mutation is active, and `from` otherwise.
fn switch(mutation: &Mutation) -> String {
    let Mutation { name, from, to, .. } = mutation;
    let condition = format!("crate::mutation::is_active({name:?})");
    if !from.ends_with(';') {
        return format!("(if {condition} {{ {to} }} else {{ {from} }})");
    }
    match (binding(from), binding(to)) {
        // Both bind the same names, which the code behind them uses.
        (Some((pattern, from)), Some((same, to))) if pattern == same => {
            format!("{pattern} = if {condition} {{ {to} }} else {{ {from} }};")
        }
        _ => format!("if {condition} {{ {to} }} else {{ {from} }}"),
    }
}

/// The pattern and the value of a `let` statement.
fn binding(statement: &str) -> Option<(&str, &str)> {
    let statement = statement.strip_suffix(';')?;
    statement.split_once(" = ").filter(|_| statement.starts_with("let "))
}

#[test]
fn mutations_switch_expressions_statements_and_bindings() {
    let with = |from, to| {
        switch(&Mutation {
            name: "M",
            file: "",
            from,
            to,
            fault: "",
            test: table::Test::Lib(""),
            test_is_new: false,
        })
    };
    assert_eq!(with("a < b", "true"), r#"(if crate::mutation::is_active("M") { true } else { a < b })"#);
    assert_eq!(with("f(x)?;", ""), r#"if crate::mutation::is_active("M") {  } else { f(x)?; }"#);
    assert_eq!(
        with("let x: u8 = f()?;", "let x: u8 = 1;"),
        r#"let x: u8 = if crate::mutation::is_active("M") { 1 } else { f()? };"#
    );
}
