//! `repot etcd-agent`: the agent of one member of an etcd.

use std::{
    ffi::OsString,
    io::Write,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use repot_etcd::agent::{
    Prepared, Programs, ProxyAddresses,
    guard::{self, become_bound},
    settings::{self, Settings},
};

use crate::run;

/// Bad usage, as for flags.
const USAGE: u8 = 2;

/// Run one member of an etcd: fill its volume, be the parent of etcd, take snapshots, say how things stand.
///
/// Which member it is, the agent knows from POD_NAME; POD_IP is the address on which it and etcd listen. etcd ends when the agent
/// ends, however that comes about. A volume that is not provably this member's is not touched, and no data is ever removed.
///
///     POD_NAME=main-0 POD_IP=10.0.0.4 repot etcd-agent --config /var/etcd/config/agent.yaml
#[derive(Args)]
#[command(verbatim_doc_comment, args_conflicts_with_subcommands = true)]
pub struct Flags {
    #[command(subcommand)]
    inner: Option<Inner>,
    #[command(flatten)]
    agent: AgentFlags,
}

#[derive(Args)]
struct AgentFlags {
    /// The configuration, which all members share
    #[arg(long, value_name = "FILE", required = true)]
    config: Option<PathBuf>,
    /// Name of the Pod, which says which member this is
    #[arg(long, env = "POD_NAME", value_name = "NAME", hide_env_values = true)]
    pod: Option<String>,
    /// Address to listen on [default: all]
    #[arg(long, env = "POD_IP", value_name = "IP", hide_env_values = true)]
    address: Option<IpAddr>,
    /// The program etcd, 3.5 or later
    #[arg(long, default_value = "etcd", value_name = "PROGRAM")]
    etcd: PathBuf,
    /// The program etcdutl, 3.5.10 or later
    #[arg(long, default_value = "etcdutl", value_name = "PROGRAM")]
    etcdutl: PathBuf,
    /// Check the configuration for this member, and end
    #[arg(long)]
    check: bool,
}

/// What the agent makes of this program; nobody else calls it.
#[derive(Subcommand)]
pub enum Inner {
    #[command(hide = true)]
    Guard(Guarded),
    #[command(hide = true)]
    Exec(Bound),
}

#[derive(Args)]
pub struct Guarded {
    /// Address on which to accept clients, for the backend
    #[arg(long, value_name = "ADDRESS", requires = "backend")]
    listen: Vec<SocketAddr>,
    /// Address on which etcd listens for clients
    #[arg(long, value_name = "ADDRESS", requires = "listen")]
    backend: Option<SocketAddr>,
    #[command(flatten)]
    bound: Bound,
}

#[derive(Args)]
pub struct Bound {
    /// Id of the parent process
    parent: i32,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl Flags {
    /// What has to run without the runtime and its threads, if this is that.
    pub fn inner(self: Box<Self>) -> Result<Inner, Box<Self>> {
        match self.inner {
            Some(inner) => Ok(inner),
            None => Err(self),
        }
    }
}

/// Runs a part of the agent that is a process of its own.
pub fn run_inner(inner: Inner) -> ExitCode {
    let error = match inner {
        Inner::Guard(Guarded { listen, backend, bound: Bound { parent, command } }) => {
            let bound = (this(), vec!["etcd-agent".into(), "exec".into()]);
            let proxy = backend.map(|backend| ProxyAddresses { listen, backend });
            match guard::run(&guard::Options { parent, bound, command, proxy }) {
                Ok(()) => return ExitCode::SUCCESS,
                Err(error) => error,
            }
        }
        Inner::Exec(Bound { parent, command }) => match command.split_first() {
            Some((program, args)) => become_bound(parent, program, args),
            None => return ExitCode::from(USAGE),
        },
    };
    eprintln!("repot: etcd cannot be run: {error}");
    ExitCode::FAILURE
}

/// This program as it was started, although there may be another one in its place by now.
fn this() -> OsString {
    "/proc/self/exe".into()
}

/// Runs until a signal.
pub async fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    let AgentFlags { config, pod, address, etcd, etcdutl, check } = flags.agent;
    let config = config.context("--config is missing")?;
    let Some(pod) = pod.filter(|pod| !pod.is_empty()) else {
        bail!("POD_NAME is not set, and says which member this is");
    };
    let settings = settings::read(&config).and_then(|config| Settings::new(config, &pod, address));
    let settings = match settings {
        Ok(settings) => settings,
        Err(error @ settings::Error::Read { .. }) => return Err(error.into()),
        Err(error) => {
            eprintln!("repot: {:#}", anyhow::Error::from(error));
            return Ok(ExitCode::from(USAGE));
        }
    };
    if check {
        println!("{} is member {} of {}", pod, settings.own.name, settings.config.name);
        return Ok(ExitCode::SUCCESS);
    }
    let stop = run::stop_on_signals()?;
    let guard = vec!["etcd-agent".into(), "guard".into()];
    let programs = Programs { etcd, etcdutl, this: this().into(), guard };
    let prepared = Prepared::new(settings, programs).await.context("the agent cannot run")?;
    let mut out = std::io::stdout();
    // A closed stdout is no reason not to run.
    let _ = writeln!(out, "ready {}", prepared.url()).and_then(|()| out.flush());
    prepared.run(stop).await;
    Ok(ExitCode::SUCCESS)
}
