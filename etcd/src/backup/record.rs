//! The records beside a named backup, as JSON. Fields are only added, never renamed: backups outlive programs.

use repot_etcd_core::{digest::Digest, snapshot::Revision};
use serde::{Deserialize, Serialize};

/// Name of the record of the taking.
pub(super) const BACKUP: &str = "backup.json";
/// Name of the record of the verification.
pub(super) const VERIFIED: &str = "verified.json";

/// How far the taking has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// It runs, or whoever did it died.
    Running,
    /// It failed; the record says why.
    Failed,
    /// The snapshot is in the store.
    Stored,
}

/// Content of `backup.json`: how far a named backup has come, and what is in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupRecord {
    /// UID of the object that asked for it.
    pub owner: String,
    /// When it was first begun, in RFC 3339, UTC and whole seconds.
    pub begun: String,
    /// How far it has come.
    pub state: State,
    /// How often it failed.
    #[serde(default)]
    pub failures: u32,
    /// Why, the last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Name of the snapshot, once it is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Revision up to which it reaches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Its length in the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// `verified.json`: either of the two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// It was restored elsewhere and holds this.
    Sound(Content),
    /// It cannot be restored; the text says why.
    Corrupt(String),
}

/// What a backup holds: [`Digest`], in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// How far it reaches.
    pub revision: i64,
    /// Number of keys without a lease.
    pub keys: u64,
    /// Hash over them; see [`crate::digest`].
    pub hash: String,
}

impl From<Digest> for Content {
    fn from(digest: Digest) -> Self {
        Self { revision: digest.revision.0, keys: digest.keys, hash: digest.hash }
    }
}

impl From<Content> for Digest {
    fn from(content: Content) -> Self {
        Self { revision: Revision(content.revision), keys: content.keys, hash: content.hash }
    }
}
