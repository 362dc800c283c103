//! The bill of materials and the licences that `make image` puts beside the program: deploy/image/inventory.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use repot_tests::binaries;
use serde_json::Value;

use super::{cargo, root};

const LINKED: &[&str] =
    &["tree", "--locked", "--package", "repot", "--edges", "normal,no-proc-macro", "--prefix", "none"];

#[test]
fn inventory_names_all_that_is_linked_with_its_licences() {
    let dir = tempfile::tempdir().expect("a directory");
    let (sbom, licences) = (dir.path().join("repot.cdx.json"), dir.path().join("licences"));
    let program = binaries::profile_dir().expect("a directory").join("repot");
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let done = Command::new("python3")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SOURCE_DATE_EPOCH", "86400")
        .arg(root().join("deploy/image/inventory"))
        .args(["repot", "--arch", arch, "--program"])
        .arg(program)
        .arg("--glibc")
        .arg(dir.path().join("none"))
        .arg("--sbom")
        .arg(&sbom)
        .arg("--licences")
        .arg(&licences)
        .output()
        .expect("python3");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));

    let bill: Value = serde_json::from_slice(&fs::read(&sbom).expect("a file")).expect("JSON");
    assert_eq!(bill["metadata"]["timestamp"], "1970-01-02T00:00:00Z");
    let components = bill["components"].as_array().expect("components");
    let texts = fs::read_to_string(licences.join("third-party.txt")).expect("licences");
    let linked = linked();
    for (name, version) in &linked {
        let of = |one: &&Value| one["name"] == *name && one["version"] == *version;
        let component = components.iter().find(of).unwrap_or_else(|| panic!("no {name} {version}"));
        assert_eq!(component["scope"], "required", "{name}");
        assert!(component["licenses"][0]["expression"].is_string(), "{name}: {component}");
        assert!(name.starts_with("repot") || component["hashes"][0]["content"].is_string(), "{name}");
        assert!(texts.contains(&format!("\n{name} {version}: ")), "{name} {version} has no licence");
    }
    assert!(linked.len() > 200, "only {} crates", linked.len());
    for name in ["libc6-dev", "rust-std", "aws-lc", "zstd", "ca-certificates"] {
        assert!(components.iter().any(|one| one["name"] == name), "no {name}");
    }
}

/// Names and versions of the crates of the program, apart from the one that is the program.
fn linked() -> BTreeSet<(String, String)> {
    let tree = cargo(LINKED);
    let packages = tree.lines().filter_map(|line| {
        let mut words = line.split(' ');
        Some((words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned()))
    });
    packages.filter(|(name, _)| name != "repot").collect()
}
