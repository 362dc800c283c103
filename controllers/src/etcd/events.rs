//! Events of an Etcd: changes of its members, and what keeps one from being made. Told when it begins, not in each pass.

use kube::{
    Resource, ResourceExt,
    runtime::events::{Event, EventType, Recorder},
};
use repot_etcd_core::operator::Next;

use super::{membership::MembershipStatus, observe::Observed, status::Status};
use crate::members::{Change, Outcome};

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

/// Content of a Kubernetes Event about an Etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Whether somebody should look.
    pub warning: bool,
    /// What happened, in one word.
    pub reason: String,
    /// What was being done, in one word.
    pub action: &'static str,
    /// The same for people.
    pub message: String,
}

impl Note {
    fn normal(action: &'static str, reason: &str, message: String) -> Self {
        Self { warning: false, reason: reason.to_owned(), action, message }
    }

    fn warning(action: &'static str, reason: &str, message: &str) -> Self {
        Self { warning: true, reason: reason.to_owned(), action, message: message.to_owned() }
    }
}

/// What is new in a pass, by the status before and after it. Pure.
#[must_use]
pub fn notes(before: &Status, after: &Status, next: &Next, known: Option<&MembershipStatus>) -> Vec<Note> {
    let mut notes = Vec::new();
    if let Next::Stop(why) = next
        && reason(before, "Ready") != why.reason
    {
        notes.push(Note::normal("Stop", why.reason, why.message.clone()));
    }
    let lost = |status: &Status, name: &str| {
        status.members.iter().any(|member| member.name == name && member.reason == "NeedsRejoin")
    };
    for member in after.members.iter().filter(|m| lost(after, &m.name) && !lost(before, &m.name)) {
        let message = format!("{} has lost its data; it is removed and added again", member.name);
        notes.push(Note::warning("Replace", "MemberLost", &message));
    }
    match known.and_then(|known| known.outcome.as_ref()) {
        Some(Outcome::Changed(change)) => notes.push(changed(change)),
        Some(Outcome::Waiting(why) | Outcome::Refused(why))
            if !USUAL.contains(&why.reason) && reason(before, "ScaleOperationComplete") != why.reason =>
        {
            notes.push(Note::warning("Scale", why.reason, &why.message));
        }
        Some(Outcome::Waiting(_) | Outcome::Refused(_) | Outcome::Done) | None => {}
    }
    notes
}

fn reason<'a>(status: &'a Status, kind: &str) -> &'a str {
    let found = status.conditions.iter().find(|condition| condition.kind == kind);
    found.map_or("", |condition| condition.reason.as_str())
}

fn changed(change: &Change) -> Note {
    match change {
        Change::Added { seat } => Note::normal("Scale", "MemberAdded", format!("{seat} joins as a learner")),
        Change::Promoted { seat } => Note::normal("Scale", "MemberPromoted", format!("{seat} votes")),
        Change::Leads { seat } => Note::normal("Scale", "LeaderMoved", format!("{seat} leads")),
        Change::Removed { seat } => {
            Note::normal("Scale", "MemberRemoved", format!("{seat} is a member no more"))
        }
        Change::Updated { seat } => {
            Note::normal("Readdress", "PeerUrlsUpdated", format!("{seat} has other peer URLs"))
        }
    }
}

/// Tells it. What cannot be told is in the log.
pub async fn tell(recorder: &Recorder, observed: &Observed, notes: Vec<Note>) {
    let about = observed.etcd.object_ref(&());
    for note in notes {
        let event = Event {
            type_: if note.warning { EventType::Warning } else { EventType::Normal },
            reason: note.reason,
            note: Some(note.message),
            action: note.action.to_owned(),
            secondary: None,
        };
        if let Err(error) = recorder.publish(&event, &about).await {
            let etcd = observed.etcd.name_any();
            tracing::warn!(etcd, reason = event.reason, note = event.note, %error, "an Event is not written");
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
