//! Which operation is due on an extension object: a pure function of its metadata and status.
//!
//! `wait-for-state` stops everything. `migrate` comes before a deletion, so an object that is given up is never torn down. A migration
//! that began is continued until it succeeds or `restore` takes it back: neither `reconcile` nor a deletion turns it into work on
//! infrastructure. gardener's `ComputeOperationType` differs in one case: it deletes the infrastructure of a deleted object whose
//! migration failed and whose annotation is gone.

use crate::{
    annotations::Requested,
    status::{LastOperation, OperationState, OperationType},
};

/// What makes a controller act on an object whose last operation succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trigger {
    /// An operation annotation, or a generation that was not observed yet.
    #[default]
    AnnotationOrGeneration,
    /// An operation annotation alone, as the default predicates of Gardener's library: gardenlet chooses the time.
    Annotation,
}

/// What the decision depends on.
#[derive(Clone, Debug, Default)]
pub struct Observed<'a> {
    /// Operation that an annotation asks for; `None` where there is none or its value is unknown.
    pub requested: Option<Requested>,
    /// Whether the object has a deletion timestamp.
    pub deleting: bool,
    /// Whether the annotation that confirms the deletion is true.
    pub confirmed: bool,
    /// Whether the object has the finalizer of this controller.
    pub finalizer: bool,
    /// Type and state of the last operation; `None` before the first one.
    pub last: Option<(&'a OperationType, &'a OperationState)>,
    /// Whether the generation differs from the observed generation.
    pub generation_changed: bool,
    /// Whether `status.state` has a value.
    pub has_state: bool,
}

/// Function of the provider that is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Make what the spec asks for.
    Reconcile,
    /// Take over what `status.state` describes, then reconcile.
    Restore,
    /// Give the object up without touching what it stands for.
    Migrate,
    /// Remove what the object stands for.
    Delete,
}

/// Why nothing is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// The state is still to be written by somebody else.
    WaitForState,
    /// The object was given up in this seed.
    Migrated,
    /// The object is deleted, and nothing of this controller holds it.
    NoFinalizer,
    /// Nothing changed since the last success.
    UpToDate,
}

/// What is due on an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing is read or written.
    Skip(Skip),
    /// The deletion is not confirmed: the status says so, and nothing is removed.
    ReportUnconfirmed,
    /// The object was migrated, so the finalizer goes without any call to the provider.
    ReleaseFinalizer,
    /// The provider is called, and the status names the type.
    Run {
        /// Function of the provider that is called.
        work: Work,
        /// Type of the operation in `status.lastOperation`.
        recorded: OperationType,
    },
}

/// Decides which operation is due.
#[must_use]
pub fn decide(observed: &Observed<'_>, trigger: Trigger) -> Decision {
    let takes_back = observed.requested == Some(Requested::Restore) && !observed.deleting;
    match (observed.requested, observed.last) {
        (Some(Requested::WaitForState), _) => Decision::Skip(Skip::WaitForState),
        (Some(Requested::Migrate), _) => run(Work::Migrate, OperationType::Migrate),
        (_, Some((OperationType::Migrate, state))) if !takes_back => migration(observed, state),
        _ if observed.deleting => deletion(observed),
        (Some(Requested::Restore), _) => restoration(observed),
        (requested, last) => reconciliation(observed, requested.is_some(), last, trigger),
    }
}

/// The function that a finished operation was asked for by: only then its annotation may go.
#[must_use]
pub fn fulfils(recorded: &OperationType, requested: Requested) -> bool {
    match requested {
        Requested::WaitForState => false,
        Requested::Migrate => *recorded == OperationType::Migrate,
        Requested::Restore => *recorded == OperationType::Restore,
        Requested::Reconcile => matches!(recorded, OperationType::Create | OperationType::Reconcile),
    }
}

fn run(work: Work, recorded: OperationType) -> Decision {
    Decision::Run { work, recorded }
}

fn migration(observed: &Observed<'_>, state: &OperationState) -> Decision {
    match state {
        OperationState::Succeeded if observed.finalizer => Decision::ReleaseFinalizer,
        OperationState::Succeeded => Decision::Skip(Skip::Migrated),
        _ => run(Work::Migrate, OperationType::Migrate),
    }
}

fn deletion(observed: &Observed<'_>) -> Decision {
    match (observed.finalizer, observed.confirmed) {
        (false, _) => Decision::Skip(Skip::NoFinalizer),
        (true, false) => Decision::ReportUnconfirmed,
        (true, true) => run(Work::Delete, OperationType::Delete),
    }
}

/// Controllers without state are asked to restore, too: for them it is a reconciliation that is recorded as Restore.
fn restoration(observed: &Observed<'_>) -> Decision {
    let work = if observed.has_state { Work::Restore } else { Work::Reconcile };
    run(work, OperationType::Restore)
}

fn reconciliation(
    observed: &Observed<'_>,
    requested: bool,
    last: Option<(&OperationType, &OperationState)>,
    trigger: Trigger,
) -> Decision {
    let Some((kind, state)) = last else { return run(Work::Reconcile, OperationType::Create) };
    let succeeded = *state == OperationState::Succeeded;
    let by_generation = observed.generation_changed && trigger == Trigger::AnnotationOrGeneration;
    match kind {
        OperationType::Create if !succeeded => run(Work::Reconcile, OperationType::Create),
        OperationType::Restore if !succeeded => restoration(observed),
        _ if requested || !succeeded || by_generation => run(Work::Reconcile, OperationType::Reconcile),
        _ => Decision::Skip(Skip::UpToDate),
    }
}

/// Type and state of a last operation, as [`Observed`] takes them.
#[must_use]
pub fn summary(last: Option<&LastOperation>) -> Option<(&OperationType, &OperationState)> {
    last.map(LastOperation::summary)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: the last operation, `+` succeeded, `-` any other state. Columns: no annotation, reconcile, restore, migrate,
    /// wait-for-state; then the same with a deletion timestamp. C, R, T, M, D: run Create, Reconcile, Restore, Migrate, Delete;
    /// f: release the finalizer; w: wait for state; `.`: up to date, R where the generation changed.
    const TABLE: &str = "
        none         C C T M w  D D D M w
        Create+      . R T M w  D D D M w
        Create-      C C T M w  D D D M w
        Reconcile+   . R T M w  D D D M w
        Reconcile-   R R T M w  D D D M w
        Delete+      . R T M w  D D D M w
        Delete-      R R T M w  D D D M w
        Migrate+     f f T M w  f f f M w
        Migrate-     M M T M w  M M M M w
        Restore+     . R T M w  D D D M w
        Restore-     T T T M w  D D D M w
        LiveMigrate+ . R T M w  D D D M w
        LiveMigrate- R R T M w  D D D M w
    ";

    const REQUESTS: [Option<Requested>; 5] = [
        None,
        Some(Requested::Reconcile),
        Some(Requested::Restore),
        Some(Requested::Migrate),
        Some(Requested::WaitForState),
    ];

    fn states(sign: char) -> Vec<OperationState> {
        if sign == '+' {
            return vec![OperationState::Succeeded];
        }
        let odd = OperationState::Other("Odd".to_owned());
        let known = [OperationState::Processing, OperationState::Error, OperationState::Failed];
        known.into_iter().chain([OperationState::Pending, OperationState::Aborted, odd]).collect()
    }

    fn last(text: &str) -> Vec<Option<(OperationType, OperationState)>> {
        if text == "none" {
            return vec![None];
        }
        let (kind, sign) = text.split_at(text.len() - 1);
        let kind: OperationType = serde_json::from_value(kind.into()).expect("a type");
        states(sign.chars().next().expect("a sign"))
            .into_iter()
            .map(|state| Some((kind.clone(), state)))
            .collect()
    }

    fn code(decision: &Decision) -> char {
        match decision {
            Decision::Skip(Skip::UpToDate) => '.',
            Decision::Skip(Skip::WaitForState) => 'w',
            Decision::Skip(Skip::Migrated) => 'm',
            Decision::Skip(Skip::NoFinalizer) => 'n',
            Decision::ReportUnconfirmed => 'u',
            Decision::ReleaseFinalizer => 'f',
            Decision::Run { recorded, .. } => match recorded {
                OperationType::Create => 'C',
                OperationType::Reconcile => 'R',
                OperationType::Delete => 'D',
                OperationType::Migrate => 'M',
                OperationType::Restore => 'T',
                OperationType::Other(_) => '?',
            },
        }
    }

    /// What the table's code becomes under the remaining facts.
    fn expected(code: char, observed: &Observed<'_>, trigger: Trigger) -> char {
        let by_generation = observed.generation_changed && trigger == Trigger::AnnotationOrGeneration;
        match code {
            '.' if by_generation => 'R',
            'D' if !observed.finalizer => 'n',
            'D' if !observed.confirmed => 'u',
            'f' if !observed.finalizer => 'm',
            other => other,
        }
    }

    fn every_combination(check: &mut dyn FnMut(&Observed<'_>, Trigger, char)) {
        for line in TABLE.lines().filter(|line| !line.trim().is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            assert_eq!(words.len(), 11, "{line}");
            for last in last(words[0]) {
                for (column, word) in words[1..].iter().enumerate() {
                    for bits in 0..32_u8 {
                        let bit = |at: u8| bits & (1 << at) != 0;
                        let trigger = if bit(4) { Trigger::Annotation } else { Trigger::default() };
                        let observed = Observed {
                            requested: REQUESTS[column % 5],
                            deleting: column >= 5,
                            confirmed: bit(0),
                            finalizer: bit(1),
                            last: last.as_ref().map(|(kind, state)| (kind, state)),
                            generation_changed: bit(2),
                            has_state: bit(3),
                        };
                        check(&observed, trigger, word.chars().next().expect("a code"));
                    }
                }
            }
        }
    }

    #[test]
    fn every_combination_is_decided_as_in_the_table() {
        let mut count = 0;
        every_combination(&mut |observed, trigger, word| {
            let decision = decide(observed, trigger);
            assert_eq!(code(&decision), expected(word, observed, trigger), "{observed:?} {trigger:?}");
            count += 1;
        });
        // 1 without an operation, 6 types in 7 states; 5 annotations, deleted or not; 5 further facts.
        assert_eq!(count, (1 + 6 * 7) * 10 * 32);
    }

    #[test]
    fn provider_function_follows_from_the_type_and_the_state() {
        every_combination(&mut |observed, trigger, _| {
            let Decision::Run { work, recorded } = decide(observed, trigger) else { return };
            let expected = match recorded {
                OperationType::Migrate => Work::Migrate,
                OperationType::Delete => Work::Delete,
                OperationType::Restore if observed.has_state => Work::Restore,
                _ => Work::Reconcile,
            };
            assert_eq!(work, expected, "{observed:?}");
        });
    }

    #[test]
    fn object_that_was_asked_to_migrate_is_never_torn_down() {
        every_combination(&mut |observed, trigger, _| {
            let migrating = matches!(observed.last, Some((OperationType::Migrate, _)));
            if migrating || observed.requested == Some(Requested::Migrate) {
                let decision = decide(observed, trigger);
                assert!(!matches!(decision, Decision::Run { work: Work::Delete, .. }), "{observed:?}");
            }
        });
    }

    #[test]
    fn annotation_goes_only_with_the_operation_that_it_asked_for() {
        for (recorded, requested, fulfilled) in [
            (OperationType::Migrate, Requested::Migrate, true),
            (OperationType::Migrate, Requested::Reconcile, false),
            (OperationType::Restore, Requested::Restore, true),
            (OperationType::Restore, Requested::Reconcile, false),
            (OperationType::Create, Requested::Reconcile, true),
            (OperationType::Reconcile, Requested::Reconcile, true),
            (OperationType::Reconcile, Requested::Restore, false),
            (OperationType::Delete, Requested::Reconcile, false),
            (OperationType::Restore, Requested::WaitForState, false),
        ] {
            assert_eq!(fulfils(&recorded, requested), fulfilled, "{recorded:?} {requested:?}");
        }
    }
}
