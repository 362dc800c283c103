//! Effects become calls: each one call, or a few that may be repeated, under the versions that were seen.

use k8s_openapi::{
    api::{apps::v1::Deployment, batch::v1::Job, core::v1::PersistentVolumeClaim},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use repot_etcd_core::volumes::VolumeSet;
use repot_plan::etcd::{
    effect::Effect,
    observed::{Cluster, Settings},
};
use serde_json::{Value, json};

use crate::{
    errors::is_not_found,
    etcd::api::{Etcd, FENCE, OWN_HISTORIES, RESTORE_FROM},
};

use super::{
    api::{CurrentWorkflow, HostedEtcd, WorkflowObject, WorkflowSpec},
    context::Context,
    error::{Error, Result},
    histories,
    jobs::{self, Order, Task},
    kinds::{self, Kind, MANAGER},
    members::Reach,
    observe::Observation,
    site::{ControlPlane, is_etcd},
};

/// The longest pause between two Jobs that prove the same backup.
const LONGEST_PAUSE: i64 = 120;

/// Whose effects, and on what they were decided.
pub struct Actor<'a, S> {
    /// Clients and settings that all passes share.
    pub context: &'a Context,
    /// Its object, as it is stored now.
    pub object: &'a WorkflowObject<S>,
    /// What was observed in the pass that decided on the effects.
    pub observed: &'a Observation,
}

impl<S: WorkflowSpec> Actor<'_, S> {
    /// Asks for an effect.
    ///
    /// # Errors
    /// [`Error`]. The next pass looks again.
    pub async fn act(&self, effect: &Effect) -> Result<()> {
        match effect {
            Effect::EnsureFinalizer { present } => self.finalizer(*present).await,
            Effect::EnsureClusterFinalizer { present } => self.cluster_finalizer(*present).await,
            Effect::EnsureLock { held } => self.lock(*held).await,
            Effect::EnsureApi { replicas, fence } => self.api(*replicas, fence).await,
            Effect::EnsureBackup { name } if S::KIND == Kind::Restore => self.job(Task::Import, name).await,
            Effect::EnsureBackup { name } => self.job(Task::Take, name).await,
            Effect::EnsureVerified { name } => self.job(Task::Prove, name).await,
            Effect::EnsureEtcd { volumes, settings, from, fence } => {
                self.etcd(volumes, settings, from.as_deref(), fence).await
            }
            Effect::EnsureNoEtcd { volumes } => self.no_etcd(volumes).await,
            Effect::EnsureSettings { settings } => self.settings(settings).await,
            Effect::EnsureNoVolumes { volumes } => self.no_volumes(volumes).await,
            Effect::EnsureNoBackups { names } => self.no_backups(names).await,
        }
    }

    fn namespace(&self) -> String {
        self.object.namespace().unwrap_or_default()
    }

    fn site(&self) -> Result<&ControlPlane> {
        self.observed.site.as_ref().ok_or_else(|| Error::Missing("the HostedEtcd".to_owned()))
    }

    fn hosted(&self) -> Result<(Api<HostedEtcd>, &HostedEtcd)> {
        // What stands for one that is gone is never written: there may be another one of that name.
        if self.observed.facts.cluster == Cluster::Gone {
            return Err(Error::Missing("the HostedEtcd".to_owned()));
        }
        let hosted = &self.site()?.hosted;
        Ok((Api::namespaced(self.context.clients.own().clone(), &self.namespace()), hosted))
    }

    async fn finalizer(&self, present: bool) -> Result<()> {
        let finalizers = kinds::finalizers(self.object, present);
        let all = Api::<WorkflowObject<S>>::namespaced(self.context.clients.own().clone(), &self.namespace());
        let patch = under(self.object.resource_version(), json!({"metadata": {"finalizers": finalizers}}));
        let name = self.object.name_any();
        match all.patch(&name, &params(), &Patch::Merge(patch)).await {
            // With its last finalizer the object goes.
            Err(error) if !present && is_not_found(&error) => Ok(()),
            outcome => done("set the finalizer", outcome),
        }
    }

    async fn cluster_finalizer(&self, present: bool) -> Result<()> {
        let (all, hosted) = self.hosted()?;
        let finalizers = kinds::finalizers(hosted, present);
        let patch = under(hosted.resource_version(), json!({"metadata": {"finalizers": finalizers}}));
        match all.patch(&hosted.name_any(), &params(), &Patch::Merge(patch)).await {
            Err(error) if !present && is_not_found(&error) => Ok(()),
            outcome => done("set the finalizer of the HostedEtcd", outcome),
        }
    }

    async fn lock(&self, held: bool) -> Result<()> {
        let (all, hosted) = self.hosted()?;
        let current = held.then(|| CurrentWorkflow {
            kind: S::KIND.name().to_owned(),
            name: self.object.name_any(),
            uid: self.object.uid().unwrap_or_default(),
        });
        let patch = under(hosted.resource_version(), json!({"status": {"currentWorkflow": current}}));
        match all.patch_status(&hosted.name_any(), &params(), &Patch::Merge(patch)).await {
            // One that was being deleted has gone, and its lock with it.
            Err(error) if !held && is_not_found(&error) => Ok(()),
            outcome => done("write status.currentWorkflow of the HostedEtcd", outcome),
        }
    }

    async fn settings(&self, settings: &Settings) -> Result<()> {
        let (all, hosted) = self.hosted()?;
        let patch = json!({"spec": {"settings": kinds::settings(settings)}});
        let patch = under(hosted.resource_version(), patch);
        let outcome = all.patch(&hosted.name_any(), &params(), &Patch::Merge(patch)).await;
        done("write spec.settings of the HostedEtcd", outcome)
    }

    async fn api(&self, replicas: u32, fence: &str) -> Result<()> {
        let deployment = self.site()?.deployment.as_ref();
        let deployment =
            deployment.ok_or_else(|| Error::Missing("the Deployment of the API servers".to_owned()))?;
        let patch = json!({"metadata": {"annotations": {FENCE: fence}}, "spec": {"replicas": replicas}});
        let patch = under(deployment.resource_version(), patch);
        let all = Api::<Deployment>::namespaced(self.context.clients.own().clone(), &self.namespace());
        let outcome = all.patch(&deployment.name_any(), &params(), &Patch::Merge(patch)).await;
        done("scale the API servers", outcome)
    }

    /// The Etcd, which must be one of ours.
    fn managed(&self) -> Result<(Api<Etcd>, &Etcd)> {
        let site = self.site()?;
        if !is_etcd(&site.hosted) {
            return Err(Error::Unmanaged);
        }
        let etcd = site.etcd.as_ref().ok_or_else(|| Error::Missing("the Etcd".to_owned()))?;
        Ok((Api::namespaced(self.context.clients.own().clone(), &self.namespace()), etcd))
    }

    async fn etcd(
        &self,
        volumes: &VolumeSet,
        settings: &Settings,
        from: Option<&str>,
        fence: &str,
    ) -> Result<()> {
        let (all, etcd) = self.managed()?;
        // One that runs with other volumes is left alone.
        if etcd.spec.replicas > 0 && self.site()?.template().as_ref() != Some(volumes) {
            return Ok(());
        }
        let known = |text: &String| (!text.is_empty()).then(|| text.clone());
        let mut annotations = json!({FENCE: fence, RESTORE_FROM: from});
        if from.is_some() {
            annotations[OWN_HISTORIES] = histories::own(self.site()?, volumes).into();
        }
        let patch = json!({
            "metadata": {"annotations": annotations},
            "spec": {
                "volumeClaimTemplate": volumes.0, "replicas": settings.replicas,
                "storageCapacity": known(&settings.size), "storageClass": known(&settings.storage_class),
            },
        });
        let patch = under(etcd.resource_version(), patch);
        done("write the Etcd", all.patch(&etcd.name_any(), &params(), &Patch::Merge(patch)).await)
    }

    async fn no_etcd(&self, volumes: &VolumeSet) -> Result<()> {
        let (all, etcd) = self.managed()?;
        if self.site()?.template().as_ref() != Some(volumes) {
            return Ok(());
        }
        let patch = under(etcd.resource_version(), json!({"spec": {"replicas": 0}}));
        done("stop the Etcd", all.patch(&etcd.name_any(), &params(), &Patch::Merge(patch)).await)
    }

    async fn no_volumes(&self, volumes: &VolumeSet) -> Result<()> {
        let site = self.site()?;
        // Whoever is about to go may still write.
        if site.pods().contains_key(volumes) || site.deployed().is_some_and(|etcd| etcd.volumes == *volumes) {
            return Ok(());
        }
        // First: once the claims are gone, nobody asks for this again.
        if self.observed.place.is_some()
            && let Some(history) = histories::to_close(site, volumes)
        {
            let backups = self.observed.backups.as_ref().ok_or(Error::SilentStore)?;
            self.context.term.check()?;
            let closed = backups.store.close_history(&history).await;
            closed.map_err(|error| Error::Backups(error.into()))?;
        }
        let all =
            Api::<PersistentVolumeClaim>::namespaced(self.context.clients.own().clone(), &self.namespace());
        for claim in site.claims_of(volumes) {
            let preconditions =
                Preconditions { uid: claim.uid(), resource_version: claim.resource_version() };
            let how = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            match all.delete(&claim.name_any(), &how).await {
                Err(error) if is_not_found(&error) => {}
                outcome => done("delete a claim", outcome)?,
            }
        }
        Ok(())
    }

    async fn no_backups(&self, names: &[String]) -> Result<()> {
        let backups = self.observed.backups.as_ref().ok_or(Error::SilentStore)?;
        for name in names {
            self.context.term.check()?;
            backups.backups.remove(name).await.map_err(Error::Backups)?;
        }
        Ok(())
    }

    async fn job(&self, task: Task, backup: &str) -> Result<()> {
        let story = jobs::story(&self.observed.jobs, &[task], backup);
        let pause = i64::from(story.ended).saturating_mul(10).min(LONGEST_PAUSE);
        let is_soon =
            story.ended > 0 && self.context.now().0.cast_signed() < story.last.saturating_add(pause);
        if story.open || is_soon {
            return Ok(());
        }
        let site = self.site()?;
        let place = self.observed.place.as_ref();
        let place = place.ok_or_else(|| Error::Missing("spec.backupStore of the HostedEtcd".to_owned()))?;
        let volumes = site.deployed().map_or_else(|| VolumeSet(String::new()), |etcd| etcd.volumes);
        let reach = Reach::of(site, &volumes);
        let source = self.observed.source.as_ref().filter(|_| task == Task::Import);
        if task == Task::Import && source.is_none() {
            return Err(Error::Missing("spec.source.store of the EtcdRestore".to_owned()));
        }
        // What is rendered now mounts these directories.
        for store in [Some(place), source].into_iter().flatten() {
            self.context.check_store(store)?;
        }
        if task == Task::Take && reach.endpoints.is_empty() {
            return Err(Error::NoQuorum);
        }
        let order = Order {
            workflow: &self.object.metadata,
            owner: owner(self.object),
            task,
            backup,
            attempt: story.ended,
            place,
            source,
            reach,
            image: &self.context.image,
            run_as_root: site.etcd.as_ref().is_some_and(|etcd| etcd.spec.run_as_root),
            limit: self.observed.facts.request.step_timeout,
        };
        let job = serde_json::from_value(jobs::render(&order)).map_err(Error::Render)?;
        let all = Api::<Job>::namespaced(self.context.clients.own().clone(), &self.namespace());
        match all
            .create(&PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() }, &job)
            .await
        {
            // By a pass before this one, which did not see it yet.
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()),
            outcome => done("create a Job", outcome),
        }
    }
}

fn owner<S: WorkflowSpec>(object: &WorkflowObject<S>) -> OwnerReference {
    OwnerReference {
        api_version: WorkflowObject::<S>::api_version(&()).into_owned(),
        kind: S::KIND.name().to_owned(),
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

/// A patch that is refused unless the object is what was seen.
fn under(version: Option<String>, mut patch: Value) -> Value {
    patch["metadata"]["resourceVersion"] = version.into();
    patch
}

fn done<T>(task: &'static str, outcome: Result<T, kube::Error>) -> Result<()> {
    outcome.map(drop).map_err(|source| Error::Write { task, source })
}
