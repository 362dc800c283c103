//! What happened to the data of a member, beside the data: an agent that is started again, with the store out of reach, must not
//! let clients go on where another etcd may have taken over.
//!
//! ```text
//! <data_dir>/repot-owner.json    {"state": "cutOff", "ownId": "seed-a/7", "since": "2026-11-21T21:00:00Z"}
//! ```
//!
//! The states are `served` (clients were let in as this id, and nothing since then tells that it was lost), `cutOff` and `finalSnapshot`.
//!
//! Whoever is sure that no other etcd has gone on may remove the file while the agent does not run.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use repot_etcd_core::{bootstrap::Volume as Content, ownership::OwnershipHistory};
use serde::{Deserialize, Serialize};

use super::volume::{self, Volume, at};

const FILE: &str = "repot-owner.json";

/// The file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OwnershipMarker {
    state: State,
    /// The id under which the data were served.
    own_id: String,
    /// Since when; from [`State::CutOff`] on, when it was noticed that the record did not have it any more.
    since: Timestamp,
    /// The final snapshot, once it is in the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) snapshot: Option<String>,
    /// What ends the chain of deltas, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) delta: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum State {
    Served,
    CutOff,
    FinalSnapshot,
}

impl OwnershipMarker {
    /// Clients are about to be let in.
    pub(super) fn served(own_id: &str, since: Timestamp) -> Self {
        Self { state: State::Served, own_id: own_id.to_owned(), since, snapshot: None, delta: None }
    }

    /// Clients are cut off.
    pub(super) fn cut_off(own_id: &str, since: Timestamp) -> Self {
        Self { state: State::CutOff, own_id: own_id.to_owned(), since, snapshot: None, delta: None }
    }

    /// The final snapshot is in the store.
    pub(super) fn with_snapshot(self, name: String, delta: Option<String>) -> Self {
        Self { state: State::FinalSnapshot, snapshot: Some(name), delta, ..self }
    }

    /// What happened when ownership was lost; `None` where that was not noticed.
    pub(super) fn loss(&self) -> Option<OwnershipHistory> {
        match self.state {
            State::Served => None,
            State::CutOff => Some(OwnershipHistory::CutOff),
            State::FinalSnapshot => Some(OwnershipHistory::FinalSnapshot),
        }
    }

    /// The owner id as which the data are never served again; `None` where that was not lost.
    pub(super) fn ended_id(&self) -> Option<String> {
        self.loss().map(|_| self.own_id.clone())
    }

    /// Whether clients were let in as this id.
    pub(super) fn is_of(&self, id: &str) -> bool {
        self.own_id == id
    }

    /// Why data that were served as another id are not served, and what an operator can do.
    pub(super) fn another_id(&self, dir: &Path) -> String {
        format!(
            "the data were served as {:?}; if no other etcd has served since {}, remove {} while the agent does not run",
            self.own_id,
            self.since,
            dir.join(FILE).display()
        )
    }

    /// Why an etcd with this mark does not serve although its configuration has no record, and what an operator can do.
    pub(super) fn lasting(&self, dir: &Path) -> String {
        format!(
            "at {} the record did not name {:?} any more, and another etcd may have gone on; restore from the newest backup of the \
             last owner into new volumes, or remove {} while the agent does not run, if no other etcd has served since",
            self.since,
            self.own_id,
            dir.join(FILE).display()
        )
    }

    /// The mark of a volume; `None` where there is none.
    ///
    /// # Errors
    /// [`volume::Error::File`], also where it cannot be understood.
    pub(super) fn read(dir: &Path) -> Result<Option<Self>, volume::Error> {
        let path = dir.join(FILE);
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(io::Error::other).map_err(at(&path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(volume::Error::File { path, source }),
        }
    }

    /// Writes it; it is on disk before this returns. A disk that hangs holds up nobody but the caller.
    ///
    /// # Errors
    /// [`volume::Error::File`].
    pub(super) async fn write(&self, dir: PathBuf) -> Result<(), volume::Error> {
        let path = dir.join(FILE);
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::other).map_err(at(&path))?;
        let written = tokio::task::spawn_blocking(move || volume::write(&dir, FILE, &text)).await;
        written.unwrap_or_else(|error| Err(volume::Error::File { path, source: io::Error::other(error) }))
    }
}

/// What happened to the data of a volume, without a mark.
///
/// # Errors
/// [`volume::Error::File`].
pub(super) fn unmarked(volume: &Volume) -> Result<OwnershipHistory, volume::Error> {
    Ok(match volume.inspect()? {
        Content::Data => OwnershipHistory::Sound,
        Content::Empty | Content::Foreign(_) => OwnershipHistory::NoData,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_mark_survives_and_one_that_is_damaged_is_no_permission() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(OwnershipMarker::read(dir.path()).expect("readable"), None);
        let mark = OwnershipMarker::served("seed-a", Timestamp::UNIX_EPOCH);
        mark.write(dir.path().to_owned()).await.expect("written");
        let found = OwnershipMarker::read(dir.path()).expect("readable").expect("a mark");
        assert!(found.loss().is_none() && found.is_of("seed-a") && !found.is_of("seed-a/1"));
        let mark = OwnershipMarker::cut_off("seed-a", Timestamp::UNIX_EPOCH);
        mark.write(dir.path().to_owned()).await.expect("written");
        let found = OwnershipMarker::read(dir.path()).expect("readable").expect("a mark");
        assert_eq!((found.loss(), &found), (Some(OwnershipHistory::CutOff), &mark));
        let mark = mark.with_snapshot("Full-1".to_owned(), None);
        mark.write(dir.path().to_owned()).await.expect("written");
        let found = OwnershipMarker::read(dir.path()).expect("readable").expect("a mark");
        assert_eq!(
            (found.loss(), found.snapshot.as_deref()),
            (Some(OwnershipHistory::FinalSnapshot), Some("Full-1"))
        );
        fs::write(dir.path().join(FILE), b"{").expect("a file");
        assert!(OwnershipMarker::read(dir.path()).is_err());
    }
}
