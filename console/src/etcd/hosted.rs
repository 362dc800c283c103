//! A HostedEtcd with its members.

use jiff::Timestamp;
use repot_apimachinery::value::{at, items_at, text_at};
use serde::Serialize;
use serde_json::Value;

use crate::text::one_line;

/// Most members and conditions that are looked at.
const MOST: usize = 100;

/// A HostedEtcd as people look at it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostedEtcd {
    /// Namespace of the control plane.
    pub namespace: String,
    /// Name of the HostedEtcd.
    pub name: String,
    /// Kind and name of what runs the members.
    pub etcd: String,
    /// Name of the Deployment of the API servers.
    pub api_server: String,
    /// `running`, `apiDown` or `etcdDeleted`; empty where no controller has recorded it.
    pub lifecycle: String,
    /// What holds at the moment, for people.
    pub message: String,
    /// Members that are ready.
    pub ready_replicas: Option<i64>,
    /// The workflow that works on it.
    pub current_workflow: Option<CurrentWorkflow>,
    /// Where backups are stored, as provider and path; `None` where there is no store.
    pub store: Option<String>,
    /// What it is laid out like, where that was asked for.
    pub settings: Settings,
    /// What holds at the moment, by type.
    pub conditions: Vec<Condition>,
    /// The members, as the Etcd has them; empty where the Etcd could not be read.
    pub members: Vec<Member>,
}

/// The workflow that works on a HostedEtcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CurrentWorkflow {
    /// Kind of its object.
    pub kind: String,
    /// Name of its object.
    pub name: String,
}

/// How an etcd is laid out; what is `None` was left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    /// Number of members of the etcd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
    /// Size of each volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// StorageClass of the volumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
}

/// A condition of any object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in one CamelCase word.
    pub reason: String,
    /// Why, for people.
    pub message: String,
    /// When the status last changed.
    pub since: Option<Timestamp>,
}

/// A member of an Etcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Member {
    /// Its name in etcd.
    pub name: String,
    /// `Leader`, `Member` or `Learner`; empty where it is not known.
    pub role: String,
    /// `Ready`, `NotReady` or `Unknown`.
    pub status: String,
    /// Why, in one word.
    pub reason: String,
    /// Since when its status is what it is.
    pub since: Option<Timestamp>,
}

impl HostedEtcd {
    /// Reads the object. Text that others have written loses its control characters.
    #[must_use]
    pub fn new(object: &Value) -> Self {
        let text = |path: &str| one_line(text_at(object, path).unwrap_or_default());
        let workflow = |field: &str| text(&format!("/status/currentWorkflow/{field}"));
        let current = CurrentWorkflow { kind: workflow("kind"), name: workflow("name") };
        let etcd_kind = text_at(object, "/spec/etcdRef/kind").unwrap_or("Etcd");
        Self {
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
            etcd: format!("{}/{}", one_line(etcd_kind), text("/spec/etcdRef/name")),
            api_server: text("/spec/apiServerRef/name"),
            lifecycle: text("/status/lifecycleStatus"),
            message: text("/status/message"),
            ready_replicas: at(object, "/status/readyReplicas").and_then(Value::as_i64),
            current_workflow: (!current.name.is_empty()).then_some(current),
            store: store(object),
            settings: Settings::read(at(object, "/spec/settings")),
            conditions: conditions(object),
            members: Vec::new(),
        }
    }

    /// Takes the members from the status of the Etcd.
    #[must_use]
    pub fn with_etcd(mut self, etcd: &Value) -> Self {
        let members = items_at(etcd, "/status/members").iter().take(MOST);
        self.members = members.map(Member::read).collect();
        if self.settings.replicas.is_none() {
            self.settings.replicas = at(etcd, "/spec/replicas").and_then(Value::as_i64);
        }
        self
    }

    /// Namespace and name, as people write them.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Name of the Etcd that runs the members; `None` where something else does.
    #[must_use]
    pub fn etcd_name(&self) -> Option<&str> {
        self.etcd.strip_prefix("Etcd/").filter(|name| !name.is_empty())
    }

    /// The condition of this type.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }

    /// Ready members of all, as people write them: `2/3`.
    #[must_use]
    pub fn ready(&self) -> String {
        let number = |count: Option<i64>| count.map_or_else(|| "?".to_owned(), |count| count.to_string());
        format!("{}/{}", number(self.ready_replicas), number(self.settings.replicas))
    }
}

impl Settings {
    fn read(value: Option<&Value>) -> Self {
        let Some(value) = value else { return Self::default() };
        let text = |path| text_at(value, path).map(one_line);
        Self {
            replicas: value["replicas"].as_i64(),
            size: text("/size"),
            storage_class_name: text("/storageClassName"),
        }
    }
}

impl Member {
    fn read(value: &Value) -> Self {
        let text = |field: &str| one_line(value[field].as_str().unwrap_or_default());
        Self {
            name: text("name"),
            role: text("role"),
            status: text("status"),
            reason: text("reason"),
            since: value["lastTransitionTime"].as_str().and_then(|time| time.parse().ok()),
        }
    }
}

/// The conditions of an object, of any kind.
#[must_use]
pub fn conditions(object: &Value) -> Vec<Condition> {
    let read = |value: &Value| {
        let text = |field: &str| one_line(value[field].as_str().unwrap_or_default());
        Condition {
            kind: text("type"),
            status: text("status"),
            reason: text("reason"),
            message: text("message"),
            since: value["lastTransitionTime"].as_str().and_then(|time| time.parse().ok()),
        }
    };
    items_at(object, "/status/conditions").iter().take(MOST).map(read).collect()
}

fn store(object: &Value) -> Option<String> {
    let store = at(object, "/spec/backupStore").filter(|store| store.is_object())?;
    let text = |path| one_line(text_at(store, path).unwrap_or_default());
    Some(format!("{} {}/{}", text("/provider"), text("/container"), text("/prefix")))
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// A HostedEtcd with three members that serves.
    pub(crate) fn main() -> Value {
        json!({
            "metadata": {"name": "main", "namespace": "shoot--dev--alpha"},
            "spec": {
                "etcdRef": {"name": "etcd-main"}, "apiServerRef": {"name": "kube-apiserver"},
                "backupStore": {"provider": "S3", "container": "backups", "prefix": "alpha", "secretRef": {"name": "s"}},
                "settings": {"storageClassName": "slow", "size": "10Gi"},
            },
            "status": {
                "lifecycleStatus": "running", "readyReplicas": 3, "message": "all members serve",
                "conditions": [{"type": "Ready", "status": "True", "reason": "Serves", "message": "",
                                "lastTransitionTime": "2026-11-28T05:00:00Z"}],
            },
        })
    }

    pub(crate) fn etcd() -> Value {
        let member = |name: &str, role: &str, status: &str| {
            json!({"name": name, "role": role, "status": status, "reason": "AnswersReads",
                   "lastTransitionTime": "2026-11-28T05:00:00Z"})
        };
        json!({"spec": {"replicas": 3}, "status": {"members": [
            member("etcd-main-0", "Leader", "Ready"), member("etcd-main-1", "Member", "Ready"),
            member("etcd-main-2", "Member", "NotReady"),
        ]}})
    }

    #[test]
    fn hosted_etcd_has_the_members_of_its_etcd() {
        let read = HostedEtcd::new(&main()).with_etcd(&etcd());
        assert_eq!((read.key().as_str(), read.ready().as_str()), ("shoot--dev--alpha/main", "3/3"));
        assert_eq!(read.etcd_name(), Some("etcd-main"));
        assert_eq!(read.store.as_deref(), Some("S3 backups/alpha"));
        let ready = read.members.iter().filter(|member| member.status == "Ready").count();
        assert_eq!((read.members.len(), ready), (3, 2));
    }

    #[test]
    fn object_of_a_wrong_shape_is_read_as_far_as_it_goes() {
        let odd = json!({"metadata": 7, "status": {"conditions": "x", "message": "a\u{1b}[2J", "readyReplicas": "3"}});
        let read = HostedEtcd::new(&odd);
        assert_eq!((read.message.as_str(), read.ready().as_str()), ("a [2J", "?/?"));
        assert!(read.conditions.is_empty() && read.store.is_none());
    }
}
