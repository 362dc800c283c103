//! How a gardenlet chooses what it does with a Shoot or a BackupEntry, as Gardener 1.150 does. Pure: whoever steers a gardenlet relies on
//! these facts, and on no others.
//!
//! | fact | source in Gardener 1.150 |
//! |---|---|
//! | [`responsible_seed`] | `pkg/utils/gardener/migration.go`, GetResponsibleSeedName |
//! | [`operation`] | `pkg/gardenlet/controller/shoot/shoot/helper/helper.go`, ComputeOperationType |
//! | [`raises_generation`] | `pkg/apiserver/registry/core/shoot/strategy.go`, shootStatusStrategy.PrepareForUpdate |
//! | a change of the generation wakes it | `pkg/gardenlet/controller/{shoot/shoot,backupentry}/add.go`, GenerationChangedPredicate |

/// Type and state of the last operation that make the gardenlet of the responsible seed restore a Shoot.
pub const RESTORE_REQUEST: (&str, &str) = ("Migrate", "Succeeded");

/// The seed whose gardenlet works on a Shoot or a BackupEntry; `None` where nobody does.
#[must_use]
pub fn responsible_seed<'a>(spec: Option<&'a str>, status: Option<&'a str>) -> Option<&'a str> {
    // While the two differ, the former seed migrates: a dead one does nothing, and the new one waits for it.
    spec.map(|spec| status.unwrap_or(spec))
}

/// What a gardenlet does with a Shoot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The control plane is made for the first time.
    Create,
    /// The control plane is brought to what the Shoot asks for.
    Reconcile,
    /// The control plane is prepared to leave its seed.
    Migrate,
    /// The control plane is made from the ShootState and from the backups of another seed.
    Restore,
    /// The Shoot is deleted.
    Delete,
}

/// What a gardenlet decides on.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShootView<'a> {
    /// `spec.seedName` of the Shoot.
    pub spec_seed: Option<&'a str>,
    /// `status.seedName` of the Shoot.
    pub status_seed: Option<&'a str>,
    /// Type and state of `status.lastOperation`.
    pub last_operation: Option<(&'a str, &'a str)>,
    /// Whether the Shoot has a deletion timestamp.
    pub is_deleted: bool,
    /// Value of the annotation `gardener.cloud/operation`.
    pub annotation: Option<&'a str>,
}

/// What the gardenlet of the responsible seed does next.
#[must_use]
pub fn operation(shoot: &ShootView<'_>) -> Operation {
    let is_split =
        shoot.status_seed.is_some() && shoot.spec_seed.is_some() && shoot.spec_seed != shoot.status_seed;
    if shoot.is_deleted {
        return Operation::Delete;
    }
    if is_split {
        return Operation::Migrate;
    }
    match (shoot.last_operation, shoot.annotation) {
        (Some(("Migrate", "Succeeded" | "Aborted")), _) => Operation::Restore,
        (_, Some("migrate")) => Operation::Migrate,
        (_, Some("restore")) => Operation::Restore,
        (None, _) => Operation::Create,
        (Some((_, "Succeeded")), _) => Operation::Reconcile,
        (Some(("Create", _)), _) => Operation::Create,
        (Some(("Migrate", _)), _) => Operation::Migrate,
        (Some(("Restore", _)), _) => Operation::Restore,
        (Some(_), _) => Operation::Reconcile,
    }
}

/// Whether a write to `shoots/status` with this last operation raises the generation, and so wakes gardenlets. The generation
/// rises again with the same write.
#[must_use]
pub fn raises_generation((kind, state): (&str, &str)) -> bool {
    kind == "Migrate" && matches!(state, "Succeeded" | "Aborted")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_that_a_shoot_leaves_is_responsible_until_the_status_names_another_one() {
        for (spec, status, responsible) in [
            (None, None, None),
            (None, Some("a"), None),
            (Some("b"), None, Some("b")),
            (Some("b"), Some("a"), Some("a")),
            (Some("b"), Some("b"), Some("b")),
        ] {
            assert_eq!(responsible_seed(spec, status), responsible, "{spec:?} {status:?}");
        }
    }

    /// Rows of `TestComputeOperationType` of Gardener, and those of the branches that it has no row for.
    #[test]
    fn operation_follows_from_seeds_and_last_operation() {
        use Operation::{Create, Delete, Migrate, Reconcile, Restore};
        let of = |seeds: (&'static str, &'static str), last, expected| {
            let shoot = ShootView {
                spec_seed: Some(seeds.0),
                status_seed: Some(seeds.1),
                last_operation: last,
                ..ShootView::default()
            };
            assert_eq!(operation(&shoot), expected, "{seeds:?} {last:?}");
        };
        for state in ["Processing", "Succeeded", "Error", "Failed", "Pending", "Aborted"] {
            let unless_done = |unfinished| if state == "Succeeded" { Reconcile } else { unfinished };
            of(("b", "a"), Some(("Reconcile", state)), Migrate);
            of(("b", "a"), Some(("Migrate", state)), Migrate);
            of(("a", "a"), Some(("Create", state)), unless_done(Create));
            of(("a", "a"), Some(("Reconcile", state)), Reconcile);
            of(("a", "a"), Some(("Restore", state)), unless_done(Restore));
            let migrated = if matches!(state, "Succeeded" | "Aborted") { Restore } else { Migrate };
            of(("a", "a"), Some(("Migrate", state)), migrated);
        }
        assert_eq!(operation(&ShootView::default()), Create);
        let deleted = ShootView { is_deleted: true, ..ShootView::default() };
        assert_eq!(operation(&deleted), Delete);
        let last_operation = Some(("Reconcile", "Succeeded"));
        for (annotation, expected) in [("migrate", Migrate), ("restore", Restore), ("reconcile", Reconcile)] {
            let shoot = ShootView { annotation: Some(annotation), last_operation, ..ShootView::default() };
            assert_eq!(operation(&shoot), expected, "{annotation}");
        }
    }

    #[test]
    fn request_of_a_restore_wakes_gardenlets_and_is_computed_as_one() {
        assert!(raises_generation(RESTORE_REQUEST));
        assert!(
            !raises_generation(("Migrate", "Processing")) && !raises_generation(("Restore", "Succeeded"))
        );
        let (spec_seed, status_seed) = (Some("b"), Some("b"));
        let shoot = ShootView {
            spec_seed,
            status_seed,
            last_operation: Some(RESTORE_REQUEST),
            ..ShootView::default()
        };
        assert_eq!(operation(&shoot), Operation::Restore);
    }
}
