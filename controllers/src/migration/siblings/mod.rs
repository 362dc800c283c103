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

use crate::migration::{
    api::{CONTINUED_BY, ControlPlaneMigration, SILENT, SUPERSEDED_BY},
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

fn has_same_seeds(one: &ControlPlaneMigration, other: &ControlPlaneMigration) -> bool {
    let seeds =
        |one: &ControlPlaneMigration| (one.spec.source_seed.clone(), one.spec.destination_seed.clone());
    seeds(one) == seeds(other)
}

/// The migration that has to end before this one begins, if there is one.
#[must_use]
pub fn obstacle(others: &[ControlPlaneMigration], own: &ControlPlaneMigration) -> Option<String> {
    // What it has left at that seed, it removes when the seed comes back.
    let is_left = |other: &ControlPlaneMigration| {
        other.is_destination_lost()
            && other.spec.destination_seed == own.spec.destination_seed
            && !other.has_side_ended(Side::Destination)
    };
    let is_obstacle = |other: &&ControlPlaneMigration| match own.mode() {
        _ if is_left(other) => true,
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

/// Why a forced migration waits for a live one that is past its point of no return, in words: it may find that its etcd is lost with the
/// source, or that its destination is lost.
#[must_use]
pub fn may_give_way(others: &[ControlPlaneMigration], own: &ControlPlaneMigration) -> Option<String> {
    let leads_to_lost_seed = |other: &ControlPlaneMigration| {
        let is_removed = other.has_side_ended(Side::Destination);
        has_same_seeds(other, own) && other.is_destination_lost() && !is_removed
    };
    let is_asked = |other: &&ControlPlaneMigration| {
        own.mode() == Some(MigrationMode::Forced)
            && other.mode() == Some(MigrationMode::Live)
            && other.spec.source_seed == own.spec.source_seed
            && is_earlier(other, own)
            && (other.has_committed() || leads_to_lost_seed(other))
            && !other.has_moved_status()
    };
    let has_ended = |other: &ControlPlaneMigration| other.has_side_ended(Side::Destination);
    let when = |other: &ControlPlaneMigration| match has_same_seeds(other, own) {
        true if has_ended(other) => None,
        true => Some("its etcd has had no quorum for a minute, and goes on otherwise".to_owned()),
        false if other.may_give_destination_up() => {
            let seconds = SILENT.as_secs();
            Some(format!("its destination has recorded nothing for {seconds} s more than the garden"))
        }
        false => None,
    };
    let why = |other: &ControlPlaneMigration| {
        let name = other.name_any();
        if leads_to_lost_seed(other) {
            let seed = &other.spec.destination_seed;
            return Some(format!(
                "{name} says that {seed} is lost; create a forced migration to another seed instead"
            ));
        }
        when(other).map(|when| format!("{name} is past its point of no return; it gives way when {when}"))
    };
    others.iter().filter(is_asked).find_map(why)
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

/// Name of a forced migration that waits for a live one, which is past its point of no return, and leads to the same destination.
///
/// # Errors
/// [`Error::Read`].
pub async fn forced_instead(
    context: &Context,
    own: &ControlPlaneMigration,
    side: Side,
) -> Result<Option<String>> {
    let may_wait =
        side == Side::Destination && own.mode() == Some(MigrationMode::Live) && own.has_committed();
    if !may_wait || own.has_side_ended(side) {
        return Ok(None);
    }
    Ok(forced_to_same_seed(&of(context, own).await?, own))
}

fn forced_to_same_seed(others: &[ControlPlaneMigration], own: &ControlPlaneMigration) -> Option<String> {
    let waits = |other: &&ControlPlaneMigration| {
        other.mode() == Some(MigrationMode::Forced)
            && has_same_seeds(other, own)
            && is_earlier(own, other)
            && other.metadata.deletion_timestamp.is_none()
            && other.spec.abort.is_none()
            && !other.has_side_ended(Side::Garden)
            && other.waits_for_another()
    };
    others.iter().find(waits).map(ResourceExt::name_any)
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
mod tests;
