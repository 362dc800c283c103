//! The kinds that workflows are made of, and the names that are written on objects.

use std::time::Duration;

use kube::{
    ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use repot_api::{
    names::{DRUID_GROUP, MIGRATION_GROUP, V1ALPHA1},
    schedule::Schedule,
};
use repot_plan::{
    etcd::{
        EtcdFlow, backup, migration,
        observed::{Settings, Wanted},
        restore,
        retention::Retention,
    },
    flow::Plans,
    time::Time,
};
use serde_json::Value;

/// The finalizer of workflows that have something to give back, and of the HostedEtcd that one of them changes.
pub const FINALIZER: &str = "migration.gardener.cloud/workflow";
/// UID of the workflow that a Job works for.
pub const WORKFLOW: &str = "migration.gardener.cloud/workflow-uid";
/// What a Job does: `take` or `prove`.
pub const TASK: &str = "migration.gardener.cloud/task";
/// The backup that a Job works on.
pub const BACKUP: &str = "migration.gardener.cloud/backup";
/// Who is it that writes, in managedFields and events.
pub const MANAGER: &str = "repot-workflows";

/// Where `spec.stepTimeout` is left out.
const STEP_TIMEOUT: Duration = Duration::from_secs(600);

/// A kind of workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// EtcdBackup.
    Backup,
    /// EtcdRestore.
    Restore,
    /// EtcdMigration.
    Migration,
}

impl Kind {
    /// All kinds of workflow, each of them once.
    pub const ALL: [Self; 3] = [Self::Backup, Self::Restore, Self::Migration];

    /// All versions of its tables.
    #[must_use]
    pub fn plans(self) -> &'static Plans<EtcdFlow> {
        match self {
            Self::Backup => &backup::PLANS,
            Self::Restore => &restore::PLANS,
            Self::Migration => &migration::PLANS,
        }
    }

    /// Its name in `kind`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.plans().newest().kind
    }

    /// Name of its controller, in metrics and logs.
    #[must_use]
    pub fn controller(self) -> &'static str {
        match self {
            Self::Backup => "etcdbackup",
            Self::Restore => "etcdrestore",
            Self::Migration => "etcdmigration",
        }
    }

    /// The kind of a name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// How it is reached.
    #[must_use]
    pub fn resource(self) -> ApiResource {
        let plural = match self {
            Self::Backup => "etcdbackups",
            Self::Restore => "etcdrestores",
            Self::Migration => "etcdmigrations",
        };
        ours(self.name(), plural)
    }
}

fn ours(kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(MIGRATION_GROUP, V1ALPHA1, kind), plural)
}

/// API resource of HostedEtcd, version v1alpha1.
#[must_use]
pub fn hosted_etcd() -> ApiResource {
    ours("HostedEtcd", "hostedetcds")
}

/// API resource of Etcd in etcd-druid's group, version v1alpha1.
#[must_use]
pub fn etcd() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(DRUID_GROUP, V1ALPHA1, "Etcd"), "etcds")
}

/// Whether our finalizer is on an object.
#[must_use]
pub fn has_finalizer(object: &DynamicObject) -> bool {
    object.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

/// The finalizers of an object with ours, or without it.
#[must_use]
pub fn finalizers(object: &DynamicObject, ours: bool) -> Vec<String> {
    let mut all = object.finalizers().to_vec();
    all.retain(|finalizer| finalizer != FINALIZER);
    if ours {
        all.push(FINALIZER.to_owned());
    }
    all
}

/// A string in an object, by JSON pointer.
#[must_use]
pub fn text<'a>(object: &'a DynamicObject, pointer: &str) -> Option<&'a str> {
    object.data.pointer(pointer)?.as_str()
}

/// Whether a flag is set.
#[must_use]
pub fn flag(object: &DynamicObject, pointer: &str) -> bool {
    object.data.pointer(pointer).and_then(Value::as_bool).unwrap_or_default()
}

/// A number that is no fraction and not negative.
#[must_use]
pub fn number(value: &Value, pointer: &str) -> Option<u32> {
    value.pointer(pointer).and_then(Value::as_u64).and_then(|number| number.try_into().ok())
}

/// Its status; an empty object where there is none.
#[must_use]
pub fn status(object: &DynamicObject) -> Value {
    object.data.get("status").cloned().unwrap_or_else(|| serde_json::json!({}))
}

/// When an object was created.
#[must_use]
pub fn created(object: &DynamicObject) -> Time {
    object.creation_timestamp().map_or(Time(0), |time| at(&time))
}

/// A time of an object.
#[must_use]
pub fn at(time: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Time) -> Time {
    Time(u64::try_from(time.0.as_second()).unwrap_or_default())
}

/// Duration in `spec.stepTimeout` of a workflow; 10 minutes where it is left out or cannot be parsed.
#[must_use]
pub fn step_timeout(object: &DynamicObject) -> Duration {
    text(object, "/spec/stepTimeout").and_then(repot_api::duration::parse).unwrap_or(STEP_TIMEOUT)
}

/// Settings as a workflow asks for them, and as a HostedEtcd has them.
#[must_use]
pub fn wanted(object: &DynamicObject) -> Wanted {
    let owned = |field: &str| text(object, &format!("/spec/settings/{field}")).map(str::to_owned);
    Wanted {
        replicas: number(&object.data, "/spec/settings/replicas"),
        size: owned("size"),
        storage_class: owned("storageClassName"),
    }
}

/// Settings as JSON, for a merge patch: what is not known is left out.
#[must_use]
pub fn settings(settings: &Settings) -> Value {
    let Settings { replicas, size, storage_class } = settings;
    let known = |text: &String| (!text.is_empty()).then(|| text.clone());
    serde_json::json!({"replicas": replicas, "size": known(size), "storageClassName": known(storage_class)})
}

/// What an EtcdBackup asks for. A schedule that cannot be read was refused when it was written.
#[must_use]
pub fn backup_spec(object: &DynamicObject) -> backup::Spec {
    let schedule = text(object, "/spec/schedule").filter(|text| !text.is_empty());
    let retention = object.data.pointer("/spec/retention").map(|retention| {
        match retention.get("policy").and_then(Value::as_str) {
            Some("Exponential") => Retention::Exponential,
            _ => Retention::LimitBased(number(retention, "/limit").unwrap_or(1) as usize),
        }
    });
    backup::Spec {
        schedule: schedule.and_then(|text| Schedule::parse(text).ok()),
        retention,
        delete_backups: text(object, "/spec/deletionPolicy") == Some("Delete"),
        created: created(object),
    }
}
