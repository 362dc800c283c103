//! Logs go to stderr: for people on a terminal, as JSON elsewhere.

use std::io::IsTerminal;

use clap::{Args, ValueEnum};
use repot_telemetry::TraceLayer;
use tracing_subscriber::{EnvFilter, Layer, fmt, layer::SubscriberExt, util::SubscriberInitExt};

const LEVEL: &str = "info,fjall=warn,lsm_tree=warn";
/// What is logged of requests and watches that fail.
const REQUESTS: &str = ",kube_client::client::builder=off,kube_runtime=off,repot_webhook::facts=off";

/// Flags for what is logged, and in which form.
#[derive(Args)]
pub struct Flags {
    /// What to log: a level, or directives such as `info,repot_storage=debug`
    #[arg(long, global = true, default_value = LEVEL, env = "REPOT_LOG", value_name = "FILTER")]
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

impl Flags {
    /// Leaves out requests that fail, unless somebody chose what is logged: for commands that tell of failures themselves.
    pub fn without_requests(&mut self) {
        if self.log_level == LEVEL {
            self.log_level.push_str(REQUESTS);
        }
    }
}

/// Installs the subscriber of the process. `traces`: what exports spans, which logs are not changed by.
pub fn install(flags: &Flags, traces: Option<TraceLayer>) {
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
    let json = match flags.log_format {
        Format::Json => true,
        Format::Auto => !terminal,
        Format::Human => false,
    };
    if let Some(traces) = traces {
        let lines = fmt::layer().with_writer(std::io::stderr);
        let lines =
            if json { lines.json().flatten_event(true).boxed() } else { lines.with_ansi(terminal).boxed() };
        // The filter is for log lines alone: with --log-level=warn all traces are still exported.
        tracing_subscriber::registry().with(traces).with(lines.with_filter(filter)).init();
        return;
    }
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if json { lines.json().flatten_event(true).init() } else { lines.with_ansi(terminal).init() }
}
