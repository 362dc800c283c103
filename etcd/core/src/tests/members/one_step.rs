//! What is asked for next, in clusters that are written down.

use repot_apimachinery::time::Time;

use super::{mk_cluster, mk_member};
use crate::members::{Change, Cluster, Desired, MemberId, Move, Role, Side, decide};

fn asked(cluster: &Cluster, desired: Desired) -> Move {
    decide(cluster, &desired, Time(1000))
}

const TO_DESTINATION: Desired =
    Desired { source: 0, destination: 3, source_before: 3, release_source: false };

#[test]
fn waits_with_five_voters_until_clients_reach_the_destination() {
    let mut cluster = mk_cluster(3, 2);
    assert_eq!(asked(&cluster, TO_DESTINATION), Move::Change(Change::AddLearner(Side::Destination, 2)));
    cluster.members.push(mk_member(13, Side::Destination, Role::Learner { matched: 95 }));
    let Move::Wait(why) = asked(&cluster, TO_DESTINATION) else { panic!("it does not wait") };
    assert_eq!(why.reason, "SourceNotReleased");
    // The third voter, with it the first removal, and then the leader.
    let released = Desired { release_source: true, ..TO_DESTINATION };
    assert_eq!(asked(&cluster, released), Move::Change(Change::Promote(MemberId(13))));
    cluster.members[5].role = Role::Voter;
    assert_eq!(asked(&cluster, released), Move::Change(Change::Remove(MemberId(3))));
    cluster.members.remove(2);
    assert_eq!(asked(&cluster, released), Move::Change(Change::MoveLeader(MemberId(11))));
    cluster.leader = Some(MemberId(11));
    assert_eq!(asked(&cluster, released), Move::Change(Change::Remove(MemberId(2))));
}

#[test]
fn source_leads_until_it_is_released() {
    let mut cluster = mk_cluster(3, 2);
    cluster.members.push(mk_member(13, Side::Destination, Role::Learner { matched: 95 }));
    cluster.leader = Some(MemberId(11));
    assert_eq!(asked(&cluster, TO_DESTINATION), Move::Change(Change::MoveLeader(MemberId(1))));
    // Not to one that is down.
    cluster.members[0].healthy = false;
    let Move::Wait(why) = asked(&cluster, TO_DESTINATION) else { panic!("it does not wait") };
    assert_eq!(why.reason, "VoterUnsteady");
    let released = Desired { release_source: true, ..TO_DESTINATION };
    cluster.members[0].healthy = true;
    assert_eq!(asked(&cluster, released), Move::Change(Change::Promote(MemberId(13))));
}

#[test]
fn highest_places_leave_and_gaps_are_filled() {
    let desired = |source| Desired { source, destination: 0, source_before: 5, release_source: false };
    let mut cluster = mk_cluster(5, 0);
    assert_eq!(asked(&cluster, desired(3)), Move::Change(Change::Remove(MemberId(5))));
    // The leader hands over when nobody else may go.
    cluster.members.pop();
    cluster.leader = Some(MemberId(4));
    assert_eq!(asked(&cluster, desired(3)), Move::Change(Change::MoveLeader(MemberId(1))));
    cluster.members.remove(1);
    assert_eq!(asked(&cluster, desired(3)), Move::Change(Change::AddLearner(Side::Source, 1)));
}

#[test]
fn voter_without_its_data_leaves_and_its_place_is_filled() {
    let desired = Desired { source: 3, destination: 0, source_before: 3, release_source: false };
    let mut cluster = mk_cluster(3, 0);
    (cluster.members[2].lost, cluster.members[2].healthy, cluster.members[2].connected) = (true, false, None);
    assert_eq!(asked(&cluster, desired), Move::Change(Change::Remove(MemberId(3))));
    cluster.members[1].connected = None;
    let Move::Wait(why) = asked(&cluster, desired) else { panic!("the quorum is given up") };
    assert_eq!(why.reason, "QuorumAtRisk");
    cluster.members[1].connected = Some(Time(0));
    cluster.members.pop();
    assert_eq!(asked(&cluster, desired), Move::Change(Change::AddLearner(Side::Source, 2)));
}

#[test]
fn peer_urls_are_given_one_by_one_to_voters_that_stay_and_the_leader_comes_last() {
    let desired = |source| Desired { source, destination: 0, source_before: 5, release_source: false };
    let mut cluster = mk_cluster(3, 0);
    cluster.members.iter_mut().for_each(|m| m.moved = true);
    assert_eq!(asked(&cluster, desired(3)), Move::Change(Change::Update(MemberId(2))));
    cluster.members[1].moved = false;
    cluster.members[1].connected = None;
    let Move::Wait(why) = asked(&cluster, desired(3)) else { panic!("it does not wait") };
    assert_eq!(why.reason, "VoterUnsteady");
    cluster.members[1].connected = Some(Time(0));
    assert_eq!(asked(&cluster, desired(1)), Move::Change(Change::Update(MemberId(1))));
    cluster.members[0].moved = false;
    assert_eq!(asked(&cluster, desired(1)), Move::Change(Change::Remove(MemberId(3))));
    // With two, both are needed.
    cluster.members.pop();
    cluster.members[1].moved = true;
    assert_eq!(asked(&cluster, desired(3)), Move::Change(Change::AddLearner(Side::Source, 2)));
}

#[test]
fn refuses_what_cannot_be_had() {
    let reason = |cluster: &Cluster, desired| match asked(cluster, desired) {
        Move::Refuse(why) => why.reason,
        other => panic!("{other:?}"),
    };
    let back = Desired { source: 3, destination: 0, source_before: 3, release_source: true };
    assert_eq!(reason(&mk_cluster(2, 3), back), "SourceMembersRemoved");
    assert_eq!(reason(&mk_cluster(3, 0), Desired { source: 4, ..back }), "EvenNumber");
    assert_eq!(reason(&mk_cluster(3, 0), Desired { source: 0, ..back }), "NoMembers");
    assert_eq!(reason(&mk_cluster(3, 0), Desired { source: 3, destination: 2, ..back }), "TwoSites");
}
