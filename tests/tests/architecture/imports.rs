//! Which paths a source names, with its imports resolved: groups, aliases, globs and `extern crate`.

use std::collections::BTreeMap;

/// Full paths that a source names: those of its imports, with `*` at the end for a glob, and those in its code, whose first segment is
/// resolved by the imports.
pub(super) fn paths(text: &str) -> Vec<String> {
    let tokens = tokens(text);
    let imports = imports(&tokens);
    let mut local = BTreeMap::new();
    for Import { path, name } in &imports {
        local.insert(name.as_str(), path.as_slice());
    }
    let mut found: Vec<String> = imports.iter().map(|import| resolve(&import.path, &local)).collect();
    let mut at = 0;
    while at < tokens.len() {
        let mut path = Vec::new();
        while at < tokens.len() && is_name(&tokens[at]) {
            path.push(tokens[at].clone());
            at += 1;
            match tokens.get(at).map(String::as_str) {
                Some("::") => at += 1,
                _ => break,
            }
        }
        match path.is_empty() {
            true => at += 1,
            false => found.push(resolve(&path, &local)),
        }
    }
    found
}

/// What of these words a source names. A word is the beginning of a path or a part of one: `std::fs`, `Instant::now`, `tokio::`.
pub(super) fn named<'a>(text: &str, words: &[&'a str]) -> Vec<&'a str> {
    let paths = paths(text);
    let hit = |path: &str, word: &str| match path.strip_suffix('*') {
        // A glob brings in whatever is below.
        Some(above) => word.starts_with(above) || format!("{above}::").contains(word),
        None => format!("{path}::").contains(word),
    };
    words.iter().copied().filter(|word| paths.iter().any(|path| hit(path, word))).collect()
}

/// One name that an import brings in.
struct Import {
    path: Vec<String>,
    name: String,
}

fn resolve(path: &[String], local: &BTreeMap<&str, &[String]>) -> String {
    let mut path = path.to_vec();
    // An alias may be of an alias; a name may stand for itself.
    for _ in 0..8 {
        match local.get(path[0].as_str()) {
            Some(target) if target[0] != path[0] => path = [target, &path[1..]].concat(),
            Some(target) if target.len() > 1 && path.get(1) != target.get(1) => {
                path = [target, &path[1..]].concat();
                break;
            }
            _ => break,
        }
    }
    path.join("::")
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

fn imports(tokens: &[String]) -> Vec<Import> {
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let next = |n: usize| tokens.get(at + n).map_or("", String::as_str);
        match token.as_str() {
            // `use<'a>` is about lifetimes.
            "use" if next(1) != "<" => {
                tree(tokens, &mut (at + 1), &[], &mut found);
            }
            "extern" if next(1) == "crate" && next(3) == "as" => {
                found.push(Import { path: vec![next(2).to_owned()], name: next(4).to_owned() });
            }
            _ => {}
        }
    }
    found
}

/// Reads one tree of a `use`, behind `prefix`.
fn tree(tokens: &[String], at: &mut usize, prefix: &[String], found: &mut Vec<Import>) {
    let mut path = prefix.to_vec();
    while let Some(token) = tokens.get(*at) {
        *at += 1;
        match token.as_str() {
            "::" => {}
            "{" => {
                while tokens.get(*at).is_some_and(|token| token != "}") {
                    tree(tokens, at, &path, found);
                    *at += usize::from(tokens.get(*at).is_some_and(|token| token == ","));
                }
                *at += 1;
                return;
            }
            "*" => {
                path.push("*".to_owned());
                return found.push(Import { path, name: "*".to_owned() });
            }
            name if is_name(name) => {
                if name != "self" || path.is_empty() {
                    path.push(name.to_owned());
                }
                match tokens.get(*at).map(String::as_str) {
                    Some("::") => {}
                    Some("as") => {
                        let name = tokens.get(*at + 1).cloned().unwrap_or_default();
                        *at += 2;
                        return found.push(Import { path, name });
                    }
                    _ => {
                        let name = path.last().cloned().unwrap_or_default();
                        return found.push(Import { path, name });
                    }
                }
            }
            _ => {
                *at -= 1;
                return;
            }
        }
    }
}

/// Names, `::`, and other characters one by one; without comments and literals.
fn tokens(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            _ if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            _ if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            '"' => string(rest),
            'r' if raw(rest).is_some() => raw(rest).unwrap_or(rest.len()),
            '\'' => character(rest),
            _ if rest.starts_with("::") => 2,
            c if c.is_alphanumeric() || c == '_' => {
                rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
            }
            c => c.len_utf8(),
        };
        let (token, behind) = rest.split_at(length);
        let kept = first != '"' && first != '\'' && !token.starts_with("//") && !token.starts_with("/*");
        if kept && !first.is_whitespace() && !(first == 'r' && token.ends_with(['"', '#'])) {
            found.push(token.to_owned());
        }
        rest = behind;
    }
    found
}

/// The length of a string literal.
fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            _ => escaped = c == '\\' && !escaped,
        }
    }
    text.len()
}

/// The length of a raw string literal; `None` where `r` begins a name.
fn raw(text: &str) -> Option<usize> {
    let hashes = text[1..].chars().take_while(|c| *c == '#').count();
    let inside = text[1 + hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(inside.find(&end).map_or(text.len(), |at| 2 + hashes + at + end.len()))
}

/// The length of a literal of one character, or of the mark of a lifetime.
fn character(text: &str) -> usize {
    let mut characters = text.char_indices().skip(1);
    match (characters.next(), characters.next()) {
        (Some((_, '\\')), Some(_)) => text[3..].find('\'').map_or(text.len(), |at| at + 4),
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

#[test]
fn imports_in_every_form_are_seen() {
    let words = ["std::fs", "std::time::Instant", "Timestamp::now", "tokio::", "Uuid::new"];
    for (source, word) in [
        ("use std::fs;", "std::fs"),
        ("use ::std::fs::File;", "std::fs"),
        ("use std::{fmt, fs};", "std::fs"),
        ("use std::{\n    collections::BTreeMap,\n    fs::{self, File as F},\n};", "std::fs"),
        ("use {core::fmt, std::{io, fs}};", "std::fs"),
        ("use std::{self as s}; fn f() { s::fs::read(\"x\"); }", "std::fs"),
        ("use std as s;\nfn f() { s::fs::read(\"x\"); }", "std::fs"),
        ("use std as a; use a as b; fn f() { b::fs::read('\\''); }", "std::fs"),
        ("extern crate std as s; fn f() { s::fs::read(r#\"\"\"#); }", "std::fs"),
        ("use std::*; fn f() { fs::read(\"x\"); }", "std::fs"),
        ("use std::time::*;", "std::time::Instant"),
        ("use std::time::{Duration, Instant};", "std::time::Instant"),
        ("use std::time as t; fn f() { t::Instant::now(); }", "std::time::Instant"),
        ("use jiff::Timestamp as T; fn f<'a>() { T::now(); }", "Timestamp::now"),
        ("use jiff::Timestamp; fn f() { Timestamp\n::now(); }", "Timestamp::now"),
        ("use tokio;", "tokio::"),
        ("pub(crate) use tokio::spawn as go;", "tokio::"),
        ("fn f() { uuid::Uuid::new_v4(); }", "Uuid::new"),
    ] {
        assert!(named(source, &words).contains(&word), "{source}: {:?}", paths(source));
    }
    for source in [
        "use std::{fmt, collections::*, time::Duration};",
        "// use std::fs;\n/* std::fs */ const X: &str = \"std::fs\"; const Y: &str = r\"std::fs\";",
        "use super::*; use crate::time::Instant; fn f() -> impl Sized + use<'_> { fs::read() }",
        "use crate::fs; fn f(c: char) { fs::read(); c == '\"'; }",
        "fn f<'a>(x: &'a str) -> &'a str { x }",
    ] {
        assert_eq!(named(source, &words), [""; 0], "{source}");
    }
}
