//! Other migrations of the same Shoot: which of them stand in the way, and which go on in place of others.
//!
//! A forced migration supersedes those that have not left the same source. It writes so into their status first, under the version
//! that it has read. Each side records its steps under that version as well, so none of them starts a step afterwards.

use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use repot_api::conditions::Reason;
use repot_plan::migration::{
    Side,
    observed::{MigrationMode, SupersededMigration},
};
use serde_json::json;

use super::{
    api::{CONTINUED_BY, ControlPlaneMigration, SUPERSEDED_BY},
    context::Context,
    destination::prepare::is_made_by,
    error::{Error, Result},
    names::MANAGER,
    seed::namespace,
};

fn all(context: &Context, own: &ControlPlaneMigration) -> Api<ControlPlaneMigration> {
    Api::namespaced(context.garden_client().clone(), &own.namespace().unwrap_or_default())
}

/// Migrations of the same Shoot, without this one.
///
/// # Errors
/// [`Error::Read`].
pub async fn of(context: &Context, own: &ControlPlaneMigration) -> Result<Vec<ControlPlaneMigration>> {
    let found = all(context, own).list(&ListParams::default()).await;
    let what = || format!("ControlPlaneMigrations of {}", own.namespace().unwrap_or_default());
    let mut found = found.map_err(|source| Error::read(what())(source))?.items;
    let is_sibling = |other: &ControlPlaneMigration| {
        other.uid() != own.uid() && other.spec.shoot_ref.name == own.spec.shoot_ref.name
    };
    found.retain(is_sibling);
    Ok(found)
}

/// The UIDs of these migrations.
#[must_use]
pub fn uids(migrations: &[ControlPlaneMigration]) -> Vec<String> {
    migrations.iter().filter_map(ResourceExt::uid).collect()
}

fn is_earlier(one: &ControlPlaneMigration, other: &ControlPlaneMigration) -> bool {
    let age = |one: &ControlPlaneMigration| (one.creation_timestamp(), one.uid());
    age(one) < age(other)
}

/// The migration that has to end before this one begins, if there is one.
#[must_use]
pub fn obstacle(others: &[ControlPlaneMigration], own: &ControlPlaneMigration) -> Option<String> {
    let is_obstacle = |other: &&ControlPlaneMigration| match own.mode() {
        // What clients have written at the destination of another one is not in the bucket of the source.
        Some(MigrationMode::Forced) if other.has_committed() => {
            let may_have_more = !other.has_moved_status() && other.spec.source_seed == own.spec.source_seed;
            let has_ended = other.has_ended() || other.has_side_succeeded(Side::Garden);
            may_have_more || !has_ended && !can_be_continued(other, own)
        }
        Some(MigrationMode::Forced) => !has_ended_in_garden(other) && !can_be_superseded(other, own),
        Some(MigrationMode::Classic | MigrationMode::Live) | None => {
            !other.has_ended() && other.superseded_by().is_none() && other.continued_by().is_none()
        }
    };
    let mut earlier = others.iter().filter(|other| is_earlier(other, own));
    earlier.find(is_obstacle).map(ResourceExt::name_any)
}

/// A later migration, which has begun, unless it has left everything as it was.
#[must_use]
pub fn follower(others: &[ControlPlaneMigration], own: &ControlPlaneMigration) -> Option<String> {
    // A rollback that restored the etcd of its source has given it another volume, and clients have written since.
    let has_left_nothing = |other: &ControlPlaneMigration| is_back(other) && !other.has_ended_ownership();
    let mut later = others.iter().filter(|other| is_earlier(own, other));
    later.find(|other| !has_left_nothing(other)).map(ResourceExt::name_any)
}

/// A forced migration does not wait for a source that never ends its part.
fn has_ended_in_garden(one: &ControlPlaneMigration) -> bool {
    one.has_ended() || one.has_side_ended(Side::Garden)
}

/// Whether nothing is lost when a forced migration goes on in place of another one, from the same source.
fn can_be_superseded(other: &ControlPlaneMigration, own: &ControlPlaneMigration) -> bool {
    own.mode() == Some(MigrationMode::Forced)
        && other.mode().is_some()
        && other.spec.source_seed == own.spec.source_seed
        && is_earlier(other, own)
        && !other.has_committed()
}

/// Whether a forced migration goes on from the destination of another one, which was committed there and may be dead now. By then the
/// source of that one has stored all that it had, and nobody there acts on the infrastructure.
fn can_be_continued(other: &ControlPlaneMigration, own: &ControlPlaneMigration) -> bool {
    own.mode() == Some(MigrationMode::Forced)
        && other.mode().is_some()
        && other.spec.destination_seed == own.spec.source_seed
        && is_earlier(other, own)
        && other.has_committed()
        && other.has_moved_status()
        && (other.is_source_done() || other.has_failed())
}

/// Whether a migration goes on, or may be tried again.
fn may_go_on(one: &ControlPlaneMigration) -> bool {
    !one.has_ended() || one.has_failed()
}

/// Migrations that this one supersedes or continues. All of them that go on, or may be tried again, are told so, since each side of them
/// that comes back would act on the same Shoot. Then they are in the way until their garden and the own destination have nothing left to
/// do for them: a destination that does not answer is not waited for, unless this migration leads there.
#[must_use]
pub fn in_the_way(others: &[ControlPlaneMigration], own: &ControlPlaneMigration) -> Vec<SupersededMigration> {
    let is_in_the_way = |other: &&ControlPlaneMigration| {
        let is_removed = other.has_side_ended(Side::Destination)
            || other.spec.destination_seed != own.spec.destination_seed;
        let is_waited_for = !other.has_side_ended(Side::Garden) || !is_removed;
        let is_open = other.superseded_by().is_none() || is_waited_for;
        can_be_superseded(other, own) && may_go_on(other) && is_open
    };
    let is_continued = |other: &&ControlPlaneMigration| {
        let is_open = other.continued_by().is_none() || !other.has_side_ended(Side::Garden);
        can_be_continued(other, own) && may_go_on(other) && is_open
    };
    let found = others.iter().filter(|other| is_in_the_way(other) || is_continued(other));
    let is_told = |other: &ControlPlaneMigration| other.superseded_by().or(other.continued_by()).is_some();
    found.map(|other| SupersededMigration { name: other.name_any(), is_told: is_told(other) }).collect()
}

/// Writes into the status of the others that this migration supersedes or continues them. Nothing takes that back: a side that was dead
/// may see it long after this migration is deleted.
///
/// # Errors
/// [`Error`]; a conflict where one of them went on meanwhile. The next pass looks again.
pub async fn supersede(context: &Context, own: &ControlPlaneMigration) -> Result<()> {
    let all = all(context, own);
    let current = all.get_opt(&own.name_any()).await;
    let current = current.map_err(Error::read("the own ControlPlaneMigration"))?;
    // A process that stood still since it decided this must not end others for a migration that has ended.
    let goes_on = |current: &ControlPlaneMigration| {
        current.uid() == own.uid()
            && current.metadata.deletion_timestamp.is_none()
            && !current.has_side_ended(Side::Garden)
    };
    if !current.as_ref().is_some_and(goes_on) {
        return Ok(());
    }
    let others = of(context, own).await?;
    let untold = in_the_way(&others, own).into_iter().filter(|other| !other.is_told);
    for name in untold.map(|other| other.name) {
        let Some(other) = others.iter().find(|other| other.name_any() == name) else { continue };
        let field = if can_be_continued(other, own) { CONTINUED_BY } else { SUPERSEDED_BY };
        let patch = json!({
            "metadata": {"resourceVersion": other.resource_version()},
            "status": {field: own.name_any()},
        });
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let outcome = all.patch_status(&name, &params, &Patch::Merge(patch)).await;
        outcome.map_err(Error::write(format!("supersede ControlPlaneMigration {name}")))?;
    }
    Ok(())
}

/// Why a side has nothing to do any more but to undo what it has made: another migration goes on in place of this one, or a later one
/// has brought the control plane back to the source of a forced one, so that what is there is not what this one was to remove.
///
/// # Errors
/// [`Error::Read`].
pub async fn superseded(
    context: &Context,
    own: &ControlPlaneMigration,
    side: Side,
    namespace: Option<&str>,
) -> Result<Option<Reason>> {
    let why = |name: &str| Reason::new("Superseded", format!("{name} goes on in place of this migration"));
    if let Some(name) = own.superseded_by() {
        return Ok(Some(why(name)));
    }
    let may_be_left = own.mode() == Some(MigrationMode::Forced) || own.continued_by().is_some();
    if side != Side::Source || !may_be_left {
        return Ok(None);
    }
    let mut later = of(context, own).await?;
    later.retain(|other| comes_back(other, own));
    let Some(namespace) = namespace.filter(|_| !later.is_empty()) else { return Ok(None) };
    let found = namespace::find(context.own_client(), namespace).await?;
    let has_made = |other: &&ControlPlaneMigration| {
        found.as_ref().is_some_and(|found| is_made_by(found, &other.uid().unwrap_or_default()))
    };
    Ok(later.iter().find(has_made).map(|other| why(&other.name_any())))
}

/// Whether a migration has ended with everything as it was before.
fn is_back(one: &ControlPlaneMigration) -> bool {
    matches!(one.phase(), Some("RolledBack" | "Cancelled"))
}

/// Whether another migration of the Shoot was created after this one.
///
/// # Errors
/// [`Error::Read`].
pub async fn is_followed(context: &Context, own: &ControlPlaneMigration) -> Result<bool> {
    Ok(of(context, own).await?.iter().any(|other| is_earlier(own, other)))
}

fn comes_back(other: &ControlPlaneMigration, own: &ControlPlaneMigration) -> bool {
    is_earlier(own, other) && other.spec.destination_seed == own.spec.source_seed
}

#[cfg(test)]
mod tests {
    use repot_api::names::CONFIRM_SOURCE_STOPPED;
    use serde_json::{Value, json};

    use super::*;

    /// One that was created at `second`.
    fn migration(name: &str, mode: &str, (from, to): (&str, &str), second: u32) -> ControlPlaneMigration {
        let created = format!("2026-01-01T00:00:{second:02}Z");
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": name, "creationTimestamp": created},
            "spec": {"shootRef": {"name": "s"}, "sourceSeed": from, "destinationSeed": to, "mode": mode},
            "status": {"phase": "Running", "garden": {"phase": "Running"}},
        }))
        .expect("a migration")
    }

    fn with(mut one: ControlPlaneMigration, field: &str, value: Value) -> ControlPlaneMigration {
        one.status.insert(field.to_owned(), value);
        one
    }

    fn committed(one: ControlPlaneMigration) -> ControlPlaneMigration {
        let step = json!({"name": "MoveCommitted", "state": "Running", "startTime": "2026-01-01T00:01:00Z"});
        with(one, "destination", json!({"phase": "Running", "steps": [step]}))
    }

    fn moved(one: ControlPlaneMigration) -> ControlPlaneMigration {
        let step = json!({"name": "StatusMoved", "state": "Succeeded"});
        with(committed(one), "garden", json!({"phase": "Running", "steps": [step]}))
    }

    fn names(found: &[SupersededMigration]) -> Vec<(&str, bool)> {
        found.iter().map(|other| (other.name.as_str(), other.is_told)).collect()
    }

    #[test]
    fn earlier_migration_of_the_same_shoot_goes_first() {
        let own = migration("m", "Classic", ("a", "b"), 5);
        let of = |other: ControlPlaneMigration| obstacle(&[other], &own);
        let other = |name: &str, second| migration(name, "Classic", ("a", "b"), second);
        assert_eq!(of(other("a", 4)), Some("a".to_owned()));
        assert_eq!(of(other("a", 5)), Some("a".to_owned()));
        assert_eq!(of(other("n", 5)), None);
        assert_eq!(of(with(other("a", 4), "phase", "Failed".into())), None);
        // Its destination may never end its part.
        assert_eq!(of(with(other("a", 4), SUPERSEDED_BY, "f".into())), None);
    }

    #[test]
    fn forced_migration_supersedes_those_that_have_not_left_its_source() {
        let own = migration("m", "Forced", ("a", "b"), 5);
        for (mode, to) in [("Classic", "b"), ("Classic", "c"), ("Forced", "c")] {
            let other = migration("o", mode, ("a", to), 4);
            assert_eq!(obstacle(std::slice::from_ref(&other), &own), None, "{mode}");
            assert_eq!(names(&in_the_way(&[other], &own)), [("o", false)], "{mode}");
        }
        let own = migration("m", "Classic", ("a", "b"), 5);
        assert_eq!(in_the_way(&[migration("o", "Classic", ("a", "b"), 4)], &own), []);
    }

    #[test]
    fn one_that_serves_at_its_destination_is_not_superseded() {
        let own = migration("m", "Forced", ("a", "c"), 5);
        let found = |other: ControlPlaneMigration| {
            let all = [other];
            (obstacle(&all, &own), names(&in_the_way(&all, &own)).len())
        };
        let other = || migration("o", "Classic", ("a", "b"), 4);
        assert_eq!(found(committed(other())), (Some("o".to_owned()), 0));
        // It has failed before the garden could write where the Shoot is.
        let failed = |one| with(one, "phase", "Failed".into());
        assert_eq!(found(failed(committed(other()))), (Some("o".to_owned()), 0));
        assert_eq!(found(failed(moved(other()))), (None, 0));
        // From another seed nothing is known of it.
        let elsewhere = || migration("o", "Classic", ("d", "a"), 4);
        assert_eq!(found(elsewhere()), (Some("o".to_owned()), 0));
        assert_eq!(found(with(moved(elsewhere()), "garden", json!({"phase": "Succeeded"}))), (None, 0));
    }

    #[test]
    fn forced_migration_goes_on_from_a_destination_that_dies_before_its_migration_has_ended() {
        let own = migration("m", "Forced", ("b", "c"), 5);
        let found = |other: ControlPlaneMigration| {
            let all = [other];
            (obstacle(&all, &own), names(&in_the_way(&all, &own)).len())
        };
        let other = |mode| migration("o", mode, ("a", "b"), 4);
        let stored = |one| {
            let step = json!({"name": "MigratedStateSynced", "state": "Succeeded"});
            with(one, "source", json!({"phase": "Running", "steps": [step]}))
        };
        assert_eq!(found(stored(moved(other("Classic")))), (None, 1));
        // The ShootState does not hold what the extension controllers of the source stored last.
        assert_eq!(found(moved(other("Classic"))), (Some("o".to_owned()), 0));
        // Where the Shoot is was not written.
        assert_eq!(found(stored(committed(other("Classic")))), (Some("o".to_owned()), 0));
        // Nobody knows whether a machine-controller-manager of the first source runs.
        assert_eq!(found(moved(other("Forced"))), (Some("o".to_owned()), 0));
        let fenced = |mut one: ControlPlaneMigration| {
            one.metadata.annotations = Some([(CONFIRM_SOURCE_STOPPED.to_owned(), "a".to_owned())].into());
            one
        };
        assert_eq!(found(fenced(moved(other("Forced")))), (None, 1));
        // After a day of waiting, a person decides.
        assert_eq!(found(with(moved(other("Classic")), "phase", "Failed".into())), (None, 1));
        // It leaves from another seed than where the Shoot is.
        let elsewhere = migration("m", "Forced", ("a", "c"), 5);
        assert_eq!(obstacle(&[stored(moved(other("Classic")))], &elsewhere), Some("o".to_owned()));
        // The garden has to end its part first; the destination may never end its own.
        let told = |one| with(one, CONTINUED_BY, "m".into());
        assert_eq!(found(told(fenced(moved(other("Forced"))))), (None, 1));
        let mut ended = told(fenced(moved(other("Forced"))));
        ended.status["garden"]["phase"] = "Failed".into();
        assert_eq!(found(ended), (None, 0));
    }

    #[test]
    fn later_migration_forbids_a_retry_unless_it_left_everything_as_it_was() {
        let own = migration("m", "Classic", ("a", "b"), 5);
        let later = |phase: &str| with(migration("n", "Classic", ("b", "a"), 6), "phase", phase.into());
        assert_eq!(follower(&[later("Pending")], &own), Some("n".to_owned()));
        assert_eq!(follower(&[later("Succeeded")], &own), Some("n".to_owned()));
        assert_eq!(follower(&[later("RolledBack"), migration("l", "Classic", ("a", "b"), 4)], &own), None);
        let restored = with(later("RolledBack"), "source", json!({"ownershipEnded": true}));
        assert_eq!(follower(&[restored], &own), Some("n".to_owned()));
    }

    #[test]
    fn superseded_one_is_in_the_way_until_it_is_removed_where_this_one_leads() {
        let ended = json!({"phase": "RolledBack"});
        let told = |to| with(migration("o", "Classic", ("a", to), 4), SUPERSEDED_BY, "m".into());
        let own = migration("m", "Forced", ("a", "b"), 5);
        assert_eq!(names(&in_the_way(&[told("b")], &own)), [("o", true)]);
        let in_garden = |to| with(told(to), "garden", ended.clone());
        assert_eq!(names(&in_the_way(&[in_garden("b")], &own)), [("o", true)]);
        assert_eq!(in_the_way(&[in_garden("c")], &own), []);
        // One whose garden has failed is told as well: its other sides would go on.
        let failed = with(migration("o", "Classic", ("a", "c"), 4), "garden", json!({"phase": "Failed"}));
        assert_eq!(names(&in_the_way(&[failed], &own)), [("o", false)]);
        assert_eq!(in_the_way(&[with(in_garden("b"), "destination", ended.clone())], &own), []);
    }

    #[test]
    fn later_migration_back_to_the_source_comes_back() {
        let own = migration("m", "Forced", ("a", "b"), 5);
        let is_by = |other: &ControlPlaneMigration| comes_back(other, &own);
        assert!(is_by(&migration("n", "Classic", ("b", "a"), 6)));
        assert!(!is_by(&migration("n", "Classic", ("b", "a"), 4)));
        assert!(!is_by(&migration("n", "Classic", ("b", "c"), 6)));
    }
}
