//! Which writes are shown to the rules. A row is one webhook with a path of its own: what it is asked about, and what happens
//! while nobody answers. Nothing that repairs, removes or ends an object is asked about by a row that fails closed.

use repot_api::names::{CORE_GROUP, DRUID_GROUP, EXTENSIONS_GROUP, MIGRATION_GROUP};

use crate::conditions::{
    DELETION_UNCONFIRMED, ENDED_OR_SPEC, FILLED_IN, ISOLATED, LIVE_MIGRATION_ENDED, MARKER_SET,
    MARKER_WITHDRAWN, MOVING, OWNER_RECORD, REQUEST_CHANGES, SEED_CHANGES, VERSIONS_CHANGE,
};

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
pub enum HomeCluster {
    /// The garden.
    Garden,
    /// Every cluster that hosts control planes.
    Seed,
}

/// Writes of some kinds.
#[derive(Clone, Copy, Debug)]
pub struct Match {
    /// API groups of the resources, such as `core.gardener.cloud`.
    pub groups: &'static [&'static str],
    /// Plural names of resources, or `R/subresource` for a subresource.
    pub resources: &'static [&'static str],
    /// Operations in upper case: `CREATE`, `UPDATE`, `DELETE`.
    pub operations: &'static [&'static str],
}

/// One webhook: what it is asked about, and how it is registered.
#[derive(Debug)]
pub struct Watch {
    /// Its name, and the end of its path.
    pub name: &'static str,
    /// Where it is registered.
    pub place: HomeCluster,
    /// Whether it changes objects.
    pub mutating: bool,
    /// What it is asked about.
    pub matches: &'static [Match],
    /// Asks the rules of another webhook as well: about the same changes, where another failure policy is right.
    pub rules_of: Option<&'static Watch>,
    /// Conditions in CEL beside it, by name: all must hold.
    pub conditions: &'static [(&'static str, &'static str)],
    /// Whether a write passes while the webhook does not answer.
    pub failure_policy: FailurePolicy,
    /// How long kube-apiserver waits, in seconds. Mutating webhooks are asked one after another, then all validating ones at once.
    pub timeout_seconds: u32,
    /// Why this failure policy is right, for the catalogue.
    pub why: &'static str,
}

impl Watch {
    /// URL path of the webhook: `/validate-<name>`, or `/mutate-<name>` where it is mutating.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/{}-{}", if self.mutating { "mutate" } else { "validate" }, self.name)
    }
}

const SHOOTS: &[&str] = &["shoots", "shoots/binding"];
/// Every path on which gardener-apiserver keeps the annotations of a Shoot.
const ANNOTATED_SHOOTS: &[&str] = &["shoots", "shoots/binding", "shoots/status"];
const STATES: &[&str] = &["shootstates"];
const CREATE: &[&str] = &["CREATE"];
const UPDATE: &[&str] = &["UPDATE"];
const WRITES: &[&str] = &["CREATE", "UPDATE"];
const ALL: &[&str] = &["CREATE", "UPDATE", "DELETE"];

/// A change of seed.
pub static SEED_CHANGE: Watch = Watch {
    name: "seed-change",
    place: HomeCluster::Garden,
    mutating: false,
    matches: &[Match { groups: &[CORE_GROUP], resources: SHOOTS, operations: UPDATE }],
    rules_of: None,
    conditions: &[("seed-name-changes", SEED_CHANGES)],
    failure_policy: FailurePolicy::Fail,
    timeout_seconds: 5,
    why: "a migration can wait until somebody can say whether it is right; all other writes of Shoots are not asked about",
};

/// Annotations that start, stop or steer something.
pub static ANNOTATION_CHANGES: Watch = Watch {
    name: "markers",
    place: HomeCluster::Garden,
    mutating: false,
    matches: &[Match { groups: &[CORE_GROUP], resources: ANNOTATED_SHOOTS, operations: WRITES }],
    rules_of: None,
    conditions: &[("a-marker-is-set", MARKER_SET)],
    failure_policy: FailurePolicy::Fail,
    timeout_seconds: 5,
    why: "only a value that starts something has to wait",
};

/// The same annotations with a value that says no, and the end of an isolation.
pub static WITHDRAWN_MARKERS: Watch = Watch {
    name: "withdrawn-markers",
    place: HomeCluster::Garden,
    mutating: false,
    matches: &[Match { groups: &[CORE_GROUP], resources: ANNOTATED_SHOOTS, operations: WRITES }],
    rules_of: Some(&ANNOTATION_CHANGES),
    conditions: &[("a-marker-is-withdrawn", MARKER_WITHDRAWN)],
    failure_policy: FailurePolicy::Ignore,
    timeout_seconds: 2,
    why: "what starts nothing has to wait for nobody",
};

/// Writes to a Shoot between two seeds.
pub static MOVING_SHOOTS: Watch = Watch {
    name: "moving-shoots",
    place: HomeCluster::Garden,
    mutating: false,
    matches: &[Match { groups: &[CORE_GROUP], resources: &["shoots"], operations: &["UPDATE", "DELETE"] }],
    rules_of: None,
    conditions: &[("shoot-moves", MOVING), ("spec-or-end", ENDED_OR_SPEC)],
    failure_policy: FailurePolicy::Fail,
    timeout_seconds: 2,
    why: "a changed spec, a lost trigger, a reconciliation or a deletion in the middle of a migration leaves orphans; Shoots that do not move are not asked about",
};

/// A changed request for a migration that runs, by a path that keeps annotations beside the Shoot itself.
pub static CHANGED_REQUESTS: Watch = Watch {
    name: "changed-requests",
    place: HomeCluster::Garden,
    mutating: false,
    matches: &[Match {
        groups: &[CORE_GROUP],
        resources: &["shoots/binding", "shoots/status"],
        operations: UPDATE,
    }],
    rules_of: Some(&MOVING_SHOOTS),
    conditions: &[("shoot-moves", MOVING), ("request-changes", REQUEST_CHANGES)],
    failure_policy: FailurePolicy::Fail,
    timeout_seconds: 2,
    why: "a live migration that loses its trigger goes on as one with downtime; every other write of a status is not asked about",
};

/// Writes to a Shoot whose live migration has ended without success.
pub static ENDED_LIVE_MIGRATIONS: Watch = Watch {
    name: "ended-live-migrations",
    place: HomeCluster::Garden,
    mutating: false,
    matches: &[Match { groups: &[CORE_GROUP], resources: &["shoots"], operations: &["UPDATE", "DELETE"] }],
    rules_of: Some(&MOVING_SHOOTS),
    conditions: &[("live-migration-ended", LIVE_MIGRATION_ENDED), ("spec-or-end", ENDED_OR_SPEC)],
    failure_policy: FailurePolicy::Ignore,
    timeout_seconds: 2,
    why: "such a Shoot is mostly back at its source and free, so its writes wait for nobody",
};

/// Other versions of a Shoot one of whose zones is isolated.
pub static ISOLATED_VERSIONS: Watch = Watch {
    name: "isolated-versions",
    place: HomeCluster::Garden,
    mutating: false,
    matches: &[Match { groups: &[CORE_GROUP], resources: &["shoots"], operations: UPDATE }],
    rules_of: None,
    conditions: &[("zone-is-isolated", ISOLATED), ("versions-may-change", VERSIONS_CHANGE)],
    failure_policy: FailurePolicy::Fail,
    timeout_seconds: 2,
    why: "another version may roll the nodes that are left; neither Shoots without an isolated zone nor other changes of pools are asked about",
};

/// Creations and updates of ShootStates.
pub static SHOOT_STATES: Watch = Watch {
    name: "shootstates",
    place: HomeCluster::Garden,
    mutating: false,
    matches: &[Match { groups: &[CORE_GROUP, MIGRATION_GROUP], resources: STATES, operations: WRITES }],
    rules_of: None,
    conditions: &[],
    failure_policy: FailurePolicy::Ignore,
    timeout_seconds: 4,
    why: "a gardenlet that cannot save the state would stop a migration that runs; who may write at all is a matter of RBAC",
};

/// Deletions of ShootStates that nobody has confirmed.
pub static SHOOT_STATE_DELETIONS: Watch = Watch {
    name: "shootstate-deletions",
    place: HomeCluster::Garden,
    mutating: false,
    matches: &[Match { groups: &[CORE_GROUP, MIGRATION_GROUP], resources: STATES, operations: &["DELETE"] }],
    rules_of: None,
    conditions: &[("deletion-is-not-confirmed", DELETION_UNCONFIRMED)],
    failure_policy: FailurePolicy::Fail,
    timeout_seconds: 4,
    why: "a state that is gone cannot be restored; a confirmed deletion, also of a whole namespace, is not asked about",
};

/// New workflows on an etcd, and what controllers record.
pub static ETCD_WORKFLOWS: Watch = Watch {
    name: "etcd-workflows",
    place: HomeCluster::Seed,
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
    rules_of: None,
    conditions: &[],
    failure_policy: FailurePolicy::Ignore,
    timeout_seconds: 4,
    why: "backups go on; controllers take an etcd for one workflow at a time by themselves",
};

/// What keeps the members of an etcd together.
pub static ETCDS: Watch = Watch {
    name: "etcds",
    place: HomeCluster::Seed,
    mutating: false,
    matches: &[
        Match { groups: &[DRUID_GROUP], resources: &["etcds"], operations: ALL },
        Match { groups: &[MIGRATION_GROUP], resources: &["hostedetcds"], operations: UPDATE },
    ],
    rules_of: None,
    conditions: &[],
    failure_policy: FailurePolicy::Ignore,
    timeout_seconds: 2,
    why: "an etcd has to be repairable while Repot is down",
};

/// Who owns a control plane.
pub static OWNER_RECORDS: Watch = Watch {
    name: "owner-records",
    place: HomeCluster::Seed,
    mutating: false,
    matches: &[Match { groups: &[EXTENSIONS_GROUP], resources: &["dnsrecords"], operations: ALL }],
    rules_of: None,
    conditions: &[("owner-record", OWNER_RECORD)],
    failure_policy: FailurePolicy::Ignore,
    timeout_seconds: 2,
    why: "a forced restore, the last resort, begins with this record and must not wait for anything",
};

/// Labels and annotations of Shoots.
pub static SHOOT_DEFAULTS: Watch = Watch {
    name: "shoots",
    place: HomeCluster::Garden,
    mutating: true,
    matches: &[Match { groups: &[CORE_GROUP], resources: SHOOTS, operations: UPDATE }],
    rules_of: None,
    conditions: &[("something-to-fill-in", FILLED_IN)],
    failure_policy: FailurePolicy::Ignore,
    timeout_seconds: 2,
    why: "what is set here is a convenience and is made up for at the next write",
};

/// New ShootStates, in which the webhook fills in what is missing.
pub static SHOOT_STATE_DEFAULTS: Watch = Watch {
    name: "shootstates",
    place: HomeCluster::Garden,
    mutating: true,
    matches: &[Match { groups: &[CORE_GROUP, MIGRATION_GROUP], resources: STATES, operations: CREATE }],
    rules_of: None,
    conditions: &[],
    failure_policy: FailurePolicy::Ignore,
    timeout_seconds: 2,
    why: "a state without owner is better than none",
};

/// All webhooks, mutating ones first.
pub static WATCHES: &[&Watch] = &[
    &SHOOT_DEFAULTS,
    &SHOOT_STATE_DEFAULTS,
    &SEED_CHANGE,
    &ANNOTATION_CHANGES,
    &WITHDRAWN_MARKERS,
    &MOVING_SHOOTS,
    &CHANGED_REQUESTS,
    &ENDED_LIVE_MIGRATIONS,
    &ISOLATED_VERSIONS,
    &SHOOT_STATES,
    &SHOOT_STATE_DELETIONS,
    &ETCD_WORKFLOWS,
    &ETCDS,
    &OWNER_RECORDS,
];
