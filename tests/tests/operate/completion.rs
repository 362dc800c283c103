//! Completion of `kubectl repot`, by the program that kubectl runs.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use anyhow::{Result, ensure};
use repot_tests::repot::program;
use repot_tests::{run, tool};
use tokio::process::Command;

#[test]
fn kubectl_completes_commands_and_flags() {
    run(async |env| {
        let bin = env.make_dir("bin")?;
        symlink(program()?, bin.join("kubectl-repot"))?;
        let mut print = Command::new(program()?);
        print.args(["completion", "bash", "--kubectl"]);
        let script = bin.join("kubectl_complete-repot");
        fs::write(&script, tool::run(print, b"").await?.text()?)?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        let path = format!("{}:{}", bin.display(), std::env::var("PATH")?);
        let complete = async |words: &[&str]| -> Result<Vec<String>> {
            let mut command = Command::new("sh");
            command.arg(&script).args(words).env("PATH", &path);
            Ok(tool::run(command, b"").await?.text()?.lines().map(str::to_owned).collect())
        };
        let commands = complete(&[""]).await?;
        for one in ["plan", "migrate", "drain", "doctor", ":4"] {
            ensure!(commands.iter().any(|line| line == one), "no {one} in {commands:?}");
        }
        ensure!(!commands.iter().any(|line| line == "apiserver"), "servers are shown: {commands:?}");
        let flags = complete(&["plan", "alpha", "--"]).await?;
        ensure!(
            flags.iter().any(|line| line == "--live") && flags.iter().any(|line| line == "--to"),
            "{flags:?}"
        );
        ensure!(
            complete(&["history", ""]).await?.iter().any(|line| line == "verify"),
            "no commands of history"
        );
        Ok(())
    });
}
