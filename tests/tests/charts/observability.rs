//! Alerts and dashboards of the charts: those of `deploy/alerts` and `deploy/dashboards`, if they are asked for.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{CHARTS, deploy, key, read, render};

const ALERTS: &str = "metrics.prometheusRule.enabled=true";
const DASHBOARDS: &str = "metrics.dashboards.enabled=true";
const BEGIN_OF_RUNBOOKS: &str = "docs/operate/alerts/";

/// The groups of rules that a chart renders with these values.
fn groups(chart: &str, values: &[&str]) -> Vec<Value> {
    let objects = render(chart, &[values, &[ALERTS]].concat());
    let found = objects.iter().find(|object| object["kind"] == "PrometheusRule").expect("a PrometheusRule");
    found["spec"]["groups"].as_array().cloned().expect("groups")
}

/// The groups of rules of `deploy/alerts`.
fn groups_of_file(chart: &str) -> Vec<Value> {
    let file = format!("alerts/{}.rules.yaml", chart.trim_start_matches("repot-"));
    let rules: Value = serde_saphyr::from_str(&read(&deploy(&file))).expect("YAML");
    rules["groups"].as_array().cloned().expect("groups")
}

fn names(groups: &[Value]) -> BTreeSet<&str> {
    groups.iter().filter_map(|group| group["name"].as_str()).collect()
}

/// The addresses of the pages that tell what to do.
fn runbooks(groups: &[Value]) -> Vec<String> {
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().into_iter().flatten());
    rules.map(|rule| rule["annotations"]["runbook_url"].as_str().expect("a URL").to_owned()).collect()
}

/// Names and contents of the dashboards that a chart renders.
fn dashboards(chart: &str) -> Vec<(String, Value)> {
    let objects = render(chart, &[DASHBOARDS]);
    let maps = objects.iter().filter(|object| key(object).2.starts_with("repot-dashboard-"));
    let files = maps.flat_map(|map| map["data"].as_object().expect("data"));
    files
        .map(|(name, text)| {
            let content: Value = serde_json::from_str(text.as_str().expect("text")).expect("JSON");
            (name.clone(), content)
        })
        .collect()
}

#[test]
fn alerts_are_those_of_the_file() {
    for chart in CHARTS {
        let groups = groups(chart, &[]);
        assert_eq!(groups, groups_of_file(chart), "{chart}");
        assert!(runbooks(&groups).len() > 20, "{chart} has only {} alerts", runbooks(&groups).len());
    }
}

#[test]
fn runbooks_begin_with_the_url_of_the_values() {
    for url in ["https://runbooks.example.com/repot", "https://runbooks.example.com/repot/"] {
        let groups = groups("repot-seed", &[&format!("metrics.prometheusRule.runbookBaseURL={url}")]);
        let begin = format!("https://runbooks.example.com/repot/{BEGIN_OF_RUNBOOKS}");
        for runbook in runbooks(&groups) {
            assert!(runbook.starts_with(&begin), "{runbook}");
        }
    }
}

/// Alerts say that a component is down which Prometheus does not find: there is none of them about what is not installed.
#[test]
fn there_are_no_alerts_about_components_that_are_not_installed() {
    let all = groups_of_file("repot-seed");
    for (component, absent) in [
        ("apiserver", &["repot-apiserver", "repot-storage"][..]),
        ("webhook", &["repot-webhook"]),
        ("controllers", &["repot-controllers", "repot-etcd", "repot-shootstate"]),
    ] {
        let found = groups("repot-seed", &[&format!("{component}.enabled=false")]);
        let missing: BTreeSet<&str> = names(&all).difference(&names(&found)).copied().collect();
        assert_eq!(missing, absent.iter().copied().collect::<BTreeSet<&str>>(), "{component}");
    }
}

#[test]
fn dashboards_are_those_of_the_files() {
    for (chart, files) in [
        ("repot-garden", &["apiserver", "controllers", "migrations", "storage"][..]),
        ("repot-seed", &["apiserver", "controllers", "etcd-fleet", "storage"]),
    ] {
        let wanted = files.iter().map(|file| {
            let text = read(&deploy(&format!("dashboards/{file}.json")));
            (format!("repot-{file}.json"), serde_json::from_str::<Value>(&text).expect("JSON"))
        });
        assert_eq!(dashboards(chart), wanted.collect::<Vec<(String, Value)>>(), "{chart}");
    }
}

/// Prometheus and Grafana choose by labels what they load.
#[test]
fn labels_are_those_of_the_values() {
    let values = ["metrics.prometheusRule.labels.release=a", "metrics.dashboards.labels.team=b"];
    let objects = render("repot-garden", &[&values[..], &[ALERTS, DASHBOARDS]].concat());
    let labels = |is_wanted: &dyn Fn(&Value) -> bool| {
        let found = objects.iter().find(|object| is_wanted(object)).expect("an object");
        found["metadata"]["labels"].clone()
    };
    assert_eq!(labels(&|object| object["kind"] == "PrometheusRule")["release"], "a");
    let of_dashboards = labels(&|object| key(object).2 == "repot-dashboard-storage");
    assert_eq!(of_dashboards["team"], "b");
    assert_eq!(of_dashboards["grafana_dashboard"], "1");
}

/// Both need other programs, and belong into the cluster of the Pods.
#[test]
fn neither_is_there_by_default_or_in_a_virtual_garden() {
    let of_observability =
        |object: &Value| object["kind"] == "PrometheusRule" || key(object).2.starts_with("repot-dashboard-");
    let application = [
        "mode=application,garden.subjects[0].kind=User,garden.subjects[0].name=repot,garden.apiserverAddress=x",
        ALERTS,
        DASHBOARDS,
    ];
    let cases: [(&str, &[&str]); 3] =
        [("repot-garden", &[]), ("repot-seed", &[]), ("repot-garden", &application)];
    for (chart, values) in cases {
        let rendered = render(chart, values);
        assert!(rendered.len() > 10, "{chart} {values:?}: only {} objects", rendered.len());
        assert!(!rendered.iter().any(of_observability), "{chart} {values:?}");
    }
}
