//! The conformance ledger is true to the sources: what it names exists, and what must hold is proved or said to be open.

use std::collections::BTreeSet;
use std::fs;

use serde::Deserialize;

use super::sources;

/// Lines of each section. A line may come, none may go unnoticed.
const LINES: &[(u8, usize)] = &[
    (1, 23),
    (2, 10),
    (3, 15),
    (4, 16),
    (5, 19),
    (6, 11),
    (7, 12),
    (8, 28),
    (9, 12),
    (10, 10),
    (11, 14),
    (12, 18),
    (13, 4),
    (14, 8),
    (15, 9),
    (16, 11),
    (17, 15),
    (18, 8),
    (19, 14),
    (20, 17),
    (21, 5),
    (22, 9),
    (26, 29),
];

/// A line is read at a glance.
const TEXT: usize = 160;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ledger {
    line: Vec<Line>,
}

/// One behaviour that clients expect.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    section: u8,
    text: String,
    mark: Severity,
    #[serde(default)]
    test: Vec<String>,
    why: Option<String>,
    #[serde(default)]
    open: bool,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
enum Severity {
    #[serde(rename = "MUST")]
    Must,
    #[serde(rename = "SHOULD")]
    Should,
    #[serde(rename = "NICE")]
    Nice,
}

fn read() -> Vec<Line> {
    let text = fs::read_to_string(super::root().join("tests/conformance.toml")).expect("the ledger");
    toml::from_str::<Ledger>(&text).expect("a ledger").line
}

/// Everything that is wrong with the lines, given the tests that there are.
fn judge(lines: &[Line], tests: &BTreeSet<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for line in lines {
        let mut say = |what: &str| wrong.push(format!("{}: {:?}: {what}", line.section, line.text));
        if line.text.trim().is_empty() || line.text.len() > TEXT || line.text.contains('\n') {
            say("a text is one short line");
        }
        if !seen.insert((line.section, line.text.as_str())) {
            say("stands here twice");
        }
        if line.test.iter().collect::<BTreeSet<_>>().len() < line.test.len() {
            say("names a test twice");
        }
        for test in line.test.iter().filter(|test| !tests.contains(*test)) {
            say(&format!("there is no test {test:?}"));
        }
        let reason = line.why.as_ref().is_some_and(|why| !why.trim().is_empty());
        match (line.mark, line.test.is_empty(), line.open) {
            (_, true, _) if !reason => say("neither a test nor a reason"),
            (Severity::Must, true, false) => say("a MUST needs a test that proves it"),
            (_, false, true) => say("what is proved is not open"),
            (Severity::Should | Severity::Nice, true, true) => say("only a MUST is open"),
            _ => {}
        }
    }
    for (section, least) in LINES {
        let count = lines.iter().filter(|line| line.section == *section).count();
        if count < *least {
            wrong.push(format!("{section}: has {count} lines, had {least}"));
        }
    }
    let strange = lines.iter().filter(|line| LINES.iter().all(|(section, _)| *section != line.section));
    wrong.extend(strange.map(|line| format!("{}: no such section", line.section)));
    wrong
}

#[test]
fn the_ledger_is_true_to_the_sources() {
    let lines = read();
    let wrong = judge(&lines, &sources::tests(&super::root()));
    assert!(wrong.is_empty(), "tests/conformance.toml:\n{}", wrong.join("\n"));
    let open: Vec<&Line> = lines.iter().filter(|line| line.open).collect();
    println!("{} lines, of which {} are open:", lines.len(), open.len());
    for line in open {
        println!("{:>2}: {} ({})", line.section, line.text, line.why.as_deref().unwrap_or_default());
    }
}

#[test]
fn a_ledger_that_claims_too_much_is_refused() {
    let tests = BTreeSet::from(["a::b".to_owned()]);
    let line = Line {
        section: 1,
        text: "holds".into(),
        mark: Severity::Must,
        test: vec!["a::b".into()],
        why: None,
        open: false,
    };
    // Sections that are short of lines are another matter.
    let said = |line: Line| {
        let wrong = judge(&[line], &tests);
        wrong.into_iter().filter(|what| !what.contains("lines, had")).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(said(line.clone()), "");
    let why = Some("not yet".to_owned());
    let without = Line { test: Vec::new(), ..line.clone() };
    for (bad, what) in [
        (Line { test: vec!["a::c".into()], ..line.clone() }, "there is no test \"a::c\""),
        (Line { test: vec!["a::b".into(), "a::b".into()], ..line.clone() }, "names a test twice"),
        (Line { open: true, ..line.clone() }, "what is proved is not open"),
        (Line { section: 99, ..line.clone() }, "no such section"),
        (Line { text: " ".into(), ..line.clone() }, "one short line"),
        (without.clone(), "neither a test nor a reason"),
        (Line { why: why.clone(), ..without.clone() }, "a MUST needs a test"),
        (Line { mark: Severity::Should, ..without.clone() }, "neither a test nor a reason"),
        (
            Line { mark: Severity::Nice, why: why.clone(), open: true, ..without.clone() },
            "only a MUST is open",
        ),
    ] {
        let said = said(bad);
        assert!(said.contains(what), "{what:?} is not in {said:?}");
    }
    assert_eq!(said(Line { why: why.clone(), open: true, ..without.clone() }), "");
    assert_eq!(said(Line { mark: Severity::Should, why, ..without }), "");
    assert!(judge(&[line.clone(), line], &tests).iter().any(|what| what.contains("stands here twice")));
    assert!(judge(&[], &tests).iter().any(|what| what == "22: has 0 lines, had 9"));
}
