//! The part of a ControlPlaneMigration's status that the controller of one side writes: its ledger and its notes.

use repot_apimachinery::{
    field::FieldError,
    json::Node,
    schema::{Field, ListType, Schema, Shape},
};

use crate::workflow::{self, CONDITIONS, MESSAGE, PAUSED_TIME, PLAN_VERSION, REASON, STEPS, TIME};

pub(crate) static PHASE: Schema = Schema::choice(
    "How far the migration, or this side of it, has come. RolledBack: it failed, and the source serves as before.",
    &["Pending", "Running", "Succeeded", "RollingBack", "RolledBack", "Failed", "Cancelled"],
);
static OBSERVED_TIME: Schema = Schema::of(
    "When the controller of this side wrote last. It writes at least once a minute while the migration runs.",
    Shape::String(Some("date-time")),
);
static FAILED_PHASE: Schema = Schema::choice(
    "The phase in which this side failed; a retry goes on there.",
    &["Running", "RollingBack"],
);
static SIDE_RETRY: Schema = Schema::of("The spec.retry that this side has followed last.", Shape::Integer);
static RETRIED_TIME: Schema = Schema::of("When this side followed it.", Shape::String(Some("date-time")));
static SIDE_STEPS: Schema = Schema::of(
    "The steps of this side that were started, those of the rollback last; docs/reference/classic-migration.md, forced-migration.md and live-migration.md have them all.",
    STEPS,
);
static COUNT: Schema = Schema::of("Number of replicas.", Shape::Integer);
static API_SERVERS: Schema =
    Schema::of("Replicas of the kube-apiservers before they were stopped, by workload.", Shape::Map(&COUNT));
static TUNNEL_SERVERS: Schema =
    Schema::of("Live: replicas of the servers of the tunnel to the Shoot, by workload.", Shape::Map(&COUNT));
static API_ANSWERED: Schema = Schema::of(
    "When the kube-apiservers of the source answered last before the outage.",
    Shape::String(Some("date-time")),
);
static API_DNS_WRITTEN: Schema = Schema::of(
    "When the DNS record of the API was written with the destination, by the clock of its controller.",
    Shape::String(Some("date-time")),
);
static CONTROLLERS: Schema =
    Schema::of("Replicas of the controllers before they were stopped, by workload.", Shape::Map(&COUNT));
static API_TTL: Schema =
    Schema::of("TTL of the DNS record of the API before it was lowered, in seconds.", Shape::Integer);
static CHANGED: Schema =
    Schema::of("Whether this side has changed something that may have to be rolled back.", Shape::Boolean);
static DNS_MIGRATED: Schema =
    Schema::of("Whether migrate was requested of the DNSRecords at the source.", Shape::Boolean);
static HIBERNATED: Schema =
    Schema::of("Garden: whether the Shoot was hibernated at the start.", Shape::Boolean);
static WORKERLESS: Schema =
    Schema::of("Garden: whether the Shoot had no workers when the migration was recorded.", Shape::Boolean);
static ETCD_REPLICAS: Schema = Schema::of("Members of the etcd at the source.", Shape::Integer);
static SIDE_EPOCH: Schema =
    Schema::of("Epoch of the owner record that this side wrote or deleted last.", Shape::Integer);
static SHRUNK: Schema = Schema::of(
    "Whether members of the source leave before the destination serves, as spec.forceShrinkEtcd asks.",
    Shape::Boolean,
);
static OWNERSHIP_ENDED: Schema =
    Schema::of("Whether ownership was ended, so that the volumes never serve again.", Shape::Boolean);
static VOLUMES: Schema =
    Schema::string("Name of the set of volumes that the etcd of this side is restored to.");
static SNAPSHOT_NAME: Schema = Schema::string("Name of the snapshot in its bucket.");
static SNAPSHOT_REVISION: Schema = Schema::of("Revision of etcd that it holds.", Shape::Integer);
static SNAPSHOT_EPOCH: Schema = Schema::of("Epoch of the owner record that it ends.", Shape::Integer);
static FINAL_SNAPSHOT: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.FinalSnapshot"),
    description: "The snapshot that ends the ownership of the source.",
    shape: Shape::Object(&[
        Field::required("epoch", &SNAPSHOT_EPOCH),
        Field::required("name", &SNAPSHOT_NAME),
        Field::required("revision", &SNAPSHOT_REVISION),
    ]),
};
static MEMBER_NAME: Schema = Schema::string("Name of the member in etcd.");
static MEMBER_PEER_URL: Schema = Schema::string("URL at which other members reach it.");
static MEMBER_CLIENT_URL: Schema = Schema::string("URL at which clients reach it.");
static MEMBER: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.ExposedMember"),
    description: "A member of the etcd at the source, as other seeds reach it.",
    shape: Shape::Object(&[
        Field::required("clientUrl", &MEMBER_CLIENT_URL),
        Field::required("name", &MEMBER_NAME),
        Field::required("peerUrl", &MEMBER_PEER_URL),
    ]),
};
static MEMBERS: Schema = Schema::of(
    "Live, source: the members of the etcd, as other seeds reach them.",
    Shape::List(&MEMBER, ListType::Atomic),
);
static LOSS_SNAPSHOT: Schema = Schema::string("Name of the newest snapshot in the bucket of the source.");
static LOSS_TIME: Schema = Schema::of("When the snapshot was begun.", Shape::String(Some("date-time")));
static LOSS_EPOCH: Schema = Schema::of("The highest epoch that the source was seen to have.", Shape::Integer);
static LOSS: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.SourceLoss"),
    description: "Forced: what the source stored after this snapshot may be lost.",
    shape: Shape::Object(&[
        Field::required("epoch", &LOSS_EPOCH),
        Field::required("revision", &SNAPSHOT_REVISION),
        Field::required("snapshot", &LOSS_SNAPSHOT),
        Field::required("time", &LOSS_TIME),
    ]),
};
static OPERATION_TYPE: Schema = Schema::string("Type of the operation, such as Reconcile.");
static OPERATION_STATE: Schema = Schema::string("State of the operation, such as Succeeded.");
static FORMER_OPERATION: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.FormerOperation"),
    description: "Garden: the last operation of the Shoot before the migration.",
    shape: Shape::Object(&[
        Field::required("state", &OPERATION_STATE),
        Field::required("type", &OPERATION_TYPE),
    ]),
};
static FORMER_SHOOT_SEED: Schema = Schema::string("spec.seedName of the Shoot.");
static FORMER_ENTRY_SEED: Schema = Schema::string("spec.seedName of the BackupEntry.");
static FORMER_ENTRY_STATUS: Schema = Schema::string("status.seedName of the BackupEntry.");
static FORMER_SEEDS: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.FormerSeeds"),
    description: "Garden, executor Gardenlet: the seeds before the migration, which a rollback writes back.",
    shape: Shape::Object(&[
        Field::optional("backupEntry", &FORMER_ENTRY_SEED),
        Field::optional("backupEntryStatus", &FORMER_ENTRY_STATUS),
        Field::optional("shoot", &FORMER_SHOOT_SEED),
    ]),
};
pub(crate) static SIDE: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.MigrationSide"),
    description: "What the controller of one side has recorded. Only that controller writes it.",
    shape: Shape::Object(&[
        Field::optional("apiAnsweredTime", &API_ANSWERED),
        Field::optional("apiDnsWrittenTime", &API_DNS_WRITTEN),
        Field::optional("apiServers", &API_SERVERS),
        Field::optional("apiTtlSeconds", &API_TTL),
        Field::optional("changed", &CHANGED),
        Field::optional("completionTime", &TIME),
        Field::optional("conditions", &CONDITIONS),
        Field::optional("controllers", &CONTROLLERS),
        Field::optional("dnsRecordsMigrated", &DNS_MIGRATED),
        Field::optional("etcdReplicas", &ETCD_REPLICAS),
        Field::optional("failedPhase", &FAILED_PHASE),
        Field::optional("finalSnapshot", &FINAL_SNAPSHOT),
        Field::optional("formerOperation", &FORMER_OPERATION),
        Field::optional("formerSeeds", &FORMER_SEEDS),
        Field::optional("hibernated", &HIBERNATED),
        Field::optional("loss", &LOSS),
        Field::optional("members", &MEMBERS),
        Field::optional("message", &MESSAGE),
        Field::optional("observedTime", &OBSERVED_TIME),
        Field::optional("ownerEpoch", &SIDE_EPOCH),
        Field::optional("ownershipEnded", &OWNERSHIP_ENDED),
        Field::optional("pausedTime", &PAUSED_TIME),
        Field::optional("phase", &PHASE),
        Field::optional("planVersion", &PLAN_VERSION),
        Field::optional("reason", &REASON),
        Field::optional("retriedTime", &RETRIED_TIME),
        Field::optional("retry", &SIDE_RETRY),
        Field::optional("shrunk", &SHRUNK),
        Field::optional("startTime", &TIME),
        Field::optional("steps", &SIDE_STEPS),
        Field::optional("tunnelServers", &TUNNEL_SERVERS),
        Field::optional("volumes", &VOLUMES),
        Field::optional("workerless", &WORKERLESS),
    ]),
};

/// Everything that is wrong in the part of a side, which is at this path.
pub(crate) fn check(record: &Node, path: &str, errors: &mut Vec<FieldError>) {
    workflow::check_least(record, path, "planVersion", 1, errors);
    for field in ["apiTtlSeconds", "etcdReplicas", "ownerEpoch", "retry"] {
        workflow::check_least(record, path, field, 0, errors);
    }
    workflow::check_steps(record, path, errors);
}
