//! Links within the documentation lead to a file, and to a heading that is there.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use super::{Page, pages, read, root};

#[test]
fn links_lead_to_files_and_headings() {
    let (mut checked, mut broken) = (0, Vec::new());
    for page in pages() {
        for (line, link) in links(&page) {
            checked += 1;
            if let Err(why) = check(&page, &link) {
                broken.push(format!("{}:{line}: {link}: {why}", page.path));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(checked > 200, "only {checked} links");
}

#[test]
fn broken_links_are_found() {
    let text = "[a](b.md) `[c](d.md)` [e](https://example.com) [f](#two-words)\n\n```\n[g](h.md)\n```\n";
    let page = Page { path: "docs/design/sample.md".to_owned(), text: format!("{text}\n## Two *words*\n") };
    let found: Vec<_> = links(&page).into_iter().map(|(_, link)| link).collect();
    assert_eq!(found, ["b.md", "#two-words"]);
    assert!(check(&page, "b.md").is_err_and(|why| why.contains("no such file")));
    assert!(check(&page, "#two-words").is_ok());
    assert!(check(&page, "#three-words").is_err_and(|why| why.contains("no such heading")));
    assert!(check(&page, "../../README.md#example").is_ok());
    assert!(check(&page, "../../README.md#nothing").is_err());
    assert!(check(&page, "../../../README.md").is_err());
}

#[test]
fn headings_have_the_anchors_of_mdbook() {
    assert_eq!(anchor("`--flag`, and 2 *words*: 1.5 s?"), "--flag-and-2-words-15-s");
    assert_eq!(anchor("What the next owner waits for"), "what-the-next-owner-waits-for");
}

/// The links of a page that stay within the repository, with the numbers of their lines.
fn links(page: &Page) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, paragraph) in page.paragraphs() {
        // Every second part is code.
        let text: Vec<&str> = paragraph.split('`').step_by(2).collect();
        for part in text.join("`").split("](").skip(1) {
            let link = part.split(')').next().unwrap_or_default();
            if !link.contains("://") {
                found.push((at, link.to_owned()));
            }
        }
    }
    found
}

fn check(page: &Page, link: &str) -> Result<(), String> {
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    let target = if path.is_empty() { page.path.clone() } else { resolve(&page.path, path)? };
    if target != page.path && !root().join(&target).exists() {
        return Err(format!("no such file: {target}"));
    }
    if heading.is_empty() {
        return Ok(());
    }
    let other;
    let target = if target == page.path {
        page
    } else {
        other = read(&target);
        &other
    };
    let is_there = anchors(target).contains(heading);
    is_there.then_some(()).ok_or_else(|| format!("no such heading in {}", target.path))
}

/// The path in the repository of a link from a page.
fn resolve(from: &str, link: &str) -> Result<String, String> {
    let mut path = PathBuf::from(from);
    path.pop();
    for component in Path::new(link).components() {
        let fits = match component {
            Component::ParentDir => path.pop(),
            Component::Normal(name) => {
                path.push(name);
                true
            }
            _ => false,
        };
        if !fits {
            return Err("leads out of the repository".to_owned());
        }
    }
    Ok(path.to_string_lossy().into_owned())
}

fn anchors(page: &Page) -> BTreeSet<String> {
    let headings = page.prose().filter(|(_, line)| line.starts_with('#'));
    headings.map(|(_, line)| anchor(line.trim_start_matches('#').trim())).collect()
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}
