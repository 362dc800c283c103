//! Machine objects of one namespace, by the API server of the seed.

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use repot_extension::Failure;
use serde_json::{Value, json};

/// The group of machine-controller-manager.
pub(super) const GROUP: &str = "machine.sapcloud.io";
const VERSION: &str = "v1alpha1";
const FIELD_MANAGER: &str = "local-provider";
const CONFLICT: u16 = 409;
const NOT_FOUND: u16 = 404;

/// Clients of the four kinds.
pub(super) struct MachineApi {
    classes: Api<DynamicObject>,
    deployments: Api<DynamicObject>,
    sets: Api<DynamicObject>,
    machines: Api<DynamicObject>,
}

impl MachineApi {
    pub(super) fn new(client: &Client, namespace: &str) -> Self {
        let api = |kind: &str, plural: &str| {
            let resource = ApiResource {
                group: GROUP.to_owned(),
                version: VERSION.to_owned(),
                api_version: api_version(),
                kind: kind.to_owned(),
                plural: plural.to_owned(),
            };
            Api::namespaced_with(client.clone(), namespace, &resource)
        };
        Self {
            classes: api("MachineClass", "machineclasses"),
            deployments: api("MachineDeployment", "machinedeployments"),
            sets: api("MachineSet", "machinesets"),
            machines: api("Machine", "machines"),
        }
    }

    pub(super) fn classes(&self) -> &Api<DynamicObject> {
        &self.classes
    }

    pub(super) fn deployments(&self) -> &Api<DynamicObject> {
        &self.deployments
    }

    pub(super) fn sets(&self) -> &Api<DynamicObject> {
        &self.sets
    }

    pub(super) fn machines(&self) -> &Api<DynamicObject> {
        &self.machines
    }

    /// Applies an object, server-side.
    pub(super) async fn apply(&self, api: &Api<DynamicObject>, object: &Value) -> Result<(), Failure> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        api.patch(name, &parameters, &Patch::Apply(object)).await.map_err(failed).map(drop)
    }

    /// Creates an object unless one of its name exists.
    pub(super) async fn create(&self, api: &Api<DynamicObject>, object: &Value) -> Result<(), Failure> {
        let object: DynamicObject = serde_json::from_value(object.clone())
            .map_err(|error| Failure::new(format!("an object of the state is unreadable: {error}")))?;
        match api.create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) if status.code == CONFLICT => Ok(()),
            outcome => outcome.map_err(failed).map(drop),
        }
    }

    /// Names of all objects of a kind.
    pub(super) async fn names(&self, api: &Api<DynamicObject>) -> Result<Vec<String>, Failure> {
        let found = api.list(&ListParams::default()).await.map_err(failed)?;
        Ok(found.iter().map(ResourceExt::name_any).collect())
    }

    /// Deletes all objects of a kind; those with finalizers exist until these are removed.
    pub(super) async fn delete_all(&self, api: &Api<DynamicObject>) -> Result<(), Failure> {
        for name in self.names(api).await? {
            gone_or(api.delete(&name, &DeleteParams::default()).await)?;
        }
        Ok(())
    }

    /// Removes all finalizers of an object and deletes it.
    pub(super) async fn forget(&self, api: &Api<DynamicObject>, name: &str) -> Result<(), Failure> {
        let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        gone_or(api.patch(name, &PatchParams::default(), &bare).await)?;
        gone_or(api.delete(name, &DeleteParams::default()).await)
    }
}

pub(super) fn api_version() -> String {
    format!("{GROUP}/{VERSION}")
}

pub(super) fn failed(error: kube::Error) -> Failure {
    Failure::new(format!("the API server of the seed: {error}"))
}

/// An object that is gone meanwhile is no failure.
pub(super) fn gone_or<T>(outcome: Result<T, kube::Error>) -> Result<(), Failure> {
    match outcome {
        Err(kube::Error::Api(status)) if status.code == NOT_FOUND => Ok(()),
        outcome => outcome.map_err(failed).map(drop),
    }
}
