//! The Helm charts of `deploy/charts`: whether they render what they should, for all clusters and values that they offer. Nothing is
//! installed here.

mod combinations;
mod conformance;
mod goldens;
mod manifests;
mod pods;
mod values;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use repot_tests::binaries;
use serde_json::Value;

const CHARTS: [&str; 2] = ["repot-garden", "repot-seed"];
/// Namespace of all releases that are rendered here, and of the manifests in `deploy/`.
const NAMESPACE: &str = "repot-system";

fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(path)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The documents of a YAML file.
fn documents(text: &str) -> Vec<Value> {
    let parse = |document: &str| match serde_saphyr::from_str::<Value>(document) {
        Ok(value) => value,
        Err(error) => panic!("{error}\n{document}"),
    };
    let whole = format!("\n{text}");
    whole.split("\n---\n").map(parse).filter(|document| !document.is_null()).collect()
}

fn helm(args: &[&str]) -> Output {
    let program = binaries::find("helm").expect("helm");
    Command::new(program).args(args).output().expect("helm starts")
}

/// What `helm template` prints for a chart with these values, each as in `--set`.
fn template(chart: &str, values: &[&str]) -> Result<String, String> {
    let path = deploy("charts").join(chart).display().to_string();
    let mut args = vec!["template", "repot", &path, "--namespace", NAMESPACE];
    args.extend(values.iter().flat_map(|value| ["--set", value]));
    let output = helm(&args);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// The objects that a chart renders with these values.
fn render(chart: &str, values: &[&str]) -> Vec<Value> {
    let text = template(chart, values).unwrap_or_else(|error| panic!("{chart} {values:?}: {error}"));
    documents(&text)
}

/// Kind, namespace and name.
type Key = (String, String, String);

fn key(object: &Value) -> Key {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    (text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"]))
}
