//! Memberships in simulated clusters: what is asked for is safe in every one of them, and comes to its end.

use repot_apimachinery::time::Time;

mod faults;
mod one_step;

use super::rng::Rng;
use crate::members::{
    CAUGHT_UP, Change, Cluster, Desired, Member, MemberId, Move, Role, SETTLED, Side, decide, quorum,
};

type Decide = fn(&Cluster, &Desired, Time) -> Move;

/// What an etcd goes through in a world.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scenario {
    /// One site, from so many voters to so many.
    Scale(usize, usize),
    /// To the other site.
    Move(usize),
    /// To the other site, called off after so many passes.
    CallOff(usize, u32),
}

struct World {
    rng: Rng,
    now: u64,
    cluster: Cluster,
    desired: Desired,
    story: Scenario,
    next_id: u64,
    /// How often something falls ill, in percent.
    ill: u64,
    /// Voters after each change of their number.
    sizes: Vec<usize>,
    tied: bool,
    /// How often the data of a voter was lost.
    lost: usize,
    log: Vec<String>,
}

fn voters(cluster: &Cluster) -> impl Iterator<Item = &Member> {
    cluster.members.iter().filter(|m| m.role == Role::Voter)
}

fn count(cluster: &Cluster, side: Side) -> usize {
    voters(cluster).filter(|m| m.side == side).count()
}

fn mk_member(id: u64, side: Side, role: Role) -> Member {
    // Ids begin at 1 and at 11.
    let ordinal = u32::try_from((id - 1) % 10).expect("few");
    let (id, connected) = (MemberId(id), Some(Time(0)));
    Member { id, side, ordinal, role, started: true, healthy: true, connected, moved: false, lost: false }
}

fn mk_cluster(source: u64, destination: u64) -> Cluster {
    let source = (1..=source).map(|id| mk_member(id, Side::Source, Role::Voter));
    let destination = (11..11 + destination).map(|id| mk_member(id, Side::Destination, Role::Voter));
    Cluster { members: source.chain(destination).collect(), leader: Some(MemberId(1)), reads: true }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let story = match rng.within(0, 5) {
            0 => Scenario::Scale(1, 3),
            1 => Scenario::Scale(3, 5),
            2 => Scenario::Scale(5, 3),
            3 => Scenario::Move(1),
            4 => Scenario::Move(3),
            _ => Scenario::CallOff(3, u32::try_from(rng.within(1, 120)).expect("few")),
        };
        let (before, source, destination) = match story {
            Scenario::Scale(from, to) => (from, to, 0),
            Scenario::Move(n) | Scenario::CallOff(n, _) => (n, 0, n),
        };
        let desired = Desired { source, destination, source_before: before, release_source: false };
        let mut cluster = mk_cluster(before as u64, 0);
        cluster.members.iter_mut().for_each(|m| m.moved = rng.percent(20));
        let ill = rng.within(0, 8);
        Self {
            rng,
            now: 1000,
            cluster,
            desired,
            story,
            next_id: 20,
            ill,
            sizes: vec![before],
            tied: false,
            lost: 0,
            log: Vec::new(),
        }
    }

    fn pass(&mut self, turn: u32) {
        self.now += self.rng.within(1, 10);
        // Illness comes, and goes within a few passes; the end is quiet, so that everything can come to it.
        let ill = if turn < 300 { self.ill } else { 0 };
        // The data of one voter at a time is lost for good, and of none on the way between two sites, where that is waited out.
        let mut may_lose = matches!(self.story, Scenario::Scale(..))
            && voters(&self.cluster).count() > 2
            && self.cluster.members.iter().all(|m| !m.lost)
            && self.rng.percent(20);
        for at in 0..self.cluster.members.len() {
            let (falls, rises, starts) = (self.rng.percent(ill), self.rng.percent(30), self.rng.percent(40));
            let step = u8::try_from(self.rng.within(0, 30)).expect("small");
            let member = &mut self.cluster.members[at];
            member.started |= starts;
            let loses = falls && may_lose && member.role == Role::Voter;
            if loses {
                (member.lost, may_lose) = (true, false);
                self.lost += 1;
            }
            if falls {
                (member.healthy, member.connected) = (false, None);
            } else if rises && member.started && !member.healthy && !member.lost {
                (member.healthy, member.connected) = (true, Some(Time(self.now)));
            }
            if let Role::Learner { matched } = &mut member.role {
                *matched = if member.started { (*matched + step).min(100) } else { 0 };
            }
        }
        self.elect();
        self.cluster.reads |= self.cluster.leader.is_some() && self.rng.percent(50);
        self.desired.release_source |= self.rng.percent(3);
        if let Scenario::CallOff(n, at) = self.story
            && turn == at
        {
            (self.desired.source, self.desired.destination) = (n, 0);
        }
    }

    fn elect(&mut self) {
        let able: Vec<MemberId> =
            voters(&self.cluster).filter(|m| m.healthy && m.started).map(|m| m.id).collect();
        if able.len() < quorum(voters(&self.cluster).count()) {
            self.cluster.leader = None;
        } else if self.cluster.leader.is_none_or(|leader| !able.contains(&leader)) {
            let at = self.rng.within(0, able.len() as u64 - 1) as usize;
            self.cluster.leader = Some(able[at]);
        }
    }

    /// Everything that must hold of a change at the moment it is asked for.
    fn check(&self, change: Change) -> Result<(), String> {
        let (cluster, n) = (&self.cluster, voters(&self.cluster).count());
        let steady = |m: &&Member| {
            m.started && m.healthy && m.connected.is_some_and(|at| Time(self.now).since(at) >= SETTLED)
        };
        let hold = |holds: bool, rule: &str| if holds { Ok(()) } else { Err(format!("{rule}: {change:?}")) };
        let find = |id| cluster.members.iter().find(|m| m.id == id).copied();
        hold(cluster.leader.is_some() && cluster.reads, "changes a cluster that is not at rest")?;
        let (source, destination) = (count(cluster, Side::Source), count(cluster, Side::Destination));
        hold(
            !self.tied
                || matches!(change, Change::Remove(id) if find(id).is_some_and(|m| m.side == Side::Source))
                || self.is_called_off(),
            "does something else while the sites are even",
        )?;
        match change {
            Change::AddLearner(side, ordinal) => {
                let taken = cluster.members.iter().any(|m| m.side == side && m.ordinal == ordinal);
                hold(!taken, "adds to a place that is taken")?;
                hold(voters(cluster).count() == cluster.members.len(), "adds a second learner")?;
                hold(voters(cluster).all(|m| steady(&m)), "adds to a cluster that is ill")
            }
            Change::Promote(id) => {
                let Some(learner) = find(id) else { return Err("promotes nobody".into()) };
                let ready = matches!(learner.role, Role::Learner { matched } if matched >= CAUGHT_UP);
                hold(ready && learner.started && learner.healthy, "promotes a learner that is not ready")?;
                hold(voters(cluster).filter(steady).count() == n, "promotes in a cluster that is ill")?;
                let ties = learner.side == Side::Destination && destination + 1 == source;
                hold(!ties || source == 2 || self.desired.release_source, "makes the sites even too early")
            }
            Change::MoveLeader(id) => {
                let heir = find(id).filter(|m| m.role == Role::Voter && steady(&m));
                let Some(heir) = heir else { return Err("moves the leader to one that is ill".into()) };
                let early = heir.side == Side::Destination && source >= destination && source > 1;
                hold(!early, "moves the leader before the destination has the quorum")
            }
            Change::Update(id) => {
                let Some(member) = find(id) else { return Err("moves nobody".into()) };
                hold(member.role == Role::Voter && n == cluster.members.len(), "moves with a learner")?;
                hold(source == 0 || destination == 0, "moves one between two sites")?;
                let left = voters(cluster).filter(|m| m.id != id).filter(steady).count();
                hold(n == 1 || left >= quorum(n), "moves one that the quorum needs")
            }
            Change::Remove(id) => {
                let Some(member) = find(id) else { return Err("removes nobody".into()) };
                if member.role != Role::Voter {
                    return Ok(());
                }
                hold(cluster.leader != Some(id), "removes the leader")?;
                let wanted = match member.side {
                    Side::Source => self.desired.source,
                    Side::Destination => self.desired.destination,
                };
                hold(member.lost || member.ordinal as usize >= wanted, "removes one that stays")?;
                let left = voters(cluster).filter(|m| m.id != id).filter(steady).count();
                hold(left >= quorum(n - 1), "removes the quorum")?;
                let moving = matches!(self.story, Scenario::Move(_) | Scenario::CallOff(..));
                let early = moving
                    && member.side == Side::Source
                    && (destination < self.desired.source_before || !self.desired.release_source);
                hold(!early, "removes a source member too early")?;
                let led_from_afar = cluster.leader.and_then(find).is_some_and(|m| m.side == Side::Source)
                    && moving
                    && member.side == Side::Source
                    && source < destination;
                hold(!led_from_afar, "removes another one while the source leads")?;
                let late = moving && member.side == Side::Destination && source < self.desired.source_before;
                hold(!late, "goes back after the point of no return")
            }
        }
    }

    fn is_called_off(&self) -> bool {
        matches!(self.story, Scenario::CallOff(..)) && self.desired.destination == 0
    }

    fn apply(&mut self, change: Change) {
        self.log.push(format!("{} {change:?}", self.now));
        let before = voters(&self.cluster).count();
        match change {
            Change::AddLearner(side, ordinal) => {
                let mut learner = mk_member(self.next_id, side, Role::Learner { matched: 0 });
                learner.ordinal = ordinal;
                (learner.started, learner.healthy, learner.connected) = (false, false, None);
                self.next_id += 1;
                self.cluster.members.push(learner);
            }
            Change::Promote(id) => {
                self.cluster.members.iter_mut().filter(|m| m.id == id).for_each(|m| m.role = Role::Voter);
            }
            Change::MoveLeader(id) => self.cluster.leader = Some(id),
            Change::Remove(id) => self.cluster.members.retain(|m| m.id != id),
            Change::Update(id) => {
                self.cluster.members.iter_mut().filter(|m| m.id == id).for_each(|m| m.moved = false);
            }
        }
        self.cluster.reads = false;
        let after = voters(&self.cluster).count();
        if after != before {
            self.sizes.push(after);
        }
        let (source, destination) =
            (count(&self.cluster, Side::Source), count(&self.cluster, Side::Destination));
        self.tied = source == destination && after == 6;
        self.elect();
    }
}

fn run(seed: u64, decide: Decide) -> Result<World, String> {
    let mut world = World::new(seed);
    let fail = |world: &World, why: &str| {
        Err(format!("seed {seed}, {:?}: {why}\n{}", world.story, world.log.join("\n")))
    };
    for turn in 0..800 {
        world.pass(turn);
        match decide(&world.cluster, &world.desired, Time(world.now)) {
            Move::Done if turn > 300 => return Ok(world),
            Move::Done => {}
            Move::Change(change) => {
                if let Err(why) = world.check(change) {
                    return fail(&world, &why);
                }
                // The answer gets lost, or the change itself.
                if !world.rng.percent(10) {
                    world.apply(change);
                }
            }
            Move::Wait(why) | Move::Refuse(why) if why.reason.is_empty() || why.message.is_empty() => {
                return fail(&world, "waits without a reason");
            }
            Move::Wait(_) => {}
            // Only who is called off too late is refused; from there it goes forward.
            Move::Refuse(_) if world.is_called_off() => {
                if count(&world.cluster, Side::Source) == 3 {
                    return fail(&world, "is refused for no reason");
                }
                (world.desired.source, world.desired.destination) = (0, 3);
                world.story = Scenario::Move(3);
            }
            Move::Refuse(_) => return fail(&world, "is refused for no reason"),
        }
    }
    fail(&world, "is stuck")
}

#[test]
fn every_membership_comes_to_its_end() {
    let (mut called_off, mut too_late, mut lost) = (0, 0, 0);
    for seed in 0..5_000 {
        let began = World::new(seed).story;
        let world = run(seed, decide).unwrap_or_else(|why| panic!("{why}"));
        let (source, destination) =
            (count(&world.cluster, Side::Source), count(&world.cluster, Side::Destination));
        assert_eq!((source, destination), (world.desired.source, world.desired.destination), "seed {seed}");
        assert_eq!(world.cluster.members.len(), source + destination, "seed {seed}: a learner is left");
        assert!(world.cluster.members.iter().all(|m| !m.moved), "seed {seed}: one is not where it is to be");
        lost += world.lost;
        match (began, world.story) {
            (Scenario::Move(3), _) => assert_eq!(world.sizes, [3, 4, 5, 6, 5, 4, 3], "seed {seed}"),
            (Scenario::CallOff(..), Scenario::CallOff(..)) => called_off += 1,
            (Scenario::CallOff(..), _) => too_late += 1,
            _ => {}
        }
    }
    assert!(lost > 500, "data was lost {lost} times");
    assert!(called_off > 300 && too_late > 20, "{called_off} were called off in time, {too_late} too late");
}
