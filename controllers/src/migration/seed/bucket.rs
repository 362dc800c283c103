//! The BackupBucket of a seed in the garden, and the credentials for it.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client,
    api::ListParams,
    core::{DynamicObject, GroupVersionKind},
    discovery::ApiResource,
};
use repot_api::names::CORE_GROUP;
use repot_apimachinery::value::text_at;
use serde_json::Value;

use crate::migration::error::{Error, Result};

/// The BackupBucket of a seed.
///
/// # Errors
/// [`Error::Read`]; [`Error::Missing`] where the seed has none.
pub async fn of_seed(garden: &Client, seed: &str) -> Result<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(CORE_GROUP, "v1beta1", "BackupBucket"));
    let all = Api::<DynamicObject>::all_with(garden.clone(), &kind);
    let found = all.list(&ListParams::default()).await.map_err(Error::read("BackupBuckets"))?;
    found
        .items
        .into_iter()
        .find(|bucket| text_at(&bucket.data, "/spec/seedName") == Some(seed))
        .ok_or_else(|| Error::Missing(format!("the BackupBucket of seed {seed}")))
}

/// The credentials for a bucket, by key of its Secret.
///
/// # Errors
/// [`Error::Read`]; [`Error::Missing`] where no Secret has them.
pub async fn credentials(
    garden: &Client,
    bucket: &DynamicObject,
    seed: &str,
) -> Result<BTreeMap<String, ByteString>> {
    let missing = || Error::Missing(format!("a Secret with access to the bucket of seed {seed}"));
    let (namespace, name) = reference(&bucket.data).ok_or_else(missing)?;
    let what = || format!("Secret {namespace}/{name} in the garden");
    let found = Api::<Secret>::namespaced(garden.clone(), &namespace).get_opt(&name).await;
    let found = found.map_err(Error::read(what()))?.ok_or_else(|| Error::Missing(what()))?;
    Ok(found.data.unwrap_or_default())
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
