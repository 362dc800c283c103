//! Runs, for each mutation, the test that must find it.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use super::{
    root, source,
    table::{self, Mutation, Test},
};

/// How long a test may take. One that takes longer is killed, and has found nothing.
const TEST_LIMIT: Duration = Duration::from_secs(120);
/// How often a test runs that passes on mutated code: some need two things to happen at once.
const ATTEMPTS: u32 = 3;
/// Tests at a time.
const WORKERS: usize = 2;

/// How a test ended.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    /// It was killed after [`TEST_LIMIT`].
    TimedOut,
    /// No test has the name, or its program ended in another way; what it printed.
    Other(String),
}

/// The test programs of the mutated crate.
struct Programs {
    lib: PathBuf,
    it: PathBuf,
    /// The directory of the mutated crate.
    dir: PathBuf,
}

impl Programs {
    /// Builds the mutated crate, into the target directory of this test: dependencies are those of the crate as it is.
    fn build() -> Self {
        let workspace = source::write_mutated_workspace();
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        eprintln!("building {} mutations in {}", table::all().count(), workspace.display());
        // Cargo's configuration is that of the directory in which it runs.
        let output = Command::new(env!("CARGO"))
            .args(["test", "--locked", "--color=never", "--package=repot-storage", "--lib", "--test=it"])
            // Building takes longer than running: the tests mostly wait for servers.
            .args(["--config", "profile.dev.package.repot-storage.opt-level=0"])
            .args(["--config", "profile.dev.package.repot-storage.debug=false"])
            .args(["--no-run", "--manifest-path"])
            .arg(workspace.join("Cargo.toml"))
            .arg("--target-dir")
            .arg(target)
            .current_dir(root())
            .output()
            .unwrap();
        let printed = String::from_utf8(output.stderr).unwrap();
        let program = |label: &str| {
            let mut lines = printed.lines().map(str::trim);
            let path = lines.find_map(|line| line.strip_prefix(label)?.strip_suffix(')'));
            root().join(path.unwrap_or_else(|| panic!("the mutated crate was not built:\n{printed}")))
        };
        Self {
            lib: program("Executable unittests src/lib.rs ("),
            it: program("Executable tests/it.rs ("),
            dir: workspace.join("storage"),
        }
    }

    fn run(&self, test: Test, mutation: Option<&str>) -> Outcome {
        let program = match test {
            Test::Lib(_) => &self.lib,
            Test::It(_) => &self.it,
        };
        let out = tempfile::NamedTempFile::new().unwrap();
        let mut command = Command::new(program);
        command.args(["--exact", test.name(), "--test-threads=1"]).current_dir(&self.dir);
        command.env_remove("REPOT_SOAK").env_remove("REPOT_MUTATION").stdin(Stdio::null());
        if std::env::var_os("KUBEBUILDER_ASSETS").is_none() {
            command.env("KUBEBUILDER_ASSETS", root().join("target/testbed/bin"));
        }
        // Cases that fail because of a mutation are not worth keeping.
        command.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true");
        command.stdout(out.reopen().unwrap()).stderr(out.reopen().unwrap());
        let mut child = command.envs(mutation.map(|name| ("REPOT_MUTATION", name))).spawn().unwrap();
        let start = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if start.elapsed() > TEST_LIMIT {
                child.kill().unwrap();
                child.wait().unwrap();
                return Outcome::TimedOut;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        outcome(&std::fs::read(out.path()).unwrap())
    }

    /// Why the table is wrong about a mutation, if it is.
    fn check_mutation(&self, mutation: &Mutation) -> Option<String> {
        let start = Instant::now();
        let mut outcome = Outcome::Passed;
        for _ in 0..ATTEMPTS {
            outcome = self.run(mutation.test, Some(mutation.name));
            if outcome != Outcome::Passed {
                break;
            }
        }
        let Mutation { name, test, .. } = mutation;
        eprintln!("{name:35} {:5.1} s {test} {outcome:?}", start.elapsed().as_secs_f32());
        (outcome != Outcome::Failed).then(|| format!("{test} does not find mutation {name}: {outcome:?}"))
    }

    /// Why a test is no proof, if it does not pass without a mutation.
    fn check_unmutated(&self, test: Test) -> Option<String> {
        let outcome = self.run(test, None);
        (outcome != Outcome::Passed).then(|| format!("{test} without a mutation: {outcome:?}"))
    }
}

/// Reads the last line of a test program.
fn outcome(printed: &[u8]) -> Outcome {
    let printed = String::from_utf8_lossy(printed).into_owned();
    match printed.lines().rev().find_map(|line| line.strip_prefix("test result: ")) {
        Some(line) if line.contains(" 1 passed; 0 failed") => Outcome::Passed,
        Some(line) if line.contains(" 0 passed; 1 failed") => Outcome::Failed,
        _ => Outcome::Other(printed),
    }
}

/// Checks items, [`WORKERS`] at a time and in order; returns what is wrong.
fn check_all<T: Sync>(items: &[T], check: impl Fn(&T) -> Option<String> + Sync) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut wrong = Vec::new();
        while let Some(item) = items.get(next.fetch_add(1, Ordering::SeqCst)) {
            wrong.extend(check(item));
        }
        wrong
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

#[test]
#[ignore = "builds the mutated crate and takes minutes: make mutations"]
fn each_mutation_is_found_by_its_test() {
    let programs = Programs::build();
    let mutations: Vec<_> = table::all().collect();
    let tests: Vec<_> = mutations.iter().map(|m| m.test).collect::<BTreeSet<_>>().into_iter().collect();
    let mut wrong = check_all(&tests, |test| programs.check_unmutated(*test));
    wrong.extend(check_all(&mutations, |mutation| programs.check_mutation(mutation)));
    assert!(wrong.is_empty(), "{} of the table is wrong:\n{}", wrong.len(), wrong.join("\n"));
}
