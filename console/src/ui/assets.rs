//! The files of the page. They are part of the program, and nothing is loaded from elsewhere.

use axum::{
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

macro_rules! files {
    ($($name:literal: $kind:ident),* $(,)?) => {
        /// Name, media type and text of each file.
        const FILES: &[(&str, &str, &str)] = &[$(($name, $kind, include_str!(concat!("assets/", $name)))),*];
    };
}

files! {
    "index.html": HTML,
    "icon.svg": SVG,
    "style.css": CSS,
    "timeline.css": CSS,
    "actions.js": JS,
    "api.js": JS,
    "app.js": JS,
    "bars.js": JS,
    "dialog.js": JS,
    "dom.js": JS,
    "enter.js": JS,
    "etcds.js": JS,
    "fleet.js": JS,
    "isolations.js": JS,
    "migration.js": JS,
    "migrations.js": JS,
    "move.js": JS,
    "step.js": JS,
    "store.js": JS,
    "table.js": JS,
    "text.js": JS,
    "theme.js": JS,
    "timeline.js": JS,
}

/// Where the key of the page stands in [`enter`].
const ENTER: &str = include_str!("assets/enter.html");

/// The page.
pub(super) fn index() -> Response {
    file("index.html")
}

/// A file below `/assets/`.
pub(super) fn file(name: &str) -> Response {
    match FILES.iter().find(|(known, ..)| *known == name) {
        Some((_, kind, text)) => ([(CONTENT_TYPE, *kind)], *text).into_response(),
        None => (StatusCode::NOT_FOUND, "there is no such file\n").into_response(),
    }
}

/// The page behind the link. It keeps the key and goes on to the page itself, so that the token leaves the address.
pub(super) fn enter(key: &str) -> Response {
    ([(CONTENT_TYPE, HTML)], ENTER.replace("KEY", key)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_load_nothing_from_elsewhere_and_have_no_inline_code() {
        for (name, kind, text) in FILES.iter().chain(&[("enter.html", HTML, ENTER)]) {
            for (at, line) in text.lines().enumerate() {
                let place = format!("{name}:{}", at + 1);
                let line = line.replace("http://www.w3.org/2000/svg", "");
                assert!(!line.contains("http://") && !line.contains("https://"), "{place} names an address");
                for word in [
                    "innerHTML",
                    "outerHTML",
                    "insertAdjacentHTML",
                    "document.write",
                    "eval(",
                    "new Function",
                ] {
                    assert!(!line.contains(word), "{place} has {word}");
                }
                if *kind == HTML {
                    assert!(
                        !line.contains(" style=") && !line.contains(" onclick="),
                        "{place} has inline code"
                    );
                    assert!(!line.contains("<script") || line.contains(" src=\"/assets/"), "{place}");
                    assert!(!line.contains("<style"), "{place}");
                }
            }
        }
    }

    #[test]
    fn modules_are_short_and_import_files_that_exist() {
        for (name, kind, text) in FILES {
            assert!(text.lines().count() <= 400, "{name} has {} lines", text.lines().count());
            if *kind != JS {
                continue;
            }
            for line in text.lines().filter(|line| line.starts_with("import ") || line.starts_with("} from "))
            {
                let imported =
                    line.split('"').nth(1).and_then(|path| path.strip_prefix("./")).unwrap_or_default();
                let is_whole = line.contains(" from ") || line.starts_with("import \"");
                assert!(
                    !is_whole || FILES.iter().any(|(known, ..)| *known == imported),
                    "{name} imports {imported}: {line}"
                );
            }
        }
    }
}
