//! Every rule, one row each. Webhook configurations, the catalogue in the docs and metrics are made from this table.

use crate::{
    change::Change,
    default,
    facts::Facts,
    finding::{Finding, PatchOp},
    forced, isolation, live, migration, state,
    watch::{
        ANNOTATION_CHANGES, ETCD_WORKFLOWS, ETCDS, ISOLATED_VERSIONS, MOVING_SHOOTS, OWNER_RECORDS,
        SEED_CHANGE, SHOOT_DEFAULTS, SHOOT_STATE_DEFAULTS, SHOOT_STATE_DELETIONS, SHOOT_STATES, Watch,
    },
};

/// What a rule does.
#[derive(Clone, Copy)]
pub enum Judge {
    /// Finds what is wrong with a change.
    Validate(fn(&Change, &Facts) -> Vec<Finding>),
    /// Changes the object.
    Mutate(fn(&Change, &Facts) -> Vec<PatchOp>),
}

/// A rule of admission: one row of the table.
pub struct Rule {
    /// Its name, in findings, metrics and docs.
    pub name: &'static str,
    /// The chapter it belongs to: a heading of the catalogue.
    pub chapter: &'static str,
    /// The webhooks that ask it.
    pub watches: &'static [&'static Watch],
    /// What it is for, in one sentence.
    pub doc: &'static str,
    /// The function that judges or changes the object.
    pub judge: Judge,
}

const MIGRATION: &str = "Migration (GEP-7)";
const LIVE: &str = "Live migration (GEP-39)";
const ISOLATION: &str = "Isolated zone (GEP-21)";
const FORCED: &str = "Forced migration (GEP-7, bad case)";
const STATE: &str = "ShootState, etcd and its workflows";
const DEFAULTS: &str = "What is filled in";

const fn rule(
    name: &'static str,
    chapter: &'static str,
    watches: &'static [&'static Watch],
    judge: fn(&Change, &Facts) -> Vec<Finding>,
    doc: &'static str,
) -> Rule {
    Rule { name, chapter, watches, doc, judge: Judge::Validate(judge) }
}

const fn fill(
    name: &'static str,
    watches: &'static [&'static Watch],
    judge: fn(&Change, &Facts) -> Vec<PatchOp>,
    doc: &'static str,
) -> Rule {
    Rule { name, chapter: DEFAULTS, watches, doc, judge: Judge::Mutate(judge) }
}

/// All rules. Those that change objects run in this order.
#[rustfmt::skip]
pub static RULES: &[Rule] = &[
    rule("created-first", MIGRATION, &[&SEED_CHANGE], migration::created_first::judge,
        "A Shoot moves only after it was created: `status.seedName` is set and the creation has succeeded."),
    rule("binding-only", MIGRATION, &[&SEED_CHANGE], migration::binding_only::judge,
        "Where the cluster has the subresource `shoots/binding`, the seed is changed through it."),
    rule("seed-alone", MIGRATION, &[&SEED_CHANGE], migration::seed_alone::judge,
        "Together with the seed of a Shoot that has one nothing else of the spec changes."),
    rule("seed-stays-named", MIGRATION, &[&SEED_CHANGE], migration::seed_stays_named::judge,
        "A Shoot that has a seed keeps one."),
    rule("different-seed", MIGRATION, &[&SEED_CHANGE], migration::different_seed::judge,
        "A binding names another seed than the one that is set."),
    rule("destination-exists", MIGRATION, &[&SEED_CHANGE], migration::destination_exists::judge,
        "The destination seed exists and is not being deleted."),
    rule("destination-healthy", MIGRATION, &[&SEED_CHANGE], migration::destination_healthy::judge,
        "The destination's gardenlet is ready and up to date, its system components are healthy, its backup buckets are ready, its \
         extensions are not known to fail, and its reconciliations are not stopped; a source that is not healthy is warned of."),
    rule("same-gardenlet-version", MIGRATION, &[&SEED_CHANGE], migration::same_gardenlet_version::judge,
        "Source and destination run the same version of gardenlet, and both tell it; of a source that is dead only a warning comes."),
    rule("taints-tolerated", MIGRATION, &[&SEED_CHANGE], migration::taints_tolerated::judge,
        "The Shoot tolerates all taints of the destination."),
    rule("destination-has-capacity", MIGRATION, &[&SEED_CHANGE], migration::destination_has_capacity::judge,
        "The destination has room: `status.allocatable.shoots` is more than the Shoots that it has or that are on their way to it."),
    rule("provider-and-labels", MIGRATION, &[&SEED_CHANGE], migration::provider_and_labels::judge,
        "The CloudProfile's `seedSelector` allows the destination's provider and labels; another provider than the Shoot's is \
         warned of where it says nothing."),
    rule("region-offered", MIGRATION, &[&SEED_CHANGE], migration::region_offered::judge,
        "The region of the Shoot is one of its CloudProfile's."),
    rule("access-restrictions", MIGRATION, &[&SEED_CHANGE], migration::access_restrictions::judge,
        "The destination supports the access restrictions of the Shoot."),
    rule("backup-configured", MIGRATION, &[&SEED_CHANGE], migration::backup_configured::judge,
        "Both seeds have a backup configured."),
    rule("internal-domain", MIGRATION, &[&SEED_CHANGE], migration::internal_domain::judge,
        "The internal domain is the same on both seeds."),
    rule("default-domain", MIGRATION, &[&SEED_CHANGE], migration::default_domain::judge,
        "A default domain that the Shoot uses is one of the destination's."),
    rule("enough-zones", MIGRATION, &[&SEED_CHANGE], migration::enough_zones::judge,
        "A control plane that tolerates the failure of a zone moves to a seed with at least three."),
    rule("pinned-zones", MIGRATION, &[&SEED_CHANGE], migration::pinned_zones::judge,
        "Zones to which the control plane is pinned are zones of the destination."),
    rule("networks-disjoint", MIGRATION, &[&SEED_CHANGE], migration::networks_disjoint::judge,
        "IPv6 networks of the Shoot do not overlap with those of the destination."),
    rule("rotation-settled", MIGRATION, &[&SEED_CHANGE], migration::rotation_settled::judge,
        "No rotation of credentials is being prepared or completed; one that waits for workers, or whose seed is dead, is warned of."),
    rule("one-migration", MIGRATION, &[&SEED_CHANGE], migration::one_migration::judge,
        "A Shoot on its way is not sent elsewhere, and not back. It may go back before its move has begun while Gardener calls the \
         destination unfit (constraint `ReadyForMigration`); a destination that is dead may be left at any time, with \
         `confirmation.gardener.cloud/leave-destination` that names it."),
    rule("no-move-while-deleted", MIGRATION, &[&SEED_CHANGE], migration::no_move_while_deleted::judge,
        "A Shoot that is being deleted does not move."),
    rule("ha-reconciled", MIGRATION, &[&SEED_CHANGE], migration::ha_reconciled::judge,
        "A highly available Shoot moves after gardenlet has seen its latest spec (`status.observedGeneration`); one whose source is \
         dead may go before, and so may one that gardenlet ignores for a ControlPlaneMigration."),
    rule("no-bastions", MIGRATION, &[&SEED_CHANGE], migration::no_bastions::judge,
        "No Bastion of the Shoot is left, for gardenlet does not migrate before; one whose source is dead may go."),
    rule("no-leftover-markers", MIGRATION, &[&SEED_CHANGE], migration::no_leftover_markers::judge,
        "No annotation that steered an earlier migration is left when the next one begins."),
    rule("requested-at-true", MIGRATION, &[&SEED_CHANGE, &ANNOTATION_CHANGES, &MOVING_SHOOTS], migration::requested_at_true::judge,
        "`migration.gardener.cloud/requested-at` is the time of the request, within 5 minutes, and stays while the Shoot moves."),
    rule("spec-immutable-while-migrating", MIGRATION, &[&MOVING_SHOOTS], migration::spec_immutable_while_migrating::judge,
        "The spec does not change while the Shoot moves."),
    rule("no-deletion-while-migrating", MIGRATION, &[&MOVING_SHOOTS], migration::no_deletion_while_migrating::judge,
        "A Shoot is not deleted while it moves. One whose move has not begun may be, and the deletion of one that is being deleted already goes on."),

    rule("live-trigger-clear", LIVE, &[&SEED_CHANGE, &ANNOTATION_CHANGES], live::trigger_clear::judge,
        "The two spellings of the trigger say the same, and the boolean is one."),
    rule("live-trigger-in-time", LIVE, &[&ANNOTATION_CHANGES], live::trigger_in_time::judge,
        "The trigger is set on a Shoot that exists, and not in the middle of another migration."),
    rule("live-trigger-kept", LIVE, &[&MOVING_SHOOTS], live::trigger_kept::judge,
        "The trigger stays while a live migration runs, unless it was called off."),
    rule("live-highly-available", LIVE, &[&SEED_CHANGE, &ANNOTATION_CHANGES], live::highly_available::judge,
        "Only highly available control planes are migrated live."),
    rule("live-awake", LIVE, &[&SEED_CHANGE, &ANNOTATION_CHANGES], live::awake::judge,
        "Hibernated Shoots, and those that go to sleep or wake up, are not migrated live."),
    rule("live-same-provider", LIVE, &[&SEED_CHANGE], live::same_provider::judge,
        "A live migration stays with one provider."),
    rule("live-source-healthy", LIVE, &[&SEED_CHANGE], live::source_healthy::judge,
        "The source is healthy, too."),
    rule("live-distance", LIVE, &[&SEED_CHANGE], live::distance::judge,
        "The distance between the seeds' regions, by the scheduler's region ConfigMap, is known and not greater than the thresholds of \
         both annotations and, beside Gardener, its default of 180, unless `migration.gardener.cloud/allow-distant-regions` allows it."),
    rule("live-permission-readable", LIVE, &[&ANNOTATION_CHANGES], live::permission_readable::judge,
        "`migration.gardener.cloud/allow-distant-regions` is a boolean."),
    rule("live-no-other-operation", LIVE, &[&SEED_CHANGE, &ANNOTATION_CHANGES, &MOVING_SHOOTS], live::no_other_operation::judge,
        "The trigger is not combined with other operations, and none is asked for while a live migration runs but `retry` when it has failed."),
    rule("live-abort-in-time", LIVE, &[&ANNOTATION_CHANGES], live::abort_in_time::judge,
        "A live migration is called off while its step `SixMemberETCDReady` (Gardener's condition `DestinationEtcdPeersJoined`) \
         has failed; by `force` until the first source member is removed."),
    rule("live-back-after-abort", LIVE, &[&SEED_CHANGE], live::back_after_abort::judge,
        "The seed goes back to the source only when the live migration was called off, and no source member is being removed; or \
         before it has begun, while Gardener calls the destination unfit; or with `confirmation.gardener.cloud/leave-destination` when the destination is dead."),
    rule("live-shrink-in-need", LIVE, &[&ANNOTATION_CHANGES], live::shrink_in_need::judge,
        "`migration.gardener.cloud/force-shrink-etcd` is set only when the members have joined and the destination's API servers \
         failed to come up."),

    rule("zone-form", ISOLATION, &[&ANNOTATION_CHANGES], isolation::zone_form::judge,
        "The isolated zone looks like the id of one zone."),
    rule("zone-used", ISOLATION, &[&ANNOTATION_CHANGES], isolation::zone_used::judge,
        "The isolated zone is one of the workers'; one that nobody knows needs `confirmation.gardener.cloud/isolated-zone` with its id."),
    rule("zone-fixed", ISOLATION, &[&ANNOTATION_CHANGES], isolation::zone_fixed::judge,
        "The isolated zone is set and removed, never changed, also while `status.zoneIsolation` fails back."),
    rule("zones-left", ISOLATION, &[&ANNOTATION_CHANGES], isolation::zones_left::judge,
        "Workers have a zone left; a worker pool that has none, and a control plane that seems to have none, are warned of."),
    rule("no-isolation-while-migrating", ISOLATION, &[&ANNOTATION_CHANGES], isolation::no_isolation_while_migrating::judge,
        "No zone is isolated while the Shoot moves or is being deleted."),
    rule("no-move-while-isolated", ISOLATION, &[&SEED_CHANGE], isolation::no_move_while_isolated::judge,
        "No Shoot moves while one of its zones is isolated or fails back; one whose source is dead may."),
    rule("no-maintenance-while-isolated", ISOLATION, &[&ANNOTATION_CHANGES], isolation::no_maintenance_while_isolated::judge,
        "No maintenance is asked for while a zone is isolated; persons may rotate credentials."),
    rule("versions-kept-while-isolated", ISOLATION, &[&ISOLATED_VERSIONS], isolation::versions_kept_while_isolated::judge,
        "Minor versions of Kubernetes and machine images stay while a zone is isolated, and maintenance changes no patch version either."),
    rule("isolation-reconciled", ISOLATION, &[&ANNOTATION_CHANGES], isolation::isolation_reconciled::judge,
        "An isolation that begins or ends without a reconciliation is warned of."),

    rule("forced-restore", FORCED, &[&ANNOTATION_CHANGES], forced::restore::judge,
        "A restore is forced only with the confirmation that names the source, and only when the source does not answer or its half \
         of the migration is Failed, or has been in Error for 30 minutes."),
    rule("force-permitted", FORCED, &[&SEED_CHANGE, &ANNOTATION_CHANGES], forced::permitted::judge,
        "An annotation that gives up data or availability (a forced restore, `abort-live-migration=force`, `force-shrink-etcd`, the \
         leaving of a destination) needs the verb `force-migration` on the Shoot."),
    rule("owner-record", FORCED, &[&OWNER_RECORDS], forced::owner_record::judge,
        "Records of ownership are changed by controllers."),

    rule("state-writer", STATE, &[&SHOOT_STATES], state::writer::judge,
        "A ShootState is written by the gardenlets of source and destination, and by controllers."),
    rule("state-deletion-confirmed", STATE, &[&SHOOT_STATE_DELETIONS], state::deletion_confirmed::judge,
        "Whoever deletes a ShootState has confirmed it: a person always, and the controller that empties namespaces while the \
         Shoot exists."),
    rule("one-workflow", STATE, &[&ETCD_WORKFLOWS], state::one_workflow::judge,
        "No EtcdRestore or EtcdMigration begins on an etcd that is in use; a backup waits."),
    rule("workflow-lock", STATE, &[&ETCD_WORKFLOWS], state::workflow_lock::judge,
        "`status.currentWorkflow` of a HostedEtcd is cleared before another workflow takes it."),
    rule("workflow-status", STATE, &[&ETCD_WORKFLOWS], state::workflow_status::judge,
        "The status of a HostedEtcd and of workflows is written by controllers."),
    rule("etcd-lifecycle", STATE, &[&ETCDS], state::etcd_lifecycle::judge,
        "Annotations that steer the life of an etcd are set by controllers; everybody may remove them, and set \
         `migration.gardener.cloud/without-gateways`."),
    rule("etcd-membership", STATE, &[&ETCDS], state::etcd_membership::judge,
        "Fields of an Etcd that decide which members form one cluster are changed by controllers."),
    rule("etcd-handing-over", STATE, &[&ETCDS], state::etcd_handing_over::judge,
        "An Etcd whose members are taking over from those of another seed, or whose members are needed by others for a quorum \
         (`status.unknownMembers.dependOnOwn`), is deleted only with `confirmation.gardener.cloud/deletion=true`, or with its namespace."),
    rule("etcd-in-use", STATE, &[&ETCDS], state::etcd_in_use::judge,
        "An Etcd that a workflow works on, by `status.currentWorkflow` of its HostedEtcd, is deleted only with \
         `confirmation.gardener.cloud/deletion=true`, or with its namespace."),
    rule("etcd-version", STATE, &[&ETCDS], state::etcd_version::judge,
        "`skipClientSANVerification` comes with a warning: it needs etcd 3.6 or later."),

    fill("fill-trigger", &[&SHOOT_DEFAULTS], default::trigger::judge,
        "`gardener.cloud/operation=live-migrate` becomes `migration.gardener.cloud/live-migrate=true`."),
    fill("fill-reconcile", &[&SHOOT_DEFAULTS], default::reconcile::judge,
        "An isolation that begins or ends gets `gardener.cloud/operation=reconcile`, where no other operation is set."),
    fill("fill-requested-at", &[&SHOOT_DEFAULTS], default::requested_at::judge,
        "A migration that begins gets `migration.gardener.cloud/requested-at`."),
    fill("clear-markers", &[&SHOOT_DEFAULTS], default::clear_markers::judge,
        "Annotations that steered a migration are removed at the first write after its end."),
    fill("fill-seed-labels", &[&SHOOT_DEFAULTS], default::seed_labels::judge,
        "A label `name.seed.gardener.cloud/<seed>` for the seed of the spec and that of the status, and no other."),
    fill("fill-state-owner", &[&SHOOT_STATE_DEFAULTS], default::state_owner::judge,
        "A new ShootState belongs to its Shoot."),
    fill("fill-state-timestamp", &[&SHOOT_STATE_DEFAULTS], default::state_timestamp::judge,
        "A new ShootState tells when it was written."),
];
