//! Other migrations of the same Shoot.

use kube::{Api, ResourceExt, api::ListParams};
use repot_plan::classic::{Side, observed::MigrationMode};

use super::{
    api::ControlPlaneMigration,
    context::Context,
    error::{Error, Result},
};

/// Migrations of the same Shoot, without this one.
///
/// # Errors
/// [`Error::Read`].
pub async fn of(context: &Context, own: &ControlPlaneMigration) -> Result<Vec<ControlPlaneMigration>> {
    let namespace = own.namespace().unwrap_or_default();
    let all = Api::<ControlPlaneMigration>::namespaced(context.garden_client().clone(), &namespace);
    let found = all.list(&ListParams::default()).await;
    let mut found = found.map_err(Error::read(format!("ControlPlaneMigrations of {namespace}")))?.items;
    let is_sibling = |other: &ControlPlaneMigration| {
        other.uid() != own.uid() && other.spec.shoot_ref.name == own.spec.shoot_ref.name
    };
    found.retain(is_sibling);
    Ok(found)
}

/// Whether a side has nothing to do any more, because a later migration of the Shoot does other things with the same seeds.
///
/// # Errors
/// [`Error::Read`].
pub async fn is_superseded(context: &Context, own: &ControlPlaneMigration, side: Side) -> Result<bool> {
    Ok(of(context, own).await?.iter().any(|other| supersedes(other, own, side)))
}

fn supersedes(other: &ControlPlaneMigration, own: &ControlPlaneMigration, side: Side) -> bool {
    let age = |one: &ControlPlaneMigration| (one.creation_timestamp(), one.uid());
    if other.was_undone() || age(other) <= age(own) {
        return false;
    }
    // Away from the same source, without it: what this one has not ended is not ended any more.
    let is_forced = other.mode() == Some(MigrationMode::Forced)
        && other.spec.source_seed == own.spec.source_seed
        && other.is_recorded();
    // Back to the source of a forced one: what is there then is not what this one was to remove.
    let comes_back = side == Side::Source
        && own.mode() == Some(MigrationMode::Forced)
        && other.spec.destination_seed == own.spec.source_seed;
    is_forced || comes_back
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn migration(uid: &str, mode: &str, (from, to): (&str, &str), second: u32) -> ControlPlaneMigration {
        let steps = json!([{"name": "MigrationRecorded", "state": "Succeeded"}]);
        serde_json::from_value(json!({
            "metadata": {"name": uid, "uid": uid, "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")},
            "spec": {"shootRef": {"name": "s"}, "sourceSeed": from, "destinationSeed": to, "mode": mode},
            "status": {"phase": "Running", "garden": {"steps": steps}},
        }))
        .expect("a migration")
    }

    #[test]
    fn later_migration_back_to_the_source_supersedes_a_forced_one() {
        let own = migration("m", "Forced", ("a", "b"), 5);
        let is_by = |other: &ControlPlaneMigration| supersedes(other, &own, Side::Source);
        assert!(is_by(&migration("n", "Classic", ("b", "a"), 6)));
        assert!(!is_by(&migration("n", "Classic", ("b", "a"), 4)));
        assert!(!is_by(&migration("n", "Classic", ("b", "c"), 6)));
        assert!(!supersedes(&migration("n", "Classic", ("b", "a"), 6), &own, Side::Garden));
        let mut undone = migration("n", "Classic", ("b", "a"), 6);
        undone.status.insert("phase".to_owned(), "RolledBack".into());
        assert!(!is_by(&undone));
    }

    #[test]
    fn forced_migration_from_the_same_source_supersedes_what_was_not_ended() {
        let own = migration("m", "Classic", ("a", "b"), 5);
        for side in [Side::Garden, Side::Source, Side::Destination] {
            assert!(supersedes(&migration("n", "Forced", ("a", "c"), 6), &own, side), "{side}");
            assert!(!supersedes(&migration("n", "Classic", ("a", "c"), 6), &own, side), "{side}");
        }
        let mut new = migration("n", "Forced", ("a", "c"), 6);
        new.status.clear();
        assert!(!supersedes(&new, &own, Side::Source), "it has recorded nothing");
    }
}
