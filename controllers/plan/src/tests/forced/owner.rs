//! The owner record after the success: a DNS controller of a seed that was cut off may write an earlier owner, or delete the record, when
//! it is back.

use repot_api::conditions::Reason;
use repot_apimachinery::time::Time;

use super::world::{Setup, World};
use crate::{
    flow::{Input, LedgerOf, decide},
    forced::PLANS,
    ledger::Phase,
    migration::{
        MigrationFlow, Side,
        effect::Effect,
        observed::{DestinationFacts, Facts, MigrationMode, MigrationRequest, OwnerId, OwnerRecord},
    },
    tests::{rng::Rng, sim::Model as _},
};

/// Whether the record is written again by a destination of epoch 5 whose migration has succeeded.
fn is_written(change: impl FnOnce(&mut MigrationRequest, &mut DestinationFacts)) -> bool {
    let mut observed = World::new(Setup::default(), Rng::new(1)).observe(Side::Destination).0;
    let Facts::Destination(mut facts) = observed.facts else { panic!("facts of the destination") };
    facts.owner = present(4);
    change(&mut observed.request, &mut facts);
    observed.facts = Facts::Destination(facts);
    let mut ledger = LedgerOf::<MigrationFlow> {
        phase: Phase::Succeeded,
        version: 1,
        ..LedgerOf::<MigrationFlow>::default()
    };
    ledger.notes.owner_epoch = Some(5);
    let input = Input {
        side: Side::Destination,
        observed: &observed,
        ledger: &ledger,
        others: &[],
        now: Time(1_000),
    };
    let effects = decide(&PLANS, &input).effects;
    effects.iter().any(|effect| matches!(effect, Effect::EnsureOwner { owner } if owner.epoch == 5))
}

fn present(epoch: u64) -> OwnerRecord {
    OwnerRecord::Present(OwnerId { seed: "another".to_owned(), epoch })
}

#[test]
fn record_of_an_earlier_owner_or_of_nobody_is_written_again() {
    assert!(is_written(|_, _| {}));
    assert!(is_written(|_, facts| facts.owner = OwnerRecord::Absent));
}

#[test]
fn record_of_a_later_owner_or_one_that_is_not_known_stays() {
    for owner in [present(5), present(6), OwnerRecord::Unknown] {
        assert!(!is_written(|_, facts| facts.owner = owner.clone()), "{owner:?}");
    }
}

#[test]
fn later_migration_and_deletion_of_the_shoot_pass_ownership_on() {
    assert!(!is_written(|_, facts| facts.is_followed = true));
    assert!(!is_written(|request, _| request.abandoned = Some(Reason::new("ShootDeleted", String::new()))));
    assert!(!is_written(|request, _| request.mode = MigrationMode::Classic));
}
