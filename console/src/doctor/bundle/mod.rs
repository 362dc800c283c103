//! One archive with what a maintainer needs, without secrets.
//!
//! No Secret and no ConfigMap is read, and no payload of a ShootState. Everything else passes the redactor.
//!
//! | file | has |
//! |---|---|
//! | `objects.rs` | which objects are collected, and how much of them |
//! | `logs.rs` | the ends of the logs of Repot's Pods |
//! | `archive.rs` | the archive as a file |

pub mod archive;
mod logs;
mod objects;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{finding::Report, redact, survey::Survey};

/// Most bytes of all files of a bundle.
const MOST_BYTES: usize = 256 << 20;
/// Most bytes of one file of objects.
const MOST_FILE: usize = 16 << 20;

/// The files of a bundle, by their paths in it.
#[derive(Debug, Default)]
pub struct Bundle {
    files: BTreeMap<String, Vec<u8>>,
    size: usize,
    missing: Vec<String>,
}

impl Bundle {
    /// The files by their paths.
    #[must_use]
    pub fn files(&self) -> &BTreeMap<String, Vec<u8>> {
        &self.files
    }

    /// What could not be collected, each with the reason.
    #[must_use]
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Adds a text, without what is secret in it.
    fn add_text(&mut self, path: &str, text: &str) {
        self.add(path, redact::text(text).into_bytes());
    }

    /// Adds objects, without what is secret in them.
    fn add_json(&mut self, path: &str, mut value: Value) {
        redact::object(&mut value);
        match serde_json::to_vec_pretty(&value) {
            Ok(text) if text.len() > MOST_FILE => {
                self.leave_out(path, &format!("it has {} bytes; at most {MOST_FILE} are kept", text.len()));
            }
            Ok(text) => self.add(path, text),
            Err(error) => self.leave_out(path, &error.to_string()),
        }
    }

    fn add(&mut self, path: &str, content: Vec<u8>) {
        if self.size + content.len() > MOST_BYTES {
            self.leave_out(path, &format!("the bundle would have more than {MOST_BYTES} bytes"));
            return;
        }
        self.size += content.len();
        self.files.insert(safe_path(path), content);
    }

    fn leave_out(&mut self, what: &str, why: &str) {
        self.missing.push(redact::text(&format!("{what}: {why}")));
    }
}

/// A path without anything that leads out of the directory.
fn safe_path(path: &str) -> String {
    let part = |part: &str| {
        let part: String = part
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' })
            .collect();
        let part = part.trim_start_matches('.').chars().take(120).collect::<String>();
        if part.is_empty() { "_".to_owned() } else { part }
    };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

/// Collects everything within this time. What could not be collected is named in the file `not-collected.txt`.
pub async fn collect(survey: &Survey, report: &Report, limit: Duration) -> Bundle {
    let end = Instant::now() + limit;
    let mut bundle = Bundle::default();
    bundle.add_text("findings.txt", &report.text(true));
    bundle.add_json("findings.json", json!(report));
    bundle.add_json("versions.json", versions(survey));
    objects::collect(survey, &mut bundle, end).await;
    logs::collect(survey, &mut bundle, end).await;
    let missing = bundle.missing.join("\n");
    if !missing.is_empty() {
        bundle.add_text("not-collected.txt", &(missing + "\n"));
    }
    bundle
}

fn versions(survey: &Survey) -> Value {
    json!({
        "collected": jiff::Timestamp::now().to_string(),
        "repot": env!("CARGO_PKG_VERSION"),
        "kubernetes": survey.version,
        "server": survey.server,
        "serverClockAheadSeconds": survey.clock.map(|clock| clock.difference().as_secs()),
        "namespaces": survey.namespaces,
        "served": survey.served,
    })
}

/// How long is left until `end`, if anything is.
fn left(end: Instant) -> Option<Duration> {
    end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::checks::tests::survey;

    #[test]
    fn paths_stay_inside_of_the_archive() {
        assert_eq!(safe_path("logs/ns/pod-0/c.log"), "logs/ns/pod-0/c.log");
        assert_eq!(safe_path("../..//etc/pass wd\u{1b}"), "_/_/_/etc/pass_wd_");
    }

    #[test]
    fn everything_passes_the_redactor() {
        let mut bundle = Bundle::default();
        bundle.add_text("a", "password=hunter2");
        bundle.add_json("b", json!({"token": "hunter2"}));
        bundle.leave_out("c", "GET https://u:hunter2@host failed");
        let all = bundle.files.values().map(|content| String::from_utf8_lossy(content).into_owned());
        let all: String = all.chain(bundle.missing.clone()).collect();
        assert!(!all.contains("hunter2") && all.matches("[REDACTED]").count() == 3, "{all}");
    }

    #[test]
    fn size_is_bounded() {
        let mut bundle = Bundle::default();
        for file in 0..40 {
            bundle.add(&format!("{file}"), vec![b'x'; 8 << 20]);
        }
        assert!(bundle.size <= MOST_BYTES && bundle.files.len() == 32);
        assert_eq!(bundle.missing.len(), 8);
    }

    #[tokio::test]
    async fn cluster_that_does_not_answer_leaves_a_bundle_that_says_so() {
        let bundle = collect(&survey(), &Report::default(), Duration::from_secs(20)).await;
        assert!(bundle.files.contains_key("findings.txt") && bundle.files.contains_key("versions.json"));
        let missing = String::from_utf8_lossy(&bundle.files["not-collected.txt"]).into_owned();
        assert!(missing.contains("objects/apiservices.apiregistration.k8s.io.json: "), "{missing}");
    }
}
