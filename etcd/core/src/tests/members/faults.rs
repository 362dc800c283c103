//! Wrong planners of memberships, each of which is caught.

use repot_apimachinery::time::Time;

use super::{Decide, count, run};
use crate::members::{Change, Cluster, Desired, Member, Move, Role, Side, decide};

fn well(cluster: &Cluster) -> Cluster {
    let mut cluster = cluster.clone();
    for member in &mut cluster.members {
        (member.started, member.healthy, member.connected) = (true, true, Some(Time(0)));
    }
    cluster
}

/// Name, the wrong planner, and what is said of it.
const FAULTS: &[(&str, Decide, &[&str])] = &[
    (
        "takes every member for well",
        |c, d, now| decide(&well(c), d, now),
        &["ill", "not ready", "removes the quorum"],
    ),
    (
        "does not wait for clients at the destination",
        |c, d, now| decide(c, &Desired { release_source: true, ..*d }, now),
        &["too early"],
    ),
    (
        "promotes whoever has started",
        |c, d, now| {
            let mut c = c.clone();
            let learners = c.members.iter_mut().filter(|m| m.role != Role::Voter);
            learners.for_each(|m| m.role = Role::Learner { matched: 100 });
            decide(&c, d, now)
        },
        &["promotes a learner that is not ready"],
    ),
    (
        "does not see learners",
        |c, d, now| {
            let mut c = c.clone();
            c.members.retain(|m| m.role == Role::Voter);
            decide(&c, d, now)
        },
        &["adds a second learner", "adds to a place that is taken"],
    ),
    (
        "leaves the leader where it is until the end",
        |c, d, now| match decide(c, d, now) {
            Move::Change(Change::MoveLeader(_)) if d.destination > 0 => {
                let goes = |m: &&Member| m.side == Side::Source && c.leader != Some(m.id);
                let id = c.members.iter().find(goes).map_or(c.leader.expect("a leader"), |m| m.id);
                Move::Change(Change::Remove(id))
            }
            other => other,
        },
        &["while the source leads", "removes the leader"],
    ),
    (
        "moves the leader before the third promotion",
        |c, d, now| match decide(c, d, now) {
            Move::Change(Change::Promote(_)) if d.release_source => {
                let leads = |m: &&Member| c.leader == Some(m.id) && m.side == Side::Source;
                let heir = c.members.iter().find(|m| m.role == Role::Voter && m.side == Side::Destination);
                match (c.members.iter().find(leads), heir) {
                    (Some(_), Some(heir)) => Move::Change(Change::MoveLeader(heir.id)),
                    _ => decide(c, d, now),
                }
            }
            other => other,
        },
        &["before the destination has the quorum"],
    ),
    (
        "removes the leader first",
        |c, d, now| match decide(c, d, now) {
            Move::Change(Change::Remove(_)) => Move::Change(Change::Remove(c.leader.expect("a leader"))),
            other => other,
        },
        &["removes the leader", "does something else"],
    ),
    (
        "goes back whenever it is told to",
        |c, d, now| match decide(c, d, now) {
            Move::Refuse(_) => {
                let leaves = |m: &&Member| m.side == Side::Destination && c.leader != Some(m.id);
                Move::Change(Change::Remove(c.members.iter().find(leaves).expect("a member").id))
            }
            other => other,
        },
        &["goes back after the point of no return", "removes the quorum", "not at rest"],
    ),
    (
        "does not wait for a read after a change",
        |c, d, now| decide(&Cluster { reads: true, ..c.clone() }, d, now),
        &["not at rest"],
    ),
    (
        "does not see that data is lost",
        |c, d, now| {
            let mut c = c.clone();
            c.members.iter_mut().for_each(|m| m.lost = false);
            decide(&c, d, now)
        },
        &["is stuck"],
    ),
    (
        "gives peer URLs whatever else there is to do",
        |c, d, now| match c.members.iter().find(|m| m.moved) {
            Some(moved) if c.leader.is_some() && c.reads => Move::Change(Change::Update(moved.id)),
            _ => decide(c, d, now),
        },
        &["that the quorum needs"],
    ),
    (
        "adds learners only when nothing was ever ill",
        |c, d, now| match decide(c, d, now) {
            Move::Change(Change::AddLearner(..))
                if c.members.iter().any(|m| m.connected != Some(Time(0))) =>
            {
                Move::Done
            }
            other => other,
        },
        &["is stuck", "ended elsewhere"],
    ),
];

#[test]
fn the_clusters_catch_every_planted_fault() {
    for (name, decide, caught) in FAULTS {
        let end = |seed| match run(seed, *decide) {
            Err(why) => Some(why),
            Ok(world) => {
                let reached = count(&world.cluster, Side::Source) == world.desired.source
                    && count(&world.cluster, Side::Destination) == world.desired.destination;
                (!reached).then(|| "ended elsewhere".to_owned())
            }
        };
        let why = (0..2_000).find_map(end).unwrap_or_else(|| panic!("{name}: not caught"));
        println!("{name}: {}", why.lines().next().unwrap_or_default());
        assert!(caught.iter().any(|rule| why.contains(rule)), "{name}: {why}");
    }
}
