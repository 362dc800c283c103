//! The garden: Shoot, BackupEntry and Seeds are observed, and written under the versions that were observed.

use kube::{ResourceExt, api::Patch, core::DynamicObject};
use repot_api::{
    gardener::{gardenlet::RESTORE_REQUEST, shoot::Seed},
    names::{CORE_GROUP, MIGRATION_GROUP},
};
use repot_plan::{
    gardenlet::{
        Step,
        effect::Effect,
        is_binding_asked,
        observed::{BackupEntryFacts, BindingAnswer, Facts, GardenFacts, LastOperation, ShootFacts},
    },
    migration::observed::MigrationMode,
};
use serde_json::{Value, json};

use super::{
    rights::{self, Right},
    status::Ledger,
};
use crate::{
    etcd::api::FENCE,
    migration::{
        api::{ControlPlaneMigration, Shoot},
        context::Context,
        error::{Error, Result},
        garden::{
            backup_entry, bind, dry_run_binding, finalizer, objects::Objects, refusals_between, refusals_of,
            seed, shoots,
        },
        seed::{params, under},
        siblings,
    },
};

/// Rights of the controller of the garden that its usual role does not have, and those that it shares.
const RIGHTS: [Right; 6] = [
    // A right that no API server asks for: whoever grants it wants gardenlets to be steered.
    Right {
        group: MIGRATION_GROUP,
        resource: "controlplanemigrations",
        subresource: "",
        verb: "restore-with-gardenlet",
    },
    of("shoots", "binding", "patch"),
    of("shoots", "status", "patch"),
    of("backupentries", "", "get"),
    of("backupentries", "", "patch"),
    of("backupentries", "status", "patch"),
];
const ROLE_FILE: &str = "garden-gardenlet.yaml";
/// So many errors of an operation are told, each with so many characters.
const ERRORS: usize = 3;
const CHARACTERS: usize = 300;

const fn of(resource: &'static str, subresource: &'static str, verb: &'static str) -> Right {
    Right { group: CORE_GROUP, resource, subresource, verb }
}

/// Observes the garden.
///
/// # Errors
/// Where its API servers do not answer.
pub async fn observe(
    context: &Context,
    migration: &ControlPlaneMigration,
    mode: MigrationMode,
    shoot: Option<Shoot>,
    ledger: &Ledger,
) -> Result<(Facts, Objects)> {
    let (garden, spec) = (context.garden_client(), &migration.spec);
    let namespace = migration.namespace().unwrap_or_default();
    // What was granted is not asked for again in each pass.
    let missing = match ledger.is_settled(Step::DestinationReady) || mode == MigrationMode::Classic {
        true => Vec::new(),
        false => rights::missing(garden, &namespace, &RIGHTS, ROLE_FILE).await?,
    };
    let (others, source, destination) = futures::try_join!(
        siblings::of(context, migration),
        seed(garden, &spec.source_seed),
        seed(garden, &spec.destination_seed),
    )?;
    let backup_entry = match shoot.as_ref().filter(|_| missing.is_empty()) {
        Some(shoot) => backup_entry::find(garden, shoot).await?,
        None => None,
    };
    let seeds = ((&*spec.source_seed, source.as_ref()), (&*spec.destination_seed, destination.as_ref()));
    let mut refusals = match mode {
        MigrationMode::Forced => refusals(seeds.0, seeds.1),
        MigrationMode::Classic | MigrationMode::Live => classic_refusals(seeds.0, seeds.1),
    };
    if mode == MigrationMode::Forced && missing.is_empty() && backup_entry.is_none() {
        refusals.push("the Shoot has no BackupEntry, so gardenlet restores no etcd".to_owned());
    }
    refusals.extend(missing);
    let mut binding = BindingAnswer::Unknown;
    if let Some(shoot) = shoot.as_ref().filter(|_| mode == MigrationMode::Classic) {
        let is_bound = shoot.spec.seed_name.as_ref() == Some(&spec.destination_seed);
        if !is_bound && !ledger.is_settled(Step::SeedBound) {
            refusals.extend(entry_refusal(backup_entry.as_ref(), &spec.source_seed));
            if refusals.is_empty() && is_binding_asked(ledger) {
                binding = ask_for_binding(context, shoot, &spec.destination_seed).await?;
            }
        } else if is_bound {
            binding = BindingAnswer::Accepted;
        }
    }
    let facts = GardenFacts {
        other_migration: siblings::obstacle(&others, migration),
        followed_by: siblings::follower(&others, migration),
        refusals,
        binding,
        shoot: shoot.as_ref().map(shoot_facts).unwrap_or_default(),
        backup_entry: backup_entry.as_ref().map(entry_facts),
    };
    Ok((Facts::Garden(Box::new(facts)), Objects { shoot, backup_entry }))
}

/// Why gardenlet cannot restore the Shoot at the destination, or need not.
fn refusals(source: (&str, Option<&Value>), destination: (&str, Option<&Value>)) -> Vec<String> {
    let mut all = refusals_of(destination);
    let Some(from) = source.1.map(Seed) else { return all };
    if from.condition("GardenletReady") == "True" {
        all.push(format!(
            "the gardenlet of {} answers: its condition GardenletReady is True; bind the Shoot to {}, and let it migrate without loss",
            source.0, destination.0
        ));
    }
    if let Some(to) = destination.1.map(Seed).filter(|to| to.provider() != from.provider()) {
        let (before, after) = (from.provider().unwrap_or("unknown"), to.provider().unwrap_or("unknown"));
        all.push(format!(
            "the type of provider differs: {before} at {}, {after} at {}",
            source.0, destination.0
        ));
    }
    all
}

/// Why the gardenlets cannot migrate the Shoot.
fn classic_refusals(source: (&str, Option<&Value>), destination: (&str, Option<&Value>)) -> Vec<String> {
    let mut all = refusals_between(source, destination);
    let is_ready = source.1.map(Seed).is_some_and(|seed| seed.condition("GardenletReady") == "True");
    if source.1.is_some() && !is_ready {
        all.push(format!(
            "the gardenlet of {} does not answer: its condition GardenletReady is not True; where the seed is dead, use mode Forced",
            source.0
        ));
    }
    all
}

/// A BackupEntry that gardenlet would migrate: without one, or with one that is elsewhere, it takes no final snapshot.
fn entry_refusal(entry: Option<&DynamicObject>, source: &str) -> Option<String> {
    let Some(entry) = entry else {
        return Some("the Shoot has no BackupEntry, so gardenlet would take no final snapshot".to_owned());
    };
    let seeds = backup_entry::seeds(entry);
    (seeds.spec != source || seeds.status != source).then(|| {
        format!(
            "the BackupEntry names seed {:?} in its spec and {:?} in its status, and not {source}: gardenlet would take no final snapshot",
            seeds.spec, seeds.status
        )
    })
}

/// What Gardener and the webhooks say to the binding. Nothing is written.
async fn ask_for_binding(context: &Context, shoot: &Shoot, seed: &str) -> Result<BindingAnswer> {
    match dry_run_binding(context, shoot, seed).await {
        Ok(()) => Ok(BindingAnswer::Accepted),
        Err(Error::Write { source: kube::Error::Api(status), .. }) => {
            Ok(answer(seed, status.code, &status.message))
        }
        Err(error) => Err(error),
    }
}

/// What an API server said to the dry run. What is only busy, or has seen another version of the Shoot, is asked again.
fn answer(seed: &str, code: u16, message: &str) -> BindingAnswer {
    match code {
        401 | 408 | 409 | 429 => BindingAnswer::Unknown,
        // The binding itself may pass such a webhook.
        400 if message.contains("does not support dry run") => BindingAnswer::Accepted,
        _ => BindingAnswer::Refused(format!("the binding to {seed} is refused: {}", short(message))),
    }
}

fn short(text: &str) -> String {
    text.chars().take(CHARACTERS).collect()
}

fn shoot_facts(shoot: &Shoot) -> ShootFacts {
    let errors = shoot.status.last_errors.iter().take(ERRORS);
    ShootFacts {
        spec_seed: shoot.spec.seed_name.clone(),
        status_seed: shoot.status.seed_name.clone(),
        last_operation: shoot.status.last_operation.as_ref().map(|last| LastOperation {
            kind: last.kind.clone(),
            state: last.state.clone(),
            progress: last.progress,
            description: short(&last.description),
        }),
        last_errors: errors.map(|error| short(&error.description)).collect(),
        fence: shoot.annotations().get(FENCE).cloned().unwrap_or_default(),
    }
}

fn entry_facts(entry: &DynamicObject) -> BackupEntryFacts {
    let seeds = backup_entry::seeds(entry);
    let named = |seed: String| (!seed.is_empty()).then_some(seed);
    BackupEntryFacts {
        spec_seed: named(seeds.spec),
        status_seed: named(seeds.status),
        fence: entry.annotations().get(FENCE).cloned().unwrap_or_default(),
    }
}

/// Carries out an effect of the garden.
///
/// # Errors
/// [`Error`]. The next pass looks again.
pub async fn act(
    context: &Context,
    migration: &ControlPlaneMigration,
    objects: &Objects,
    effect: &Effect,
) -> Result<()> {
    let shoot = || objects.shoot.as_ref().ok_or_else(|| Error::Missing("the Shoot".to_owned()));
    match effect {
        Effect::EnsureFinalizer { present } => {
            finalizer(context, migration, objects.shoot.as_ref(), *present).await
        }
        Effect::BindShoot { seed } => bind(context, shoot()?, seed).await,
        Effect::RequestRestore { seed } => {
            let status = restore_request(migration, seed);
            patch_shoot_status(context, shoot()?, json!({"status": status})).await
        }
        // Annotations are kept by /status as well, for which there is a right anyway.
        Effect::FenceShoot { fence } => patch_shoot_status(context, shoot()?, fenced(fence)).await,
        Effect::BindBackupEntry { seed } => {
            patch_entry(context, objects, json!({"spec": {"seedName": seed}}), false).await
        }
        Effect::SetBackupEntryStatus { seed } => {
            patch_entry(context, objects, json!({"status": {"seedName": seed}}), true).await
        }
        Effect::FenceBackupEntry { fence } => patch_entry(context, objects, fenced(fence), false).await,
        Effect::EnsureCopyNamespace
        | Effect::CopySnapshots
        | Effect::EnsureState
        | Effect::MarkCopyTask { .. }
        | Effect::RemoveCopy => Ok(()),
    }
}

fn fenced(fence: &str) -> Value {
    json!({"metadata": {"annotations": {FENCE: fence}}})
}

/// What makes the gardenlet of a seed restore a Shoot that is bound to it.
fn restore_request(migration: &ControlPlaneMigration, seed: &str) -> Value {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let (kind, state) = RESTORE_REQUEST;
    let name = migration.name_any();
    json!({
        "seedName": seed,
        "lastOperation": {
            "type": kind, "state": state, "progress": 100, "lastUpdateTime": now,
            "description": format!("ControlPlaneMigration {name} makes gardenlet restore the Shoot; its source was not migrated."),
        },
    })
}

async fn patch_shoot_status(context: &Context, shoot: &Shoot, patch: Value) -> Result<()> {
    let patch: Patch<Value> = under(shoot.resource_version(), patch);
    let outcome = shoots(context, shoot).patch_status(&shoot.name_any(), &params(), &patch).await;
    outcome.map(drop).map_err(Error::write("write the status of the Shoot"))
}

async fn patch_entry(context: &Context, objects: &Objects, fields: Value, is_status: bool) -> Result<()> {
    let entry = objects.backup_entry.as_ref().ok_or_else(|| Error::Missing("the BackupEntry".to_owned()))?;
    backup_entry::patch(context.garden_client(), entry, fields, is_status).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(ready: &str, provider: &str) -> Value {
        let kinds =
            ["GardenletReady", "SeedSystemComponentsHealthy", "BackupBucketsReady", "ExtensionsReady"];
        let status = |kind| if kind == "GardenletReady" { ready } else { "True" };
        json!({
            "metadata": {"generation": 1}, "spec": {"provider": {"type": provider}, "backup": {}},
            "status": {
                "observedGeneration": 1,
                "conditions": kinds.map(|kind| json!({"type": kind, "status": status(kind)})),
            },
        })
    }

    #[test]
    fn source_that_answers_and_other_providers_are_refused() {
        let (alive, dead) = (found("True", "local"), found("Unknown", "local"));
        let of = |source, destination| refusals(("a", source), ("b", destination));
        assert_eq!(of(Some(&dead), Some(&alive)), Vec::<String>::new());
        // Of a Seed that was deleted nothing is known.
        assert_eq!(of(None, Some(&alive)), Vec::<String>::new());
        let answers = of(Some(&alive), Some(&alive));
        assert!(answers.len() == 1 && answers[0].contains("the gardenlet of a answers"), "{answers:?}");
        assert_eq!(of(Some(&dead), Some(&dead)), ["Seed b: condition GardenletReady is Unknown"]);
        let other = of(Some(&dead), Some(&found("True", "other")));
        assert_eq!(other, ["the type of provider differs: local at a, other at b"]);
    }

    #[test]
    fn answers_to_a_dry_run_are_told_apart() {
        let of = |code, message| answer("b", code, message);
        for busy in [401, 408, 409, 429] {
            assert_eq!(of(busy, "later"), BindingAnswer::Unknown, "{busy}");
        }
        for code in [400, 403, 404, 422, 500, 503] {
            assert!(
                matches!(of(code, "no room"), BindingAnswer::Refused(why) if why.contains("no room")),
                "{code}"
            );
        }
        let blind = "admission webhook \"x\" does not support dry run";
        assert_eq!(of(400, blind), BindingAnswer::Accepted);
    }

    #[test]
    fn backup_entry_that_is_missing_or_elsewhere_is_refused() {
        let entry = |spec: &str, status: &str| -> DynamicObject {
            serde_json::from_value(json!({
                "apiVersion": "core.gardener.cloud/v1beta1", "kind": "BackupEntry", "metadata": {"name": "e"},
                "spec": {"seedName": spec}, "status": {"seedName": status},
            }))
            .expect("a BackupEntry")
        };
        assert_eq!(entry_refusal(Some(&entry("a", "a")), "a"), None);
        for found in [None, Some(entry("b", "a")), Some(entry("a", "b"))] {
            assert!(entry_refusal(found.as_ref(), "a").is_some_and(|why| why.contains("no final snapshot")));
        }
    }
}
