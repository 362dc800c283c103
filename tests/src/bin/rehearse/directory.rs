//! The directory of a rehearsal: everything that it writes is in it, and what leads nowhere any more is removed at the end.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use repot_tests::TestEnv;

/// Marks a directory of a rehearsal. It is locked while the rehearsal runs; the kernel gives the lock back whenever it ends.
const MARK: &str = "rehearsal.lock";
/// The beginning of the name of the directory in which programs write while they run.
const RUN: &str = "run.";
const LOGS: &str = "logs";
const TEMPORARY: &str = "tmp";
const KUBECONFIG: &str = "kubeconfig";
/// What a rehearsal leaves.
const RESULTS: [&str; 3] = ["report.txt", "report.json", "timeline.svg"];
/// A path of a socket has 107 bytes at most, and those of name servers have 40 below the directory.
const LONGEST: usize = 64;

/// A directory that this rehearsal has for itself.
pub struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    /// Makes it, or takes that of an earlier rehearsal and removes what that one has left.
    ///
    /// Errors: where it holds files of somebody else, or another rehearsal runs in it.
    pub fn open(path: &Path) -> Result<Self> {
        let failed = || format!("failed to use the directory {}", path.display());
        fs::create_dir_all(path).with_context(failed)?;
        let path = path.canonicalize().with_context(failed)?;
        let is_empty = fs::read_dir(&path).with_context(failed)?.next().is_none();
        ensure!(
            is_empty || path.join(MARK).is_file(),
            "{} holds files that are of no rehearsal; name an empty directory by --directory",
            path.display()
        );
        let lock = File::options().create(true).append(true).open(path.join(MARK)).with_context(failed)?;
        if lock.try_lock().is_err() {
            bail!("another rehearsal runs in {}; name another directory by --directory", path.display());
        }
        let directory = Self { path, _lock: lock };
        directory.remove(|name| is_of_run(name) || name == LOGS || RESULTS.contains(&name))?;
        Ok(directory)
    }

    /// The path, without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where programs write while they run.
    pub fn env(&self) -> Result<TestEnv> {
        let temporary = self.path.join(TEMPORARY);
        if self.path.as_os_str().len() <= LONGEST {
            fs::create_dir(&temporary).context("failed to make a directory for temporary files")?;
            // Fails only when it was set before, and nobody does that.
            let _ = tempfile::env::override_temp_dir(&temporary);
        }
        TestEnv::new_in(&self.path, RUN)
    }

    /// The kubeconfig file of a cluster.
    pub fn kubeconfig(&self, cluster: &str) -> PathBuf {
        self.path.join(format!("{cluster}.{KUBECONFIG}"))
    }

    /// Writes a file of the results.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        let file = self.path.join(name);
        fs::write(&file, text).with_context(|| format!("failed to write {}", file.display()))
    }

    /// Keeps the logs and removes all the rest of what programs have written. They have ended.
    pub fn finish(&self, env: TestEnv) -> Result<()> {
        move_logs(env.path(), &self.path.join(LOGS))?;
        drop(env);
        self.remove(is_of_run)
    }

    fn remove(&self, which: impl Fn(&str) -> bool) -> Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if !entry.file_name().to_str().is_some_and(&which) {
                continue;
            }
            let (path, is_dir) = (entry.path(), entry.file_type()?.is_dir());
            let removed = if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.with_context(|| format!("failed to remove {}", path.display()))?;
        }
        Ok(())
    }
}

/// Whether it is of use only while the rehearsal runs. Kubeconfig files hold keys of clusters that are gone.
fn is_of_run(name: &str) -> bool {
    name.starts_with(RUN) || name == TEMPORARY || name.ends_with(&format!(".{KUBECONFIG}"))
}

fn move_logs(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("failed to read {}", from.display()))? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() {
            move_logs(&path, &to.join(entry.file_name()))?;
        } else if kind.is_file()
            && path.extension().is_some_and(|end| end == "log")
            && entry.metadata()?.len() > 0
        {
            fs::create_dir_all(to)?;
            fs::rename(&path, to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_of_others_is_refused_and_left_as_it_is() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("report.txt"), "of somebody").expect("a file");
        let refused = Directory::open(dir.path()).err().expect("a refusal").to_string();
        assert!(refused.contains("of no rehearsal"), "{refused}");
        assert_eq!(fs::read_to_string(dir.path().join("report.txt")).expect("it is there"), "of somebody");
    }

    #[test]
    fn second_rehearsal_is_refused_while_the_first_one_runs_and_takes_its_place_afterwards() {
        let dir = tempfile::tempdir().expect("a directory");
        let first = Directory::open(dir.path()).expect("it is empty");
        fs::create_dir(first.path().join("run.1")).expect("a directory");
        first.write("report.json", "{}").expect("a report");
        let refused = Directory::open(dir.path()).err().expect("a refusal").to_string();
        assert!(refused.contains("another rehearsal runs"), "{refused}");
        drop(first);
        let second = Directory::open(dir.path()).expect("nobody uses it");
        assert_eq!(names(second.path()), [MARK]);
    }

    #[test]
    fn logs_are_kept_and_keys_and_data_are_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let directory = Directory::open(dir.path()).expect("it is empty");
        let env = TestEnv::new_in(directory.path(), RUN).expect("a directory");
        let own = env.make_dir("etcd").expect("a directory");
        for (name, text) in [("etcd.log", "ready"), ("empty.log", ""), ("data", "secret")] {
            fs::write(own.join(name), text).expect("a file");
        }
        fs::write(directory.kubeconfig("garden"), "key").expect("a file");
        directory.write("report.txt", "fine").expect("a report");
        directory.finish(env).expect("it ends");
        assert_eq!(names(directory.path()), ["logs", MARK, "report.txt"]);
        assert_eq!(names(&directory.path().join("logs/etcd")), ["etcd.log"]);
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).expect("a directory");
        let mut names: Vec<_> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}
