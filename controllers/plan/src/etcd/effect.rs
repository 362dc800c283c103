//! What a workflow can ask for.

use repot_etcd_core::volumes::VolumeSet;

use super::observed::Settings;

/// A target, not a motion: asked for until it is seen.
///
/// # Guarantees
/// Every effect may be applied twice. One that lands late, after the workflow has turned round or is over, is refused by the
/// API server or does nothing.
///
/// # Assumptions
/// - What changes or deletes an object does so under the `resourceVersion` of that object that was observed for the decision
///   (and deletes under its UID). So whatever was decided on an older state of the object is refused.
/// - `fence` is written to the object as an annotation. On the way back it differs from that of the way forward, so that going
///   back writes the object even where it looks untouched, and what is still on its way from before is refused.
/// - A StatefulSet has one name whatever its volumes, so there are never two; volumes are kept when it is deleted.
///
/// # Errors
/// A refused or failed effect is no failure of the workflow: the next pass looks again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Our finalizer is on the workflow's object, or is not.
    EnsureFinalizer {
        /// Whether it is.
        present: bool,
    },
    /// Our finalizer is on the HostedEtcd, or is not. It is set after the lock is taken and taken off before the lock is given
    /// back, so one without a lock belongs to nobody.
    EnsureClusterFinalizer {
        /// Whether it is.
        present: bool,
    },
    /// `status.currentWorkflow` of the HostedEtcd is this workflow, or nobody.
    EnsureLock {
        /// Whether this workflow has it.
        held: bool,
    },
    /// The Deployment of the API servers has so many replicas.
    EnsureApi {
        /// How many.
        replicas: u32,
        /// Who asks.
        fence: String,
    },
    /// A backup of this name is taken, unless one is or was. A failed one is tried again.
    EnsureBackup {
        /// Its name.
        name: String,
    },
    /// The backup is read from beginning to end and restored elsewhere, and the result is recorded beside it.
    EnsureVerified {
        /// Its name.
        name: String,
    },
    /// The StatefulSet exists, with members on these volumes. Volumes that are missing or empty are filled from the backup. One
    /// that exists with other volumes is left alone.
    EnsureEtcd {
        /// The volumes.
        volumes: VolumeSet,
        /// The layout.
        settings: Settings,
        /// What empty volumes are filled from.
        from: Option<String>,
        /// Who asks.
        fence: String,
    },
    /// There is no StatefulSet on these volumes. The volumes stay.
    EnsureNoEtcd {
        /// The volumes.
        volumes: VolumeSet,
    },
    /// The HostedEtcd has these settings.
    EnsureSettings {
        /// The settings.
        settings: Settings,
    },
    /// These volumes do not exist.
    EnsureNoVolumes {
        /// The volumes.
        volumes: VolumeSet,
    },
    /// These backups do not exist.
    EnsureNoBackups {
        /// Their names.
        names: Vec<String>,
    },
}

impl Effect {
    /// Whether it takes something away that was worth having.
    #[must_use]
    pub fn destroys(&self) -> bool {
        match self {
            Self::EnsureNoEtcd { .. } | Self::EnsureNoVolumes { .. } | Self::EnsureNoBackups { .. } => true,
            Self::EnsureFinalizer { .. }
            | Self::EnsureClusterFinalizer { .. }
            | Self::EnsureLock { .. }
            | Self::EnsureApi { .. }
            | Self::EnsureBackup { .. }
            | Self::EnsureVerified { .. }
            | Self::EnsureEtcd { .. }
            | Self::EnsureSettings { .. } => false,
        }
    }

    /// The command of the paper that says the same, for `status.command` of the HostedEtcd.
    #[must_use]
    pub fn command(&self) -> Option<&'static str> {
        match self {
            Self::EnsureApi { replicas: 0, .. } => Some("stopApi"),
            Self::EnsureApi { .. } => Some("startApi"),
            Self::EnsureNoEtcd { .. } => Some("deleteEtcd"),
            Self::EnsureEtcd { .. } => Some("startRestore"),
            Self::EnsureFinalizer { .. }
            | Self::EnsureClusterFinalizer { .. }
            | Self::EnsureLock { .. }
            | Self::EnsureBackup { .. }
            | Self::EnsureVerified { .. }
            | Self::EnsureSettings { .. }
            | Self::EnsureNoVolumes { .. }
            | Self::EnsureNoBackups { .. } => None,
        }
    }
}
