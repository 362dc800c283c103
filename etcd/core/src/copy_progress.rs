//! What a copy of snapshots tells while it runs.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Port of the Pod at which a copy tells its progress to the operator, by HTTP.
pub const PORT: u16 = 8080;
/// Path of [`CopyProgress`] there.
pub const PATH: &str = "/progress";
/// An answer is no longer than this, in bytes.
pub const LONGEST: usize = 4 << 10;

/// What a copy is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyPhase {
    /// It waits until no owner before can serve.
    #[default]
    WaitingForOwner,
    /// It waits for the final snapshot of the source.
    WaitingForFinalSnapshot,
    /// It copies, or compares what is there already.
    Copying,
}

/// How far a copy is, since its process began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CopyProgress {
    /// What it is about.
    pub phase: CopyPhase,
    /// Snapshots that are whole at the target.
    pub snapshots: u64,
    /// Snapshots at the source; 0 before it has listed them.
    pub snapshots_total: u64,
    /// Bytes of the snapshots that are whole at the target.
    pub bytes: u64,
    /// Bytes of the snapshots at the source.
    pub bytes_total: u64,
    /// Bytes that were sent to the target, those of snapshots that are not whole yet included.
    pub bytes_sent: u64,
    /// Snapshots that could not be copied.
    pub failed: u64,
    /// When any of these changed the last time.
    pub last_progress: Timestamp,
}
