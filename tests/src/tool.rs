//! Programs that run to their end: started, fed, and their output kept.

use std::fmt;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// What a program answered.
pub struct Output {
    /// The command line, for messages.
    pub command: String,
    /// Exit code; -1 when a signal ended it.
    pub code: i32,
    /// Standard output, as bytes.
    pub stdout: Vec<u8>,
    /// Standard error, as text.
    pub stderr: String,
}

/// Standard output as text: it is what a message of a test is read for.
impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, code, stdout, stderr } = self;
        let stdout = String::from_utf8_lossy(stdout);
        write!(f, "`{command}` ended with {code}; standard output: {stdout:?}; standard error: {stderr:?}")
    }
}

impl Output {
    /// Whether the exit code is 0.
    pub fn succeeded(&self) -> bool {
        self.code == 0
    }

    /// Standard output as text.
    ///
    /// Errors: when the exit code is not 0, with all that the program said.
    pub fn text(self) -> Result<String> {
        let text = String::from_utf8_lossy(&self.stdout).into_owned();
        match self.succeeded() {
            true => Ok(text),
            false => bail!("`{}` exited with {}\n{}{text}", self.command, self.code, self.stderr),
        }
    }

    /// Standard output as JSON.
    ///
    /// Errors: as [`Output::text`], and when it is not JSON.
    pub fn json(self) -> Result<serde_json::Value> {
        let command = self.command.clone();
        serde_json::from_str(&self.text()?).with_context(|| format!("`{command}` answered no JSON"))
    }
}

/// Runs a command to its end with `input` on standard input. It is killed when the caller goes away.
///
/// Errors: when it cannot be started or read; a bad exit code is an [`Output`].
pub async fn run(mut command: Command, input: &[u8]) -> Result<Output> {
    let line = render(&command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().with_context(|| format!("failed to start `{line}`"))?;
    let stdin = child.stdin.take();
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A program may end without reading all of it; its exit code and output tell the rest.
            let _ = stdin.write_all(input).await;
        }
    };
    let (output, ()) = tokio::join!(child.wait_with_output(), feed);
    let output = output.with_context(|| format!("failed to run `{line}`"))?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(Output { command: line, code: output.status.code().unwrap_or(-1), stdout: output.stdout, stderr })
}

fn render(command: &Command) -> String {
    let command = command.as_std();
    let program = std::path::Path::new(command.get_program()).file_name().unwrap_or_default();
    std::iter::once(program)
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
