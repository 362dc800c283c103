//! What is created for a backup, a restore or a migration, and what a person is asked before. Pure.

use jiff::{Timestamp, tz::TimeZone};
use serde_json::{Map, Value, json};

use super::{
    hosted::{HostedEtcd, Settings},
    workflow::{Workflow, WorkflowKind},
};
use crate::text::{ago, bytes};

/// Longest part of a name that comes from the HostedEtcd, so that a time fits behind it.
const LONGEST_NAME: usize = 200;
/// Most members that an etcd can have.
const MOST_MEMBERS: i64 = 9;

/// What to create, and what to ask before.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Kind of the object.
    pub kind: WorkflowKind,
    /// The object.
    pub object: Value,
    /// What a person has to agree to; `None` where nothing is lost by it.
    pub question: Option<String>,
    /// What a person should know before, one line each.
    pub notes: Vec<String>,
}

/// What every request has.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Name of the object; the name of the HostedEtcd and the time where it is `None`.
    pub name: Option<String>,
    /// How long each step may take, as a duration such as `10m`.
    pub step_timeout: Option<String>,
}

/// A request that would not be carried out.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The HostedEtcd has no store.
    #[error("HostedEtcd {0} has no spec.backupStore, so it has no backups")]
    NoStore(String),
    /// A schedule has many backups.
    #[error("{0} is a schedule, not a backup{1}")]
    Schedule(String, String),
    /// The backup did not come about.
    #[error("backup {0} is {1}: {2}")]
    NotTaken(String, String, String),
    /// No setting was named.
    #[error("name at least one of --storage-class, --size and --replicas")]
    NoSettings,
    /// It is laid out like that.
    #[error("HostedEtcd {0} has these settings already; nothing would change")]
    NothingChanges(String),
    /// An etcd cannot have so many members.
    #[error("an etcd has an odd number of members, from 1 to {MOST_MEMBERS}; {0} is none")]
    Members(i64),
}

/// One backup, which is taken at once.
///
/// # Errors
/// Why none can be taken.
pub fn backup(hosted: &HostedEtcd, options: &Options, now: Timestamp) -> Result<Request, Refusal> {
    if hosted.store.is_none() {
        return Err(Refusal::NoStore(hosted.key()));
    }
    Ok(Request {
        kind: WorkflowKind::Backup,
        object: object(WorkflowKind::Backup, hosted, options, Map::new(), now),
        question: None,
        notes: waiting(hosted).into_iter().collect(),
    })
}

/// A restore of a backup by its name.
///
/// # Errors
/// Why the backup cannot be restored, as far as the objects tell that.
pub fn restore(
    hosted: &HostedEtcd,
    (backup, all): (&str, &[Workflow]),
    options: &Options,
    now: Timestamp,
) -> Result<Request, Refusal> {
    if hosted.store.is_none() {
        return Err(Refusal::NoStore(hosted.key()));
    }
    let mut of_etcd = all.iter().filter(|one| one.kind == WorkflowKind::Backup && one.cluster == hosted.name);
    let taken =
        of_etcd.clone().find(|one| one.backup.as_deref() == Some(backup) && one.last_success.is_some());
    if taken.is_none()
        && let Some(named) = of_etcd.find(|one| one.name == backup)
    {
        return Err(not_a_backup(named));
    }
    let what = taken.map_or_else(String::new, |taken| described(taken, now));
    let (key, api_server) = (hosted.key(), &hosted.api_server);
    let mut notes: Vec<String> = waiting(hosted).into_iter().collect();
    if taken.is_none() {
        notes.push(format!(
            "no EtcdBackup names backup {backup}; the restore looks for it in the store before it stops anything"
        ));
    }
    let source = json!({"backupName": backup});
    Ok(Request {
        kind: WorkflowKind::Restore,
        object: object(
            WorkflowKind::Restore,
            hosted,
            options,
            Map::from_iter([("source".to_owned(), source)]),
            now,
        ),
        question: Some(format!(
            "HostedEtcd {key} is put back to backup {backup}{what}. Everything that was written after it is lost. The API servers \
             ({api_server}) are stopped meanwhile. It can be undone until they are ready again, and not afterwards."
        )),
        notes,
    })
}

/// Other settings on new volumes.
///
/// # Errors
/// Why the settings cannot be had, or that nothing would change.
pub fn migration(
    hosted: &HostedEtcd,
    wanted: &Settings,
    options: &Options,
    now: Timestamp,
) -> Result<Request, Refusal> {
    if hosted.store.is_none() {
        return Err(Refusal::NoStore(hosted.key()));
    }
    if *wanted == Settings::default() {
        return Err(Refusal::NoSettings);
    }
    if let Some(members) =
        wanted.replicas.filter(|count| !(1..=MOST_MEMBERS).contains(count) || count % 2 == 0)
    {
        return Err(Refusal::Members(members));
    }
    let changes = changes(&hosted.settings, wanted);
    if changes.is_empty() {
        return Err(Refusal::NothingChanges(hosted.key()));
    }
    let (key, api_server) = (hosted.key(), &hosted.api_server);
    let settings = json!(wanted);
    Ok(Request {
        kind: WorkflowKind::Migration,
        object: object(
            WorkflowKind::Migration,
            hosted,
            options,
            Map::from_iter([("settings".to_owned(), settings)]),
            now,
        ),
        question: Some(format!(
            "HostedEtcd {key} is made anew from a backup of itself: {}. The API servers ({api_server}) are stopped meanwhile. It rolls \
             back until they are ready again; the old volumes are deleted afterwards.",
            changes.join(", ")
        )),
        notes: waiting(hosted).into_iter().collect(),
    })
}

fn object(
    kind: WorkflowKind,
    hosted: &HostedEtcd,
    options: &Options,
    mut spec: Map<String, Value>,
    now: Timestamp,
) -> Value {
    spec.insert("clusterRef".to_owned(), json!({"name": hosted.name}));
    if let Some(timeout) = &options.step_timeout {
        spec.insert("stepTimeout".to_owned(), json!(timeout));
    }
    let kind = kind.kind();
    json!({
        "apiVersion": format!("{}/{}", kind.group, kind.version),
        "kind": kind.kind,
        "metadata": {
            "namespace": hosted.namespace,
            "name": options.name.clone().unwrap_or_else(|| name_at(&hosted.name, now)),
        },
        "spec": spec,
    })
}

/// A name that no other request has, unless it is of the same second.
fn name_at(hosted: &str, now: Timestamp) -> String {
    let stem = &hosted[..hosted.floor_char_boundary(LONGEST_NAME)];
    let time = now.to_zoned(TimeZone::UTC).strftime("%Y%m%d-%H%M%S");
    format!("{}-{time}", stem.trim_end_matches(['-', '.']))
}

/// That another workflow has the etcd.
fn waiting(hosted: &HostedEtcd) -> Option<String> {
    let current = hosted.current_workflow.as_ref()?;
    Some(format!("{} {} works on {}; this one waits for its end", current.kind, current.name, hosted.key()))
}

fn not_a_backup(named: &Workflow) -> Refusal {
    if named.schedule.is_some() {
        let newest = named.backup.as_ref().filter(|_| named.last_success.is_some());
        let newest = newest.map_or_else(String::new, |name| format!("; its newest backup is {name}"));
        return Refusal::Schedule(named.name.clone(), newest);
    }
    Refusal::NotTaken(named.name.clone(), named.phase.clone(), named.message.clone())
}

fn described(taken: &Workflow, now: Timestamp) -> String {
    let time = taken.last_success.map(|time| format!("of {time}, {}", ago(time, now)));
    let revision = taken.revision.map(|revision| format!("revision {revision}"));
    let size = taken.size_bytes.map(bytes);
    let parts: Vec<String> = [time, revision, size].into_iter().flatten().collect();
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}

fn changes(now: &Settings, wanted: &Settings) -> Vec<String> {
    let change = |what: &str, now: Option<String>, wanted: Option<String>| {
        let wanted = wanted.filter(|wanted| now.as_ref() != Some(wanted))?;
        Some(match now {
            Some(now) => format!("{what} {now} becomes {wanted}"),
            None => format!("{what} becomes {wanted}"),
        })
    };
    let number = |count: Option<i64>| count.map(|count| count.to_string());
    [
        change("storage class", now.storage_class_name.clone(), wanted.storage_class_name.clone()),
        change("size", now.size.clone(), wanted.size.clone()),
        change("members", number(now.replicas), number(wanted.replicas)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::{hosted, workflow};

    fn now() -> Timestamp {
        "2026-11-28T06:01:00Z".parse().expect("a time")
    }

    fn main() -> HostedEtcd {
        HostedEtcd::new(&hosted::tests::main()).with_etcd(&hosted::tests::etcd())
    }

    fn backups() -> Vec<Workflow> {
        let mut schedule = workflow::tests::backup();
        schedule["metadata"]["name"] = json!("nightly");
        schedule["spec"]["schedule"] = json!("0 2 * * *");
        schedule["status"]["backupName"] = json!("x7k2");
        let mut failed = workflow::tests::backup();
        failed["metadata"]["name"] = json!("tuesday");
        failed["status"] = json!({"phase": "Failed", "message": "no room", "backupName": "tuesday"});
        let all = [workflow::tests::backup(), schedule, failed];
        all.map(|object| Workflow::new(WorkflowKind::Backup, &object)).to_vec()
    }

    #[test]
    fn backup_asks_nothing_and_has_the_time_in_its_name() {
        let request = backup(&main(), &Options::default(), now()).expect("a request");
        assert_eq!(request.question, None);
        assert_eq!(request.object["metadata"]["name"], "main-20261128-060100");
        assert_eq!(request.object["spec"], json!({"clusterRef": {"name": "main"}}));
        let without = HostedEtcd { store: None, ..main() };
        assert!(matches!(backup(&without, &Options::default(), now()), Err(Refusal::NoStore(_))));
    }

    #[test]
    fn restore_says_what_is_lost() {
        let all = backups();
        let request = restore(&main(), ("monday", &all), &Options::default(), now()).expect("a request");
        let question = request.question.expect("a question");
        assert!(
            question.contains("monday (of 2026-11-28T05:01:00Z, 1h00m ago, revision 812, 1.5 MiB)"),
            "{question}"
        );
        assert!(question.contains("Everything that was written after it is lost"), "{question}");
        assert_eq!(request.object["spec"]["source"], json!({"backupName": "monday"}));
        assert!(request.notes.is_empty(), "{:?}", request.notes);
    }

    #[test]
    fn restore_takes_backups_and_no_schedules() {
        let all = backups();
        let of = |name: &str| restore(&main(), (name, &all), &Options::default(), now());
        let refused = of("nightly").expect_err("a refusal").to_string();
        assert_eq!(refused, "nightly is a schedule, not a backup; its newest backup is x7k2");
        assert!(of("x7k2").is_ok());
        let refused = of("tuesday").expect_err("a refusal").to_string();
        assert_eq!(refused, "backup tuesday is Failed: no room");
        let unknown = of("another").expect("a request");
        assert!(unknown.notes.iter().any(|note| note.contains("no EtcdBackup names backup another")));
    }

    #[test]
    fn migration_needs_a_change() {
        let of = |wanted: &Settings| migration(&main(), wanted, &Options::default(), now());
        let wanted = |replicas, class: &str| Settings {
            replicas,
            storage_class_name: Some(class.to_owned()),
            ..Settings::default()
        };
        assert_eq!(of(&Settings::default()), Err(Refusal::NoSettings));
        assert_eq!(
            of(&wanted(Some(3), "slow")),
            Err(Refusal::NothingChanges("shoot--dev--alpha/main".to_owned()))
        );
        assert_eq!(of(&wanted(Some(4), "fast")), Err(Refusal::Members(4)));
        assert_eq!(of(&wanted(Some(11), "fast")), Err(Refusal::Members(11)));
        let request = of(&wanted(Some(5), "fast")).expect("a request");
        let question = request.question.expect("a question");
        assert!(question.contains("storage class slow becomes fast, members 3 becomes 5"), "{question}");
        assert_eq!(request.object["spec"]["settings"], json!({"replicas": 5, "storageClassName": "fast"}));
    }

    #[test]
    fn other_workflow_is_told() {
        let mut busy = hosted::tests::main();
        busy["status"]["currentWorkflow"] = json!({"kind": "EtcdBackup", "name": "b", "uid": "u"});
        let request = backup(&HostedEtcd::new(&busy), &Options::default(), now()).expect("a request");
        assert_eq!(
            request.notes,
            ["EtcdBackup b works on shoot--dev--alpha/main; this one waits for its end"]
        );
    }

    #[test]
    fn long_names_have_room_for_the_time() {
        let name = name_at(&"a".repeat(253), now());
        assert!(name.len() < 253 && name.ends_with("-20261128-060100"), "{name}");
    }
}
