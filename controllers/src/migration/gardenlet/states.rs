//! The ShootState that gardenlet reads: that of Gardener's API server, brought to what Repot has stored.

use http::{Method, Request, header};
use kube::{
    Api, Client,
    core::{DynamicObject, GroupVersionKind, Resource as _},
    discovery::ApiResource,
};
use repot_api::names::{CORE_GROUP, TIMESTAMP};
use repot_apimachinery::time::Time;
use repot_plan::gardenlet::observed::{StateFacts, StoredState};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    errors::is_not_found,
    migration::{
        error::{Error, Result},
        names::MANAGER,
    },
    shootstate::{
        ShootKey,
        model::{ResourceEntry, ShootStateObject, Spec},
        write::ShootStates,
    },
};

/// Both ShootStates of a Shoot, as they were read.
pub struct States {
    own: Option<ShootStateObject>,
    gardener: Option<DynamicObject>,
}

/// What is written. The text of opaque parts is kept.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NewState<'a> {
    api_version: &'a str,
    kind: &'a str,
    metadata: Value,
    spec: &'a Spec,
}

fn resource() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(CORE_GROUP, "v1beta1", "ShootState"))
}

/// Reads both.
///
/// # Errors
/// Where an API server does not answer, or Repot's ShootState cannot be read.
pub async fn read(garden: &Client, shoot: &ShootKey) -> Result<States> {
    let own = ShootStates::discover(garden).await?.get(shoot).await?;
    let all = Api::<DynamicObject>::namespaced_with(garden.clone(), &shoot.namespace, &resource());
    let gardener = match all.get_opt(&shoot.name).await {
        Err(error) if is_not_found(&error) => None,
        found => found.map_err(Error::read(format!("ShootState {} of Gardener", shoot.name)))?,
    };
    Ok(States { own, gardener })
}

fn written(annotations: Option<&std::collections::BTreeMap<String, String>>) -> Option<Time> {
    Time::parse(annotations?.get(TIMESTAMP)?)
}

fn length(spec: &impl Serialize) -> u64 {
    let text = serde_json::to_vec(spec).map(|text| text.len()).unwrap_or_default();
    u64::try_from(text).unwrap_or(u64::MAX)
}

impl States {
    /// What rows decide on.
    #[must_use]
    pub fn facts(&self) -> StateFacts {
        let own = self.own.as_ref().map(|own| StoredState {
            written: written(own.metadata.annotations.as_ref()),
            bytes: length(&own.spec.as_ref().map(accepted)),
        });
        let gardener = self.gardener.as_ref().map(|found| StoredState {
            written: written(found.metadata.annotations.as_ref()),
            bytes: length(&found.data.get("spec")),
        });
        StateFacts { own, gardener }
    }
}

/// What Gardener's API server takes: of objects as a whole it has Secrets and ConfigMaps, which states of extensions refer to. What Repot
/// carries beside them is made by gardenlet.
fn accepted(spec: &Spec) -> Spec {
    let is_accepted = |entry: &ResourceEntry| {
        entry.api_version == "v1" && matches!(entry.kind.as_str(), "Secret" | "ConfigMap")
    };
    let mut spec = spec.clone();
    spec.resources.iter_mut().for_each(|resources| resources.retain(is_accepted));
    spec
}

/// Gives Gardener's API server what Repot has stored, with the time at which that was written.
///
/// # Errors
/// Where Repot has none, or it cannot be written; a conflict where somebody else has written meanwhile.
pub async fn ensure(garden: &Client, shoot: &ShootKey, states: &States) -> Result<()> {
    let missing = || Error::Missing(format!("the ShootState of {}", shoot.name));
    let own = states.own.as_ref().ok_or_else(missing)?;
    let spec = own.spec.as_ref().ok_or_else(missing)?;
    let time = own.metadata.annotations.as_ref().and_then(|all| all.get(TIMESTAMP));
    let annotations = json!({TIMESTAMP: time});
    let path = DynamicObject::url_path(&resource(), Some(&shoot.namespace));
    let (method, path, media_type, metadata) = match &states.gardener {
        None => {
            let metadata =
                json!({"name": shoot.name, "namespace": shoot.namespace, "annotations": annotations});
            (Method::POST, path, "application/json", metadata)
        }
        Some(found) => {
            let metadata =
                json!({"resourceVersion": found.metadata.resource_version, "annotations": annotations});
            (Method::PATCH, format!("{path}/{}", shoot.name), "application/merge-patch+json", metadata)
        }
    };
    let api_version = format!("{CORE_GROUP}/v1beta1");
    let spec = accepted(spec);
    let body = NewState { api_version: &api_version, kind: "ShootState", metadata, spec: &spec };
    let failed =
        |source| Error::Write { task: format!("write ShootState {} of Gardener", shoot.name), source };
    let body = serde_json::to_vec(&body).map_err(|error| failed(kube::Error::SerdeError(error)))?;
    let request = Request::builder()
        .method(method)
        .uri(format!("{path}?fieldManager={MANAGER}"))
        .header(header::CONTENT_TYPE, media_type)
        .body(body)
        .map_err(|error| failed(kube::Error::HttpError(error)))?;
    garden.request_text(request).await.map(drop).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_that_gardener_does_not_take_are_left_out() {
        let entry =
            |version: &str, kind: &str| json!({"apiVersion": version, "kind": kind, "name": "n", "data": {}});
        let spec = json!({"resources": [
            entry("v1", "Secret"), entry("apps/v1", "Deployment"), entry("v1", "ConfigMap"), entry("v1", "Service"),
        ]});
        let spec: Spec = serde_json::from_value(spec).expect("a spec");
        let kinds: Vec<String> =
            accepted(&spec).resources.into_iter().flatten().map(|entry| entry.kind).collect();
        assert_eq!(kinds, ["Secret", "ConfigMap"]);
    }
}
