//! What is to be seen of an etcd from outside.

use std::{collections::BTreeSet, future::Future, time::Duration};

use etcd_client::{AlarmAction, AlarmType, Client, Member, StatusResponse};
use futures::future::join_all;
use repot_api::conditions::Reason;
use repot_apimachinery::time::Time;
use repot_etcd_core::members::{self as plan, MemberId, Role, Side};
use tokio::time::{Instant, timeout};

use super::{DesiredMembership, Driver, MemberSlot, Outcome};

/// The members of an etcd, as they were seen in one look.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Id of the cluster.
    pub cluster: u64,
    /// Who leads, if somebody does.
    pub leader: Option<MemberId>,
    /// All members that have a slot.
    pub members: Vec<SeenMember>,
    /// All members that have none.
    pub unknown_members: Vec<UnknownMember>,
    /// Whether an entry went through the log before the list of members was read.
    pub settled: bool,
    /// What speaks against any change, of which the planner knows nothing.
    pub(super) obstacle: Option<Reason>,
}

/// A member, as it was seen.
#[derive(Clone, Debug)]
pub struct SeenMember {
    /// Id of the member in etcd.
    pub id: MemberId,
    /// Name of its slot.
    pub slot: String,
    /// Side of its slot: source or destination.
    pub side: Side,
    /// The number of its slot there, from 0.
    pub ordinal: u32,
    /// Whether it is a voter or a learner.
    pub role: Role,
    /// Whether it has started since it was added.
    pub started: bool,
    /// Whether it answers and follows the leader.
    pub healthy: bool,
    /// Whether its peer URLs are not those of its slot, and shall be.
    pub moved: bool,
    /// Whether its data is gone.
    pub lost: bool,
    /// Version of etcd; empty where it does not answer.
    pub version: String,
    pub(super) client_url: String,
    pub(super) connected: Option<Time>,
}

/// A member that has no slot, or one that another member has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownMember {
    /// Id of the member in etcd.
    pub id: MemberId,
    /// Its name; empty while it has not started.
    pub name: String,
    /// Where other members reach it.
    pub peer_urls: Vec<String>,
    /// Whether the member votes; `false` for a learner.
    pub votes: bool,
}

/// What the members say of themselves.
struct Answers {
    cluster: u64,
    answers: Vec<Answer>,
}

/// What one member says of itself.
struct Answer {
    id: MemberId,
    /// The slot at which it answers.
    place: (Side, u32),
    client: Client,
    status: StatusResponse,
}

/// What was read from the log's far side.
struct Listed {
    members: Vec<Member>,
    settled: bool,
    corrupt: bool,
}

impl Driver {
    /// Asks all slots, and then the leader for the members.
    ///
    /// # Errors
    /// What the pass comes to where there is nothing to decide on.
    pub(super) async fn observe(&mut self, wanted: &DesiredMembership) -> Result<Seen, Outcome> {
        let answers = self.ask(wanted).await?;
        let leader = answers.leader();
        let listed = list(&answers, leader, self.limits.look).await?;
        let well: Vec<_> = leader.map_or_else(Vec::new, |leader| answers.well(leader));
        self.series.note(&well, Instant::now());
        let (mut unknown_members, mut taken) = (Vec::new(), BTreeSet::new());
        let mut members = Vec::new();
        for member in &listed.members {
            match place_of(member, wanted, &answers) {
                // Of two at one slot nobody can tell which belongs there.
                Some(place) if taken.insert((place.0, place.1)) => {
                    members.push(self.describe(wanted, member, place, &answers, leader));
                }
                _ => unknown_members.push(UnknownMember::of(member)),
            }
        }
        let obstacle = obstacle(&unknown_members, listed.corrupt);
        let leader = leader.map(|leader| leader.id);
        let settled = listed.settled;
        Ok(Seen { cluster: answers.cluster, leader, members, unknown_members, settled, obstacle })
    }

    /// What each slot says that answers.
    async fn ask(&mut self, wanted: &DesiredMembership) -> Result<Answers, Outcome> {
        let mut asked = Vec::new();
        for (side, ordinal, slot) in wanted.slots() {
            let client = self.client(&slot.client_url).await.map_err(|error| {
                let message = format!("{}: {error}", slot.client_url);
                Outcome::Refused(Reason::new("BadEndpoint", message))
            })?;
            let look = self.limits.look;
            asked.push(async move {
                let mut maintenance = client.maintenance_client();
                let status = within(look, maintenance.status()).await?;
                let header = status.header().ok_or("it sent no header")?;
                let (cluster, id) = (header.cluster_id(), MemberId(header.member_id()));
                Ok::<_, String>((cluster, Answer { id, place: (side, ordinal), client, status }))
            });
        }
        let answers = join_all(asked).await;
        let complaint = answers.iter().find_map(|answer| answer.as_ref().err().cloned());
        let answers: Vec<_> = answers.into_iter().flatten().collect();
        let clusters: BTreeSet<u64> = answers.iter().map(|(cluster, _)| *cluster).collect();
        let mut clusters = clusters.into_iter();
        match (clusters.next(), clusters.next()) {
            (None, _) => {
                let message = format!("no member answers: {}", complaint.unwrap_or_default());
                Err(Outcome::Waiting(Reason::new("NoMemberAnswers", message)))
            }
            (Some(one), Some(other)) => {
                let message = format!(
                    "clusters {one:x} and {other:x} answer at these slots; a member that joins must start with an empty \
                     volume and state existing"
                );
                Err(Outcome::Refused(Reason::new("ForeignCluster", message)))
            }
            (Some(cluster), None) => {
                Ok(Answers { cluster, answers: answers.into_iter().map(|(_, answer)| answer).collect() })
            }
        }
    }

    fn describe(
        &self,
        wanted: &DesiredMembership,
        member: &Member,
        (side, ordinal, slot): (Side, u32, &MemberSlot),
        answers: &Answers,
        leader: Option<&Answer>,
    ) -> SeenMember {
        let id = MemberId(member.id());
        let answer = answers.of(id);
        let last = leader.map_or(0, |leader| leader.status.raft_index());
        let role = match member.is_learner() {
            true => Role::Learner { matched: answer.map_or(0, |answer| matched(&answer.status, last)) },
            false => Role::Voter,
        };
        SeenMember {
            id,
            slot: slot.name.clone(),
            side,
            ordinal,
            role,
            started: !member.name().is_empty(),
            healthy: leader.zip(answer).is_some_and(|(leader, answer)| answer.follows(leader)),
            moved: wanted.readdress == Some(side) && !has_urls(member, slot),
            lost: wanted.lost.contains(&slot.name),
            version: answer.map(|answer| answer.status.version().to_owned()).unwrap_or_default(),
            client_url: slot.client_url.clone(),
            connected: self.series.since(id),
        }
    }
}

impl UnknownMember {
    fn of(member: &Member) -> Self {
        Self {
            id: MemberId(member.id()),
            name: member.name().to_owned(),
            peer_urls: member.peer_urls().to_vec(),
            votes: !member.is_learner(),
        }
    }
}

impl Answers {
    /// The member that takes itself for the leader, in the latest term in which one does.
    fn leader(&self) -> Option<&Answer> {
        let leads = |answer: &&Answer| answer.status.leader() == answer.id.0;
        self.answers.iter().filter(leads).max_by_key(|answer| answer.status.raft_term())
    }

    fn of(&self, id: MemberId) -> Option<&Answer> {
        self.answers.iter().find(|answer| answer.id == id)
    }

    fn well(&self, leader: &Answer) -> Vec<(MemberId, MemberId)> {
        let well = self.answers.iter().filter(|answer| answer.follows(leader));
        well.map(|answer| (answer.id, leader.id)).collect()
    }
}

impl Answer {
    fn follows(&self, leader: &Self) -> bool {
        let by = |answer: &Self| (answer.status.leader(), answer.status.raft_term());
        by(self) == by(leader)
    }
}

impl Seen {
    /// What speaks against any change: members that have no slot, or damaged data.
    #[must_use]
    pub fn obstacle(&self) -> Option<Reason> {
        self.obstacle.clone()
    }

    pub(super) fn to_cluster(&self) -> plan::Cluster {
        let member = |seen: &SeenMember| plan::Member {
            id: seen.id,
            side: seen.side,
            ordinal: seen.ordinal,
            role: seen.role,
            started: seen.started,
            healthy: seen.healthy && !seen.lost,
            connected: seen.connected,
            moved: seen.moved,
            lost: seen.lost,
        };
        let members = self.members.iter().map(member).collect();
        plan::Cluster { members, leader: self.leader, reads: self.settled }
    }
}

/// The members, as the leader knows them behind an entry that changes nothing. Without a leader, as anybody knows them.
async fn list(answers: &Answers, leader: Option<&Answer>, limit: Duration) -> Result<Listed, Outcome> {
    let mut settled = false;
    let mut corrupt = false;
    if let Some(leader) = leader {
        // Questions for alarms go through the log, so this one is behind every change that was asked of this leader before, and
        // whatever a leader before it has left behind is decided by then as well.
        let mut maintenance = leader.client.maintenance_client();
        if let Ok(alarms) = within(limit, maintenance.alarm(AlarmAction::Get, AlarmType::None, None)).await {
            settled = true;
            corrupt = alarms.alarms().iter().any(|alarm| alarm.alarm() == AlarmType::Corrupt);
        }
    }
    let mut complaint = String::new();
    for answer in leader.into_iter().chain(&answers.answers) {
        match within(limit, answer.client.cluster_client().member_list()).await {
            // Another one than the leader may be behind.
            Ok(list) => {
                settled &= leader.is_some_and(|leader| leader.id == answer.id);
                return Ok(Listed { members: list.members().to_vec(), settled, corrupt });
            }
            Err(error) => complaint = error,
        }
    }
    let message = format!("no member tells who the members are: {complaint}");
    Err(Outcome::Waiting(Reason::new("NoMemberAnswers", message)))
}

/// The answer, in time.
async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, etcd_client::Error>>,
) -> Result<T, String> {
    match timeout(limit, answer).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {limit:?}")),
    }
}

/// The slot of a member, by its URLs. Where members get others, what answers at a slot says more: of the URLs none may be left, or
/// those of one member may be given to another.
fn place_of<'a>(
    member: &Member,
    wanted: &'a DesiredMembership,
    answers: &Answers,
) -> Option<(Side, u32, &'a MemberSlot)> {
    let answers = |(side, ordinal, _): &(Side, u32, &MemberSlot)| {
        let answer = answers.of(MemberId(member.id()));
        wanted.readdress == Some(*side) && answer.is_some_and(|answer| answer.place == (*side, *ordinal))
    };
    let by_urls = || wanted.slots().find(|(.., slot)| is_of(member, slot));
    wanted.slots().find(answers).or_else(by_urls)
}

fn has_urls(member: &Member, slot: &MemberSlot) -> bool {
    let urls = |urls: &[String]| urls.iter().cloned().collect::<BTreeSet<_>>();
    urls(member.peer_urls()) == urls(&slot.peer_urls)
}

fn is_of(member: &Member, slot: &MemberSlot) -> bool {
    member.peer_urls().iter().any(|url| slot.peer_urls.contains(url))
}

/// How much of a log that is so long a learner has, in percent.
fn matched(learner: &StatusResponse, last: u64) -> u8 {
    let percent = u128::from(learner.raft_index()) * 100 / u128::from(last.max(1));
    u8::try_from(percent.min(100)).unwrap_or(100)
}

fn obstacle(unknown_members: &[UnknownMember], corrupt: bool) -> Option<Reason> {
    if !unknown_members.is_empty() {
        let urls: BTreeSet<String> =
            unknown_members.iter().map(|member| member.peer_urls.join(",")).collect();
        let urls: Vec<String> = urls.into_iter().collect();
        let message = format!(
            "no slot, or one that another member has, is that of the members at {}",
            urls.join(" and ")
        );
        return Some(Reason::new("UnknownMember", message));
    }
    let message = "an alarm says that members hold different data; find out which, and replace it by hand";
    corrupt.then(|| Reason::new("Corrupt", message))
}
