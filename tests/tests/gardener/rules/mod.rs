//! Every rule of the garden is seen to refuse and to allow through gardener-apiserver, by bindings, updates and status. Each scenario
//! ends with writes that go through. Plugins of gardener-apiserver come before webhooks, so some reasons are heard from them; the
//! webhook is then asked directly.

mod markers;
mod moving;
mod seeds;
mod states;

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use futures::future::{LocalBoxFuture, try_join_all};
use repot_rules::table::{Judge, RULES};
use repot_rules::watch::HomeCluster;
use repot_tests::{TestEnv, run};

use crate::webhook::heard;

/// The rule that no write meets: gardener-apiserver refuses it before, and kube-apiserver asks no webhook about a binding that changes
/// nothing. Preflight says it, and `seeds` shows that.
const PREFLIGHT_ONLY: &str = "different-seed";
/// gardener-apiserver refuses the same itself; `scheduling` asks the webhook directly.
const ASKED_BY_ANOTHER_TEST: &str = "binding-only";

type Scenario<'a> = (&'static str, LocalBoxFuture<'a, Result<()>>);

macro_rules! scenarios {
    ($env:expr, $gate:expr, $($scenario:path),+ $(,)?) => {
        vec![$((stringify!($scenario), Box::pin($scenario($env, $gate)) as LocalBoxFuture<'_, Result<()>>)),+]
    };
}

/// Scenarios that start no live migration: the feature gate LiveControlPlaneMigration may be on or off.
fn with_downtime(env: &TestEnv, gate: bool) -> Vec<Scenario<'_>> {
    scenarios![
        env,
        gate,
        seeds::a_change_of_seed_is_judged_by_every_rule,
        seeds::preflight_says_that_a_shoot_is_there_already,
        moving::a_shoot_on_its_way_rests,
        moving::a_shoot_that_is_being_deleted_does_not_move,
        moving::the_destination_is_there_and_is_all_that_changes,
        moving::a_shoot_with_bastions_stays,
        moving::the_cloud_profile_and_the_zones_say_which_seeds_are_fit,
        moving::networks_of_shoot_and_destination_are_apart,
        markers::an_isolation_is_judged_until_its_failback_is_done,
        markers::what_gives_up_data_needs_a_verb_of_its_own,
        states::states_are_written_by_gardenlets_of_both_seeds_and_deleted_on_confirmation,
    ]
}

/// Scenarios that need the feature gate.
fn live(env: &TestEnv) -> Vec<Scenario<'_>> {
    scenarios![
        env,
        true,
        markers::annotations_are_judged_by_every_rule_on_every_path,
        markers::a_live_migration_keeps_its_trigger_and_its_way,
    ]
}

async fn play(scenarios: impl IntoIterator<Item = Scenario<'_>>) -> Result<()> {
    let all = scenarios.into_iter().map(|(name, scenario)| async move { scenario.await.context(name) });
    try_join_all(all).await.map(drop)
}

#[test]
fn rules_judge_migrations_with_downtime_while_the_feature_gate_is_off() {
    run(async |env| play(with_downtime(env, false)).await);
}

#[test]
fn every_rule_of_the_garden_is_heard_beside_gardener() {
    run(async |env| {
        play(with_downtime(env, true).into_iter().chain(live(env))).await?;
        let garden = RULES.iter().filter(|rule| {
            let asked = rule.watches.iter().any(|watch| watch.place == HomeCluster::Garden);
            matches!(rule.judge, Judge::Validate(_)) && asked
        });
        let mut missing: BTreeSet<&str> = garden.map(|rule| rule.name).collect();
        missing.retain(|rule| {
            ![PREFLIGHT_ONLY, ASKED_BY_ANOTHER_TEST].contains(rule) && !heard::was_heard(rule)
        });
        ensure!(missing.is_empty(), "no scenario met {missing:?}");
        Ok(())
    });
}
