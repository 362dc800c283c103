//! Which writes are shown to the rules. A row is one webhook with a path of its own: what it is asked about, and what happens
//! while nobody answers. Nothing that repairs, removes or ends an object is asked about by a row that fails closed.

use repot_api::names::{CORE_GROUP, DRUID_GROUP, EXTENSIONS_GROUP, MIGRATION_GROUP};

/// What kube-apiserver does while the webhook does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The write is refused.
    Fail,
    /// The write goes through.
    Ignore,
}

/// In which cluster a kind lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The garden.
    Garden,
    /// Every cluster that hosts control planes.
    Seed,
}

/// Writes of some kinds.
#[derive(Clone, Copy, Debug)]
pub struct Match {
    /// API groups.
    pub groups: &'static [&'static str],
    /// Resources, also `R/subresource`.
    pub resources: &'static [&'static str],
    /// `CREATE`, `UPDATE`, `DELETE`.
    pub operations: &'static [&'static str],
}

/// One webhook.
#[derive(Debug)]
pub struct Watch {
    /// Its name, and the end of its path.
    pub name: &'static str,
    /// Where it is registered.
    pub place: Place,
    /// Whether it changes objects.
    pub mutating: bool,
    /// What it is asked about.
    pub matches: &'static [Match],
    /// Conditions in CEL beside it, by name: all must hold.
    pub conditions: &'static [(&'static str, &'static str)],
    /// While nobody answers.
    pub failure_policy: FailurePolicy,
    /// Why so.
    pub why: &'static str,
}

impl Watch {
    /// `/validate-<name>` or `/mutate-<name>`.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/{}-{}", if self.mutating { "mutate" } else { "validate" }, self.name)
    }
}

// A condition that breaks on some object counts as a failure of its webhook, and one that fails closed then refuses whatever was
// asked: so each field that may be missing is read by `?`, those of the request, too.
const SEEDS_DIFFER: &str = "request.?subResource.orValue(\"\") == \"binding\" || object.?spec.?seedName.orValue(\"\") != oldObject.?spec.?seedName.orValue(\"\")";
const MARKER_SET: &str = "object.?metadata.?annotations.orValue({}).exists(k, (k.startsWith(\"migration.gardener.cloud/\") \
     || k in [\"gardener.cloud/operation\", \"maintenance.gardener.cloud/operation\", \"shoot.gardener.cloud/isolated-zone\", \
     \"shoot.gardener.cloud/force-restore\", \"confirmation.gardener.cloud/leave-destination\", \"migration.shoot.gardener.cloud/abort-live-migration\"]) \
     && (request.operation == \"CREATE\" || oldObject.?metadata.?annotations.orValue({})[?k].orValue(\"\") \
     != object.metadata.annotations[k]))";
const MOVING: &str = "(has(oldObject.spec) && has(oldObject.status) && oldObject.?status.?seedName.orValue(\"\") != \"\" \
     && oldObject.?spec.?seedName.orValue(\"\") != oldObject.?status.?seedName.orValue(\"\")) \
     || oldObject.?status.?lastOperation.?type.orValue(\"\") in [\"Migrate\", \"Restore\", \"LiveMigrate\"]";
const ENDED_OR_SPEC: &str = "request.operation == \"DELETE\" || object.?spec.orValue({}) != oldObject.?spec.orValue({}) \
     || object.?metadata.?generation.orValue(0) != oldObject.?metadata.?generation.orValue(0) \
     || object.?metadata.?annotations.orValue({})[?\"migration.gardener.cloud/live-migrate\"].orValue(\"\") \
     != oldObject.?metadata.?annotations.orValue({})[?\"migration.gardener.cloud/live-migrate\"].orValue(\"\")";
const OWNER_RECORD: &str = "[object, oldObject].exists(o, o != null && o.?spec.?recordType.orValue(\"\") == \"TXT\" \
     && o.?spec.?name.orValue(\"\").startsWith(\"owner.\"))";

const SHOOTS: &[&str] = &["shoots", "shoots/binding"];
const UPDATE: &[&str] = &["UPDATE"];
const WRITES: &[&str] = &["CREATE", "UPDATE"];
const ALL: &[&str] = &["CREATE", "UPDATE", "DELETE"];

/// A change of seed.
pub static SEED_CHANGE: Watch = Watch {
    name: "seed-change",
    place: Place::Garden,
    mutating: false,
    matches: &[Match { groups: &[CORE_GROUP], resources: SHOOTS, operations: UPDATE }],
    conditions: &[("seed-name-changes", SEEDS_DIFFER)],
    failure_policy: FailurePolicy::Fail,
    why: "a migration can wait until somebody can say whether it is right; all other writes of Shoots are not asked about",
};

/// Annotations that start, stop or steer something.
pub static MARKERS: Watch = Watch {
    name: "markers",
    place: Place::Garden,
    mutating: false,
    matches: &[Match { groups: &[CORE_GROUP], resources: &["shoots"], operations: WRITES }],
    conditions: &[("a-marker-is-set", MARKER_SET)],
    failure_policy: FailurePolicy::Fail,
    why: "only setting or changing such an annotation has to wait; taking one away is never asked about",
};

/// Writes to a Shoot between two seeds.
pub static MOVING_SHOOTS: Watch = Watch {
    name: "moving-shoots",
    place: Place::Garden,
    mutating: false,
    matches: &[Match { groups: &[CORE_GROUP], resources: &["shoots"], operations: &["UPDATE", "DELETE"] }],
    conditions: &[("shoot-moves", MOVING), ("spec-or-end", ENDED_OR_SPEC)],
    failure_policy: FailurePolicy::Fail,
    why: "a changed spec, a lost trigger, a reconciliation or a deletion in the middle of a migration leaves orphans; Shoots that do not move are not asked about",
};

/// Writes of ShootStates.
pub static SHOOT_STATES: Watch = Watch {
    name: "shootstates",
    place: Place::Garden,
    mutating: false,
    matches: &[Match {
        groups: &[CORE_GROUP, MIGRATION_GROUP],
        resources: &["shootstates"],
        operations: ALL,
    }],
    conditions: &[],
    failure_policy: FailurePolicy::Ignore,
    why: "a gardenlet that cannot save the state would stop a migration that runs; who may write at all is a matter of RBAC",
};

/// New workflows on an etcd, and what controllers record.
pub static ETCD_WORKFLOWS: Watch = Watch {
    name: "etcd-workflows",
    place: Place::Seed,
    mutating: false,
    matches: &[
        Match {
            groups: &[MIGRATION_GROUP],
            resources: &["etcdbackups", "etcdrestores", "etcdmigrations"],
            operations: &["CREATE"],
        },
        Match {
            groups: &[MIGRATION_GROUP],
            resources: &[
                "hostedetcds/status",
                "etcdbackups/status",
                "etcdrestores/status",
                "etcdmigrations/status",
            ],
            operations: UPDATE,
        },
    ],
    conditions: &[],
    failure_policy: FailurePolicy::Ignore,
    why: "backups go on; controllers take an etcd for one workflow at a time by themselves",
};

/// What keeps the members of an etcd together.
pub static ETCDS: Watch = Watch {
    name: "etcds",
    place: Place::Seed,
    mutating: false,
    matches: &[
        Match { groups: &[DRUID_GROUP], resources: &["etcds"], operations: WRITES },
        Match { groups: &[MIGRATION_GROUP], resources: &["hostedetcds"], operations: UPDATE },
    ],
    conditions: &[],
    failure_policy: FailurePolicy::Ignore,
    why: "an etcd has to be repairable while Repot is down",
};

/// Who owns a control plane.
pub static OWNER_RECORDS: Watch = Watch {
    name: "owner-records",
    place: Place::Seed,
    mutating: false,
    matches: &[Match { groups: &[EXTENSIONS_GROUP], resources: &["dnsrecords"], operations: ALL }],
    conditions: &[("owner-record", OWNER_RECORD)],
    failure_policy: FailurePolicy::Ignore,
    why: "a forced restore, the last resort, begins with this record and must not wait for anything",
};

/// Labels and annotations of Shoots.
pub static SHOOT_DEFAULTS: Watch = Watch {
    name: "shoots",
    place: Place::Garden,
    mutating: true,
    matches: &[Match { groups: &[CORE_GROUP], resources: SHOOTS, operations: WRITES }],
    conditions: &[],
    failure_policy: FailurePolicy::Ignore,
    why: "what is set here is a convenience and is made up for at the next write",
};

/// What ShootStates lack.
pub static SHOOT_STATE_DEFAULTS: Watch = Watch {
    name: "shootstates",
    place: Place::Garden,
    mutating: true,
    matches: &[Match {
        groups: &[CORE_GROUP, MIGRATION_GROUP],
        resources: &["shootstates"],
        operations: WRITES,
    }],
    conditions: &[],
    failure_policy: FailurePolicy::Ignore,
    why: "a state without owner is better than none",
};

/// All webhooks.
pub static WATCHES: &[&Watch] = &[
    &SHOOT_DEFAULTS,
    &SHOOT_STATE_DEFAULTS,
    &SEED_CHANGE,
    &MARKERS,
    &MOVING_SHOOTS,
    &SHOOT_STATES,
    &ETCD_WORKFLOWS,
    &ETCDS,
    &OWNER_RECORDS,
];
