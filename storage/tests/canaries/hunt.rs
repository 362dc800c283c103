//! Lets one canary after the other sing to the test that has to find it.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use super::{ALL, Program, Wrong, crate_dir};

/// How long a test may take. One that does not come to an end has found nothing.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often a test is run that happened to meet nothing wrong: some wait for two things to happen at once.
const TRIES: u32 = 3;
/// Tests at a time.
const WORKERS: usize = 2;

/// How a test ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Passed,
    Failed,
    /// It was ended for it did not come to an end.
    Hung,
    /// There is none of that name, or its program ended in another way.
    Other(String),
}

/// The two programs that tests are in.
struct Programs {
    lib: PathBuf,
    it: PathBuf,
}

impl Programs {
    /// Asks cargo for the program with the tests beside the code: built as this one is.
    fn find() -> Self {
        let root = crate_dir().parent().unwrap();
        let output = Command::new(env!("CARGO"))
            .args([
                "test",
                "--locked",
                "--package",
                "repot-storage",
                "--features",
                "canaries",
                "--lib",
                "--no-run",
            ])
            .current_dir(root)
            .output()
            .unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        let line =
            told.lines().find_map(|line| line.trim().strip_prefix("Executable unittests src/lib.rs ("));
        let lib = line.and_then(|rest| rest.strip_suffix(')')).unwrap_or_else(|| panic!("{told}"));
        Self { lib: root.join(lib), it: std::env::current_exe().unwrap() }
    }

    fn run(&self, program: Program, test: &str, canary: Option<&str>) -> End {
        let program = if program == Program::Lib { &self.lib } else { &self.it };
        let out = tempfile::NamedTempFile::new().unwrap();
        let mut command = Command::new(program);
        command.args(["--exact", test, "--test-threads=1"]).current_dir(crate_dir());
        command.env_remove("REPOT_SOAK").env_remove("REPOT_CANARY").stdin(Stdio::null());
        // Cases that fail because of a canary are not worth keeping.
        command.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true");
        command.stdout(out.reopen().unwrap()).stderr(out.reopen().unwrap());
        let mut child = command.envs(canary.map(|name| ("REPOT_CANARY", name))).spawn().unwrap();
        let begin = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if begin.elapsed() > PATIENCE {
                child.kill().unwrap();
                child.wait().unwrap();
                return End::Hung;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let told = String::from_utf8_lossy(&std::fs::read(out.path()).unwrap()).into_owned();
        match told.lines().rev().find_map(|line| line.strip_prefix("test result: ")) {
            Some(line) if line.contains(" 1 passed; 0 failed") => End::Passed,
            Some(line) if line.contains(" 0 passed; 1 failed") => End::Failed,
            _ => End::Other(told),
        }
    }

    /// What is wrong with what the table says of one.
    fn hunt(&self, wrong: &Wrong) -> Option<String> {
        let begin = Instant::now();
        let mut end = End::Passed;
        for _ in 0..TRIES {
            end = self.run(wrong.program, wrong.test, Some(wrong.name));
            if end != End::Passed {
                break;
            }
        }
        eprintln!("{:26} {:5.1} s {} {end:?}", wrong.name, begin.elapsed().as_secs_f32(), wrong.test);
        (end != End::Failed).then(|| format!("{} is not found by {}: {end:?}", wrong.name, wrong.test))
    }

    /// Nothing is wrong where none is planted.
    fn rest(&self, (program, test): (Program, &str)) -> Option<String> {
        let end = self.run(program, test, None);
        (end != End::Passed).then(|| format!("{test} without a canary: {end:?}"))
    }
}

/// Some at a time, in order.
fn all<T: Sync>(items: &[T], look: impl Fn(&T) -> Option<String> + Sync) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut found = Vec::new();
        while let Some(item) = items.get(next.fetch_add(1, Ordering::SeqCst)) {
            found.extend(look(item));
        }
        found
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

#[test]
fn each_canary_is_found() {
    let programs = Programs::find();
    let tests: Vec<_> =
        ALL.iter().map(|w| (w.program, w.test)).collect::<BTreeSet<_>>().into_iter().collect();
    let mut faults = all(&tests, |test| programs.rest(*test));
    faults.extend(all(ALL, |wrong| programs.hunt(wrong)));
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}
