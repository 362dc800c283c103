//! Commands that show and steer migrations: what they share.

pub mod completion;
pub mod drain;
pub mod evidence;
pub mod migrate;
pub mod plan;
pub mod status;
pub mod steer;
pub mod timeline;

use std::{
    io::{BufRead as _, ErrorKind, IsTerminal, Write},
    process::ExitCode,
};

use anyhow::Context;
use clap::{Args, ValueEnum};
use repot_apimachinery::validation;
use repot_console::{garden::Garden, migration::Migration};
use repot_controllers::migration::api::ControlPlaneMigration;
use serde::Serialize;

use crate::garden::GardenFlags;

/// The answer is no, or a migration has not succeeded.
pub const NO: u8 = 3;
/// Bad usage, as for flags.
pub const USAGE: u8 = 2;

/// Which migration is meant.
#[derive(Args)]
pub struct ShootFlags {
    /// Name of the Shoot: its newest migration is meant
    #[arg(value_name = "SHOOT", value_parser = name)]
    shoot: Option<String>,
    /// Name of the ControlPlaneMigration, in place of the newest one of a Shoot
    #[arg(long, value_name = "NAME", value_parser = name)]
    migration: Option<String>,
    #[command(flatten)]
    place: ConnectionFlags,
}

/// In which garden and namespace.
#[derive(Args)]
pub struct ConnectionFlags {
    #[command(flatten)]
    pub garden: GardenFlags,
    /// Namespace of the Shoot [default: that of the context]
    #[arg(short, long, value_name = "NAMESPACE", value_parser = name)]
    pub namespace: Option<String>,
}

/// A garden, and a namespace in it.
pub struct Connection {
    pub garden: Garden,
    pub namespace: String,
    /// URL of its API server.
    pub server: String,
}

/// Form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A text for people
    Text,
    /// The same with more columns
    Wide,
    /// One JSON document, for programs
    Json,
    /// One YAML document, for programs
    Yaml,
}

impl ConnectionFlags {
    pub async fn connect(&self) -> anyhow::Result<Connection> {
        let config = self.garden.config().await?;
        let server = config.cluster_url.to_string();
        let client = kube::Client::try_from(config).context("failed to make a client of the garden")?;
        let namespace = self.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        Ok(Connection { garden: Garden::new(client), namespace, server })
    }
}

impl ShootFlags {
    /// The object that is meant. `None` where neither a Shoot nor a migration is named.
    pub async fn find(&self, place: &Connection) -> anyhow::Result<Option<ControlPlaneMigration>> {
        let Connection { garden, namespace, .. } = place;
        Ok(match (&self.migration, &self.shoot) {
            (Some(name), shoot) => {
                let found = garden.migration(namespace, name).await?;
                let meant = &found.spec.shoot_ref.name;
                if let Some(shoot) = shoot.as_ref().filter(|shoot| *shoot != meant) {
                    anyhow::bail!(
                        "ControlPlaneMigration {namespace}/{name} is of Shoot {meant}, not of {shoot}"
                    );
                }
                Some(found)
            }
            (None, Some(shoot)) => Some(garden.newest(namespace, shoot).await?),
            (None, None) => None,
        })
    }

    /// The same for commands that need one.
    pub async fn require(&self, place: &Connection) -> anyhow::Result<Result<Migration, ExitCode>> {
        let found = self.find(place).await?;
        Ok(found
            .as_ref()
            .map(Migration::new)
            .ok_or_else(|| usage("name a Shoot, or a migration by --migration")))
    }
}

/// Reads the name of an object.
///
/// # Errors
/// What a name has to look like.
pub fn name(text: &str) -> Result<String, String> {
    validation::dns_subdomain(text).map(|()| text.to_owned())
}

/// Says what is wrong with the command line.
pub fn usage(message: &str) -> ExitCode {
    eprintln!("repot: {message}");
    ExitCode::from(USAGE)
}

/// Prints to standard output. A reader that wants no more, such as `head`, is no failure.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("failed to write to standard output"),
    }
}

/// Prints an answer for programs, or the text for people.
pub fn answer<T: Serialize>(
    output: Output,
    object: &T,
    text: impl FnOnce(bool) -> String,
) -> anyhow::Result<()> {
    print(&match output {
        Output::Text => text(false),
        Output::Wide => text(true),
        Output::Json => serde_json::to_string_pretty(object)? + "\n",
        Output::Yaml => serde_saphyr::to_string(object).context("failed to write YAML")?,
    })
}

/// Asks a person. Without a terminal nobody can answer: then it is an error of usage that `--yes` is missing.
pub fn agree(question: &str, yes: bool) -> Result<(), ExitCode> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(usage(&format!(
            "{question} Add --yes if that is what you want; there is no terminal to ask on"
        )));
    }
    eprint!("{question}\nType yes to go on: ");
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    if read.is_ok() && line.trim() == "yes" {
        return Ok(());
    }
    eprintln!("repot: nothing was changed");
    Err(ExitCode::from(NO))
}

/// Lines of the terminal; many where there is none.
pub fn height() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    size.map(|size| usize::from(size.ws_row)).filter(|rows| *rows > 0).unwrap_or(usize::MAX)
}

/// Columns of the terminal, or of a wide page elsewhere.
pub fn width() -> u32 {
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let terminal =
        || rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| u32::from(size.ws_col));
    columns.or_else(terminal).filter(|columns| *columns > 0).unwrap_or(120)
}
