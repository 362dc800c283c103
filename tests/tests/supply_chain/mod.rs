//! Dependencies keep to deny.toml: their licences, where they come from, and which may not be there. `make supply-chain` asks
//! cargo-deny the same, and for known vulnerabilities too; it takes minutes to install, and this does not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

mod expression;
mod inventory;

use expression::is_allowed;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// What deny.toml says about licences and about crates that are refused.
struct Policy {
    targets: Vec<String>,
    licences: BTreeSet<String>,
    banned: BTreeSet<String>,
    single: BTreeSet<String>,
}

impl Policy {
    fn read() -> Self {
        let text = fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
        let all: toml::Value = toml::from_str(&text).expect("TOML");
        let strings = |list: &toml::Value| -> Vec<String> {
            let list = list.as_array().expect("a list").iter();
            list.map(|one| one.as_str().expect("a string").to_owned()).collect()
        };
        let is_single = |ban: &&toml::Value| ban.get("deny-multiple-versions").is_some();
        let name = |ban: &toml::Value| ban["name"].as_str().expect("a name").to_owned();
        let bans = all["bans"]["deny"].as_array().expect("a list");
        Self {
            targets: strings(&all["graph"]["targets"]),
            licences: strings(&all["licenses"]["allow"]).into_iter().collect(),
            banned: bans.iter().filter(|ban| !is_single(ban)).map(name).collect(),
            single: bans.iter().filter(is_single).map(name).collect(),
        }
    }

    /// All that is wrong with one package.
    fn judge(&self, package: &Package) -> Vec<String> {
        let mut wrong = Vec::new();
        let title = format!("{} {}", package.name, package.version);
        match &package.licence {
            Some(expression) if is_allowed(expression, &self.licences) => (),
            Some(expression) => wrong.push(format!("{title}: licence {expression:?} is not allowed")),
            None => wrong.push(format!("{title}: no SPDX expression")),
        }
        if self.banned.contains(&package.name) {
            wrong.push(format!("{title}: this crate is banned"));
        }
        if package.source.as_deref().is_some_and(|source| source != CRATES_IO) {
            wrong.push(format!("{title}: comes from {:?}", package.source));
        }
        wrong
    }
}

/// A package that is compiled; without a `source` it is of this workspace.
#[derive(Clone, Default)]
struct Package {
    name: String,
    version: String,
    licence: Option<String>,
    source: Option<String>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

fn cargo(arguments: &[&str]) -> String {
    let done = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().expect("cargo");
    assert!(done.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("UTF-8")
}

fn lock_file() -> Vec<toml::Value> {
    let text = fs::read_to_string(root().join("Cargo.lock")).expect("Cargo.lock");
    let lock: toml::Value = toml::from_str(&text).expect("TOML");
    lock["package"].as_array().expect("packages").clone()
}

/// All packages that are compiled for any member, with all features, on the platforms that deny.toml names. `cargo metadata` would
/// also list what is never compiled, for features that only other platforms ask for.
fn packages(policy: &Policy) -> Vec<Package> {
    let text = |package: &toml::Value, field: &str| package.get(field)?.as_str().map(str::to_owned);
    let lock = lock_file();
    let sources: BTreeMap<_, _> = lock
        .iter()
        .map(|package| ((text(package, "name"), text(package, "version")), text(package, "source")))
        .collect();
    let mut found = BTreeMap::new();
    for target in &policy.targets {
        let tree = cargo(&[
            "tree",
            "--locked",
            "--workspace",
            "--all-features",
            "--edges",
            "normal,build,dev",
            "--target",
            target,
            "--prefix",
            "none",
            "--format",
            "{p}|{l}",
        ]);
        for line in tree.lines().filter(|line| !line.is_empty()) {
            let (package, licence) = line.split_once('|').expect("a package and its licence");
            let mut words = package.split(' ');
            let name = words.next().expect("a name").to_owned();
            let version = words.next().and_then(|word| word.strip_prefix('v')).expect("a version").to_owned();
            // A package that was printed before is marked.
            let licence = licence.trim_end_matches(" (*)");
            let licence = (!licence.is_empty()).then(|| licence.to_owned());
            let key = (Some(name.clone()), Some(version.clone()));
            let source =
                sources.get(&key).unwrap_or_else(|| panic!("{package} is not in Cargo.lock")).clone();
            found.insert(key, Package { name, version, licence, source });
        }
    }
    found.into_values().collect()
}

/// Packages that may be there in one version only, and are there in several.
fn repeated(policy: &Policy, packages: &[Package]) -> Vec<String> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        versions.entry(&package.name).or_default().insert(&package.version);
    }
    let several =
        versions.into_iter().filter(|(name, found)| found.len() > 1 && policy.single.contains(*name));
    several.map(|(name, found)| format!("{name}: in versions {found:?}")).collect()
}

#[test]
fn dependencies_keep_to_the_policy() {
    let policy = Policy::read();
    let packages = packages(&policy);
    let mut wrong: Vec<_> = packages.iter().flat_map(|package| policy.judge(package)).collect();
    wrong.extend(repeated(&policy, &packages));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(packages.len() > 300, "only {} packages", packages.len());
    for name in &policy.single {
        assert!(
            packages.iter().any(|package| package.name == *name),
            "deny.toml names {name}, which is not used"
        );
    }
}

#[test]
fn dependencies_that_break_the_policy_are_named() {
    let policy = Policy::read();
    let fine = Package {
        name: "sample".to_owned(),
        version: "1.0.0".to_owned(),
        licence: Some("MIT".to_owned()),
        source: Some(CRATES_IO.to_owned()),
    };
    assert_eq!(policy.judge(&fine), Vec::<String>::new());
    let wrong = [
        Package { licence: Some("GPL-3.0-only".to_owned()), ..fine.clone() },
        Package { licence: None, ..fine.clone() },
        Package { name: "ring".to_owned(), ..fine.clone() },
        Package { source: Some("git+https://example.com/sample".to_owned()), ..fine.clone() },
    ];
    for package in wrong {
        assert_eq!(policy.judge(&package).len(), 1);
    }
    let tokio = Package { name: "tokio".to_owned(), ..fine };
    let older = Package { version: "0.9.0".to_owned(), ..tokio.clone() };
    assert_eq!(repeated(&policy, &[tokio.clone(), tokio.clone()]), Vec::<String>::new());
    assert_eq!(repeated(&policy, &[tokio, older]), [r#"tokio: in versions {"0.9.0", "1.0.0"}"#]);
}

#[test]
fn members_name_versions_of_what_they_need() {
    let metadata: Value =
        serde_json::from_str(&cargo(&["metadata", "--format-version", "1", "--locked", "--no-deps"]))
            .expect("JSON");
    let members = metadata["packages"].as_array().expect("packages");
    let needed: Vec<_> =
        members.iter().flat_map(|member| member["dependencies"].as_array().expect("dependencies")).collect();
    for one in &needed {
        assert!(one["req"] != "*" || one["path"].is_string(), "any version of {} is accepted", one["name"]);
    }
    assert!(needed.len() > 100, "only {} dependencies", needed.len());
}

/// cargo verifies by it what it downloads, and the bills of materials of the images contain it.
#[test]
fn the_lock_file_has_a_checksum_of_each_crate() {
    let foreign = lock_file().into_iter().filter(|one| one.get("source").is_some());
    let (with, without): (Vec<_>, Vec<_>) = foreign.partition(|one| one.get("checksum").is_some());
    assert!(without.is_empty(), "{without:?}");
    assert!(with.len() > 300, "only {} packages", with.len());
}
