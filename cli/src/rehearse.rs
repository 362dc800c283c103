//! `repot rehearse`: runs the program that rehearses flows, which is no part of this one: it has a whole landscape in it.

use std::{
    env,
    ffi::OsString,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, bail};
use clap::Args;

/// The program, beside this one.
const PROGRAM: &str = "rehearse";

/// Rehearse a live, classic or forced migration, or the isolation of a zone, on this machine.
///
/// A garden, two seeds and a Shoot under load start on this machine, the flow runs, and a report says what was seen. The program for it
/// comes with a checkout of Repot: `make rehearse` builds it, beside this one. All arguments are passed on to it, and its exit code is
/// that of this command: 0 everything that is promised was seen, 3 it was not, 2 bad usage, 1 failure, 130 ended by a signal.
///
///     repot rehearse --help
///     repot rehearse live --rtt 180ms
///     repot rehearse classic --size 200MB --fault SourceApiStopped=kill
#[derive(Args)]
#[command(verbatim_doc_comment, disable_help_flag = true)]
pub struct Flags {
    /// Arguments of the program; `--help` explains them
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Becomes the program.
///
/// Errors: when it is not beside this one, or cannot be started.
pub fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    let own = env::current_exe().context("failed to find this program")?;
    let program = find(&own)?;
    // Returns only when it cannot be started.
    let error = Command::new(&program).args(&flags.arguments).exec();
    Err(error).with_context(|| format!("failed to start {}", program.display()))
}

/// The program beside the one that runs; links are followed, as that of `kubectl repot` may be one.
fn find(own: &Path) -> anyhow::Result<PathBuf> {
    let real = own.canonicalize().unwrap_or_else(|_| own.to_owned());
    let found = [own, &real]
        .into_iter()
        .filter_map(|path| Some(path.parent()?.join(PROGRAM)))
        .find(|path| path.is_file());
    match found {
        Some(path) => Ok(path),
        None => bail!(
            "the program {PROGRAM} is not in {}: run `make rehearse ARGS=\"live\"` in a checkout of Repot, which builds \
             it and what it needs; then target/debug/repot finds it, too",
            real.parent().unwrap_or(&real).display()
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn program_is_found_beside_this_one_and_beside_what_a_link_leads_to() {
        let dir = tempfile::tempdir().expect("a directory");
        let (bin, links) = (dir.path().join("bin"), dir.path().join("links"));
        for path in [&bin, &links] {
            fs::create_dir(path).expect("a directory");
        }
        fs::write(bin.join("repot"), "").expect("a file");
        symlink(bin.join("repot"), links.join("kubectl-repot")).expect("a link");
        let missing = find(&links.join("kubectl-repot")).expect_err("it is not built").to_string();
        assert!(missing.contains("make rehearse"), "{missing}");
        fs::write(bin.join(PROGRAM), "").expect("a file");
        let bin = bin.canonicalize().expect("a directory");
        for own in [bin.join("repot"), links.join("kubectl-repot")] {
            assert_eq!(find(&own).expect("it is there").canonicalize().expect("a file"), bin.join(PROGRAM));
        }
    }
}
