//! What the charts render is valid for the schemas of Kubernetes, cert-manager and the operator of Prometheus.

use std::path::{Path, PathBuf};
use std::process::Command;

use repot_tests::binaries;

use super::{deploy, read};

fn kubeconform(files: &[PathBuf]) -> (bool, String) {
    let schemas = binaries::testbed_dir().join("schemas");
    assert!(schemas.join("apps").is_dir(), "{} is missing: `make testbed` writes it", schemas.display());
    let schemas = schemas.join("{{ .Group }}/{{ .ResourceKind }}-{{ .ResourceAPIVersion }}.json");
    let program = binaries::find("kubeconform").expect("kubeconform");
    let mut command = Command::new(program);
    command.args(["-strict", "-summary", "-n", "2", "-schema-location"]).arg(schemas).args(files);
    let output = command.output().expect("kubeconform starts");
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Rendered goldens, static manifests and CustomResourceDefinitions.
fn files() -> Vec<PathBuf> {
    let directory = |path: &str| {
        let entries = std::fs::read_dir(deploy(path)).expect(path);
        entries.map(|entry| entry.expect("an entry").path()).collect::<Vec<_>>()
    };
    let goldens = directory("charts/goldens");
    let is_values = |path: &Path| path.to_string_lossy().ends_with(".values.yaml");
    let goldens = goldens.into_iter().filter(|path| !is_values(path));
    goldens.chain(directory("manifests")).chain(directory("crds")).collect()
}

#[test]
fn objects_are_valid_for_their_schemas() {
    let files = files();
    assert!(files.len() >= 9, "only {files:?}");
    let (valid, said) = kubeconform(&files);
    assert!(valid && said.contains("Skipped: 0"), "{said}");
}

#[test]
fn unknown_fields_and_wrong_types_are_found() {
    let directory = tempfile::tempdir().expect("a directory");
    let changes = [
        ("seed-default", "terminationGracePeriodSeconds", "terminationGracePeriod", "Deployment"),
        ("seed-cert-manager", "isCA: true", "isCA: 1", "Certificate"),
        ("garden-etcd", "serverName:", "servername:", "ServiceMonitor"),
    ];
    for (golden, old, new, kind) in changes {
        let text = read(&deploy(&format!("charts/goldens/{golden}.yaml")));
        assert!(text.contains(old), "{golden} does not contain {old:?}");
        let file = directory.path().join("changed.yaml");
        std::fs::write(&file, text.replace(old, new)).expect("written");
        let (valid, said) = kubeconform(&[file]);
        assert!(!valid && said.contains(&format!("{kind} ")), "{golden}: {said}");
    }
}
