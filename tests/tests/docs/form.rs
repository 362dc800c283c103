//! Pages are short, and each is in the table of contents.

use super::{Page, pages, read};

const PAGE_LINES: usize = 200;
const README_LINES: usize = 150;
const LINE_CHARS: usize = 120;
const PARAGRAPH_LINES: usize = 6;
const SUMMARY: &str = "docs/SUMMARY.md";

#[test]
fn pages_and_lines_are_short() {
    let wrong: Vec<String> = pages().iter().flat_map(too_long).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn long_pages_lines_and_paragraphs_are_found() {
    let page = |text: String| Page { path: "docs/sample.md".to_owned(), text };
    let found = |text: String| too_long(&page(text)).len();
    assert_eq!(found("# Title\n\nA line.\n".repeat(10)), 0);
    assert_eq!(found("# Title\n".repeat(201)), 1);
    assert_eq!(found(format!("{}\n", "x".repeat(121))), 1);
    assert_eq!(found("A line.\n".repeat(7)), 1);
    assert_eq!(found(format!("```\n{}```\n", "code\n".repeat(7))), 0);
    assert_eq!(found("- An item.\n".repeat(7)), 0);
}

fn too_long(page: &Page) -> Vec<String> {
    let mut wrong = Vec::new();
    let path = &page.path;
    let (lines, most) =
        (page.text.lines().count(), if path == "README.md" { README_LINES } else { PAGE_LINES });
    if lines > most {
        wrong.push(format!("{path} has {lines} lines, and may have {most}"));
    }
    if page.is_generated() {
        return wrong;
    }
    for (at, line) in page.text.lines().enumerate() {
        if line.chars().count() > LINE_CHARS {
            wrong.push(format!("{path}:{} has more than {LINE_CHARS} characters", at + 1));
        }
    }
    let (mut length, mut before) = (0, 0);
    for (at, line) in page.prose() {
        let begins =
            line.trim().is_empty() || line.starts_with(['|', '#']) || is_item(line) || at != before + 1;
        length = if begins { usize::from(is_item(line)) } else { length + 1 };
        before = at;
        if length == PARAGRAPH_LINES + 1 {
            wrong.push(format!("{path}:{at} belongs to a paragraph of more than {PARAGRAPH_LINES} lines"));
        }
    }
    wrong
}

fn is_item(line: &str) -> bool {
    let line = line.trim_start();
    let numbered = line.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
    line.starts_with("- ") || numbered
}

#[test]
fn the_table_of_contents_lists_each_page_once() {
    let summary = read(SUMMARY).text;
    for page in pages() {
        let Some(path) = page.path.strip_prefix("docs/").filter(|path| *path != "SUMMARY.md") else {
            continue;
        };
        let listed = summary.matches(&format!("]({path})")).count();
        assert_eq!(listed, 1, "{SUMMARY} lists {path} {listed} times");
    }
}
