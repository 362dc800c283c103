//! The volume of a member: whose it is, and what is in it.
//!
//! ```text
//! <data_dir>/repot-volume.json   whose it is; written before anything else
//!            repot-owner.json    what happened to the data, where ownership was lost (see `mark`)
//!            repot-removed.json  that the member of the data directory was removed, as the others said
//!            repot-volume.lock   held while an agent uses it
//!            new.etcd/           etcd's data directory
//!            new.etcd.part/      of a restore that is going on, or was cut short
//!            new.etcd.removed-*/ data directories of members that were removed, by their ids
//! ```
//!
//! Nothing in here removes data. What is not provably ours is not touched.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use repot_etcd_core::bootstrap::Volume as Content;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::identity::Identity;
use crate::snapshot::codec::is_removed;

const LABEL: &str = "repot-volume.json";
const REMOVAL: &str = "repot-removed.json";
const LOCK: &str = "repot-volume.lock";
const DATA: &str = "new.etcd";
const REMOVED: &str = "new.etcd.removed-";
/// What file systems and this agent make in an empty volume.
const HARMLESS: [&str; 2] = ["lost+found", LOCK];

/// The volume cannot be used at the moment.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory could not be used.
    #[error("failed to use {path}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another process has it.
    #[error("another agent is using the volume {0}")]
    Busy(PathBuf),
}

/// Whose a volume is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Label {
    /// Namespace and name of the `Etcd`.
    pub etcd: String,
    /// The set of volumes.
    pub volumes: String,
    /// Token of the cluster.
    pub cluster_token: String,
    /// Name of the member.
    pub member: String,
}

impl Label {
    /// What is different in another label, as a sentence.
    fn differs(&self, found: &Self) -> Option<String> {
        let fields = [
            ("etcd", &self.etcd, &found.etcd),
            ("volumes", &self.volumes, &found.volumes),
            ("cluster token", &self.cluster_token, &found.cluster_token),
            ("member", &self.member, &found.member),
        ];
        let wrong: Vec<String> = fields
            .iter()
            .filter(|(_, own, found)| own != found)
            .map(|(name, own, found)| format!("{name} {found:?} in place of {own:?}"))
            .collect();
        (!wrong.is_empty()).then(|| wrong.join(", "))
    }
}

/// The member that others have said to be removed.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Removal {
    /// Id of the cluster.
    cluster: u64,
    /// Id of the member.
    member: u64,
}

impl Removal {
    fn of(own: Identity) -> Self {
        Self { cluster: own.cluster, member: own.member }
    }
}

/// The volume of this member, used by nobody else while this lives.
#[derive(Debug)]
pub struct Volume {
    dir: PathBuf,
    label: Label,
    _lock: File,
}

impl Volume {
    /// Takes it.
    ///
    /// # Errors
    /// [`Error`].
    pub fn open(dir: &Path, label: Label) -> Result<Self, Error> {
        let path = dir.join(LOCK);
        let lock = File::options().create(true).truncate(false).write(true).open(&path).map_err(at(&path))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| Error::Busy(dir.to_owned()))?;
        Ok(Self { dir: dir.to_owned(), label, _lock: lock })
    }

    /// The directory of the volume.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// etcd's data directory; it need not be there.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.dir.join(DATA)
    }

    /// Whose it is supposed to be.
    #[must_use]
    pub fn label(&self) -> &Label {
        &self.label
    }

    /// What is in it. An empty one is labelled as ours, and that is on disk before this returns.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn inspect(&self) -> Result<Content, Error> {
        let path = self.dir.join(LABEL);
        let found = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if let Some(stranger) = self.stranger()? {
                    return Ok(Content::Foreign(format!(
                        "there is no {LABEL} in the volume {}, but {stranger:?}: whose data that is cannot be told",
                        self.dir.display()
                    )));
                }
                self.write_label(&path)?;
                return Ok(Content::Empty);
            }
            Err(source) => return Err(Error::File { path, source }),
        };
        Ok(match serde_json::from_slice::<Label>(&found).map(|found| self.label.differs(&found)) {
            Ok(None) => self.content()?,
            Ok(Some(wrong)) => Content::Foreign(format!(
                "the volume {} is of another member: {LABEL} says {wrong}",
                self.dir.display()
            )),
            Err(error) => Content::Foreign(format!("{} cannot be understood: {error}", path.display())),
        })
    }

    /// Who the member of the data directory is, where that was written down.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        Identity::read(&self.data_dir())
    }

    /// Writes down that this member was removed. The others may be gone when that is asked for the next time, and etcd itself may have
    /// ended before it applied its removal.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn note_removal_of(&self, own: Identity) -> Result<(), Error> {
        if self.has_note_of_removal(own) {
            return Ok(());
        }
        let text = serde_json::to_vec(&Removal::of(own)).map_err(io::Error::other);
        write(&self.dir, REMOVAL, &text.map_err(at(&self.dir.join(REMOVAL)))?)
    }

    /// Forgets that a member was removed, as where the volume has no data of it any more.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn forget_removal(&self) -> Result<(), Error> {
        let path = self.dir.join(REMOVAL);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::File { path, source: error }),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn has_note_of_removal(&self, own: Identity) -> bool {
        let found = fs::read(self.dir.join(REMOVAL)).ok();
        found.and_then(|text| serde_json::from_slice(&text).ok()) == Some(Removal::of(own))
    }

    /// Whether this member was removed, as was written down or as etcd's database in the volume says. False where neither can be read;
    /// etcd itself refuses to run as that member then. etcd must not be running.
    #[must_use]
    pub fn records_removal_of(&self, own: Identity) -> bool {
        if self.has_note_of_removal(own) {
            return true;
        }
        let path = self.data_dir().join("member/snap/db");
        let read = fs::File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let told = match read {
            Ok((bytes, file)) => is_removed(&file, bytes, own.member).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        told.unwrap_or_else(|error| {
            tracing::debug!(path = %path.display(), error, "the database does not tell who was removed");
            false
        })
    }

    /// Whether the data of a member that was removed is in it.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn was_removed(&self) -> Result<bool, Error> {
        for entry in fs::read_dir(&self.dir).map_err(at(&self.dir))? {
            let entry = entry.map_err(at(&self.dir))?;
            if entry.file_name().to_string_lossy().starts_with(REMOVED) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sets the data directory aside, as that of a member that was removed. It tells where to.
    ///
    /// # Errors
    /// [`Error::File`], also where something has that name.
    pub fn set_aside(&self) -> Result<PathBuf, Error> {
        let data = self.data_dir();
        let member = self.identity().map_or_else(|| "unknown".to_owned(), |own| format!("{:x}", own.member));
        let aside = self.dir.join(format!("{REMOVED}{member}"));
        // A directory with something in it is not replaced.
        let rename = || {
            fs::rename(&data, &aside)?;
            File::open(&self.dir)?.sync_all()
        };
        rename().map_err(at(&aside))?;
        Ok(aside)
    }

    /// Something in the volume that is not ours.
    fn stranger(&self) -> Result<Option<String>, Error> {
        for entry in fs::read_dir(&self.dir).map_err(at(&self.dir))? {
            let name = entry.map_err(at(&self.dir))?.file_name().to_string_lossy().into_owned();
            // A label that was being written when the machine stopped says nothing and is written again.
            if !HARMLESS.contains(&name.as_str()) && !name.starts_with(&format!("{LABEL}.")) {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    fn content(&self) -> Result<Content, Error> {
        // etcd makes its log last: without one it begins anew by itself, whatever else is there.
        let wal = self.data_dir().join("member/wal");
        let entries = match fs::read_dir(&wal) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Content::Empty),
            Err(source) => return Err(Error::File { path: wal, source }),
        };
        for entry in entries {
            let path = entry.map_err(at(&wal))?.path();
            if path.extension().is_some_and(|extension| extension == "wal") {
                return Ok(Content::Data);
            }
        }
        Ok(Content::Empty)
    }

    fn write_label(&self, path: &Path) -> Result<(), Error> {
        let text = serde_json::to_vec_pretty(&self.label).map_err(io::Error::other).map_err(at(path))?;
        write(&self.dir, LABEL, &text)
    }
}

/// Writes a file as a whole or not at all; it is on disk before this returns.
///
/// # Errors
/// [`Error::File`].
pub(super) fn write(dir: &Path, name: &str, text: &[u8]) -> Result<(), Error> {
    let (path, new) = (dir.join(name), dir.join(format!("{name}.new")));
    let write = || {
        let mut file = File::create(&new)?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(dir)?.sync_all()
    };
    write().map_err(at(&path))
}

pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(volumes: &str, member: &str) -> Label {
        Label {
            etcd: "ns/main".into(),
            volumes: volumes.into(),
            cluster_token: format!("uid/{volumes}"),
            member: member.into(),
        }
    }

    fn inspect(dir: &Path, label: Label) -> Content {
        Volume::open(dir, label).expect("not busy").inspect().expect("readable")
    }

    #[test]
    fn an_empty_volume_is_labelled_and_another_member_does_not_get_it() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("lost+found")).expect("a directory");
        assert_eq!(inspect(dir.path(), label("a", "m0")), Content::Empty);
        assert_eq!(inspect(dir.path(), label("a", "m0")), Content::Empty);
        fs::create_dir_all(dir.path().join("new.etcd/member/wal")).expect("a directory");
        assert_eq!(inspect(dir.path(), label("a", "m0")), Content::Empty, "a start that was cut short");
        fs::write(dir.path().join("new.etcd/member/wal/0-0.wal"), b"x").expect("a file");
        assert_eq!(inspect(dir.path(), label("a", "m0")), Content::Data);
        let wrong = inspect(dir.path(), label("b", "m0"));
        assert!(
            matches!(&wrong, Content::Foreign(why) if why.contains("volumes \"a\" in place of \"b\"")),
            "{wrong:?}"
        );
        let wrong = inspect(dir.path(), label("a", "m1"));
        assert!(matches!(&wrong, Content::Foreign(why) if why.contains("member \"m0\"")), "{wrong:?}");
    }

    #[test]
    fn removal_of_a_member_is_remembered_until_its_data_is_gone() {
        let dir = tempfile::tempdir().expect("a directory");
        let volume = Volume::open(dir.path(), label("a", "m0")).expect("not busy");
        let (own, other) = (Identity { cluster: 1, member: 2 }, Identity { cluster: 1, member: 3 });
        assert!(!volume.records_removal_of(own));
        for _ in 0..2 {
            volume.note_removal_of(own).expect("writable");
            assert!(volume.records_removal_of(own) && !volume.records_removal_of(other));
        }
        for _ in 0..2 {
            volume.forget_removal().expect("writable");
            assert!(!volume.records_removal_of(own));
        }
    }

    #[test]
    fn a_volume_with_data_of_unknown_origin_is_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("new.etcd")).expect("a directory");
        for _ in 0..2 {
            assert!(matches!(inspect(dir.path(), label("a", "m0")), Content::Foreign(_)));
        }
        fs::write(dir.path().join(LABEL), b"{").expect("a file");
        assert!(matches!(inspect(dir.path(), label("a", "m0")), Content::Foreign(_)));
        let held = Volume::open(dir.path(), label("a", "m0")).expect("free");
        assert!(matches!(Volume::open(dir.path(), label("a", "m0")), Err(Error::Busy(_))));
        drop(held);
    }
}
