//! Commands that look at an installation and at its hosted etcds, on real parts.

mod doctor;
mod etcd;

use std::path::Path;

use anyhow::{Result, ensure};
use repot_tests::repot::program;
use repot_tests::tool::{self, Output};
use tokio::process::Command;

/// Runs the program with a kubeconfig, without a terminal.
async fn repot(kubeconfig: &Path, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(program()?);
    command.args(arguments).arg("--kubeconfig").arg(kubeconfig).env_remove("KUBECONFIG");
    tool::run(command, b"").await
}

/// The same; it has to end with this exit code. Gives standard output and standard error.
async fn expect(code: i32, kubeconfig: &Path, arguments: &[&str]) -> Result<(String, String)> {
    let output = repot(kubeconfig, arguments).await?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("repot {}\n{}{text}", arguments.join(" "), output.stderr);
    ensure!(output.code == code, "not {code}: {output:?}");
    Ok((text, output.stderr))
}

fn has(text: &str, parts: &[&str]) -> Result<()> {
    for part in parts {
        ensure!(text.contains(part), "no {part:?} in:\n{text}");
    }
    Ok(())
}
