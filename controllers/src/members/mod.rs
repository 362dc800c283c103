//! Membership of an etcd: what `repot_etcd_core::members` decides, asked of etcd itself.
//!
//! A [`Driver`] makes one change a pass, or says what is waited for. Nothing of it has to survive: what the members are, etcd
//! knows, and a driver that begins anew waits [`SETTLED`](repot_etcd_core::members::SETTLED) until it has seen every voter for
//! that long. One driver at a time looks after an etcd; who that is, the lease of the controllers says. Two at once would not
//! harm the quorum, since etcd itself refuses changes that do, but they could undo each other's work.
//!
//! **What can be known from outside.** etcd does not tell how long its members have been connected to each other, nor how much of
//! the log the leader knows a learner to have. So a voter counts as connected as long as it answers, names the leader that the
//! leader takes itself for, in the same term, and has been seen so without a break of [`Limits::gap`]; and a learner has as much of
//! the log as it says itself to know to be committed, which is never more than what the leader knows. etcd checks by its own
//! knowledge afterwards, and what it refuses is waited for; a leader that refuses without a reason gives the lead away (`refusals`).
//!
//! **What clients notice.** A leader that moves drops writes, and a member that is removed takes its clients' calls with it. So the
//! driver asks the [`Gateways`] in front of the etcd, where it is told of them, before either.
//!
//! **After a change whose answer was lost** nothing else is asked for until an entry that changes nothing has gone through the log
//! behind it, by way of the same leader: then the change is in the list of members, or it will never be.

mod act;
mod gateways;
mod http;
mod observe;
mod refusals;
mod series;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use etcd_client::Client;
use repot_api::conditions::Reason;
use repot_etcd::link;
use repot_etcd_core::members::{self as plan, Desired, MemberId, Move, Side};

pub use gateways::Gateways;
pub use http::{GatewayEndpoint, HttpGateways};
pub use observe::{Seen, SeenMember, UnknownMember};
use refusals::Refusals;
use series::HealthHistory;
use tokio::time::Instant;

use crate::term::LeaseDeadline;

/// A place for a member: where it is, whether it is taken or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberSlot {
    /// Name of the member.
    pub name: String,
    /// URLs for other members. By them a member is recognised, so no two slots share one.
    pub peer_urls: Vec<String>,
    /// URL at which the driver reaches it.
    pub client_url: String,
}

/// What is wanted of an etcd.
#[derive(Clone, Debug)]
pub struct DesiredMembership {
    /// All slots at the source, in the order in which they are taken; for an etcd that does not move, all there are. Slots that
    /// are to be given up are among them.
    pub source: Vec<MemberSlot>,
    /// All slots at the destination.
    pub destination: Vec<MemberSlot>,
    /// How many voters each site shall have.
    pub desired: Desired,
    /// Names of members whose data is gone: they are removed and added anew.
    pub lost: BTreeSet<String>,
    /// The site whose members get the peer URLs of their slots, where they have others; those of other sites keep theirs.
    pub readdress: Option<Side>,
}

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// An answer to a question.
    pub look: Duration,
    /// A change. etcd itself gives up after five seconds and twice its election timeout.
    pub change: Duration,
    /// From one look to the next: a longer gap means that a member's connection may have been broken unseen.
    pub gap: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { look: seconds(3), change: seconds(15), gap: seconds(10) }
    }
}

/// What a pass came to.
#[derive(Clone, Debug)]
pub struct Pass {
    /// What was seen before anything was changed; nothing where no member answered.
    pub seen: Option<Seen>,
    /// What was done or is waited for.
    pub outcome: Outcome,
    /// When the next pass is due. Not much later: after [`Limits::gap`] connections are taken for broken.
    pub again: Duration,
}

/// What was done or is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The members are those that are wanted.
    Done,
    /// This was changed, and etcd said so.
    Changed(Change),
    /// A change is due, but not yet, or etcd refused it, or its answer was lost.
    Waiting(Reason),
    /// What is wanted cannot be had this way.
    Refused(Reason),
}

/// A change that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A learner has this slot now; whoever runs its Pod may start it.
    Added {
        /// Name of the slot.
        slot: String,
    },
    /// The member is a voter now.
    Promoted {
        /// Name of its slot.
        slot: String,
    },
    /// The member leads now.
    Leads {
        /// Name of its slot.
        slot: String,
    },
    /// The member has the peer URLs of its slot now.
    Updated {
        /// Name of its slot.
        slot: String,
    },
    /// The member is none any more; its data must never be started again.
    Removed {
        /// Name of its slot.
        slot: String,
    },
}

/// Asks etcd for one change a pass.
pub struct Driver {
    access: link::Options,
    limits: Limits,
    clients: BTreeMap<String, Client>,
    series: HealthHistory,
    gateways: Option<(Arc<dyn Gateways>, Duration)>,
    term: LeaseDeadline,
    refusals: Refusals,
    /// When writes could not be held the last time, and why.
    not_held: Option<(Instant, String)>,
}

impl Driver {
    /// A driver that has seen nothing yet. Of `access` everything but the endpoints is used.
    #[must_use]
    pub fn new(access: link::Options, limits: Limits) -> Self {
        let (clients, series) = (BTreeMap::new(), HealthHistory::new(limits.gap));
        Self {
            access,
            limits,
            clients,
            series,
            gateways: None,
            term: LeaseDeadline::endless(),
            refusals: Refusals::default(),
            not_held: None,
        }
    }

    /// Changes members while the term runs, and not afterwards.
    #[must_use]
    pub fn during(mut self, term: LeaseDeadline) -> Self {
        self.term = term;
        self
    }

    /// Has clients behind gateways: writes are held there, for at most so long, while the leader moves, and no client is at a member
    /// any more when it is removed. Half of the time is for writes that are on their way; etcd takes no longer than its election
    /// timeout to move the leader.
    #[must_use]
    pub fn behind(mut self, gateways: Arc<dyn Gateways>, longest: Duration) -> Self {
        self.gateways = Some((gateways, longest));
        self
    }

    /// Looks, and changes nothing.
    ///
    /// # Errors
    /// Why nothing is to be seen.
    pub async fn look(&mut self, wanted: &DesiredMembership) -> Result<Seen, Outcome> {
        self.observe(wanted).await
    }

    /// Looks, and makes the next change if one is due.
    pub async fn pass(&mut self, wanted: &DesiredMembership) -> Pass {
        let seen = match self.observe(wanted).await {
            Ok(seen) => seen,
            Err(outcome) => return Pass { seen: None, outcome, again: again(false) },
        };
        let next = seen
            .obstacle()
            .map_or_else(|| plan::decide(&seen.to_cluster(), &wanted.desired, self.series.now()), Move::Wait);
        let leaving = match next {
            Move::Change(plan::Change::Remove(id)) => Some(id),
            _ => None,
        };
        let outcome = match next {
            Move::Done => Outcome::Done,
            Move::Wait(why) => Outcome::Waiting(why),
            Move::Refuse(why) => Outcome::Refused(why),
            Move::Change(change) => self.act(wanted, &seen, change).await,
        };
        let outcome = match self.refusals.note(&seen, &outcome, leaving, Instant::now()) {
            Some(heir) => self.act(wanted, &seen, plan::Change::MoveLeader(heir)).await,
            None => outcome,
        };
        let changed = matches!(outcome, Outcome::Changed(_));
        Pass { seen: Some(seen), outcome, again: again(changed) }
    }

    /// A client of one member.
    async fn client(&mut self, url: &str) -> Result<Client, etcd_client::Error> {
        if let Some(client) = self.clients.get(url) {
            return Ok(client.clone());
        }
        let options = link::Options { endpoints: vec![url.to_owned()], ..self.access.clone() };
        let client = link::connect(&options).await?;
        self.clients.insert(url.to_owned(), client.clone());
        Ok(client)
    }
}

/// After a change the next one may be due at once, as it is after the third voter at the destination and the first removal.
fn again(changed: bool) -> Duration {
    if changed { Duration::ZERO } else { Duration::from_secs(1) }
}

impl DesiredMembership {
    /// All slots with where they are.
    fn slots(&self) -> impl Iterator<Item = (Side, u32, &MemberSlot)> {
        let source = (0..).zip(&self.source).map(|(at, slot)| (Side::Source, at, slot));
        source.chain((0..).zip(&self.destination).map(|(at, slot)| (Side::Destination, at, slot)))
    }

    fn slot(&self, side: Side, ordinal: u32) -> Option<&MemberSlot> {
        self.slots().find(|(s, at, _)| (*s, *at) == (side, ordinal)).map(|(.., slot)| slot)
    }
}

impl Seen {
    fn slot_of(&self, id: MemberId) -> Option<&SeenMember> {
        self.members.iter().find(|member| member.id == id)
    }
}
