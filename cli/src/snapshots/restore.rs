//! `repot snapshots restore`.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use repot_etcd::snapshot::{
    restore::{
        self, Member, Options, Progress, Restored, Selection,
        follow::{Followed, Follower, Source},
    },
    store::Store,
};
use repot_etcd_core::snapshot::SnapshotName;
use serde_json::json;

use super::{NO, Output, StoreFlags, print, print_json, progress::Bar};
use crate::serving::duration;

const PEER_URL: &str = "http://localhost:2380";

/// Make a data directory of the newest state in a store: the newest full snapshot and all deltas after it.
///
/// Everything is read and checked first. Deltas are replayed into a private etcd on the loopback interface, a transaction a revision.
/// `etcdutl snapshot restore` writes the result into <data dir>.part, which becomes <data dir> by one rename. Nothing is ever written
/// over, and the store is only read. It needs room for three times the database.
///
/// The revision is raised by --bump-revision and the history is marked as compacted, so clients that saw later revisions list anew
/// instead of missing changes. Leases of the full snapshot stay as they are; a lease granted later is granted again with --lease-ttl.
///
///     repot snapshots restore --store s3://bucket/shoot--p--a --data-dir /var/etcd/data/new.etcd
///     repot snapshots restore --store file:///b --data-dir m1 --name m1 --initial-cluster m1=http://a:2380,m2=http://b:2380 \
///       --initial-advertise-peer-urls http://a:2380 --initial-cluster-token $(uuidgen)
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Flags {
    #[command(flatten)]
    store: StoreFlags,
    /// The data directory to make; it must not be there
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Name of the full snapshot to begin with, in place of the newest
    #[arg(long, value_name = "NAME")]
    base: Option<SnapshotName>,
    /// How much to raise the revision; 0 leaves it, and then all clients have to be restarted
    #[arg(long, default_value_t = 1_000_000_000, value_name = "N")]
    bump_revision: u64,
    /// Length of leases that were granted after the full snapshot
    #[arg(long, default_value = "1h", value_name = "DURATION", value_parser = duration)]
    lease_ttl: Duration,
    /// Take each new delta as well, until the store has a final snapshot or a delta that ends an owner's time
    #[arg(long, conflicts_with = "base")]
    follow: bool,
    /// The program etcdutl, 3.5.10 or later
    #[arg(long, default_value = "etcdutl", value_name = "PROGRAM")]
    etcdutl: PathBuf,
    /// The program etcd, 3.5 or later; used where there are deltas
    #[arg(long, default_value = "etcd", value_name = "PROGRAM")]
    etcd: PathBuf,
    /// Name of the member
    #[arg(long, default_value = "default", value_name = "NAME")]
    name: String,
    /// Members of the cluster, as for etcd [default: <name>=<initial-advertise-peer-urls>]
    #[arg(long, value_name = "MEMBERS")]
    initial_cluster: Option<String>,
    /// Token of the cluster, as for etcd; two clusters that may ever meet need different ones
    #[arg(long, default_value = "etcd-cluster", value_name = "TOKEN")]
    initial_cluster_token: String,
    /// Peer URLs of the member, as for etcd
    #[arg(long, default_value = PEER_URL, value_name = "URLS")]
    initial_advertise_peer_urls: String,
    /// So many snapshots are read at once
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    parallel: u16,
    /// Form of the answer
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Restores a data directory and prints what it was made of; exit code 3 where the snapshots are damaged.
pub async fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    let (store, _) = match flags.store.open().await? {
        Ok(opened) => opened,
        Err(code) => return Ok(code),
    };
    let output = flags.output;
    if flags.follow {
        return follow(store, options(flags), output).await;
    }
    let options = options(flags);
    let bar = Bar::new("reading");
    let outcome = restore::restore(&store, &options, &|progress| show(&bar, &progress)).await;
    bar.end();
    let restored = match outcome {
        Ok(restored) => restored,
        Err(error) if error.is_damage() => {
            eprintln!("repot: {:#}", anyhow::Error::from(error));
            return Ok(ExitCode::from(NO));
        }
        Err(error) => return Err(error.into()),
    };
    let Restored { plan, revision, bumped } = &restored;
    match output {
        Output::Json => print_json(&json!({
            "dataDir": options.data_dir, "base": plan.base.to_string(),
            "deltas": plan.deltas.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "revision": revision.0, "bumpedRevision": bumped.0,
        }))?,
        Output::Text => print(&format!(
            "{} restored from {} and {} deltas: revision {revision}, raised to {bumped}\n",
            options.data_dir.display(),
            plan.base,
            plan.deltas.len()
        ))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Follows the snapshots to their end. Whoever breaks it off finds the working directory at the next call.
async fn follow(root: Store, options: Options, output: Output) -> anyhow::Result<ExitCode> {
    let data_dir = options.data_dir.clone();
    let follower = Follower::start(Source { root, history: None }, options);
    let (mut states, mut said) = (follower.watch(), String::new());
    loop {
        let state = states.borrow_and_update().clone();
        if state.ended {
            break;
        }
        if !state.message.is_empty() && state.message != said {
            eprintln!("repot: {}", state.message);
            said = state.message;
        }
        states.changed().await?;
    }
    let Followed { base, deltas, revision, bumped, .. } = follower.finish().await?;
    match output {
        Output::Json => print_json(&json!({
            "dataDir": data_dir, "base": base.to_string(), "deltas": deltas,
            "revision": revision.0, "bumpedRevision": bumped.0,
        }))?,
        Output::Text => print(&format!(
            "{} restored from {base} and {deltas} deltas: revision {revision}, raised to {bumped}\n",
            data_dir.display()
        ))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn options(flags: Flags) -> Options {
    let peer_urls = flags.initial_advertise_peer_urls;
    let of_urls = || {
        let each = peer_urls.split(',').map(|url| format!("{}={url}", flags.name));
        each.collect::<Vec<_>>().join(",")
    };
    let initial_cluster = flags.initial_cluster.clone().unwrap_or_else(of_urls);
    Options {
        data_dir: flags.data_dir,
        etcdutl: flags.etcdutl,
        etcd: flags.etcd,
        from: flags.base.map_or(Selection::Newest, Selection::Base),
        bump_revision: flags.bump_revision,
        lease_ttl: flags.lease_ttl,
        member: Member {
            name: flags.name,
            initial_cluster,
            initial_cluster_token: flags.initial_cluster_token,
            peer_urls,
        },
        parallel: flags.parallel.into(),
    }
}

fn show(bar: &Bar, progress: &Progress) {
    match progress {
        Progress::Planned(plan) => bar.say(&format!("from {} and {} deltas", plan.base, plan.deltas.len())),
        Progress::Verified(_, bytes) => bar.add(*bytes),
        Progress::Replaying(revision) => bar.say(&format!("replaying from revision {revision}")),
        Progress::Applied(name) => bar.say(&format!("applied {name}")),
        Progress::Finishing => bar.say("making the data directory"),
    }
}
