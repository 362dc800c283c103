//! `repot completion`: scripts that let a shell complete commands and flags.

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

/// Print a script that lets a shell complete commands and flags.
///
///     source <(repot completion bash)
///     repot completion zsh > "${fpath[1]}/_repot"
///     repot completion bash --kubectl > ~/.local/bin/kubectl_complete-repot
///
/// With --kubectl it is a program: kubectl calls it by the name kubectl_complete-repot, which has to be executable and in PATH.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Flags {
    /// The shell that reads the script
    #[arg(value_enum)]
    shell: Shell,
    /// A program for the completion of `kubectl repot`, for all shells of kubectl
    #[arg(long)]
    kubectl: bool,
}

/// What kubectl runs: it prints the candidates, one in a line, and a directive of cobra (4: no names of files).
const KUBECTL: &str = r#"#!/bin/sh
# Completes `kubectl repot`: kubectl calls it with the words behind `repot`, the last one unfinished.
last=
for word in "$@"; do last=$word; done
words=
while [ $# -gt 1 ]; do
  case $1 in -*) ;; *) words="$words $1" ;; esac
  shift
done
# shellcheck disable=SC2086
help=$(kubectl-repot $words --help 2>/dev/null) || help=
case $last in
  -*) printf '%s\n' "$help" | grep -oE -- '(^|[ ,])--[a-z-]+' | tr -d ' ,' | sort -u ;;
  *) printf '%s\n' "$help" | sed -n '/^Commands:/,/^$/s/^  \([a-z][a-z-]*\).*/\1/p' ;;
esac
echo :4
"#;

pub fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    if flags.kubectl {
        super::print(KUBECTL)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut script = Vec::new();
    generate(flags.shell, &mut crate::Cli::command(), "repot", &mut script);
    super::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
