//! Effects of the garden as calls.

use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use repot_plan::{
    migration::{Side, effect::Effect, observed::FormerOperation},
    named::Named,
};
use serde_json::{Value, json};

use super::{backup_entry, ignored, live, objects::Objects, operation};
use crate::{
    errors::is_not_found,
    migration::{
        api::{ControlPlaneMigration, Shoot},
        context::Context,
        error::{Error, Result},
        names::{FINALIZER, MANAGER},
        pass::Pass,
        siblings,
    },
};

/// Carries out an effect of the garden, under the versions of the objects that were observed.
///
/// # Errors
/// [`Error`]. The next pass looks again.
pub async fn act(pass: &Pass<'_>, objects: &Objects, effect: &Effect) -> Result<()> {
    let shoot = || objects.shoot.as_ref().ok_or_else(|| Error::Missing("the Shoot".to_owned()));
    match effect {
        Effect::EnsureFinalizer { present } => {
            finalizer(pass.context, pass.migration, shoot().ok(), *present).await
        }
        Effect::RevokeSourceCredentials => revoke_credentials(pass).await,
        Effect::SupersedeOthers => siblings::supersede(pass.context, pass.migration).await,
        Effect::EnsureOperation { operation } => {
            let former = former(pass.migration);
            match operation::render(*operation, former.as_ref(), &pass.migration.name_any(), &now()) {
                Some(last) => status(pass, shoot()?, json!({"lastOperation": last})).await,
                None => Ok(()),
            }
        }
        Effect::TellLiveProgress { conditions } => {
            let shoot = shoot()?;
            status(pass, shoot, json!({"liveMigration": live::render(&shoot.status, conditions, &now())}))
                .await
        }
        Effect::EnsureIgnored { ignored } => ignore(pass, shoot()?, *ignored).await,
        Effect::EnsureStatusSeed { seed } => status(pass, shoot()?, json!({"seedName": seed})).await,
        Effect::EnsureBackupEntrySeed { seed } => {
            let entry = objects.backup_entry.as_ref();
            let entry = entry.ok_or_else(|| Error::Missing("the BackupEntry".to_owned()))?;
            backup_entry::bind(pass.context.garden_client(), entry, seed).await
        }
        Effect::EnsureSpecSeed { seed } => bind(pass.context, shoot()?, seed).await,
        _ => Ok(()),
    }
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A process that stood still since it decided this must not touch a seed that was repaired meanwhile, so the migration is read again.
async fn revoke_credentials(pass: &Pass<'_>) -> Result<()> {
    let Some(command) = &pass.context.quarantine else { return Ok(()) };
    let namespace = pass.migration.namespace().unwrap_or_default();
    let all = Api::<ControlPlaneMigration>::namespaced(pass.context.garden_client().clone(), &namespace);
    let current = all.get_opt(&pass.migration.name_any()).await;
    let current = current.map_err(Error::read("the own ControlPlaneMigration"))?;
    let goes_on = |current: &ControlPlaneMigration| {
        current.uid() == pass.migration.uid() && current.is_source_to_be_quarantined()
    };
    if current.as_ref().is_some_and(goes_on) {
        command.revoke(&pass.migration.spec.source_seed);
    }
    Ok(())
}

/// The last operation of the Shoot before the migration, as it was recorded.
fn former(migration: &ControlPlaneMigration) -> Option<FormerOperation> {
    let recorded = migration.status.get(Side::Garden.name())?.get("formerOperation")?;
    serde_json::from_value(recorded.clone()).ok()
}

/// Sets or removes our finalizer. With it comes the UID of the Shoot, where the user has left it out.
///
/// # Errors
/// [`Error::Write`].
pub async fn finalizer(
    context: &Context,
    migration: &ControlPlaneMigration,
    shoot: Option<&Shoot>,
    present: bool,
) -> Result<()> {
    let mut finalizers = migration.finalizers().to_vec();
    finalizers.retain(|finalizer| finalizer != FINALIZER);
    if present {
        finalizers.push(FINALIZER.to_owned());
    }
    let mut patch = json!({"metadata": {"finalizers": finalizers}});
    if let Some(uid) = shoot.and_then(ResourceExt::uid).filter(|_| migration.spec.shoot_ref.uid.is_empty()) {
        patch["spec"]["shootRef"]["uid"] = uid.into();
    }
    let patch = under(migration.resource_version(), patch);
    let all = Api::<ControlPlaneMigration>::namespaced(
        context.garden_client().clone(),
        &migration.namespace().unwrap_or_default(),
    );
    match all.patch(&migration.name_any(), &params(), &Patch::Merge(patch)).await {
        // With its last finalizer the object goes.
        Err(error) if !present && is_not_found(&error) => Ok(()),
        outcome => outcome.map(drop).map_err(Error::write("set the finalizer")),
    }
}

/// The Shoots of the namespace of a Shoot.
pub fn shoots(context: &Context, shoot: &Shoot) -> Api<Shoot> {
    Api::namespaced(context.garden_client().clone(), &shoot.namespace().unwrap_or_default())
}

async fn status(pass: &Pass<'_>, shoot: &Shoot, fields: Value) -> Result<()> {
    let patch = Patch::Merge(under(shoot.resource_version(), json!({"status": fields})));
    let outcome = shoots(pass.context, shoot).patch_status(&shoot.name_any(), &params(), &patch).await;
    outcome.map(drop).map_err(Error::write("write the status of the Shoot"))
}

/// One patch sets the annotation and raises the generation, so a gardenlet that sees one sees both.
async fn ignore(pass: &Pass<'_>, shoot: &Shoot, ignored: bool) -> Result<()> {
    let uid = &pass.facts.request.uid;
    let others = siblings::of(pass.context, pass.migration).await?;
    let Some(annotations) = ignored::annotations(shoot, uid, &siblings::uids(&others), ignored) else {
        return Ok(());
    };
    let patch =
        Patch::Merge(under(shoot.resource_version(), json!({"metadata": {"annotations": annotations}})));
    let outcome = shoots(pass.context, shoot).patch(&shoot.name_any(), &params(), &patch).await;
    outcome.map(drop).map_err(Error::write("write annotations of the Shoot"))
}

/// Only the binding can change the seed of a Shoot.
///
/// # Errors
/// [`Error::Write`].
pub async fn bind(context: &Context, shoot: &Shoot, seed: &str) -> Result<()> {
    bind_by(context, shoot, seed, &params()).await
}

/// Asks Gardener and all webhooks whether they would accept the binding.
///
/// # Errors
/// [`Error::Write`], with what they say against it.
pub async fn dry_run_binding(context: &Context, shoot: &Shoot, seed: &str) -> Result<()> {
    bind_by(context, shoot, seed, &PatchParams { dry_run: true, ..params() }).await
}

async fn bind_by(context: &Context, shoot: &Shoot, seed: &str, params: &PatchParams) -> Result<()> {
    let patch = Patch::Merge(under(shoot.resource_version(), json!({"spec": {"seedName": seed}})));
    let outcome =
        shoots(context, shoot).patch_subresource("binding", &shoot.name_any(), params, &patch).await;
    outcome.map(drop).map_err(Error::write("write spec.seedName of the Shoot"))
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

/// A patch that is refused unless the object is what was observed.
fn under(version: Option<String>, mut patch: Value) -> Value {
    patch["metadata"]["resourceVersion"] = version.into();
    patch
}
