//! kubectl of two ages, by hand as people use it: 1.20, the oldest that is still about, and the current one.
//!
//! Every row is played by both programs that know it, on `repot dev` and through a real kube-apiserver.

mod everyday;
mod server_side;

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::kubectl::Kubectl;
use repot_tests::{TestEnv, tool};
use serde_json::Value;
use tokio::io::AsyncBufReadExt;
use tokio::process::{Child, ChildStdout};

use crate::shootstate::world::World;

/// How long a line of a program that goes on may take to come.
const LINE_DEADLINE: Duration = Duration::from_secs(60);

/// A kubectl, the place where it works, and what its objects are called.
pub struct Hand<'a> {
    pub env: &'a TestEnv,
    pub world: &'a World,
    pub kubectl: Kubectl,
    /// `old` or `new`: begins the names of its objects, so that both work in one namespace.
    pub age: &'static str,
}

impl Hand<'_> {
    /// Plays a scenario with both programs.
    pub async fn both(
        env: &TestEnv,
        world: &World,
        play: impl AsyncFn(&Hand<'_>) -> Result<()>,
    ) -> Result<()> {
        for (age, kubectl) in [("old", world.kubectl.old(env)?), ("new", world.kubectl.clone())] {
            let hand = Hand { env, world, kubectl, age };
            play(&hand).await.with_context(|| format!("with the {age} kubectl"))?;
        }
        Ok(())
    }

    pub fn is_old(&self) -> bool {
        self.age == "old"
    }

    /// The name of an object of its own.
    pub fn name(&self, rest: &str) -> String {
        format!("{}-{rest}", self.age)
    }

    /// Runs a command line, cut at blanks; it has to succeed.
    pub async fn says(&self, line: &str) -> Result<String> {
        self.kubectl.run(line.split_whitespace()).await?.text()
    }

    /// The same with an object on standard input, for `-f -`.
    pub async fn says_to(&self, line: &str, object: &Value) -> Result<String> {
        self.kubectl.run_with(line.split_whitespace(), object.to_string().as_bytes()).await?.text()
    }

    /// Runs a command line that has to fail; what it says about that.
    pub async fn fails(&self, line: &str, object: &Value) -> Result<String> {
        let output = self.kubectl.run_with(line.split_whitespace(), object.to_string().as_bytes()).await?;
        ensure!(!output.succeeded(), "`{line}` succeeded");
        Ok(output.stderr)
    }

    /// `kubectl edit` with an editor that runs one sed expression.
    pub async fn edits(&self, line: &str, expression: &str) -> Result<String> {
        let editor = self.env.path().join(format!("{}-editor.sh", self.age));
        std::fs::write(&editor, format!("#!/bin/sh\nsed -i '{expression}' \"$1\"\n"))?;
        std::fs::set_permissions(&editor, std::fs::Permissions::from_mode(0o755))?;
        let mut command = self.kubectl.command(line.split_whitespace());
        command.env("EDITOR", &editor);
        tool::run(command, b"").await?.text()
    }

    /// Starts a command that goes on, and gives its lines.
    pub fn follows(&self, line: &str) -> Result<Lines> {
        let mut command = self.kubectl.command(line.split_whitespace());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let out = child.stdout.take().context("standard output")?;
        Ok(Lines { lines: tokio::io::BufReader::new(out).lines(), _child: child })
    }
}

/// What a program that goes on writes. It ends with this value.
pub struct Lines {
    lines: tokio::io::Lines<tokio::io::BufReader<ChildStdout>>,
    _child: Child,
}

impl Lines {
    /// Reads on until a line satisfies.
    pub async fn until(&mut self, what: &str, satisfies: impl Fn(&str) -> bool) -> Result<String> {
        let read = async {
            while let Some(line) = self.lines.next_line().await? {
                if satisfies(&line) {
                    return Ok(line);
                }
            }
            anyhow::bail!("the program ended without {what}")
        };
        tokio::time::timeout(LINE_DEADLINE, read)
            .await
            .with_context(|| format!("no line came with {what}"))?
    }
}
