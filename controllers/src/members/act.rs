//! One change, asked of the leader.

use std::{future::Future, time::Duration};

use etcd_client::{Client, Error, MemberAddOptions};
use repot_api::conditions::Reason;
use repot_etcd_core::members::{self as plan, MemberId, Role};
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;

use super::{
    Change, DesiredMembership, Driver, Outcome, Seen, SeenMember,
    refusals::{REFUSED, UNHEALTHY},
};
use crate::term::{LeaseDeadline, LeaseExpired};

/// How often a leader that hands over is asked whether it has.
const LOOK: Duration = Duration::from_millis(20);
/// After writes could not be held, they go on for so long before it is tried again.
const PAUSE: Duration = Duration::from_secs(30);

impl Driver {
    /// Makes the change. All of them go to the leader: then the entry by which the next pass settles is behind them.
    pub(super) async fn act(
        &mut self,
        wanted: &DesiredMembership,
        seen: &Seen,
        change: plan::Change,
    ) -> Outcome {
        let Some(leader) = seen.leader.and_then(|id| seen.slot_of(id)) else {
            return Outcome::Waiting(Reason::new("NoLeader", "no leader is elected"));
        };
        let (client, limit) = match self.client(&leader.client_url).await {
            Ok(client) => (client, self.limits.change),
            Err(error) => return Outcome::Waiting(Reason::new("NoMemberAnswers", error.to_string())),
        };
        let named = |id: MemberId| {
            seen.slot_of(id).map_or_else(|| format!("{:x}", id.0), |member| member.slot.clone())
        };
        match change {
            plan::Change::AddLearner(side, ordinal) => match wanted.slot(side, ordinal) {
                Some(slot) => add(&self.term, &client, limit, slot).await,
                None => {
                    let message = format!("there is no slot {ordinal} for another member");
                    Outcome::Refused(Reason::new("NoSlot", message))
                }
            },
            plan::Change::Promote(id) => {
                let answer = ask(&self.term, limit, client.cluster_client().member_promote(id.0)).await;
                conclude(answer, Change::Promoted { slot: named(id) })
            }
            plan::Change::Remove(id) => {
                let slot = named(id);
                if let Err(why) = self.leave(&slot).await {
                    return Outcome::Waiting(why);
                }
                let answer = ask(&self.term, limit, client.cluster_client().member_remove(id.0)).await;
                conclude(answer, Change::Removed { slot })
            }
            plan::Change::Update(id) => {
                let place = seen.slot_of(id).and_then(|member| wanted.slot(member.side, member.ordinal));
                let Some(slot) = place else {
                    return Outcome::Refused(Reason::new("NoSlot", format!("{} has no slot", named(id))));
                };
                let mut cluster = client.cluster_client();
                let answer =
                    ask(&self.term, limit, cluster.member_update(id.0, slot.peer_urls.clone())).await;
                // What it is connected by may be older than its URLs: it has to prove itself anew.
                self.series.forget(id);
                conclude(answer, Change::Updated { slot: slot.name.clone() })
            }
            plan::Change::MoveLeader(id) => {
                let left = match self.hold(&leader.slot).await {
                    Ok(left) => left.unwrap_or(limit),
                    Err(why) => return Outcome::Waiting(why),
                };
                let mut maintenance = client.maintenance_client();
                // etcd looks only once a heartbeat whether it is done, and all the while writes are held.
                let answer = tokio::select! {
                    answer = ask(&self.term, limit.min(left), maintenance.move_leader(id.0)) => answer,
                    () = until_follows(&client, id) => Ok(()),
                };
                self.release().await;
                conclude(answer, Change::Leads { slot: named(id) })
            }
        }
    }

    /// Leads clients away from the member of this slot; where it leads, the lead is moved first, and it is to be called again. Without
    /// gateways nothing is done: clients notice that the member goes.
    pub async fn vacate(&mut self, wanted: &DesiredMembership, seen: &Seen, slot: &str) -> Outcome {
        if self.gateways.is_none() {
            return Outcome::Done;
        }
        let leaves = seen.members.iter().find(|member| member.slot == slot);
        if let Some(leaves) = leaves.filter(|member| Some(member.id) == seen.leader) {
            let is_heir = |one: &&SeenMember| {
                one.id != leaves.id && one.side == leaves.side && one.role == Role::Voter && one.healthy
            };
            return match seen.members.iter().find(is_heir) {
                Some(heir) => self.act(wanted, seen, plan::Change::MoveLeader(heir.id)).await,
                None => Outcome::Done,
            };
        }
        match self.leave(slot).await {
            Ok(()) => Outcome::Done,
            Err(why) => Outcome::Waiting(why),
        }
    }

    /// No write is on its way from here on. Gives for how long, where there are gateways.
    async fn hold(&mut self, leader: &str) -> Result<Option<Duration>, Reason> {
        let Some((gateways, longest)) = &self.gateways else { return Ok(None) };
        // Writes stand still while it is tried.
        if let Some((at, error)) = &self.not_held
            && at.elapsed() < PAUSE
        {
            return Err(not_held(error));
        }
        match gateways.hold(leader, *longest).await {
            Ok(left) => {
                self.not_held = None;
                Ok(Some(left))
            }
            Err(error) => {
                gateways.release().await;
                tracing::warn!(leader, error, "writes could not be held");
                let why = not_held(&error);
                self.not_held = Some((Instant::now(), error));
                Err(why)
            }
        }
    }

    async fn release(&self) {
        if let Some((gateways, _)) = &self.gateways {
            gateways.release().await;
        }
    }

    /// No client is at the member from here on.
    async fn leave(&self, slot: &str) -> Result<(), Reason> {
        let Some((gateways, _)) = &self.gateways else { return Ok(()) };
        let stays =
            |why| Reason::new("ClientsNotGone", format!("{slot} stays while clients are there: {why}"));
        gateways.leave(slot).await.map_err(stays)
    }
}

/// The reason for keeping the leader.
fn not_held(error: &str) -> Reason {
    let message = format!("writes could not be held, tried again every {PAUSE:?}: {error}");
    Reason::new("WritesNotHeld", message)
}

/// Until the member takes the other one for the leader. From then on it passes on what it is asked for.
async fn until_follows(client: &Client, leader: MemberId) {
    let mut maintenance = client.maintenance_client();
    while !maintenance.status().await.is_ok_and(|status| status.leader() == leader.0) {
        sleep(LOOK).await;
    }
}

async fn add(term: &LeaseDeadline, client: &Client, limit: Duration, slot: &super::MemberSlot) -> Outcome {
    let mut cluster = client.cluster_client();
    let learner = MemberAddOptions::new().with_is_learner();
    let answer = ask(term, limit, cluster.member_add(slot.peer_urls.clone(), Some(learner))).await;
    conclude(answer, Change::Added { slot: slot.name.clone() })
}

/// Why etcd did not say that it is done.
enum Failure {
    /// It said that it is not, and will not be.
    Refused(String),
    /// It may be done, or not, or later.
    Unknown(String),
    /// It was not asked.
    LeaseExpired(LeaseExpired),
}

async fn ask<T>(
    term: &LeaseDeadline,
    limit: Duration,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<(), Failure> {
    term.check().map_err(Failure::LeaseExpired)?;
    match timeout(limit, answer).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) if is_refusal(&error) => Err(Failure::Refused(error.to_string())),
        Ok(Err(error)) => Err(Failure::Unknown(error.to_string())),
        Err(_) => Err(Failure::Unknown(format!("no answer within {limit:?}"))),
    }
}

/// Whether etcd judged the change before it gave it to the log, or the log's end judged it.
fn is_refusal(error: &Error) -> bool {
    let Error::GRpcStatus(status) = error else { return false };
    match status.code() {
        Code::FailedPrecondition
        | Code::NotFound
        | Code::InvalidArgument
        | Code::PermissionDenied
        | Code::Unauthenticated => true,
        Code::Unavailable => status.message().contains(UNHEALTHY),
        _ => false,
    }
}

fn conclude(answer: Result<(), Failure>, change: Change) -> Outcome {
    let what = change.describe();
    match answer {
        Ok(()) => Outcome::Changed(change),
        Err(Failure::LeaseExpired(over)) => {
            Outcome::Waiting(Reason::new("LeaseOver", format!("{what}: {over}")))
        }
        Err(Failure::Refused(error)) => {
            Outcome::Waiting(Reason::new(REFUSED, format!("failed to {what}: {error}")))
        }
        Err(Failure::Unknown(error)) => Outcome::Waiting(Reason::new(
            "OutcomeUnknown",
            format!("it is not known whether etcd did {what}: {error}"),
        )),
    }
}

impl Change {
    /// What is done, as one would ask for it.
    fn describe(&self) -> String {
        match self {
            Self::Added { slot } => format!("add {slot}"),
            Self::Promoted { slot } => format!("promote {slot}"),
            Self::Leads { slot } => format!("hand the lead over to {slot}"),
            Self::Updated { slot } => format!("give {slot} its peer URLs"),
            Self::Removed { slot } => format!("remove {slot}"),
        }
    }
}
