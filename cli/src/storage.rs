//! `repot storage`: looking after what rests.

use std::{
    io::{IsTerminal, Write},
    time::Duration,
};

use anyhow::bail;
use clap::{Args, Subcommand};
use repot_apiserver::registry;
use repot_storage::{KeyUse, Rewritten, Scope, Store};
use tokio_util::sync::CancellationToken;

use crate::{run, store::StoreFlags};

/// Look after what rests: which keys objects depend on, and how they come under a new one.
#[derive(Args)]
pub struct Flags {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    Status(StatusFlags),
    Rewrite(RewriteFlags),
}

/// Tell how many objects depend on which key. A key that is not named here may be taken out of the EncryptionConfiguration.
#[derive(Args)]
struct StatusFlags {
    #[command(flatten)]
    store: StoreFlags,
    #[command(flatten)]
    what: WhatFlags,
}

/// Wrap the data keys of all objects by the key that comes first in the EncryptionConfiguration; payload is not touched.
///
/// May run beside servers on etcd, be broken off and run again. An embedded store is open to one process only: stop its server.
#[derive(Args)]
struct RewriteFlags {
    /// Objects to write a second, at most
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    #[command(flatten)]
    store: StoreFlags,
    #[command(flatten)]
    what: WhatFlags,
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
    let (store, scopes) = match &flags.task {
        Task::Status(flags) => (flags.store.open(&end).await?, flags.what.scopes()),
        Task::Rewrite(flags) => (flags.store.open(&end).await?, flags.what.scopes()),
    };
    let work = async {
        match &flags.task {
            Task::Status(_) => status(&store, &scopes).await,
            Task::Rewrite(flags) => rewrite(&store, &scopes, flags.rate).await,
        }
    };
    let result = stop.run_until_cancelled(work).await;
    store.close().await;
    result.unwrap_or_else(|| bail!("broken off by a signal; run it again to go on"))
}

async fn status(store: &Store, scopes: &[Scope]) -> anyhow::Result<()> {
    let mut lines = vec![["RESOURCE", "KEY", "OBJECTS", "STALE"].map(str::to_owned)];
    for scope in scopes {
        for (key, KeyUse { objects, stale }) in store.key_use(scope).await? {
            let resource = format!("{}.{}", scope.resource, scope.group);
            lines.push([resource, key, objects.to_string(), stale.to_string()]);
        }
    }
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let (first, second, third) = (width(0), width(1), width(2));
    let mut out = std::io::stdout();
    for [resource, key, objects, stale] in &lines {
        writeln!(out, "{resource:first$}  {key:second$}  {objects:>third$}  {stale}")?;
    }
    Ok(())
}

async fn rewrite(store: &Store, scopes: &[Scope], rate: u32) -> anyhow::Result<()> {
    let mut sum = Rewritten::default();
    let shown = std::io::stderr().is_terminal();
    for scope in scopes {
        let total: u64 = store.key_use(scope).await?.values().map(|key| key.objects).sum();
        let show = |done| show(shown, scope, done, total);
        let done = store.rewrite(scope, Duration::from_secs(1) / rate, show).await?;
        sum.seen += done.seen;
        sum.written += done.written;
        sum.failed += done.failed;
        if shown && total > 0 {
            eprintln!();
        }
    }
    println!("{} objects seen, {} written again, {} failed", sum.seen, sum.written, sum.failed);
    match sum.failed {
        0 => Ok(()),
        failed => bail!("{failed} objects still depend on another key; the log says why"),
    }
}

/// One line that is drawn again and again.
fn show(shown: bool, scope: &Scope, done: Rewritten, total: u64) {
    if !shown {
        return;
    }
    const WIDTH: u64 = 30;
    let filled = (done.seen * WIDTH / total.max(1)).min(WIDTH);
    let bar: String = (0..WIDTH).map(|at| if at < filled { '#' } else { '.' }).collect();
    eprint!("\r{} [{bar}] {}/{total}, {} written", scope.resource, done.seen.min(total), done.written);
}
