//! How a member of an etcd begins: with the data it has, with its share of a new cluster, as a learner of one that exists, or not
//! at all.
//!
//! A member that has lost its volume must not begin anew under its old identity: it would have forgotten votes and entries that
//! it acknowledged, and the cluster counts on them. So an empty volume is filled only while nobody knows of a life before, and
//! where nothing can be learnt about that, a cluster that is said to exist is waited for. Nothing here asks for data to be removed.
//!
//! A member that was removed may still have its data, and others that were removed with it may, too: together they would be a quorum of
//! the past. So one that has data asks first, and does not start where a cluster with a quorum knows it no more.

use repot_api::conditions::Reason;

/// What is in the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Volume {
    /// It is not ours, or cannot be told to be: the text says why.
    Foreign(String),
    /// Ours, without a log of etcd. What a start that was cut short has left may be in it.
    Empty,
    /// Ours, with a log of etcd.
    Data,
}

/// What the operator says of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cluster {
    /// Its members found it together; they are filled from a backup first where `restore` says so.
    New {
        /// Whether a backup is to be restored.
        restore: bool,
    },
    /// It exists.
    Existing,
}

/// What other members say of this one. They know it by its peer URLs; one that has data, by the id in it, and only what a quorum of
/// the very cluster says counts there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerReport {
    /// Nobody answers, or nobody who has a quorum behind it.
    Nothing,
    /// It is no member; not any more, where it has data.
    NotMember,
    /// It is a member that has not started yet, of a cluster that serves. Where it has data: that is of a member that was removed, and
    /// another one with its peer URLs was added.
    Unstarted,
    /// It is a founder that has not started yet, and those that have do not serve. They may have no quorum without it.
    Awaited,
    /// It is a member that has been running.
    Started,
}

/// What is known of a member that is to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// What is in the volume.
    pub volume: Volume,
    /// What the operator says.
    pub cluster: Cluster,
    /// What other members say.
    pub heard: PeerReport,
}

/// How a member of an etcd begins, or why it does not yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartMode {
    /// etcd starts with the data of the volume.
    Resume,
    /// etcd starts as one of the founders.
    Found,
    /// The backup is restored, and then etcd starts with that.
    Restore,
    /// etcd starts as a member that was added.
    Join,
    /// The data is of a member that was removed: it is set aside, and then etcd starts as the one that was added.
    JoinAnew,
    /// Not yet: another look may say something else.
    Wait(Reason),
    /// etcd does not start with this data, since the member was removed from the cluster. It may be added again later.
    Removed(Reason),
    /// Not under this identity: the member has to be removed and added again.
    Rejoin(Reason),
    /// Not with this volume.
    Refuse(Reason),
}

/// How a member begins.
#[must_use]
pub fn decide(facts: &Facts) -> StartMode {
    match (&facts.volume, facts.cluster, facts.heard) {
        (Volume::Foreign(why), ..) => StartMode::Refuse(Reason::new("WrongVolume", why.clone())),
        (Volume::Data, _, PeerReport::Nothing | PeerReport::Awaited | PeerReport::Started) => {
            StartMode::Resume
        }
        (Volume::Data, _, PeerReport::Unstarted) => StartMode::JoinAnew,
        (Volume::Data, _, PeerReport::NotMember) => StartMode::Removed(Reason::new(
            "Removed",
            "this member was removed from the cluster, and its data is of no use to it; \
             when it is added again it sets the data aside and joins anew",
        )),
        (Volume::Empty, _, PeerReport::Started) => StartMode::Rejoin(Reason::new(
            "VolumeLost",
            "the volume is empty, though the other members know this one as a member that was running; \
             remove it from the cluster and add it again",
        )),
        (Volume::Empty, Cluster::New { .. }, PeerReport::NotMember) => StartMode::Wait(Reason::new(
            "NotAMember",
            "the others run as a cluster without this member, so it does not found one; add it, or correct `members`",
        )),
        // It has never voted. What it restored could be older or newer than what the others began with.
        (Volume::Empty, Cluster::New { restore: true }, PeerReport::Unstarted) => StartMode::Join,
        (Volume::Empty, Cluster::New { restore: true }, PeerReport::Nothing | PeerReport::Awaited) => {
            StartMode::Restore
        }
        (Volume::Empty, Cluster::New { restore: false }, _) => StartMode::Found,
        (Volume::Empty, Cluster::Existing, PeerReport::Unstarted) => StartMode::Join,
        (Volume::Empty, Cluster::Existing, PeerReport::NotMember) => StartMode::Wait(Reason::new(
            "NotAMember",
            "the volume is empty and the cluster does not list this member; it starts when it was added",
        )),
        (Volume::Empty, Cluster::Existing, PeerReport::Nothing | PeerReport::Awaited) => {
            StartMode::Wait(Reason::new(
                "ClusterSilent",
                "the volume is empty and no member of the cluster with a quorum answers; \
             where all volumes are lost, restore the etcd from a backup",
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begins(volume: Volume, cluster: Cluster, heard: PeerReport) -> StartMode {
        decide(&Facts { volume, cluster, heard })
    }

    const NEW: Cluster = Cluster::New { restore: false };
    const RESTORED: Cluster = Cluster::New { restore: true };
    const ALL: [PeerReport; 5] = [
        PeerReport::Nothing,
        PeerReport::NotMember,
        PeerReport::Unstarted,
        PeerReport::Awaited,
        PeerReport::Started,
    ];

    #[test]
    fn foreign_volumes_are_left_alone() {
        for cluster in [NEW, RESTORED, Cluster::Existing] {
            for heard in ALL {
                let foreign = begins(Volume::Foreign("of another".into()), cluster, heard);
                assert!(matches!(foreign, StartMode::Refuse(why) if why.message == "of another"));
            }
        }
    }

    #[test]
    fn data_is_taken_as_it_is_unless_its_member_was_removed() {
        for cluster in [NEW, RESTORED, Cluster::Existing] {
            for heard in [PeerReport::Nothing, PeerReport::Awaited, PeerReport::Started] {
                assert_eq!(begins(Volume::Data, cluster, heard), StartMode::Resume);
            }
            assert_eq!(begins(Volume::Data, cluster, PeerReport::Unstarted), StartMode::JoinAnew);
            let removed = begins(Volume::Data, cluster, PeerReport::NotMember);
            assert!(matches!(&removed, StartMode::Removed(why) if why.reason == "Removed"), "{removed:?}");
        }
    }

    #[test]
    fn founds_only_while_nobody_knows_of_a_life_before() {
        for heard in [PeerReport::Nothing, PeerReport::Awaited] {
            assert_eq!(begins(Volume::Empty, NEW, heard), StartMode::Found);
            assert_eq!(begins(Volume::Empty, RESTORED, heard), StartMode::Restore);
        }
        // What an empty one begins with is the same as that of the others; what is restored need not be.
        assert_eq!(begins(Volume::Empty, NEW, PeerReport::Unstarted), StartMode::Found);
        assert_eq!(begins(Volume::Empty, RESTORED, PeerReport::Unstarted), StartMode::Join);
        for cluster in [NEW, RESTORED, Cluster::Existing] {
            assert!(matches!(begins(Volume::Empty, cluster, PeerReport::Started), StartMode::Rejoin(_)));
            assert!(matches!(begins(Volume::Empty, cluster, PeerReport::NotMember), StartMode::Wait(_)));
        }
    }

    #[test]
    fn never_founds_what_is_said_to_exist() {
        for heard in ALL {
            let beginning = begins(Volume::Empty, Cluster::Existing, heard);
            assert!(!matches!(beginning, StartMode::Found | StartMode::Restore | StartMode::Resume));
            assert_eq!(beginning == StartMode::Join, heard == PeerReport::Unstarted);
        }
    }
}
