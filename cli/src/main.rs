//! The binary `repot`: flags become configuration, configuration becomes a running role. No logic of a role lives here.

mod apiserver;
mod dev;
mod kubeconfig;
mod logging;
mod preflight;
mod run;
mod serving;
mod snapshots;
mod storage;
mod store;
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
}

fn main() -> ExitCode {
    // Bad usage ends in here with exit code 2.
    let cli = Cli::parse();
    logging::install(&cli.logging);
    repot_apiserver::tls::install_crypto_provider();
    let result = run::block_on(async {
        match cli.role {
            Role::Dev(flags) => dev::run(flags).await.map(|()| ExitCode::SUCCESS),
            Role::Apiserver(flags) => apiserver::run(*flags).await.map(|()| ExitCode::SUCCESS),
            Role::Storage(flags) => storage::run(flags).await.map(|()| ExitCode::SUCCESS),
            Role::Webhook(flags) => webhook::run(*flags).await.map(|()| ExitCode::SUCCESS),
            Role::Preflight(flags) => preflight::run(flags).await,
            Role::Snapshots(flags) => snapshots::run(flags).await,
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
mod tests {
    use clap::CommandFactory;

    #[test]
    fn flags_are_consistent() {
        super::Cli::command().debug_assert();
    }
}
