//! `repot storage`: looking after what rests.

mod archive;
mod check;
mod keys;
mod missing;
mod raise;

use std::io::IsTerminal;

use anyhow::bail;
use clap::{Args, Subcommand};
use repot_apiserver::registry;
use repot_storage::Scope;
use tokio_util::sync::CancellationToken;

use crate::{run, store::StoreFlags};

/// Look after what rests: whether it is whole, which keys it depends on, and how it comes elsewhere.
///
/// On etcd all of this may run beside servers, but for import and bump-revision. An embedded store is open to one process only: stop its server.
#[derive(Args)]
pub struct Flags {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    Status(keys::StatusFlags),
    Rewrite(keys::RewriteFlags),
    Fsck(check::FsckFlags),
    Quarantine(check::QuarantineFlags),
    Export(archive::ExportFlags),
    Import(archive::ImportFlags),
    #[command(alias = "raise")]
    BumpRevision(raise::RaiseFlags),
}

impl Task {
    fn store(&self) -> &StoreFlags {
        match self {
            Self::Status(flags) => &flags.store,
            Self::Rewrite(flags) => &flags.store,
            Self::Fsck(flags) => &flags.store,
            Self::Quarantine(flags) => &flags.store,
            Self::Export(flags) => &flags.store,
            Self::Import(flags) => &flags.store,
            Self::BumpRevision(flags) => &flags.store,
        }
    }
}

#[derive(Args)]
struct WhatFlags {
    /// Group in which ShootStates are served
    #[arg(long, default_value = repot_api::names::CORE_GROUP, value_parser = [repot_api::names::CORE_GROUP, repot_api::names::MIGRATION_GROUP], value_name = "GROUP")]
    shootstate_group: String,
}

impl WhatFlags {
    /// Everything that may rest.
    fn scopes(&self) -> Vec<Scope> {
        let resources = registry::resources(registry::Serve::All, &self.shootstate_group);
        let scope = |resource: &repot_apiserver::resource::Resource| Scope {
            group: resource.name.group.clone(),
            resource: resource.name.resource.clone(),
            namespace: None,
        };
        resources.iter().map(scope).collect()
    }
}

/// Runs to its end, or to a signal.
pub async fn run(flags: Flags) -> anyhow::Result<()> {
    let stop = run::stop_on_signals()?;
    let end = CancellationToken::new();
    let _end = end.clone().drop_guard();
    let store = flags.task.store().open(&end, None).await?;
    let work = async {
        match &flags.task {
            Task::Status(flags) => keys::status(&store, &flags.what.scopes()).await,
            Task::Rewrite(flags) => keys::rewrite(&store, &flags.what.scopes(), flags.rate).await,
            Task::Fsck(flags) => check::fsck(&store, flags).await,
            Task::Quarantine(flags) => check::quarantine(&store, flags).await,
            Task::Export(flags) => archive::export(&store, flags).await,
            Task::Import(flags) => archive::import(&store, flags).await,
            Task::BumpRevision(flags) => raise::raise(&store, flags).await,
        }
    };
    let result = stop.run_until_cancelled(work).await;
    store.close().await;
    result.unwrap_or_else(|| bail!("broken off by a signal; run it again to go on"))
}

/// One line that is drawn again and again, where somebody looks.
struct Line(bool);

impl Line {
    fn new() -> Self {
        Self(std::io::stderr().is_terminal())
    }

    /// Whether anybody sees it.
    fn is_shown(&self) -> bool {
        self.0
    }

    fn draw(&self, text: &str) {
        if self.0 {
            eprint!("\r{text}\x1b[K");
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.0 {
            eprintln!();
        }
    }
}
