//! What a standby writes down, so that it can continue after a restart.

use std::{fs, io, path::Path};

use repot_etcd_core::snapshot::{Revision, SnapshotName};
use serde::{Deserialize, Serialize};

use super::super::{Member, Result, at};

const FILE: &str = "standby.json";
/// Another one after each start of the machine. The private etcd does not sync its files: what it wrote is there while the machine runs.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    boot: String,
    /// URL of the store, and the history in it that is followed.
    store: String,
    pub(super) history: String,
    /// Name and peer URLs of the member that the data are for, and the token of its cluster.
    member: [String; 3],
    base: String,
    /// How much further the etcd is than the snapshots: 0 of a private one.
    pub(super) ahead: i64,
    /// Deltas that were applied since.
    pub(super) deltas: usize,
    /// The private etcd is at this revision.
    reached: i64,
}

impl Record {
    /// Of a standby that has just begun; `None` where nobody could tell later whether the machine was restarted.
    pub(super) fn new((store, history): (&str, &str), member: &Member, base: &SnapshotName) -> Option<Self> {
        Some(Self {
            boot: fs::read_to_string(BOOT).ok()?.trim().to_owned(),
            store: store.to_owned(),
            history: history.to_owned(),
            member: [member.name.clone(), member.peer_urls.clone(), member.initial_cluster_token.clone()],
            base: base.to_string(),
            ahead: 0,
            deltas: 0,
            reached: 0,
        })
    }

    /// The record in a directory, where it is one of the same store, history and member, and the machine was not restarted since.
    pub(super) fn read(dir: &Path, source: (&str, &str), member: &Member) -> Option<(Self, SnapshotName)> {
        let found: Self = serde_json::from_slice(&fs::read(dir.join(FILE)).ok()?).ok()?;
        let base: SnapshotName = found.base.parse().ok()?;
        let (deltas, reached, ahead) = (found.deltas, found.reached, found.ahead);
        let same = Self { deltas, reached, ahead, ..Self::new(source, member, &base)? };
        (same == found).then_some((found, base))
    }

    /// Whether there is one, whatever it says.
    pub(super) fn exists(dir: &Path) -> bool {
        dir.join(FILE).is_file()
    }

    /// Removes it: what is in the directory is not continued.
    pub(super) fn forget(dir: &Path) {
        // One that stays is of a standby that begins anew once more.
        let _ = fs::remove_file(dir.join(FILE));
    }

    pub(super) fn reached(&self) -> Revision {
        Revision(self.reached)
    }

    /// Writes it with a revision, as a whole or not at all.
    pub(super) fn write(&mut self, dir: &Path, reached: Revision) -> Result<()> {
        self.reached = reached.0;
        let (path, new) = (dir.join(FILE), dir.join(format!("{FILE}.new")));
        let text = serde_json::to_vec(self).map_err(io::Error::other).map_err(at(&path))?;
        fs::write(&new, text).and_then(|()| fs::rename(&new, &path)).map_err(at(&path))
    }
}
