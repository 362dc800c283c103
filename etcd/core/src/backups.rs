//! How far backups have come: what workflows wait for, and what retention goes by.

use repot_apimachinery::time::Time;

use crate::digest::Digest;

/// How far the taking of a backup has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taking {
    /// It runs.
    Running,
    /// It failed so many times; the text is the last reason.
    Failed(u32, String),
    /// It lies in the store.
    Stored,
}

/// How far the verification of a backup has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verifying {
    /// It has not ended.
    Open,
    /// It was read from beginning to end and restored elsewhere, and holds this.
    Sound(Digest),
    /// It cannot be restored.
    Corrupt(String),
}

/// A backup, with how far its taking and its verification have come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// UID of the object that asked for it, as written beside it.
    pub owner: String,
    /// When it was begun.
    pub time: Time,
    /// How far the taking has come.
    pub taking: Taking,
    /// How far the verification has come.
    pub verifying: Verifying,
}
