//! The final snapshot that a source has stored too late for the destination of a forced migration, as a part of its status.

use repot_apimachinery::schema::{Field, ListType, Schema, Shape};

static NAME: Schema = Schema::string("Name of the snapshot in its bucket.");
static REVISION: Schema = Schema::of("Revision of etcd that it holds.", Shape::Integer);
static STATE: Schema = Schema::choice(
    "Contained: the destination began with all that the snapshot holds. Copying: a Job copies it to the bucket of the destination. \
     Reported: it is copied, and holds more. Failed: the Job was given up.",
    &["Contained", "Copying", "Reported", "Failed"],
);
static HISTORY: Schema =
    Schema::string("Name of the history in the bucket of the destination that has the copy.");
static HELD: Schema = Schema::of("Revision that the destination began with.", Shape::Integer);
static CREATED: Schema = Schema::of("Keys that were created after that revision.", Shape::Integer);
static UPDATED: Schema = Schema::of("Keys that were updated after that revision.", Shape::Integer);
static DELETED: Schema = Schema::of("Keys that were deleted after that revision.", Shape::Integer);
static KEY: Schema = Schema::string("Name of a key.");
static KEYS: Schema = Schema::of(
    "Names of these keys, the first 100; `repot snapshots changes` has all of them.",
    Shape::List(&KEY, ListType::Atomic),
);
static MESSAGE: Schema = Schema::string("Why some or all of it is not known.");
/// `status.lateSnapshot` of a ControlPlaneMigration.
pub(crate) static SCHEMA: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.LateSnapshot"),
    description: "Forced: the final snapshot that the source stored when it came back. It is never restored.",
    shape: Shape::Object(&[
        Field::optional("created", &CREATED),
        Field::optional("deleted", &DELETED),
        Field::optional("heldRevision", &HELD),
        Field::optional("history", &HISTORY),
        Field::optional("keys", &KEYS),
        Field::optional("message", &MESSAGE),
        Field::required("name", &NAME),
        Field::required("revision", &REVISION),
        Field::required("state", &STATE),
        Field::optional("updated", &UPDATED),
    ]),
};
