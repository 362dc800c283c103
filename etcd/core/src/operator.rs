//! What becomes of the StatefulSet of an Etcd. It never has two clusters on one set of volumes, nor members on two sets.
//!
//! **Founding.** All members found a cluster together, once for each set of volumes; how many they are is recorded before, and
//! changes only by changes of membership after. **After that** a Pod exists for each member and for no one else: the member
//! is added before its Pod, and removed before it.

use std::collections::BTreeMap;

use repot_api::conditions::Reason;

use crate::volumes::VolumeSet;

/// What is seen in a pass, read from kube-apiserver itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The volumes that are wanted.
    pub volumes: VolumeSet,
    /// Members that are wanted; with none the volumes are kept, and nothing runs.
    pub replicas: u32,
    /// StatefulSet of the members; `None` where it does not exist.
    pub set: Option<Set>,
    /// Pods that exist, those that are ending included, by the volumes they mount.
    pub pods: BTreeMap<VolumeSet, u32>,
    /// What is on the volumes that are wanted.
    pub cluster: Cluster,
    /// The snapshots of another etcd, where volumes are to be filled from them.
    pub source: Source,
    /// Whether the members are part of an etcd that goes on elsewhere, so that they have to be removed from it before they stop.
    pub leaves: bool,
    /// Whether the Etcd is kept by our finalizer until they have left.
    pub held: bool,
    /// Whether members of another Etcd have no quorum without those of this one, which is being deleted.
    pub needed: bool,
}

/// What is seen of the StatefulSet of the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// The volumes of its members.
    pub volumes: VolumeSet,
    /// How many Pods it is to have.
    pub replicas: u32,
    /// Whether it is being deleted.
    pub deleting: bool,
}

/// What is on the volumes that are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cluster {
    /// Nothing that all members were ever part of at the same time.
    New {
        /// How many members began to found it, if any did.
        founders: Option<u32>,
    },
    /// A cluster, or the wish to join one.
    Founded {
        /// Pods that its members need: one more than the greatest place of a member. Nothing where it cannot be asked.
        members: Option<u32>,
        /// The same by the claims that exist: what ran before everything was stopped.
        claims: u32,
    },
}

/// The snapshots of another etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// None are wanted, or they were copied.
    Ready,
    /// They have to be copied; the reason says how far that is.
    Missing(Reason),
    /// They were copied for an earlier owner, before others wrote more; no cluster was on the volumes yet.
    Outdated(Reason),
}

/// What the operator does next about the StatefulSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The StatefulSet is deleted; the volumes stay.
    Stop(Reason),
    /// Nothing, until something else has happened.
    Wait(Reason),
    /// Nothing: nothing is wanted to run.
    Rest,
    /// The copy of the snapshots is seen to, and nothing is started.
    Copy(Reason),
    /// The StatefulSet exists with so many Pods.
    Run {
        /// How many.
        members: u32,
    },
}

/// Decides what is done next, by what is seen in a pass.
#[must_use]
pub fn decide(seen: &Seen) -> Next {
    let pods: u32 = seen.pods.values().sum();
    let ending = || {
        let message = format!("{pods} Pods of members are not gone yet");
        Next::Wait(Reason::new("MembersEnding", message))
    };
    match &seen.set {
        Some(set) if set.deleting => {
            Next::Wait(Reason::new("StatefulSetEnding", "the StatefulSet is not gone yet"))
        }
        Some(set) if seen.replicas == 0 && seen.needed && set.volumes == seen.volumes => start(seen),
        Some(set) if seen.replicas == 0 && seen.leaves && set.volumes == seen.volumes => leave(seen),
        Some(_) if seen.replicas == 0 => Next::Stop(Reason::new("Stopped", "no members are wanted")),
        Some(set) if set.volumes != seen.volumes => {
            let message = format!("members run on volumes {}, and {} are wanted", set.volumes, seen.volumes);
            Next::Stop(Reason::new("OtherVolumes", message))
        }
        // Members on other volumes, or of a StatefulSet that is gone: two of one name must never run at once.
        None if pods > 0 => ending(),
        // Without Pods, as after a deletion in the foreground, they are made anew on the volumes that they had.
        None if seen.replicas == 0 && seen.needed => start(seen),
        None if seen.replicas == 0 && seen.leaves && seen.held => left_behind(seen),
        None if seen.replicas == 0 => Next::Rest,
        Some(_) | None => start(seen),
    }
}

/// Voters that stop without being removed would leave the others with a quorum that is harder to reach.
fn leave(seen: &Seen) -> Next {
    match seen.cluster {
        Cluster::Founded { members: Some(0), .. } => {
            Next::Stop(Reason::new("Stopped", "all members were removed"))
        }
        Cluster::Founded { members: Some(members), .. } => Next::Run { members },
        Cluster::Founded { members: None, .. } | Cluster::New { .. } => silent(),
    }
}

/// Without Pods, as after a deletion in the foreground, members are still counted for the quorum of the others.
fn left_behind(seen: &Seen) -> Next {
    match seen.cluster {
        Cluster::Founded { members: Some(0), .. } => Next::Rest,
        Cluster::Founded { members: Some(_), .. } => {
            let message = "members without Pods are removed from the other etcd";
            Next::Wait(Reason::new("MembersLeaving", message))
        }
        Cluster::Founded { members: None, .. } | Cluster::New { .. } => silent(),
    }
}

fn silent() -> Next {
    let message = "members cannot be removed from the other etcd, since it does not answer";
    Next::Wait(Reason::new("NoMemberAnswers", message))
}

fn start(seen: &Seen) -> Next {
    let runs = seen.set.as_ref().map(|set| set.replicas);
    match (seen.cluster, &seen.source) {
        (Cluster::New { .. }, Source::Outdated(why)) if runs.is_some() => Next::Stop(why.clone()),
        (Cluster::New { .. }, Source::Outdated(why)) => Next::Copy(why.clone()),
        (Cluster::New { founders: None }, Source::Missing(why)) if runs.is_none() => Next::Copy(why.clone()),
        (Cluster::New { founders }, _) => Next::Run { members: runs.or(founders).unwrap_or(seen.replicas) },
        (Cluster::Founded { members, claims }, _) => {
            let before = if claims == 0 { None } else { Some(claims) };
            Next::Run { members: members.or(runs).or(before).unwrap_or(seen.replicas) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk(set: Option<(&str, u32)>, replicas: u32) -> Seen {
        let set = set.map(|(volumes, replicas)| Set {
            volumes: VolumeSet(volumes.into()),
            replicas,
            deleting: false,
        });
        let pods = set.iter().map(|set| (set.volumes.clone(), set.replicas)).collect();
        Seen {
            volumes: VolumeSet("a".into()),
            replicas,
            set,
            pods,
            cluster: Cluster::New { founders: None },
            source: Source::Ready,
            leaves: false,
            held: false,
            needed: false,
        }
    }

    fn reason(next: &Next) -> &'static str {
        match next {
            Next::Stop(why) | Next::Wait(why) | Next::Copy(why) => why.reason,
            Next::Rest => "",
            Next::Run { .. } => "Run",
        }
    }

    #[test]
    fn founds_with_all_members_and_keeps_their_number_until_they_were_together() {
        assert_eq!(decide(&mk(None, 3)), Next::Run { members: 3 });
        assert_eq!(decide(&mk(Some(("a", 3)), 1)), Next::Run { members: 3 });
        let begun = Seen { cluster: Cluster::New { founders: Some(3) }, ..mk(None, 1) };
        assert_eq!(decide(&begun), Next::Run { members: 3 });
    }

    #[test]
    fn stops_for_other_volumes_and_starts_when_no_member_is_left() {
        assert_eq!(reason(&decide(&mk(Some(("b", 3)), 3))), "OtherVolumes");
        for pods in [("b", 1), ("a", 1)] {
            let ending = Seen { pods: [(VolumeSet(pods.0.into()), pods.1)].into(), ..mk(None, 3) };
            assert_eq!(reason(&decide(&ending)), "MembersEnding");
        }
        assert_eq!(decide(&mk(None, 3)), Next::Run { members: 3 });
    }

    #[test]
    fn waits_for_a_stateful_set_that_goes() {
        for volumes in ["a", "b"] {
            let mut seen = mk(Some((volumes, 3)), 3);
            if let Some(set) = &mut seen.set {
                set.deleting = true;
            }
            assert_eq!(reason(&decide(&seen)), "StatefulSetEnding");
        }
    }

    #[test]
    fn stops_without_members_on_whatever_volumes() {
        assert_eq!(reason(&decide(&mk(Some(("a", 3)), 0))), "Stopped");
        assert_eq!(reason(&decide(&mk(Some(("b", 3)), 0))), "Stopped");
        assert_eq!(decide(&mk(None, 0)), Next::Rest);
        let ending = Seen { pods: [(VolumeSet("a".into()), 2)].into(), ..mk(None, 0) };
        assert_eq!(reason(&decide(&ending)), "MembersEnding");
    }

    #[test]
    fn runs_a_pod_for_each_member_of_a_cluster() {
        let founded = |set, replicas, members, claims| Seen {
            cluster: Cluster::Founded { members, claims },
            ..mk(set, replicas)
        };
        // 1 to 3: the second was added.
        assert_eq!(decide(&founded(Some(("a", 1)), 3, Some(2), 1)), Next::Run { members: 2 });
        // 3 to 1: the third was removed.
        assert_eq!(decide(&founded(Some(("a", 3)), 1, Some(2), 3)), Next::Run { members: 2 });
        // Nobody answers: nothing changes.
        assert_eq!(decide(&founded(Some(("a", 3)), 1, None, 3)), Next::Run { members: 3 });
        // It was stopped with three, and is started with another number: the three are needed for a quorum.
        assert_eq!(decide(&founded(None, 1, None, 3)), Next::Run { members: 3 });
        // It joins another etcd, and no member was added yet.
        assert_eq!(decide(&founded(None, 3, Some(0), 0)), Next::Run { members: 0 });
    }

    #[test]
    fn leaves_an_etcd_that_goes_on_elsewhere_before_it_stops() {
        let leaving = |members| Seen {
            cluster: Cluster::Founded { members, claims: 3 },
            leaves: true,
            ..mk(Some(("a", 3)), 0)
        };
        assert_eq!(decide(&leaving(Some(2))), Next::Run { members: 2 });
        assert_eq!(reason(&decide(&leaving(Some(0)))), "Stopped");
        assert_eq!(reason(&decide(&leaving(None))), "NoMemberAnswers");
        // Their Pods are gone, and they are voters still.
        let behind = |members| Seen { set: None, pods: BTreeMap::new(), held: true, ..leaving(members) };
        assert_eq!(reason(&decide(&behind(Some(2)))), "MembersLeaving");
        assert_eq!(reason(&decide(&behind(None))), "NoMemberAnswers");
        assert_eq!(decide(&behind(Some(0))), Next::Rest);
        assert_eq!(decide(&Seen { held: false, ..behind(None) }), Next::Rest);
    }

    #[test]
    fn goes_on_while_members_of_another_etcd_have_no_quorum_without_it() {
        let needed = |set| Seen {
            cluster: Cluster::Founded { members: None, claims: 3 },
            needed: true,
            held: true,
            ..mk(set, 0)
        };
        assert_eq!(decide(&needed(Some(("a", 3)))), Next::Run { members: 3 });
        // A deletion in the foreground has taken the StatefulSet.
        assert_eq!(decide(&needed(None)), Next::Run { members: 3 });
        let pods = [(VolumeSet("a".into()), 2)].into();
        assert_eq!(reason(&decide(&Seen { pods, ..needed(None) })), "MembersEnding");
        assert_eq!(reason(&decide(&Seen { needed: false, ..needed(Some(("a", 3))) })), "Stopped");
        assert_eq!(decide(&Seen { needed: false, ..needed(None) }), Next::Rest);
    }

    #[test]
    fn copies_before_anything_is_founded_and_never_after() {
        let missing = Source::Missing(Reason::new("Copying", "…"));
        let first = Seen { source: missing.clone(), ..mk(None, 3) };
        assert_eq!(reason(&decide(&first)), "Copying");
        let begun = Seen { cluster: Cluster::New { founders: Some(3) }, ..first.clone() };
        assert_eq!(decide(&begun), Next::Run { members: 3 });
        let runs = Seen { source: missing, ..mk(Some(("a", 3)), 3) };
        assert_eq!(decide(&runs), Next::Run { members: 3 });
    }

    #[test]
    fn copies_again_for_a_later_owner_while_there_is_no_cluster() {
        let outdated = Source::Outdated(Reason::new("CopiedForAnotherOwner", "…"));
        let runs = Seen { source: outdated, ..mk(Some(("a", 3)), 3) };
        assert!(matches!(decide(&runs), Next::Stop(_)));
        let begun = Cluster::New { founders: Some(3) };
        let stopped = Seen { set: None, pods: BTreeMap::new(), cluster: begun, ..runs.clone() };
        assert!(matches!(decide(&stopped), Next::Copy(_)));
        let founded = Seen { cluster: Cluster::Founded { members: Some(3), claims: 3 }, ..runs };
        assert_eq!(decide(&founded), Next::Run { members: 3 });
    }
}
