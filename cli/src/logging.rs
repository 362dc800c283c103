//! Logs go to stderr: for people on a terminal, as JSON elsewhere.

use std::io::IsTerminal;

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

/// Flags for what is logged, and in which form.
#[derive(Args)]
pub struct Flags {
    /// What to log: a level, or directives such as `info,repot_storage=debug`
    #[arg(
        long,
        global = true,
        default_value = "info,fjall=warn,lsm_tree=warn",
        env = "REPOT_LOG",
        value_name = "FILTER"
    )]
    log_level: String,
    /// Form of log lines; auto is human on a terminal and json elsewhere
    #[arg(long, global = true, value_enum, default_value_t = Format::Auto)]
    log_format: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Auto,
    Human,
    Json,
}

/// Installs the subscriber of the process.
pub fn install(flags: &Flags) {
    let terminal = std::io::stderr().is_terminal();
    let filter = EnvFilter::try_new(&flags.log_level).unwrap_or_else(|error| {
        eprintln!("repot: --log-level: {error}; logging at info");
        EnvFilter::new("info")
    });
    // Where an answer cannot be understood, this one prints it whole, and it may be a Secret.
    let filter = match "kube_client::client=error".parse() {
        Ok(directive) => filter.add_directive(directive),
        Err(_) => filter,
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match flags.log_format {
        Format::Json => builder.json().flatten_event(true).init(),
        Format::Auto if !terminal => builder.json().flatten_event(true).init(),
        Format::Auto | Format::Human => builder.with_ansi(terminal).init(),
    }
}
