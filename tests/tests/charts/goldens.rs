//! Everything that is made from the charts is up to date. `UPDATE_GOLDENS=1` renews it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use repot_tests::binaries;

use super::{CHARTS, deploy, helm};

/// Runs `charts/golden` of a copy of `deploy/`, or of `deploy/` itself.
fn golden(deploy: &Path, args: &[&str]) -> Output {
    let program = deploy.join("charts/golden");
    let helm = binaries::find("helm").expect("helm");
    Command::new(program).args(args).env("HELM", helm).output().expect("charts/golden starts")
}

#[test]
fn what_is_made_from_the_charts_is_up_to_date() {
    let args: &[&str] = if std::env::var_os("UPDATE_GOLDENS").is_some() { &["--update"] } else { &[] };
    let output = golden(&deploy(""), args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn charts_pass_lint_without_warnings() {
    for chart in CHARTS {
        let path = deploy("charts").join(chart).display().to_string();
        let output = helm(&["lint", "--strict", &path]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
        assert!(!said.contains("[WARNING]") && !said.contains("[ERROR]"), "{said}");
    }
}

/// Each of these changes makes another file out of date: a golden, a copy, a table of values.
#[test]
fn a_file_that_is_not_up_to_date_is_found() {
    let copy = tempfile::tempdir().expect("a directory");
    let copied = Command::new("cp").arg("-R").arg(deploy(".")).arg(copy.path()).status().expect("cp starts");
    assert!(copied.success());
    let changes = [
        (
            "charts/repot-seed/templates/rbac-users.yaml",
            "etcdbackups",
            "backups",
            "charts/goldens/seed-default.yaml",
        ),
        (
            "charts/repot-garden/templates/shared/test.yaml",
            "status",
            "list",
            "charts/repot-seed/templates/shared/test.yaml",
        ),
        ("charts/repot-garden/values.yaml", "What is installed", "Parts", "charts/repot-garden/README.md"),
        (
            "webhooks/seed.yaml",
            "timeoutSeconds: 4",
            "timeoutSeconds: 9",
            "charts/repot-seed/files/webhooks-seed.yaml",
        ),
        ("charts/repot-seed/templates/policies.yaml", "kind: {{", "Kind: {{", "manifests/seed.yaml"),
    ];
    for (file, old, new, _) in changes {
        let path = copy.path().join(file);
        let before = fs::read_to_string(&path).expect(file);
        assert!(before.contains(old), "{file} does not contain {old:?}");
        fs::write(&path, before.replace(old, new)).expect(file);
    }
    let output = golden(copy.path(), &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    for (_, _, _, outdated) in changes {
        assert!(said.contains(&format!("{outdated} is not up to date")), "{outdated}: {said}");
    }
}
