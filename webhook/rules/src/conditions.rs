//! In CEL: about which writes a webhook is asked, of those that its rows in [`crate::watch`] match.

// A condition that breaks on some object counts as a failure of its webhook, and one that fails closed then refuses whatever was
// asked: so each field that may be missing is read by `?`, those of the request, too.
macro_rules! annotations {
    () => {
        "object.?metadata.?annotations.orValue({})"
    };
}
/// Whether this write sets annotation `k` of the object, or changes it.
macro_rules! sets_k {
    () => {
        "(request.operation == \"CREATE\" \
         || !(k in oldObject.?metadata.?annotations.orValue({})) \
         || oldObject.metadata.annotations[k] != object.metadata.annotations[k])"
    };
}
/// Annotations that start, stop or steer something whatever else is true of the Shoot.
macro_rules! k_steers {
    () => {
        "((k.startsWith(\"migration.gardener.cloud/\") || k in [\"shoot.gardener.cloud/isolated-zone\", \
         \"shoot.gardener.cloud/force-restore\", \"confirmation.gardener.cloud/leave-destination\", \
         \"migration.shoot.gardener.cloud/abort-live-migration\"]))"
    };
}
macro_rules! k_says_no {
    () => {
        // A destination may have such a name.
        "(k != \"confirmation.gardener.cloud/leave-destination\" && object.metadata.annotations[k] in [\"0\", \"f\", \"F\", \"false\", \"FALSE\", \"False\"])"
    };
}
/// Whether the Shoot was between two seeds before this write.
macro_rules! moves {
    () => {
        "(has(oldObject.spec) && has(oldObject.status) && oldObject.?status.?seedName.orValue(\"\") != \"\" \
         && oldObject.?spec.?seedName.orValue(\"\") != oldObject.?status.?seedName.orValue(\"\") \
         || oldObject.?status.?lastOperation.?type.orValue(\"\") == \"Migrate\" \
         || oldObject.?status.?lastOperation.?type.orValue(\"\") in [\"Restore\", \"LiveMigrate\"] \
         && oldObject.?status.?lastOperation.?state.orValue(\"\") != \"Succeeded\")"
    };
}
/// Whether a live migration has ended without success and both seeds are one: mostly the Shoot is back at its source, and free.
macro_rules! live_migration_ended {
    () => {
        "(oldObject.?status.?lastOperation.?type.orValue(\"\") == \"LiveMigrate\" \
         && oldObject.?status.?lastOperation.?state.orValue(\"\") in [\"Failed\", \"Aborted\"] \
         && oldObject.?spec.?seedName.orValue(\"\") == oldObject.?status.?seedName.orValue(\"\"))"
    };
}
macro_rules! k_is_operation {
    () => {
        "(k in [\"gardener.cloud/operation\", \"maintenance.gardener.cloud/operation\"])"
    };
}
macro_rules! seed_changes {
    () => {
        "(oldObject.?spec.?seedName.orValue(\"\") != \"\" \
         && object.?spec.?seedName.orValue(\"\") != oldObject.?spec.?seedName.orValue(\"\"))"
    };
}
/// A first seed is the scheduler's work, and Gardener's plugins fill in what follows from it: neither is asked about.
pub(crate) const SEED_CHANGES: &str = seed_changes!();
pub(crate) const MARKER_SET: &str = concat!(
    annotations!(),
    ".exists(k, ",
    sets_k!(),
    " && (",
    k_steers!(),
    " && !",
    k_says_no!(),
    // Every Shoot is asked for reconciliation, maintenance and rotation; these matter only where they may be in the way.
    " || ",
    k_is_operation!(),
    " && (object.metadata.annotations[k].contains(\"live-migrate\") \
     || \"shoot.gardener.cloud/isolated-zone\" in object.metadata.annotations \
     || object.?status.?zoneIsolation.?phase.orValue(\"\") == \"Failback\" \
     && object.?status.?zoneIsolation.?status.orValue(\"\") != \"Done\" \
     || request.operation == \"UPDATE\" && ",
    moves!(),
    ")))"
);
pub(crate) const MARKER_WITHDRAWN: &str = concat!(
    annotations!(),
    ".exists(k, ",
    sets_k!(),
    " && ",
    k_steers!(),
    " && ",
    k_says_no!(),
    // The end of an isolation needs a reconciliation as much as its beginning.
    ") || request.operation == \"UPDATE\" \
     && \"shoot.gardener.cloud/isolated-zone\" in oldObject.?metadata.?annotations.orValue({}) \
     && !(\"shoot.gardener.cloud/isolated-zone\" in object.?metadata.?annotations.orValue({}))"
);
pub(crate) const MOVING: &str = concat!(moves!(), " && !", live_migration_ended!());
pub(crate) const LIVE_MIGRATION_ENDED: &str = live_migration_ended!();
/// Whether the trigger of a live migration or the time of the request for a migration is set, changed or removed.
macro_rules! request_changes {
    () => {
        "(object.?metadata.?annotations.orValue({})[?\"migration.gardener.cloud/live-migrate\"].orValue(\"\") \
         != oldObject.?metadata.?annotations.orValue({})[?\"migration.gardener.cloud/live-migrate\"].orValue(\"\") \
         || object.?metadata.?annotations.orValue({})[?\"migration.gardener.cloud/requested-at\"].orValue(\"\") \
         != oldObject.?metadata.?annotations.orValue({})[?\"migration.gardener.cloud/requested-at\"].orValue(\"\"))"
    };
}
pub(crate) const REQUEST_CHANGES: &str = request_changes!();
/// What the mutating rules of Shoots act on. Any other write is not shown to them, and waits for nobody.
pub(crate) const FILLED_IN: &str = concat!(
    seed_changes!(),
    // A trigger, in either spelling.
    " || object.?metadata.?annotations.orValue({})[?\"gardener.cloud/operation\"].orValue(\"\").contains(\"live-migrate\") \
     || object.?metadata.?annotations.orValue({})[?\"migration.gardener.cloud/live-migrate\"].orValue(\"\") \
     != oldObject.?metadata.?annotations.orValue({})[?\"migration.gardener.cloud/live-migrate\"].orValue(\"\")",
    // An isolation that begins or ends.
    " || object.?metadata.?annotations.orValue({})[?\"shoot.gardener.cloud/isolated-zone\"].orValue(\"\") \
     != oldObject.?metadata.?annotations.orValue({})[?\"shoot.gardener.cloud/isolated-zone\"].orValue(\"\")",
    // A migration that is over.
    " || \"migration.gardener.cloud/requested-at\" in oldObject.?metadata.?annotations.orValue({}) \
     && oldObject.?spec.?seedName.orValue(\"\") == oldObject.?status.?seedName.orValue(\"\") \
     && oldObject.?status.?lastOperation.?state.orValue(\"\") == \"Succeeded\"",
    // Labels of seeds that are missing or left over.
    " || oldObject.?spec.?seedName.orValue(\"\") != \"\" \
     && (!((\"name.seed.gardener.cloud/\" + oldObject.spec.seedName) in object.?metadata.?labels.orValue({})) \
     || object.metadata.labels.exists(l, l.startsWith(\"name.seed.gardener.cloud/\") \
     && l != \"name.seed.gardener.cloud/\" + object.?spec.?seedName.orValue(\"\") \
     && l != \"name.seed.gardener.cloud/\" + oldObject.?status.?seedName.orValue(\"\")))"
);
pub(crate) const DELETION_UNCONFIRMED: &str = "!has(oldObject.metadata.deletionTimestamp) \
     && !(oldObject.?metadata.?annotations.orValue({})[?\"confirmation.gardener.cloud/deletion\"].orValue(\"\") \
     in [\"1\", \"t\", \"T\", \"true\", \"TRUE\", \"True\"])";
// gardener-apiserver takes `operation=reconcile` away before validating webhooks are asked: only the generation tells of it. `retry`
// after a failure and a forced deletion raise it, too, and wait for nobody.
pub(crate) const ENDED_OR_SPEC: &str = concat!(
    "request.operation == \"DELETE\" || object.?spec.orValue({}) != oldObject.?spec.orValue({}) || ",
    request_changes!(),
    " || object.?metadata.?generation.orValue(0) != oldObject.?metadata.?generation.orValue(0) \
     && !has(oldObject.metadata.deletionTimestamp) \
     && oldObject.?status.?lastOperation.?state.orValue(\"\") != \"Failed\" \
     && (\"migration.gardener.cloud/live-migrate\" in oldObject.?metadata.?annotations.orValue({}) \
     || oldObject.?status.?lastOperation.?type.orValue(\"\") == \"LiveMigrate\")"
);
/// Whether a zone of the Shoot is isolated, or fails back.
pub(crate) const ISOLATED: &str = "object.?metadata.?annotations.orValue({})[?\"shoot.gardener.cloud/isolated-zone\"].orValue(\"\") != \"\" \
     || object.?status.?zoneIsolation.?isolatedZoneID.orValue(\"\") != \"\" \
     && !(object.?status.?zoneIsolation.?phase.orValue(\"\") == \"Failback\" \
     && object.?status.?zoneIsolation.?status.orValue(\"\") == \"Done\")";
macro_rules! pool_versions {
    ($object:literal) => {
        concat!(
            $object,
            ".?spec.?provider.?workers.orValue([]).map(w, [w.?name.orValue(\"\"), w.?machine.?image.?name.orValue(\"\"), \
             w.?machine.?image.?version.orValue(\"\"), w.?kubernetes.?version.orValue(\"\")])"
        )
    };
}
/// Pools have versions of their own. Everything else of a pool may be what an isolation waits for, such as a higher maximum.
pub(crate) const VERSIONS_CHANGE: &str = concat!(
    "object.?spec.?kubernetes.?version.orValue(\"\") != oldObject.?spec.?kubernetes.?version.orValue(\"\") || ",
    pool_versions!("object"),
    " != ",
    pool_versions!("oldObject")
);
pub(crate) const OWNER_RECORD: &str = "[object, oldObject].exists(o, o != null && o.?spec.?recordType.orValue(\"\") == \"TXT\" \
     && o.?spec.?name.orValue(\"\").startsWith(\"owner.\"))";
