//! `repot timeline`: the steps of a migration as bars over time.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context;
use clap::Args;
use jiff::Timestamp;
use repot_console::timeline::{self, Charset, Detail};

use super::{Output, ShootFlags, answer, print, width};

/// Show the steps of a migration as bars over time, by side, with the outage of the API.
///
/// Exit codes: 0 done, 2 bad usage, 1 failure.
///
///     repot timeline alpha -n garden-dev --kubeconfig garden.yaml
///     kubectl repot timeline alpha --migration alpha-to-b --svg alpha.svg
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Flags {
    #[command(flatten)]
    target: ShootFlags,
    /// Steps that did not apply as well
    #[arg(long)]
    all: bool,
    /// Draw with ASCII alone [default: as the locale says]
    #[arg(long)]
    ascii: bool,
    /// Write a picture in SVG to this file; `-` is standard output
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Form of the answer
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

pub async fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    let place = flags.target.place.connect().await?;
    let migration = match flags.target.require(&place).await? {
        Ok(migration) => migration,
        Err(code) => return Ok(code),
    };
    let (now, detail) = (Timestamp::now(), if flags.all { Detail::All } else { Detail::Applied });
    if let Some(file) = &flags.svg {
        let svg = timeline::svg(&migration, detail, now);
        match file.as_os_str() == "-" {
            true => print(&svg)?,
            false => {
                std::fs::write(file, svg).with_context(|| format!("failed to write {}", file.display()))?
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let charset = if flags.ascii || !is_unicode() { Charset::Ascii } else { Charset::Unicode };
    answer(flags.output, &migration, |_| timeline::text(&migration, detail, width(), charset, now))?;
    Ok(ExitCode::SUCCESS)
}

/// Whether the locale says that the terminal shows UTF-8.
fn is_unicode() -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(|name| std::env::var(name).ok());
    let locale = set.into_iter().find(|value| !value.is_empty()).unwrap_or_default().to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}
