//! The binary `repot`: flags become configuration, configuration becomes a running role. No logic of a role lives here.

mod allocator;
mod apiserver;
mod audit;
mod certs;
mod controllers;
mod dev;
mod doctor;
mod etcd;
mod etcd_agent;
mod example;
mod garden;
mod high_water;
mod history;
mod isolate;
mod kubeconfig;
mod kubectl;
mod leading;
mod limits;
mod logging;
mod operate;
mod owner;
mod peers;
mod preflight;
mod rehearse;
mod run;
mod serving;
mod snapshots;
mod storage;
mod store;
mod traces;
mod ui;
mod watchdog_proxy;
mod webhook;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Repot moves Kubernetes control planes between seeds and keeps the state that has to survive the move.
#[derive(Parser)]
#[command(name = "repot", version, propagate_version = true)]
struct Cli {
    #[command(flatten)]
    logging: logging::Flags,
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    Dev(dev::Flags),
    Apiserver(Box<apiserver::Flags>),
    Storage(storage::Flags),
    Webhook(Box<webhook::Flags>),
    Preflight(preflight::Flags),
    Snapshots(snapshots::Flags),
    EtcdAgent(Box<etcd_agent::Flags>),
    Controllers(controllers::Flags),
    Certs(certs::Flags),
    Owner(owner::Flags),
    Plan(operate::plan::Flags),
    Migrate(Box<operate::migrate::Flags>),
    Status(operate::status::Flags),
    Timeline(operate::timeline::Flags),
    Ui(ui::Flags),
    History(history::Flags),
    Abort(operate::steer::AbortFlags),
    Pause(operate::steer::PauseFlags),
    Resume(operate::steer::ResumeFlags),
    Retry(operate::steer::RetryFlags),
    ForceShrink(operate::steer::ForceShrinkFlags),
    Confirm(operate::steer::ConfirmFlags),
    Drain(Box<operate::drain::Flags>),
    Isolate(isolate::Flags),
    Failback(isolate::FailbackFlags),
    Etcd(Box<etcd::Flags>),
    Doctor(Box<doctor::Flags>),
    Rehearse(rehearse::Flags),
    WatchdogProxy(watchdog_proxy::Flags),
    Example(example::Flags),
    Completion(operate::completion::Flags),
}

impl Role {
    /// Whether this runs in a Pod until it is stopped. All others are commands of people, which say themselves what failed.
    fn is_server(&self) -> bool {
        match self {
            Self::Dev(_) | Self::Apiserver(_) | Self::Webhook(_) | Self::EtcdAgent(_) => true,
            Self::Controllers(_) | Self::WatchdogProxy(_) => true,
            Self::Certs(flags) => flags.is_server(),
            _ => false,
        }
    }

    /// What is traced, and the layer that traces it.
    fn traces(&self) -> anyhow::Result<(traces::Traces, Option<repot_telemetry::TraceLayer>)> {
        match self {
            Self::Apiserver(flags) => flags.tracing().read("repot-apiserver"),
            Self::Webhook(flags) => flags.tracing().read("repot-webhook"),
            _ => Ok((traces::Traces::default(), None)),
        }
    }
}

fn main() -> ExitCode {
    // Bad usage ends in here with exit code 2.
    let mut cli = kubectl::parse();
    if matches!(cli.role, Role::Dev(_) | Role::Apiserver(_)) {
        allocator::give_large_buffers_back();
    }
    let (traces, layer) = match cli.role.traces() {
        Ok(read) => read,
        Err(error) => {
            eprintln!("repot: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    if !cli.role.is_server() {
        cli.logging.without_requests();
    }
    logging::install(&cli.logging, layer);
    let role = match cli.role {
        Role::EtcdAgent(flags) => match flags.inner() {
            // The thread that starts etcd has to live as long as etcd does.
            Ok(inner) => return etcd_agent::run_inner(inner),
            Err(flags) => Role::EtcdAgent(flags),
        },
        role => role,
    };
    repot_apiserver::tls::install_crypto_provider();
    let result = run::block_on(async {
        match role {
            Role::Dev(flags) => dev::run(flags).await.map(|()| ExitCode::SUCCESS),
            Role::Apiserver(flags) => apiserver::run(*flags, traces).await.map(|()| ExitCode::SUCCESS),
            Role::Storage(flags) => storage::run(flags).await.map(|()| ExitCode::SUCCESS),
            Role::Webhook(flags) => webhook::run(*flags, traces).await.map(|()| ExitCode::SUCCESS),
            Role::Preflight(flags) => preflight::run(flags).await,
            Role::Snapshots(flags) => snapshots::run(flags).await,
            Role::EtcdAgent(flags) => etcd_agent::run(*flags).await,
            Role::Controllers(flags) => controllers::run(flags).await.map(|()| ExitCode::SUCCESS),
            Role::Certs(flags) => certs::run(flags).await,
            Role::Owner(flags) => owner::run(flags).await,
            Role::Plan(flags) => operate::plan::run(flags).await,
            Role::Migrate(flags) => operate::migrate::run(*flags).await,
            Role::Status(flags) => operate::status::run(flags).await,
            Role::Timeline(flags) => operate::timeline::run(flags).await,
            Role::Ui(flags) => ui::run(flags).await,
            Role::History(flags) => history::run(flags).await,
            Role::Abort(flags) => flags.run().await,
            Role::Pause(flags) => flags.run().await,
            Role::Resume(flags) => flags.run().await,
            Role::Retry(flags) => flags.run().await,
            Role::ForceShrink(flags) => flags.run().await,
            Role::Confirm(flags) => flags.run().await,
            Role::Drain(flags) => operate::drain::run(*flags).await,
            Role::Isolate(flags) => isolate::run(flags).await,
            Role::Failback(flags) => isolate::failback(flags).await,
            Role::Etcd(flags) => etcd::run(*flags).await,
            Role::Doctor(flags) => doctor::run(*flags).await,
            Role::Rehearse(flags) => rehearse::run(&flags),
            Role::WatchdogProxy(flags) => watchdog_proxy::run(flags).await.map(|()| ExitCode::SUCCESS),
            Role::Example(flags) => example::run(flags).map(|()| ExitCode::SUCCESS),
            Role::Completion(flags) => operate::completion::run(&flags),
        }
    });
    match result {
        Ok(code) => code,
        Err(error) => {
            // The chain of causes once, where the error stops.
            eprintln!("repot: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod flag_pages;

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn flags_are_consistent() {
        super::Cli::command().debug_assert();
    }
}
