//! What an agent says of itself.

use repot_etcd_core::{agent::http::RestoredStatus, handover::Handover};
use serde::Serialize;
use tokio::sync::watch;

use crate::snapshot::restore::follow::StandbyState;

/// What a member is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Phase {
    /// Nothing yet.
    #[default]
    Starting,
    /// etcd is not started, because something has to come first.
    Waiting,
    /// etcd is not started, because the volume is not this member's.
    Refused,
    /// The volume is being filled from a backup.
    Restoring,
    /// etcd runs and serves clients, as far as the cluster lets it.
    Serving,
    /// etcd runs for the final snapshot only.
    Private,
    /// etcd is stopped, as it should be.
    Stopped,
    /// etcd has ended, and is started again in a while.
    Failing,
}

impl Phase {
    /// All phases, each of them once.
    pub const ALL: [Self; 8] = [
        Self::Starting,
        Self::Waiting,
        Self::Refused,
        Self::Restoring,
        Self::Serving,
        Self::Private,
        Self::Stopped,
        Self::Failing,
    ];
}

/// Whether a member can go on as a member of its cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Membership {
    /// Nothing is known against it.
    #[default]
    Valid,
    /// It has to be removed from the cluster and added again, since its volume was lost.
    NeedsRejoin,
    /// It was removed from the cluster, and its data is of no use.
    Removed,
}

/// What an agent says of its member: its phase, why, and what it has met.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What the member is doing.
    pub phase: Phase,
    /// The same for people: why, and what to do.
    pub message: String,
    /// Whether the member can go on as a member of its cluster.
    pub membership: Membership,
    /// From what the volume was filled, where this agent did it.
    pub restored: Option<RestoredStatus>,
    /// How far the standby is; `None` where there is none.
    pub standby: Option<watch::Receiver<StandbyState>>,
    /// Name of the snapshot that ends the chain of deltas, once it says whose time it ends.
    pub final_delta: Option<String>,
    /// How often etcd has ended by itself or could not be started.
    pub failures: u64,
    /// What follows from the owner's record.
    pub ownership: Ownership,
}

/// What follows from the newest look at the owner's record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    /// One of [`Ownership::VERDICTS`]; empty before the first look, and without an owner check.
    pub verdict: &'static str,
    /// Why, in a word; empty where all is well.
    pub reason: &'static str,
    /// The same for people.
    pub message: String,
    /// The owner id as which this member will never serve clients again; `None` before that is on its disk.
    pub cut_off: Option<String>,
    /// Name of the final snapshot, once it is in the store.
    pub final_snapshot: Option<String>,
    /// The hand-over to this etcd, once the owner before does not serve any more; `None` where there was none to wait for.
    pub handover: Option<Handover>,
}

/// Where the parts of an agent write their report.
#[derive(Clone, Debug)]
pub struct StatusReporter(watch::Sender<Report>);

impl Default for StatusReporter {
    fn default() -> Self {
        Self(watch::Sender::new(Report::default()))
    }
}

impl Ownership {
    /// All verdicts, each of them once.
    pub const VERDICTS: [&'static str; 5] = ["Serve", "Stop", "CutOff", "FinalSnapshot", "StayDown"];
}

impl StatusReporter {
    /// The report of the moment.
    #[must_use]
    pub fn read(&self) -> Report {
        self.0.borrow().clone()
    }

    /// Says what the member is doing. It is logged when it is something else than before.
    pub(super) fn say(&self, phase: Phase, message: impl Into<String>) {
        self.put(phase, message.into(), Membership::Valid);
    }

    /// Says that it has to join anew.
    pub(super) fn ask_to_rejoin(&self, message: impl Into<String>) {
        self.put(Phase::Waiting, message.into(), Membership::NeedsRejoin);
    }

    /// Says that the member was removed from the cluster.
    pub(super) fn say_removed(&self, message: impl Into<String>) {
        self.put(Phase::Waiting, message.into(), Membership::Removed);
    }

    /// Says from what the volume was filled. There is no standby any more.
    pub(super) fn set_restored(&self, restored: RestoredStatus) {
        self.0.send_modify(|report| (report.restored, report.standby) = (Some(restored), None));
    }

    pub(super) fn set_standby(&self, standby: watch::Receiver<StandbyState>) {
        self.0.send_modify(|report| report.standby = Some(standby));
    }

    /// Says which snapshot ends the chain of deltas.
    pub(super) fn set_final_delta(&self, name: Option<String>) {
        self.0.send_modify(|report| report.final_delta = name);
    }

    /// Says that etcd has ended by itself or could not be started.
    pub(super) fn count_failure(&self, message: impl Into<String>) {
        self.0.send_modify(|report| report.failures += 1);
        self.say(Phase::Failing, message);
    }

    /// Says what follows from the owner's record. It is logged when it is something else than before.
    pub(super) fn say_ownership(&self, new: Ownership) {
        self.0.send_if_modified(|report| {
            let same = report.ownership == new;
            if !same {
                let Ownership { verdict, reason, message, cut_off: _, final_snapshot, handover } = &new;
                tracing::info!(verdict, reason, ?final_snapshot, ?handover, why = message, "ownership");
                report.ownership = new;
            }
            !same
        });
    }

    fn put(&self, phase: Phase, message: String, membership: Membership) {
        self.0.send_if_modified(|report| {
            let same = (report.phase, report.membership) == (phase, membership) && report.message == message;
            if !same {
                tracing::info!(?phase, ?membership, why = message, "the member");
                (report.phase, report.membership, report.message) = (phase, membership, message);
            }
            !same
        });
    }
}
