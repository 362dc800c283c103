//! The logs of a test that has failed.

use std::fs;
use std::path::{Path, PathBuf};

/// How much of each log a failed test prints.
const TAIL_LINES: usize = 25;

/// Prints where the logs of a failed test are, and how each ends.
pub(crate) fn print(dir: &Path) {
    let mut text = format!("\nkept for inspection: {}\n", dir.display());
    for log in find_logs(dir) {
        let content = fs::read(&log).unwrap_or_default();
        text += &format!("--- end of {}\n{}\n", log.display(), tail(&String::from_utf8_lossy(&content)));
    }
    eprint!("{text}");
}

fn find_logs(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut logs = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            logs.extend(find_logs(&path));
        } else if path.extension().is_some_and(|extension| extension == "log") {
            logs.push(path);
        }
    }
    logs.sort();
    logs
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}
