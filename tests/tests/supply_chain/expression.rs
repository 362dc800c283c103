//! Licences as SPDX expressions: `MIT OR (Apache-2.0 AND BSD-3-Clause)`, and the older form `MIT/Apache-2.0`.

use std::collections::BTreeSet;

/// Whether the licences that are allowed are enough for the expression. What cannot be parsed is not allowed.
pub(super) fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words, allowed };
    parser.any() == Some(true) && parser.words.is_empty()
}

struct Parser<'a> {
    words: &'a [&'a str],
    allowed: &'a BTreeSet<String>,
}

impl<'a> Parser<'a> {
    /// One of several: `a OR b`.
    fn any(&mut self) -> Option<bool> {
        let mut found = self.all()?;
        while self.takes("OR") {
            found |= self.all()?;
        }
        Some(found)
    }

    /// Each of several: `a AND b`.
    fn all(&mut self) -> Option<bool> {
        let mut found = self.one()?;
        while self.takes("AND") {
            found &= self.one()?;
        }
        Some(found)
    }

    /// One licence, with or without an exception, or an expression in brackets.
    fn one(&mut self) -> Option<bool> {
        if self.takes("(") {
            let inside = self.any()?;
            return self.takes(")").then_some(inside);
        }
        let mut licence = self.next().filter(|word| !["OR", "AND", "WITH", ")"].contains(word))?.to_owned();
        if self.takes("WITH") {
            licence = format!("{licence} WITH {}", self.next()?);
        }
        Some(self.allowed.contains(&licence))
    }

    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(*first)
    }

    fn takes(&mut self, word: &str) -> bool {
        let is_next = self.words.first() == Some(&word);
        if is_next {
            self.words = &self.words[1..];
        }
        is_next
    }
}

#[test]
fn expressions_are_judged() {
    let allowed = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned).into();
    for expression in [
        "MIT",
        "MIT/Apache-2.0",
        "Apache-2.0 / MIT",
        "GPL-2.0-only OR MIT",
        "MIT AND Apache-2.0",
        "(MIT OR GPL-2.0-only) AND Apache-2.0",
        "Apache-2.0 WITH LLVM-exception AND MIT",
    ] {
        assert!(is_allowed(expression, &allowed), "{expression}");
    }
    for expression in [
        "",
        "GPL-2.0-only",
        "MIT AND GPL-2.0-only",
        "MIT AND (GPL-2.0-only OR ISC)",
        "MIT WITH LLVM-exception",
        "MIT OR",
        "(MIT",
        "MIT)",
        "MIT Apache-2.0",
        "AND",
    ] {
        assert!(!is_allowed(expression, &allowed), "{expression}");
    }
}
