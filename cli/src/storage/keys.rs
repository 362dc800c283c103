//! `repot storage status` and `rewrite`: which keys objects depend on.

use std::{fmt, io::Write, time::Duration};

use anyhow::bail;
use clap::Args;
use repot_storage::{KeyUse, Rewritten, Scope, Store, Usage};

use super::{Line, WhatFlags};
use crate::store::StoreFlags;

/// Tell how many objects depend on which key, and what the objects of each namespace come to.
///
/// A key that is not named here may be taken out of the EncryptionConfiguration.
#[derive(Args)]
pub(super) struct StatusFlags {
    #[command(flatten)]
    pub(super) store: StoreFlags,
    #[command(flatten)]
    pub(super) what: WhatFlags,
}

/// Wrap the data keys of all objects by the key that comes first in the EncryptionConfiguration; payload is not touched.
///
/// May be broken off and run again.
#[derive(Args)]
pub(super) struct RewriteFlags {
    /// Objects to write a second, at most
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) rate: u32,
    #[command(flatten)]
    pub(super) store: StoreFlags,
    #[command(flatten)]
    pub(super) what: WhatFlags,
}

/// Prints them, and what they come to.
pub(super) async fn status(store: &Store, scopes: &[Scope]) -> anyhow::Result<()> {
    let mut keys = vec![["RESOURCE", "KEY", "OBJECTS", "STALE"].map(str::to_owned)];
    let mut namespaces = vec![["NAMESPACE", "RESOURCE", "OBJECTS", "BYTES"].map(str::to_owned)];
    for scope in scopes {
        let resource = format!("{}.{}", scope.resource, scope.group);
        for (key, KeyUse { objects, stale }) in store.key_use(scope).await? {
            keys.push([resource.clone(), key, objects.to_string(), stale.to_string()]);
        }
        for (namespace, Usage { objects, bytes, .. }) in store.usage(scope).await? {
            namespaces.push([namespace, resource.clone(), objects.to_string(), bytes.to_string()]);
        }
    }
    let mut out = std::io::stdout();
    write!(out, "{}\n{}", Columns(&keys), Columns(&namespaces))?;
    Ok(())
}

/// Lines in columns: two of words, two of numbers.
struct Columns<'a>(&'a [[String; 4]]);

impl fmt::Display for Columns<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| self.0.iter().map(|line| line[column].len()).max().unwrap_or(0);
        let (first, second, third) = (width(0), width(1), width(2));
        for [one, two, three, four] in self.0 {
            writeln!(f, "{one:first$}  {two:second$}  {three:>third$}  {four}")?;
        }
        Ok(())
    }
}

/// Rewrites, and fails where something could not be.
pub(super) async fn rewrite(store: &Store, scopes: &[Scope], rate: u32) -> anyhow::Result<()> {
    let mut sum = Rewritten::default();
    for scope in scopes {
        let line = Line::new();
        // Only the line needs the total, and counting reads all objects.
        let total = match line.is_shown() {
            true => store.key_use(scope).await?.values().map(|key| key.objects).sum(),
            false => 0,
        };
        let show = |done| line.draw(&bar(scope, done, total));
        let done = store.rewrite(scope, Duration::from_secs(1) / rate, show).await?;
        sum.seen += done.seen;
        sum.written += done.written;
        sum.failed += done.failed;
    }
    println!("{} objects seen, {} written again, {} failed", sum.seen, sum.written, sum.failed);
    match sum.failed {
        0 => Ok(()),
        failed => bail!("{failed} objects still depend on another key; the log says why"),
    }
}

fn bar(scope: &Scope, done: Rewritten, total: u64) -> String {
    const WIDTH: u64 = 30;
    let filled = (done.seen * WIDTH / total.max(1)).min(WIDTH);
    let bar: String = (0..WIDTH).map(|at| if at < filled { '#' } else { '.' }).collect();
    format!("{} [{bar}] {}/{total}, {} written", scope.resource, done.seen.min(total), done.written)
}
