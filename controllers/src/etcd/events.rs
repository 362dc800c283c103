//! Events of an Etcd: changes of its members, and what keeps one from being made. Told when it begins, not in each pass.

use kube::ResourceExt;
use repot_etcd_core::operator::Next;

use super::{membership::MembershipStatus, observe::Observed, status::Status};
use crate::{
    events::EventContent,
    members::{Change, Outcome},
};

/// What is waited for in the course of things, for seconds.
const USUAL: [&str; 7] = [
    "VoterUnsteady",
    "NotSettled",
    "LearnerNotStarted",
    "LearnerBehind",
    "SourceNotReleased",
    "VolumesEnding",
    "NoLeader",
];

/// What is new in a pass, by the status before and after it. Pure.
#[must_use]
pub fn changes(
    before: &Status,
    after: &Status,
    next: &Next,
    known: Option<&MembershipStatus>,
) -> Vec<EventContent> {
    let mut events = Vec::new();
    if let Next::Stop(why) = next
        && reason(before, "Ready") != why.reason
    {
        events.push(EventContent::normal("Stop", why.reason, why.message.clone()));
    }
    let lost = |status: &Status, name: &str| {
        status.members.iter().any(|member| member.name == name && member.reason == "NeedsRejoin")
    };
    for member in after.members.iter().filter(|m| lost(after, &m.name) && !lost(before, &m.name)) {
        let message = format!("{} has lost its data; it is removed and added again", member.name);
        events.push(EventContent::warning("Replace", "MemberLost", message));
    }
    match known.and_then(|known| known.outcome.as_ref()) {
        Some(Outcome::Changed(change)) => events.push(changed(change)),
        Some(Outcome::Waiting(why) | Outcome::Refused(why))
            if !USUAL.contains(&why.reason) && reason(before, "ScaleOperationComplete") != why.reason =>
        {
            events.push(EventContent::warning("Scale", why.reason, &why.message));
        }
        Some(Outcome::Waiting(_) | Outcome::Refused(_) | Outcome::Done) | None => {}
    }
    events
}

fn reason<'a>(status: &'a Status, kind: &str) -> &'a str {
    let found = status.conditions.iter().find(|condition| condition.kind == kind);
    found.map_or("", |condition| condition.reason.as_str())
}

fn changed(change: &Change) -> EventContent {
    match change {
        Change::Added { slot } => {
            EventContent::normal("Scale", "MemberAdded", format!("{slot} joins as a learner"))
        }
        Change::Promoted { slot } => EventContent::normal("Scale", "MemberPromoted", format!("{slot} votes")),
        Change::Leads { slot } => EventContent::normal("Scale", "LeaderMoved", format!("{slot} leads")),
        Change::Removed { slot } => {
            EventContent::normal("Scale", "MemberRemoved", format!("{slot} is a member no more"))
        }
        Change::Updated { slot } => {
            EventContent::normal("Readdress", "PeerUrlsUpdated", format!("{slot} has other peer URLs"))
        }
    }
}

/// Logs what is decided, unless nothing is to be done.
pub(super) fn log(observed: &Observed, next: &Next) {
    let etcd = observed.etcd.name_any();
    let namespace = observed.etcd.namespace().unwrap_or_default();
    let runs = observed.set.as_ref().and_then(|set| set.spec.as_ref()?.replicas);
    match next {
        Next::Stop(why) => {
            tracing::info!(namespace, etcd, reason = why.reason, why.message, "stopping members")
        }
        Next::Copy(why) => {
            tracing::info!(namespace, etcd, reason = why.reason, why.message, "copying snapshots")
        }
        Next::Wait(why) => tracing::debug!(namespace, etcd, reason = why.reason, why.message, "waiting"),
        Next::Run { members } if runs != i32::try_from(*members).ok() => {
            tracing::info!(namespace, etcd, members, volumes = observed.etcd.volumes(), "running members");
        }
        Next::Run { .. } | Next::Rest => {}
    }
}
