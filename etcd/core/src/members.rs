//! The next change of an etcd's membership, one at a time. It never asks for one after which the voters that are well would be
//! no quorum.
//!
//! **Between two sites** the order is 3, 4, 5, (6), 5, 4, 3 voters. With three voters on each site no site has a quorum when they
//! lose each other, and that is so nowhere else on the way. So everything that has to precede the first removal precedes the third
//! promotion, and the first removal is the very next change after it.
//!
//! **The leader moves right after the first removal**, with two voters at the source and three at the destination: from then on the
//! destination alone elects and commits, so a new leader there has its votes, and every write after them, without a word from the
//! other site. The move takes about one round trip, and writes are held for no longer. With three and two, before the third
//! promotion, votes and commits would need the source: the leader would be far from the majority until the first removal.
//! Going back before the first removal needs no move, unless a member of the destination was elected meanwhile.
//!
//! **A member that is reached elsewhere** is given its peer URLs where it votes and all members are on one site: etcd turns a learner
//! into a voter with them, and on the way between two sites nothing may come between. Each other voter has to be well, so that
//! the others are a quorum should the new URLs lead nowhere.
//!
//! **Going back** is asking for the numbers of the beginning. It is refused once a source member was removed: then the destination
//! alone has the quorum.

use std::{cmp::Reverse, time::Duration};

use repot_api::conditions::Reason;
use repot_apimachinery::time::Time;

/// Id of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemberId(pub u64);

/// Where a member runs. An etcd that does not move has all of its members at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Where the etcd comes from.
    Source,
    /// Where it goes.
    Destination,
}

/// What a member is in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It counts for the quorum.
    Voter,
    /// It does not, and follows.
    Learner {
        /// How far its log reaches, in percent of the leader's.
        matched: u8,
    },
}

/// A member of the cluster, as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Id of the member in etcd.
    pub id: MemberId,
    /// Side on which the member runs: source or destination.
    pub side: Side,
    /// Its place there, from 0; where a site gets smaller without going away, the highest leave.
    pub ordinal: u32,
    /// Whether it is a voter or a learner.
    pub role: Role,
    /// Whether it has started since it was added: it has told its name.
    pub started: bool,
    /// Whether it answers and follows the leader, and its data is not lost.
    pub healthy: bool,
    /// Since when it is connected to the leader without a break; nothing while it is not.
    pub connected: Option<Time>,
    /// Whether its peer URLs are not those that it is to have.
    pub moved: bool,
    /// Whether its data is gone. It has to leave and join anew: under its old id it would forget what it voted for.
    pub lost: bool,
}

/// What is seen of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// All members that were seen, voters and learners.
    pub members: Vec<Member>,
    /// Who leads, if somebody does.
    pub leader: Option<MemberId>,
    /// Whether a linearizable read was answered after the last change.
    pub reads: bool,
}

/// What is wanted: how many voters each side shall have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Desired {
    /// Voters at the source.
    pub source: usize,
    /// Voters at the destination.
    pub destination: usize,
    /// Voters at the source before anything was changed.
    pub source_before: usize,
    /// Whether clients reach the etcd at the destination, so that source members may go.
    pub release_source: bool,
}

/// One change of members, of the leader or of peer URLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A learner is added at this side and place, and started.
    AddLearner(Side, u32),
    /// The learner becomes a voter.
    Promote(MemberId),
    /// The leader hands over to this member.
    MoveLeader(MemberId),
    /// The member is removed.
    Remove(MemberId),
    /// The member gets the peer URLs that it is to have.
    Update(MemberId),
}

/// The next move towards the members that are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// Nothing is left to do.
    Done,
    /// This change, and then another look.
    Change(Change),
    /// A change is due, but not yet.
    Wait(Reason),
    /// What is wanted cannot be had this way.
    Refuse(Reason),
}

impl Move {
    fn wait(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Wait(Reason::new(reason, message))
    }

    fn refuse(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Refuse(Reason::new(reason, message))
    }
}

/// etcd refuses changes while a voter is connected for less (its own health interval).
pub const SETTLED: Duration = Duration::from_secs(5);
/// etcd refuses to promote a learner that has less of the leader's log, in percent.
pub const CAUGHT_UP: u8 = 90;

/// The next move from what is seen towards what is wanted: one change at most.
#[must_use]
pub fn decide(cluster: &Cluster, desired: &Desired, now: Time) -> Move {
    let view = View { cluster, desired, now };
    view.refusal()
        .or_else(|| view.unrest())
        .or_else(|| view.lost())
        .or_else(|| view.learner())
        .or_else(|| view.moved())
        .or_else(|| view.grow())
        .or_else(|| view.shrink())
        .unwrap_or(Move::Done)
}

/// How many of so many voters are a quorum.
#[must_use]
pub fn quorum(voters: usize) -> usize {
    voters / 2 + 1
}

struct View<'a> {
    cluster: &'a Cluster,
    desired: &'a Desired,
    now: Time,
}

impl View<'_> {
    fn voters(&self) -> impl Iterator<Item = &Member> {
        self.cluster.members.iter().filter(|member| member.role == Role::Voter)
    }

    fn count(&self, side: Side) -> usize {
        self.voters().filter(|member| member.side == side).count()
    }

    fn wanted(&self, side: Side) -> usize {
        match side {
            Side::Source => self.desired.source,
            Side::Destination => self.desired.destination,
        }
    }

    /// Whether the place of a member is one of those that are wanted.
    fn stays(&self, member: &Member) -> bool {
        usize::try_from(member.ordinal).is_ok_and(|ordinal| ordinal < self.wanted(member.side))
    }

    /// The first place that is wanted and that no voter has.
    fn vacancy(&self, side: Side) -> Option<u32> {
        let wanted = u32::try_from(self.wanted(side)).unwrap_or(u32::MAX);
        (0..wanted).find(|at| !self.voters().any(|m| m.side == side && m.ordinal == *at))
    }

    /// Healthy, and settled for long enough.
    fn is_steady(&self, member: &Member) -> bool {
        let settled = member.connected.is_some_and(|since| self.now.since(since) >= SETTLED);
        member.started && member.healthy && settled
    }

    fn moves(&self) -> bool {
        self.desired.destination > 0 && self.desired.source < self.desired.source_before
    }

    /// What no waiting helps against.
    fn refusal(&self) -> Option<Move> {
        let desired = self.desired;
        let all = desired.source + desired.destination;
        if all == 0 {
            return Some(Move::refuse("NoMembers", "an etcd needs a member"));
        }
        if desired.destination == 0 && desired.source == desired.source_before {
            let (left, foreign) = (self.count(Side::Source), self.count(Side::Destination));
            if foreign > 0 && left < desired.source_before {
                let message = format!(
                    "{left} of {} source members are left; the only way is forward",
                    desired.source_before
                );
                return Some(Move::refuse("SourceMembersRemoved", message));
            }
        }
        if all.is_multiple_of(2) {
            return Some(Move::refuse(
                "EvenNumber",
                format!("{all} members bear no more failures than {}", all - 1),
            ));
        }
        if desired.source > 0 && desired.destination > 0 {
            return Some(Move::refuse("TwoSites", "members stay on two sites only on their way"));
        }
        None
    }

    /// No change on a cluster that is not at rest.
    fn unrest(&self) -> Option<Move> {
        let (voters, healthy) = (self.voters().count(), self.voters().filter(|m| m.healthy).count());
        if healthy < quorum(voters) {
            let message = format!("{healthy} of {voters} voters answer; restore the quorum first");
            return Some(Move::wait("NoQuorum", message));
        }
        if self.leader().is_none() {
            return Some(Move::wait("NoLeader", "no leader is elected"));
        }
        let message = "a linearizable read after the last change was not answered yet";
        (!self.cluster.reads).then(|| Move::wait("NotSettled", message))
    }

    fn leader(&self) -> Option<&Member> {
        self.voters().find(|member| Some(member.id) == self.cluster.leader)
    }

    /// One whose data is gone leaves first, so that its place can be filled. A voter does so only where all members are on one
    /// site; on the way between two, the number of each site decides who has the quorum, and going back comes before.
    fn lost(&self) -> Option<Move> {
        let lost = self.cluster.members.iter().find(|member| member.lost)?;
        if lost.role != Role::Voter {
            return Some(Move::Change(Change::Remove(lost.id)));
        }
        let together = self.cluster.members.iter().all(|member| member.side == lost.side);
        together.then(|| self.remove(lost))
    }

    /// At most one learner at a time: it is promoted or taken away before anything else happens.
    fn learner(&self) -> Option<Move> {
        let learner = self.cluster.members.iter().find(|member| member.role != Role::Voter)?;
        if !self.stays(learner) {
            // The leader goes back before it.
            return Some(self.lead_from_kept().unwrap_or(Move::Change(Change::Remove(learner.id))));
        }
        let Role::Learner { matched } = learner.role else { return None };
        if !learner.started || !learner.healthy {
            return Some(Move::wait(
                "LearnerNotStarted",
                format!("member {:x} does not answer yet", learner.id.0),
            ));
        }
        if matched < CAUGHT_UP {
            return Some(Move::wait(
                "LearnerBehind",
                format!("member {:x} has {matched} % of the log", learner.id.0),
            ));
        }
        if let Some(wait) = self.unsteady_voter() {
            return Some(wait);
        }
        let ties = self.count(Side::Source) == self.count(Side::Destination) + 1
            && learner.side == Side::Destination;
        if self.moves() && ties && self.count(Side::Destination) + 1 == self.desired.destination {
            return Some(self.tie(learner));
        }
        Some(Move::Change(Change::Promote(learner.id)))
    }

    /// The promotion after which both sites have the same number of voters.
    fn tie(&self, learner: &Member) -> Move {
        if self.desired.release_source {
            return Move::Change(Change::Promote(learner.id));
        }
        let wait =
            || Move::wait("SourceNotReleased", "the last member joins when clients reach the destination");
        self.lead_from_source().unwrap_or_else(wait)
    }

    /// The leader stores snapshots, and those in the bucket of the source are what is left where that seed dies.
    fn lead_from_source(&self) -> Option<Move> {
        self.leader().filter(|leader| leader.side == Side::Destination)?;
        self.move_leader(|member| member.side == Side::Source)
    }

    /// Other peer URLs, for one that stays. Of two voters both are needed: the third one comes first.
    fn moved(&self) -> Option<Move> {
        let moved = self.voters().filter(|m| m.moved && self.stays(m));
        let next = moved.min_by_key(|m| (Some(m.id) == self.cluster.leader, m.ordinal, m.id))?;
        let together = self.cluster.members.iter().all(|member| member.side == next.side);
        if !together || self.voters().count() == 2 {
            return None;
        }
        Some(self.unsteady_voter().unwrap_or(Move::Change(Change::Update(next.id))))
    }

    fn unsteady_voter(&self) -> Option<Move> {
        let unsteady = self.voters().find(|member| !self.is_steady(member))?;
        let message =
            format!("voter {:x} is not connected for {} seconds yet", unsteady.id.0, SETTLED.as_secs());
        Some(Move::wait("VoterUnsteady", message))
    }

    fn grow(&self) -> Option<Move> {
        let sides = [Side::Source, Side::Destination].into_iter();
        let (side, ordinal) = sides.filter_map(|side| Some((side, self.vacancy(side)?))).next()?;
        // A voter that is down would be outvoted by nobody: adding raises the quorum, not the number of those that are well.
        Some(self.unsteady_voter().unwrap_or(Move::Change(Change::AddLearner(side, ordinal))))
    }

    fn shrink(&self) -> Option<Move> {
        let surplus = |side: &Side| self.voters().any(|member| member.side == *side && !self.stays(member));
        let side = [Side::Destination, Side::Source].into_iter().find(surplus)?;
        if self.moves() && !self.desired.release_source {
            return Some(Move::wait(
                "SourceNotReleased",
                "source members go when clients reach the destination",
            ));
        }
        // While the sites are even nothing may come between; the leader goes after the first removal, unless it is the only one there.
        let even = self.count(Side::Source) == self.count(Side::Destination);
        if let Some(step) = self.lead_from_kept().filter(|_| !even || self.count(side) == 1) {
            return Some(step);
        }
        // Where all go, one that is down goes first: that only helps. Where some stay, their places decide. Never the leader,
        // unless nobody else may go: then it hands over before.
        let mut leaving: Vec<&Member> = self.voters().filter(|m| m.side == side && !self.stays(m)).collect();
        let down_first = self.wanted(side) == 0;
        leaving.sort_by_key(|m| (down_first && m.healthy, Reverse(m.ordinal), m.id));
        let Some(leaving) = leaving.iter().find(|m| Some(m.id) != self.cluster.leader) else {
            return leaving.first().map(|leader| self.hand_over(leader));
        };
        Some(self.remove(leaving))
    }

    /// The leader is the last of those that go.
    fn hand_over(&self, leader: &Member) -> Move {
        self.move_leader(|member| member.id != leader.id).unwrap_or_else(no_heir)
    }

    /// The leader goes to one of these voters that is well.
    fn move_leader(&self, may_lead: impl Fn(&Member) -> bool) -> Option<Move> {
        let heirs = self.voters().filter(|member| may_lead(member) && self.is_steady(member));
        let heir = heirs.min_by_key(|member| (member.ordinal, member.id))?;
        Some(Move::Change(Change::MoveLeader(heir.id)))
    }

    /// A voter goes, where those that stay are a quorum that is well.
    fn remove(&self, leaving: &Member) -> Move {
        let kept: Vec<&Member> = self.voters().filter(|member| member.id != leaving.id).collect();
        let steady = kept.iter().filter(|member| self.is_steady(member)).count();
        let (after, needed) = (kept.len(), quorum(kept.len()));
        if steady < needed {
            let message = format!(
                "{steady} of the {after} voters that would be left are well, and {needed} are needed"
            );
            return Move::wait("QuorumAtRisk", message);
        }
        Move::Change(Change::Remove(leaving.id))
    }

    /// The leader goes to a voter of a side that stays, before members of the other side go.
    fn lead_from_kept(&self) -> Option<Move> {
        let leader = self.leader()?;
        // Where a side only gets smaller, its leader stays and others go.
        let stays = |member: &Member| self.wanted(member.side) > 0;
        if stays(leader) {
            return None;
        }
        Some(self.move_leader(stays).unwrap_or_else(no_heir))
    }
}

fn no_heir() -> Move {
    Move::wait("NoHeir", "no voter that stays is well enough to lead")
}
