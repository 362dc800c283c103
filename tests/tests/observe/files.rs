//! What can be checked of alerts and dashboards without a server.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use repot_tests::binaries;
use repot_tests::run;
use repot_tests::tool;
use serde_json::Value;
use tokio::process::Command;

/// What names of metrics that Repot exports begin with.
const PREFIXES: &[&str] = &["repot_", "apiserver_", "process_"];
/// What Prometheus adds to the name of a histogram.
const SUFFIXES: &[&str] = &["_bucket", "_count", "_sum"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the workspace")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The files of a directory of the repository with this extension.
fn files(dir: &str, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(dir)).unwrap_or_else(|error| panic!("{dir}: {error}"));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut found: Vec<_> = paths.filter(|path| path.extension().is_some_and(|is| is == extension)).collect();
    found.sort();
    assert!(!found.is_empty(), "{dir} has no {extension}");
    found
}

/// The names of metrics in a text, without what Prometheus adds to them.
pub(super) fn metrics(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names = words.filter(|word| PREFIXES.iter().any(|prefix| word.starts_with(prefix)));
    let base = |name: &str| {
        let suffix = SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix));
        // Some counters of kube-apiserver end like a part of a histogram.
        if name.ends_with("rejection_count") || name.ends_with("fail_open_count") { None } else { suffix }
            .unwrap_or(name)
            .to_owned()
    };
    names.map(base).collect()
}

/// Each alert of the rules, with the text of its rules.
pub(super) fn alerts() -> BTreeMap<String, String> {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    for file in ["deploy/alerts/garden.rules.yaml", "deploy/alerts/seed.rules.yaml"] {
        for rule in read(file).split("- alert: ").skip(1) {
            let (name, rest) = rule.split_once('\n').expect("a rule");
            found.entry(name.to_owned()).or_default().push_str(rest);
        }
    }
    found
}

/// `RepotKMSUnavailable` becomes `repot-kms-unavailable`.
fn kebab(name: &str) -> String {
    let chars: Vec<char> = name.chars().collect();
    let mut kebab = String::new();
    for (at, c) in chars.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| chars[before]);
        let after = chars.get(at + 1);
        let begins_word = before.is_some_and(|before| {
            before.is_lowercase() || before.is_uppercase() && after.is_some_and(|after| after.is_lowercase())
        });
        if c.is_uppercase() && begins_word {
            kebab.push('-');
        }
        kebab.push(c.to_ascii_lowercase());
    }
    kebab
}

async fn promtool(args: &[&str], files: &[PathBuf]) -> Result<()> {
    let mut command = Command::new(binaries::find("promtool")?);
    command.args(args).args(files);
    tool::run(command, b"").await?.text().map(drop)
}

#[test]
fn files_are_what_their_generators_write() {
    run(async |_| {
        for generator in ["deploy/alerts/generate", "deploy/dashboards/generate"] {
            let mut command = Command::new(root().join(generator));
            command.arg("--check");
            tool::run(command, b"").await?.text()?;
        }
        Ok(())
    });
}

#[test]
fn rules_are_valid_and_fire_when_they_should() {
    run(async |_| {
        let rules = ["garden", "seed"].map(|name| root().join(format!("deploy/alerts/{name}.rules.yaml")));
        promtool(&["check", "rules", "--lint=all", "--lint-fatal"], &rules).await?;
        promtool(&["test", "rules"], &files("deploy/alerts/tests", "yaml")).await
    });
}

#[test]
fn every_alert_has_an_example_that_fires_and_is_silent_in_a_healthy_run() {
    let examples: String = files("deploy/alerts/tests", "yaml")
        .iter()
        .filter(|path| !path.ends_with("healthy.yaml"))
        .map(|path| fs::read_to_string(path).expect("a test"))
        .collect();
    let healthy = metrics(&read("deploy/alerts/tests/healthy.yaml"));
    let alerts = alerts();
    assert!(alerts.len() > 20, "only {} alerts", alerts.len());
    for (name, rule) in &alerts {
        let fires = [
            format!("labels: ALERTS{{alertname=\"{name}\",alertstate=\"firing\""),
            format!("alertname: {name}\n"),
        ];
        assert!(fires.iter().any(|text| examples.contains(text)), "no example of {name}");
        let missing: Vec<_> = metrics(rule).difference(&healthy).cloned().collect();
        assert!(missing.is_empty(), "healthy.yaml has no series of {missing:?}, of which {name} needs some");
    }
}

#[test]
fn every_alert_has_a_page() {
    let index = read("docs/operate/alerts/index.md");
    let alerts = alerts();
    for (name, rule) in &alerts {
        let file = format!("{}.md", kebab(name));
        assert!(rule.contains(&format!("runbook_url: docs/operate/alerts/{file}\n")), "{name}: {file}");
        let page = read(&format!("docs/operate/alerts/{file}"));
        assert!(page.starts_with(&format!("# {name}\n")), "{file} has another title");
        for part in ["**Users notice**", "## Look first", "## Repair", "## When it ends"] {
            assert!(page.contains(part), "{file} has no {part:?}");
        }
        assert!(index.contains(&format!("[{name}]({file})")), "index.md does not list {name}");
    }
    let pages = files("docs/operate/alerts", "md").len();
    assert_eq!(pages, alerts.len() + 1, "a page is for no alert");
}

#[test]
fn metrics_of_alerts_and_dashboards_are_documented() {
    let known = metrics(&read("docs/reference/metrics.md"));
    let mut texts: Vec<String> = alerts().into_values().collect();
    texts.extend(files("deploy/dashboards", "json").iter().map(|path| queries(path).join("\n")));
    let used: BTreeSet<String> = texts.iter().flat_map(|text| metrics(text)).collect();
    assert!(used.len() > 40, "only {} metrics", used.len());
    let unknown: Vec<_> = used.difference(&known).collect();
    assert!(unknown.is_empty(), "{unknown:?} are not in docs/reference/metrics.md");
}

#[test]
fn panels_have_units_and_descriptions() {
    for path in files("deploy/dashboards", "json") {
        let text = fs::read_to_string(&path).expect("a dashboard");
        let dashboard: Value = serde_json::from_str(&text).expect("JSON");
        let stem = path.file_stem().and_then(|stem| stem.to_str()).expect("a name");
        assert_eq!(dashboard["uid"], format!("repot-{stem}"));
        let panels = dashboard["panels"].as_array().expect("panels");
        for panel in panels.iter().filter(|panel| panel["type"] != "row") {
            let title = panel["title"].as_str().expect("a title");
            let described = panel["description"].as_str().is_some_and(|text| text.ends_with('.'));
            assert!(described, "{stem}: {title} has no description");
            let unit = &panel["fieldConfig"]["defaults"]["unit"];
            assert!(unit.as_str().is_some_and(|unit| !unit.is_empty()), "{stem}: {title} has no unit");
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{stem}: {title}");
        }
    }
}

fn queries(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).expect("a dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().cloned().unwrap_or_default();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    targets.filter_map(|target| target["expr"].as_str().map(str::to_owned)).collect()
}

#[test]
fn names_are_found_as_they_are_documented() {
    let found =
        metrics("sum(rate(repot_a_seconds_bucket{b=\"repot\"}[5m])) / apiserver_x_rejection_count + up");
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["apiserver_x_rejection_count", "repot_a_seconds"]);
    assert_eq!(kebab("RepotKMSUnavailable"), "repot-kms-unavailable");
    assert_eq!(kebab("RepotCABundleNotPublished"), "repot-ca-bundle-not-published");
    assert_eq!(kebab("RepotEtcdClusterIDMismatch"), "repot-etcd-cluster-id-mismatch");
}
