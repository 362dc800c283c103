//! Who had the etcd and who owned it, over the time of a migration: from what the steps and the notes of both sides say.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::{
    migration::{Migration, Mode, StepRecord},
    text::one_line,
};

/// Most members of one side that are shown.
const MOST_MEMBERS: usize = 9;

/// One row of the picture: a member, the members of a side, or the owner record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Track {
    /// `etcd` or `owner`.
    pub(super) of: &'static str,
    /// `source` or `destination`.
    pub(super) side: &'static str,
    /// Name of the member, or what the row is about.
    pub(super) name: String,
    /// Times that follow each other.
    pub(super) spans: Vec<Span>,
}

/// A time in which one thing holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Span {
    /// `member`, `joining`, `follower`, `leaving`, `owner` or `nobody`.
    pub(super) state: &'static str,
    /// The same for people.
    pub(super) says: String,
    /// `None`: since before the migration.
    pub(super) from: Option<Timestamp>,
    /// `None`: it goes on.
    pub(super) to: Option<Timestamp>,
    /// The step that shows it.
    pub(super) step: Option<&'static str>,
}

/// The rows that can be told; none where the migration has not begun.
pub(super) fn tracks(migration: &Migration, status: &Value) -> Vec<Track> {
    if migration.started().is_none() {
        return Vec::new();
    }
    let mut tracks = source_members(migration, status);
    tracks.extend(destination_members(migration));
    tracks.extend(owners(migration, status));
    tracks
}

fn reached(migration: &Migration, step: &str) -> Option<Timestamp> {
    let record = migration.step(step).filter(|record| record.state == "Succeeded")?;
    record.completed
}

/// When the first of these steps was reached that was reached at all.
fn first(migration: &Migration, steps: &[&'static str]) -> (Option<Timestamp>, Option<&'static str>) {
    let found = steps.iter().find_map(|step| Some((reached(migration, step)?, *step)));
    found.map_or((None, None), |(time, step)| (Some(time), Some(step)))
}

fn source_members(migration: &Migration, status: &Value) -> Vec<Track> {
    let leaving: &[&'static str] = match migration.mode {
        Mode::Live => &["SourceMembersRemoved"],
        Mode::Classic | Mode::Forced => &["SourceEtcdStopped", "SourceOwnershipEnded", "SourceFenced"],
    };
    let (to, step) = first(migration, leaving);
    let mut spans = vec![Span { state: "member", says: "serves".to_owned(), from: None, to, step }];
    if let Some(from) = reached(migration, "SourceEtcdRestored") {
        let step = Some("SourceEtcdRestored");
        let says = "serves again, from new volumes".to_owned();
        spans.push(Span { state: "member", says, from: Some(from), to: None, step });
    }
    let names = members(&status["source"]);
    let replicas = status["source"]["etcdReplicas"].as_u64();
    let names = match (names.is_empty(), replicas) {
        (false, _) => names,
        (true, Some(1)) => vec!["1 member".to_owned()],
        (true, Some(count)) => vec![format!("{count} members")],
        (true, None) => vec!["etcd".to_owned()],
    };
    names.into_iter().map(|name| Track { of: "etcd", side: "source", name, spans: spans.clone() }).collect()
}

fn members(part: &Value) -> Vec<String> {
    let names = part["members"].as_array().into_iter().flatten().filter_map(|member| member["name"].as_str());
    names.take(MOST_MEMBERS).map(one_line).collect()
}

fn destination_members(migration: &Migration) -> Option<Track> {
    let steps: &[(&'static str, &'static str, &str)] = match migration.mode {
        Mode::Live => &[("SixMemberETCDReady", "member", "all members have joined")],
        Mode::Classic | Mode::Forced => &[
            ("StandbyFollows", "follower", "follows the source"),
            ("EtcdServes", "member", "serves"),
            ("EtcdComplete", "member", "serves with all members"),
        ],
    };
    let mut spans: Vec<Span> = Vec::new();
    for (step, state, says) in steps {
        let record = migration.step(step);
        if let Some(from) = record.and_then(joining).filter(|_| *state == "member" && spans.len() < 2) {
            let says = "members start and join".to_owned();
            push(&mut spans, Span { state: "joining", says, from: Some(from), to: None, step: Some(step) });
        }
        if let Some(from) = reached(migration, step) {
            push(
                &mut spans,
                Span { state, says: (*says).to_owned(), from: Some(from), to: None, step: Some(step) },
            );
        }
    }
    let (end, step) = first(migration, &["DestinationStopped", "LostMembersRemoved"]);
    if let Some(last) = spans.last_mut().filter(|last| end.is_some() && last.from <= end) {
        (last.to, last.step) = (end, step);
    }
    let name = match reached(migration, "SixMemberETCDReady") {
        Some(_) => {
            migration.step("SixMemberETCDReady").map(|record| record.message.clone()).unwrap_or_default()
        }
        None => String::new(),
    };
    // The evidence begins with the number of members.
    let count = name.split(' ').next().and_then(|word| word.parse::<u32>().ok());
    let name = count.map_or_else(|| "etcd".to_owned(), |count| format!("{count} members"));
    (!spans.is_empty()).then_some(Track { of: "etcd", side: "destination", name, spans })
}

fn joining(record: &StepRecord) -> Option<Timestamp> {
    record.started.filter(|_| matches!(record.state.as_str(), "Running" | "Succeeded"))
}

/// Appends a span; the one before it ends where it begins.
fn push(spans: &mut Vec<Span>, span: Span) {
    if let Some(last) = spans.last_mut() {
        last.to = span.from;
    }
    spans.push(span);
}

fn owners(migration: &Migration, status: &Value) -> Vec<Track> {
    let epoch = |side: &str| status[side]["ownerEpoch"].as_u64();
    let (deleted, taken) = (reached(migration, "OwnerRecordDeleted"), reached(migration, "OwnerRecordTaken"));
    let restored = reached(migration, "OwnerRecordRestored");
    let end = deleted.or(taken).or(restored);
    let by = match (deleted, taken, restored) {
        (Some(_), ..) => Some("OwnerRecordDeleted"),
        (None, Some(_), _) => Some("OwnerRecordTaken"),
        (None, None, Some(_)) => Some("OwnerRecordRestored"),
        (None, None, None) => None,
    };
    let mut source = vec![owner(epoch("source").filter(|_| restored.is_none()), None, end, by)];
    if let Some(from) = restored {
        source.push(owner(epoch("source"), Some(from), None, Some("OwnerRecordRestored")));
    }
    let row = |side, spans| Track { of: "owner", side, name: "owner record".to_owned(), spans };
    let mut tracks = vec![row("source", source)];
    let mut destination = Vec::new();
    if let Some(from) = deleted {
        let says = "the record names nobody".to_owned();
        let to = taken.or(restored);
        destination.push(Span {
            state: "nobody",
            says,
            from: Some(from),
            to,
            step: Some("OwnerRecordDeleted"),
        });
    }
    if let Some(from) = taken {
        destination.push(owner(epoch("destination"), Some(from), restored, Some("OwnerRecordTaken")));
    }
    if !destination.is_empty() {
        tracks.push(row("destination", destination));
    }
    tracks
}

fn owner(
    epoch: Option<u64>,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    step: Option<&'static str>,
) -> Span {
    let says = epoch.map_or_else(|| "owner".to_owned(), |epoch| format!("owner, epoch {epoch}"));
    Span { state: "owner", says, from, to, step }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::migration::tests::{classic, read};

    fn time(text: &str) -> Option<Timestamp> {
        Some(format!("2026-11-28T05:{text}Z").parse().expect("a time"))
    }

    fn step(name: &str, state: &str, from: &str, to: Option<&str>) -> Value {
        json!({"name": name, "state": state, "message": "3 members have joined the etcd of the source",
               "startTime": time(from), "completionTime": to.and_then(time)})
    }

    fn of(mode: &str, source: Value, destination: Value) -> Vec<Track> {
        let mut object = classic();
        object["spec"]["mode"] = json!(mode);
        object["status"]["source"] = source;
        object["status"]["destination"] = destination;
        let status = object["status"].clone();
        tracks(&read(object), &status)
    }

    fn spans(
        tracks: &[Track],
        of: &str,
        side: &str,
    ) -> Vec<(&'static str, Option<Timestamp>, Option<Timestamp>)> {
        let found =
            tracks.iter().filter(|track| track.of == of && track.side == side).flat_map(|track| &track.spans);
        found.map(|span| (span.state, span.from, span.to)).collect()
    }

    #[test]
    fn members_of_a_live_migration_join_before_those_of_the_source_leave() {
        let source = json!({"members": [{"name": "m-0"}, {"name": "m-1\u{1b}"}], "ownerEpoch": 4});
        let destination = json!({"ownerEpoch": 5, "steps": [
            step("SixMemberETCDReady", "Succeeded", "14:10", Some("14:40")),
            step("SourceMembersRemoved", "Succeeded", "15:10", Some("15:30")),
            step("OwnerRecordTaken", "Succeeded", "15:30", Some("15:31")),
        ]});
        let tracks = of("Live", source, destination);
        let names: Vec<&str> = tracks.iter().map(|track| track.name.as_str()).collect();
        assert_eq!(names, ["m-0", "m-1 ", "3 members", "owner record", "owner record"]);
        assert_eq!(tracks[0].spans[0].to, time("15:30"));
        let joined = [("joining", time("14:10"), time("14:40")), ("member", time("14:40"), None)];
        assert_eq!(spans(&tracks, "etcd", "destination"), joined);
        assert_eq!(spans(&tracks, "owner", "source"), [("owner", None, time("15:31"))]);
        assert_eq!(tracks[4].spans[0].says, "owner, epoch 5");
    }

    #[test]
    fn nobody_owns_a_classic_migration_between_both_records() {
        let source = json!({"etcdReplicas": 3, "ownerEpoch": 1, "steps": [
            step("OwnerRecordDeleted", "Succeeded", "15:00", Some("15:02")),
            step("SourceEtcdStopped", "Succeeded", "15:02", Some("15:04")),
        ]});
        let destination = json!({"ownerEpoch": 2, "steps": [
            step("StandbyFollows", "Succeeded", "14:10", Some("14:20")),
            step("OwnerRecordTaken", "Succeeded", "15:04", Some("15:06")),
            step("EtcdServes", "Succeeded", "15:05", Some("15:08")),
        ]});
        let tracks = of("Classic", source, destination);
        assert_eq!(tracks[0].name, "3 members");
        assert_eq!(spans(&tracks, "etcd", "source"), [("member", None, time("15:04"))]);
        let begins = [
            ("follower", time("14:20"), time("15:05")),
            ("joining", time("15:05"), time("15:08")),
            ("member", time("15:08"), None),
        ];
        assert_eq!(spans(&tracks, "etcd", "destination"), begins);
        let owners = [("nobody", time("15:02"), time("15:06")), ("owner", time("15:06"), None)];
        assert_eq!(spans(&tracks, "owner", "destination"), owners);
    }

    #[test]
    fn destination_that_rolls_back_has_no_members_any_more() {
        let destination = json!({"steps": [
            step("SixMemberETCDReady", "RolledBack", "14:10", Some("14:40")),
            step("DestinationStopped", "Succeeded", "15:10", Some("15:30")),
        ]});
        let tracks = of("Live", json!({}), destination);
        assert!(spans(&tracks, "etcd", "destination").is_empty());
        assert_eq!(spans(&tracks, "etcd", "source"), [("member", None, None)]);
    }

    #[test]
    fn migration_that_has_not_begun_has_none() {
        let mut object = classic();
        object["status"] = json!({});
        assert!(tracks(&read(object), &json!({})).is_empty());
    }
}
