//! Where the programs are that tests run against.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// Finds a program: in `$KUBEBUILDER_ASSETS` when that is set and holds it, else in `target/testbed/bin`.
///
/// Errors: when it is in neither place; the message names the program and the command that builds it.
pub fn find(name: &str) -> Result<PathBuf> {
    let built = testbed_dir().join("bin").join(name);
    let given = env::var_os("KUBEBUILDER_ASSETS").map(|dir| PathBuf::from(dir).join(name));
    match given.into_iter().chain([built.clone()]).find(|path| path.is_file()) {
        Some(path) => Ok(path),
        None => bail!(
            "{name} is missing: build it by `make testbed`, or set KUBEBUILDER_ASSETS to a directory that holds it \
             (looked for {})",
            built.display()
        ),
    }
}

/// `target/testbed`: `bin` holds the programs that were built, `run` what running tests write.
pub fn testbed_dir() -> PathBuf {
    target_dir().join("testbed")
}

/// The directory of cargo's build profile that the running program was built with, where `repot` lies too.
pub fn profile_dir() -> Result<PathBuf> {
    let executable = env::current_exe()?;
    match profile_dir_of(&executable) {
        Some(dir) => Ok(dir.to_owned()),
        None => bail!("{} lies in no target directory", executable.display()),
    }
}

/// Tests lie in `deps` of the profile's directory, and other programs in that directory itself.
fn profile_dir_of(executable: &Path) -> Option<&Path> {
    let dir = executable.parent()?;
    if dir.ends_with("deps") { dir.parent() } else { Some(dir) }
}

/// Cargo's target directory: the test executable is `<target>/<profile>/deps/<name>`.
fn target_dir() -> PathBuf {
    let executable = env::current_exe().unwrap_or_default();
    // Cargo marks the directory, unless somebody made it before cargo did; then its name has to tell.
    let is_target = |dir: &&Path| dir.join("CACHEDIR.TAG").is_file() || dir.ends_with("target");
    let above = executable.ancestors().find(is_target);
    above.map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"), Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_missing_program_and_its_cure() {
        let message = find("no-such-program").expect_err("it does not exist").to_string();
        assert!(message.contains("no-such-program is missing"), "{message}");
        assert!(message.contains("make testbed"), "{message}");
    }

    #[test]
    fn tests_and_programs_have_the_same_profile() {
        for executable in ["/t/debug/deps/it-1", "/t/debug/landscape"] {
            assert_eq!(profile_dir_of(Path::new(executable)), Some(Path::new("/t/debug")));
        }
    }

    #[test]
    fn finds_target_directory_of_running_test() {
        let profile = profile_dir().expect("a test runs from the target directory");
        assert_eq!(profile.parent(), testbed_dir().parent());
    }
}
