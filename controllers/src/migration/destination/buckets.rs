//! Credentials of buckets: those of a seed's BackupBucket in the garden, as a Secret beside the Etcd.

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client, ResourceExt,
    api::ListParams,
    core::{DynamicObject, GroupVersionKind, ObjectMeta},
    discovery::ApiResource,
};
use repot_api::names::CORE_GROUP;
use serde_json::Value;
use std::collections::BTreeMap;

use super::prepare::create_params;
use crate::{
    errors::is_conflict,
    migration::{
        error::{Error, Result},
        seed::{params, under},
    },
};

/// Writes the credentials of a seed's bucket to a Secret of the control plane.
///
/// # Errors
/// Where the garden has no credentials of that seed's bucket, or the Secret cannot be written.
pub async fn ensure_secret(
    garden: &Client,
    seed: &Client,
    namespace: &str,
    name: &str,
    bucket_of: &str,
) -> Result<()> {
    let data = credentials(garden, bucket_of).await?;
    let all = Api::<Secret>::namespaced(seed.clone(), namespace);
    let what = || format!("Secret {namespace}/{name}");
    let Some(found) = all.get_opt(name).await.map_err(Error::read(what()))? else {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let secret =
            Secret { metadata, data: Some(data), type_: Some("Opaque".to_owned()), ..Secret::default() };
        return match all.create(&create_params(), &secret).await {
            Err(error) if is_conflict(&error) => Ok(()),
            outcome => outcome.map(drop).map_err(Error::write(format!("create {}", what()))),
        };
    };
    if found.data.as_ref() == Some(&data) {
        return Ok(());
    }
    let patch = under(found.resource_version(), serde_json::json!({"data": data}));
    let outcome = all.patch(name, &params(), &patch).await;
    outcome.map(drop).map_err(Error::write(format!("write {}", what())))
}

/// The credentials of the bucket of a seed.
async fn credentials(garden: &Client, seed: &str) -> Result<BTreeMap<String, ByteString>> {
    let bucket = bucket(garden, seed).await?;
    let missing = || Error::Missing(format!("a Secret with access to the bucket of seed {seed}"));
    let (namespace, name) = reference(&bucket.data).ok_or_else(missing)?;
    let what = || format!("Secret {namespace}/{name} in the garden");
    let found = Api::<Secret>::namespaced(garden.clone(), &namespace).get_opt(&name).await;
    let found = found.map_err(Error::read(what()))?.ok_or_else(|| Error::Missing(what()))?;
    Ok(found.data.unwrap_or_default())
}

async fn bucket(garden: &Client, seed: &str) -> Result<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(CORE_GROUP, "v1beta1", "BackupBucket"));
    let all = Api::<DynamicObject>::all_with(garden.clone(), &kind);
    let found = all.list(&ListParams::default()).await.map_err(Error::read("BackupBuckets"))?;
    let is_of =
        |bucket: &DynamicObject| bucket.data.pointer("/spec/seedName").and_then(Value::as_str) == Some(seed);
    found
        .items
        .into_iter()
        .find(is_of)
        .ok_or_else(|| Error::Missing(format!("the BackupBucket of seed {seed}")))
}

/// Namespace and name of the Secret: the one that an extension has made, else the one that its owner has named.
fn reference(bucket: &Value) -> Option<(String, String)> {
    let at = |pointer: &str| {
        let found = bucket.pointer(pointer)?;
        let text = |field: &str| found.get(field).and_then(Value::as_str).map(str::to_owned);
        Some((text("namespace")?, text("name")?))
    };
    at("/status/generatedSecretRef").or_else(|| at("/spec/credentialsRef")).or_else(|| at("/spec/secretRef"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secret_that_an_extension_made_goes_before_that_of_the_owner() {
        let own = json!({"namespace": "garden", "name": "own"});
        let made = json!({"namespace": "garden", "name": "made"});
        let name = |bucket: Value| reference(&bucket).map(|(_, name)| name);
        assert_eq!(name(json!({"spec": {"credentialsRef": own}})).as_deref(), Some("own"));
        assert_eq!(name(json!({"spec": {"secretRef": own}})).as_deref(), Some("own"));
        let both = json!({"spec": {"credentialsRef": own}, "status": {"generatedSecretRef": made}});
        assert_eq!(name(both).as_deref(), Some("made"));
        assert_eq!(name(json!({"spec": {}})), None);
    }
}
