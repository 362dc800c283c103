//! From a store into a data directory of etcd.
//!
//! ```text
//! <data dir>.part/lock        held while we live
//!                 objects/    the deltas, as they are in the store; every check passed
//!                 base.db     the full snapshot with its hash
//!                 replay/     a private etcd into which the deltas are replayed
//!                 replayed.db its snapshot, when it is at the last revision
//!                 data/       what etcdutl makes of the last snapshot; becomes <data dir> by one rename
//! ```
//!
//! etcd's own tools write etcd's own files: `etcdutl snapshot restore` makes every data directory, and a real etcd takes the
//! events in. Nothing is at the place of the data directory before everything was proved, and what is in the store is only read.

mod evidence;
pub mod follow;
mod leases;
mod private;
pub mod prove;
mod queue;
mod replay;
mod select;
mod tools;
mod work;

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, TryStreamExt, stream};

use super::{
    codec::{self, Revisions, decoder, delta, read_full},
    inspect::{self, pass},
    store::{self, Store, Stored},
    take,
};
use replay::Job;
use repot_etcd_core::snapshot::{
    Revision, SnapshotName,
    chain::{self, Overlap, Plan, PlanError},
};
pub use select::{Selection, plan};
use tools::{Etcdutl, MemberIdentity};
use work::Work;

/// Why nothing was restored. The data directory is not there then.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is there already.
    #[error("{0} exists already; a restore never writes over anything")]
    Exists(PathBuf),
    /// Another restore has the same target.
    #[error("another restore is writing {0}")]
    Busy(PathBuf),
    /// A file or directory could not be used.
    #[error("failed to use {path}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The snapshots do not make up a state.
    #[error("the snapshots in {store} cannot be restored")]
    Plan {
        /// The store.
        store: String,
        /// Why.
        #[source]
        source: PlanError,
    },
    /// A snapshot that was chosen before is not there any more.
    #[error("{name} is not in {store} any more")]
    Gone {
        /// The store.
        store: String,
        /// The snapshot.
        name: SnapshotName,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// A snapshot is damaged or could not be read.
    #[error(transparent)]
    Snapshot(#[from] inspect::Error),
    /// Two deltas tell different stories of the same revisions.
    #[error(
        "{first} and {second} hold different events for revisions {start} to {end}: they are of different histories"
    )]
    Disagree {
        /// One.
        first: SnapshotName,
        /// The other.
        second: SnapshotName,
        /// First revision of both.
        start: Revision,
        /// Last revision of both.
        end: Revision,
    },
    /// The content of the full snapshot is older than its name.
    #[error("{name} ends at revision {found}")]
    BaseRevision {
        /// The snapshot.
        name: SnapshotName,
        /// In it.
        found: Revision,
    },
    /// A program could not be run, or failed.
    #[error("{command} failed: {output}")]
    Tool {
        /// The command line.
        command: String,
        /// What it said.
        output: String,
    },
    /// There is no thread for the replay.
    #[error("failed to begin the replay")]
    Thread(#[source] std::io::Error),
    /// The private etcd cannot be had.
    #[error("the private etcd at {path} {what}; its log ends:\n{log}")]
    PrivateEtcd {
        /// The program.
        path: PathBuf,
        /// What happened.
        what: String,
        /// The end of its log.
        log: String,
    },
    /// The own etcd of a member that stands by does not run.
    #[error("the etcd of the standby {0}")]
    MemberEtcd(String),
    /// Certificates for the private etcd could not be made.
    #[error("failed to make certificates for the private etcd")]
    Certificates(#[from] repot_certs::Error),
    /// The private etcd refused something.
    #[error("the private etcd failed to {task}")]
    Etcd {
        /// What.
        task: &'static str,
        /// Why.
        #[source]
        source: etcd_client::Error,
    },
    /// The private etcd is not where the events say.
    #[error(
        "after {after} the private etcd is at revision {found}, and should be at {expected}: something else changed it, such as a lease that ended"
    )]
    RevisionOff {
        /// What was applied last.
        after: String,
        /// Where it should be.
        expected: Revision,
        /// Where it is.
        found: Revision,
    },
    /// Its snapshot could not be taken.
    #[error("failed to take the snapshot of the private etcd")]
    Take(#[source] take::Error),
    /// What was restored could not be read.
    #[error("failed to read what was restored")]
    Digest(#[source] crate::digest::Error),
    /// The process is about to end.
    #[error("broken off")]
    Stopped,
}

impl Error {
    /// Whether the snapshots are to blame: trying again changes nothing.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Plan { .. } | Self::Disagree { .. } | Self::BaseRevision { .. } => true,
            Self::Snapshot(error) => error.is_damage(),
            _ => false,
        }
    }

    /// Whether an etcd failed, or refused something that one without limits takes.
    fn is_of_etcd(&self) -> bool {
        matches!(self, Self::MemberEtcd(_) | Self::Etcd { .. } | Self::RevisionOff { .. } | Self::Take(_))
    }
}

/// The result of this module's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What to restore, and into what.
#[derive(Clone, Debug)]
pub struct Options {
    /// The data directory; it must not be there.
    pub data_dir: PathBuf,
    /// The program `etcdutl`, which makes the data directory.
    pub etcdutl: PathBuf,
    /// The program `etcd`, used where there are deltas.
    pub etcd: PathBuf,
    /// Which snapshots of the store are restored.
    pub from: Selection,
    /// How much the revision is raised, so that no client sees it go back; 0 leaves it.
    pub bump_revision: u64,
    /// How long a lease lives that was granted after the full snapshot: its own length is in no snapshot.
    pub lease_ttl: Duration,
    /// Name, peer URLs, cluster and token of the member.
    pub member: Member,
    /// So many snapshots are read at once.
    pub parallel: usize,
}

/// The member that the data directory is for.
#[derive(Clone, Debug)]
pub struct Member {
    /// Name of the member, as `--name` of etcd.
    pub name: String,
    /// Members of the cluster, as `--initial-cluster` of etcd: `name=url` pairs, separated by commas.
    pub initial_cluster: String,
    /// Token of the cluster, as `--initial-cluster-token` of etcd.
    pub initial_cluster_token: String,
    /// Peer URLs of the member, as `--initial-advertise-peer-urls` of etcd; separated by commas.
    pub peer_urls: String,
}

/// What is told while it goes on.
#[derive(Clone, Debug)]
pub enum Progress {
    /// These snapshots are to be applied.
    Planned(Plan),
    /// One was read and passed all checks.
    Verified(SnapshotName, u64),
    /// The private etcd serves, at this revision.
    Replaying(Revision),
    /// A delta was applied.
    Applied(SnapshotName),
    /// The data directory is being made.
    Finishing,
}

/// Which snapshots were restored, and to which revision.
#[derive(Clone, Debug)]
pub struct Restored {
    /// The snapshots that were restored: a full one and the deltas after it.
    pub plan: Plan,
    /// The revision of the snapshots.
    pub revision: Revision,
    /// The revision that etcd will have.
    pub bumped: Revision,
}

/// Restores.
///
/// # Guarantees
/// The data directory appears whole or not at all, and only after every snapshot that goes into it was read to its end and passed
/// every check. It holds what etcd held at [`Restored::revision`]; revisions of keys are their own.
///
/// # Errors
/// [`Error`].
pub async fn restore(
    store: &Store,
    options: &Options,
    progress: &(impl Fn(Progress) + Sync),
) -> Result<Restored> {
    let etcdutl = Etcdutl::find(&options.etcdutl).await?;
    let work = Arc::new(Work::begin(&options.data_dir)?);
    let all = store.list().await?;
    let plan = select::select(store, &all, &options.from)?;
    progress(Progress::Planned(plan.clone()));
    let base = fetch_all(store, &all, &plan, &work, options.parallel, progress).await?;
    if base.current < plan.base.last {
        return Err(Error::BaseRevision { name: plan.base.clone(), found: base.current });
    }
    let beyond = plan.deltas.iter().filter(|delta| delta.last > base.current);
    let beyond: Vec<SnapshotName> = beyond.cloned().collect();
    let (database, revisions) = match beyond.is_empty() {
        true => (work.base(), base),
        false => {
            let job = Job {
                etcdutl: etcdutl.clone(),
                etcd: options.etcd.clone(),
                work: Arc::clone(&work),
                lease_ttl: options.lease_ttl,
                base: base.current,
                deltas: beyond,
            };
            (work.replayed(), replay::on_its_own(job, progress).await?)
        }
    };
    progress(Progress::Finishing);
    // etcdutl counts from the newest key that is left, which compaction may have moved back.
    let lost = revisions.current.0.abs_diff(revisions.newest_key.0);
    let bump = if options.bump_revision == 0 { 0 } else { options.bump_revision.saturating_add(lost) };
    let identity = MemberIdentity { member: &options.member, bump };
    etcdutl.restore(&database, &work.data(), &identity).await?;
    work.finish(&options.data_dir)?;
    let bumped = Revision(revisions.current.0.saturating_add_unsigned(options.bump_revision));
    Ok(Restored { plan, revision: revisions.current, bumped })
}

/// Brings everything that is needed into the working directory, checked, and gives the revisions of the full snapshot.
async fn fetch_all(
    store: &Store,
    all: &[Stored],
    plan: &Plan,
    work: &Work,
    parallel: usize,
    progress: &(impl Fn(Progress) + Sync),
) -> Result<Revisions> {
    let stored = |name: &SnapshotName| all.iter().find(|one| one.name == *name).cloned();
    let base = stored(&plan.base).ok_or(Error::Stopped)?;
    let revisions = fetch_base(store, &base, &work.base()).await?;
    progress(Progress::Verified(base.name, base.bytes));
    let overlaps = chain::overlaps(&plan.deltas);
    let deltas: Vec<Stored> = plan.deltas.iter().filter_map(stored).collect();
    let fetched = stream::iter(deltas.iter().enumerate()).map(|(at, one)| {
        let overlaps = &overlaps;
        async move {
            let found = fetch_delta(store, one, work, (at, overlaps)).await?;
            progress(Progress::Verified(one.name.clone(), one.bytes));
            Ok::<_, Error>(found)
        }
    });
    let found: Vec<delta::Found> = fetched.buffered(parallel.max(1)).try_collect().await?;
    check_overlaps(plan, &overlaps, &found)?;
    Ok(revisions)
}

async fn fetch_base(store: &Store, base: &Stored, path: &Path) -> Result<Revisions> {
    let mut file = File::options().create_new(true).read(true).write(true).open(path).map_err(at(path))?;
    let compression = base.name.compression;
    let (_, database) = pass(inspect::open(store, base).await?, None, move |fed| {
        read_full(decoder(compression, fed), Some(&mut file))
    })
    .await?;
    Ok(database.revisions.unwrap_or_default())
}

/// Keeps a delta as it is in the store, and reads it to its end.
async fn fetch_delta(
    store: &Store,
    one: &Stored,
    work: &Work,
    (at_index, overlaps): (usize, &[Overlap]),
) -> Result<delta::Found> {
    let path = work.object(&one.name);
    let mut file = File::create_new(&path).map_err(at(&path))?;
    let name = one.name.clone();
    let of_it = overlaps.iter().filter(|overlap| overlap.first == at_index || overlap.second == at_index);
    let ranges: Vec<_> = of_it.map(|overlap| overlap.revisions.clone()).collect();
    let (_, found) = pass(inspect::open(store, one).await?, None, move |fed| {
        let kept = std::io::BufReader::new(Kept { inner: fed, file: &mut file });
        let ends = (name.start, name.last);
        delta::read(decoder(name.compression, kept), ends, &ranges, |_| Ok(()))
    })
    .await?;
    Ok(found)
}

/// Writes what it reads into a file.
struct Kept<'a, R> {
    inner: R,
    file: &'a mut File,
}

impl<R: std::io::Read> std::io::Read for Kept<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let count = self.inner.read(out)?;
        std::io::Write::write_all(self.file, &out[..count])
            .map_err(|error| codec::Error::Scratch(error).into_io())?;
        Ok(count)
    }
}

fn check_overlaps(plan: &Plan, overlaps: &[Overlap], found: &[delta::Found]) -> Result<()> {
    let hash = |at: usize, overlap: &Overlap| {
        let mut of_it = overlaps.iter().filter(|other| other.first == at || other.second == at);
        let place = of_it.position(|other| other == overlap)?;
        found.get(at)?.hashes.get(place).copied()
    };
    for overlap in overlaps {
        if hash(overlap.first, overlap) != hash(overlap.second, overlap) {
            return Err(Error::Disagree {
                first: plan.deltas[overlap.first].clone(),
                second: plan.deltas[overlap.second].clone(),
                start: *overlap.revisions.start(),
                end: *overlap.revisions.end(),
            });
        }
    }
    Ok(())
}

fn at(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { path, source }
}
