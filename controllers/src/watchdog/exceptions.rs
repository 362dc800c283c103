//! Writes that a seed without the Shoot has to do all the same: it gives up what it has, and it takes the owner record.

use http::Request;
use kube::Client;
use repot_api::names::{EXTENSIONS_GROUP, OPERATION, OPERATION_GEP_7, OPERATION_MIGRATE, V1ALPHA1};
use serde::Deserialize;

use super::target::{ObjectPath, Part};
use crate::errors::is_not_found;

/// Objects of one kind in one Namespace; more are not looked through.
const MOST_OBJECTS: u32 = 500;
const MIGRATE: &str = "Migrate";

/// Whether a write is let through although this seed does not own the Shoot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exception {
    /// The object is being migrated, or all objects of the controller are.
    Migration,
    /// The object is the DNSRecord of the owner record.
    OwnerRecord,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PartialObject {
    metadata: PartialMetadata,
    spec: PartialSpec,
    status: Option<PartialStatus>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PartialMetadata {
    annotations: std::collections::BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PartialSpec {
    name: Option<String>,
    record_type: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PartialStatus {
    last_operation: Option<PartialOperation>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PartialOperation {
    r#type: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PartialList {
    metadata: PartialListMetadata,
    items: Vec<PartialObject>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PartialListMetadata {
    r#continue: Option<String>,
}

/// Looks for a reason to let a write through: reads the object, or the objects of these kinds, as they are now.
///
/// # Errors
/// Where they cannot be read.
pub async fn find(
    client: &Client,
    (namespace, part): (&str, &Part),
    record_names: &[String],
    kinds: &[String],
) -> Result<Option<Exception>, kube::Error> {
    match part {
        Part::Itself => Ok(None),
        Part::Object(object) if object.group == EXTENSIONS_GROUP => {
            of_object(client, namespace, object, record_names).await
        }
        Part::Object(_) | Part::Collection => of_controller(client, namespace, kinds).await,
    }
}

async fn of_object(
    client: &Client,
    namespace: &str,
    object: &ObjectPath,
    record_names: &[String],
) -> Result<Option<Exception>, kube::Error> {
    let ObjectPath { group, version, resource, name } = object;
    if ![namespace, version, resource, name].into_iter().all(is_plain) {
        return Ok(None);
    }
    let path = format!("/apis/{group}/{version}/namespaces/{namespace}/{resource}/{name}");
    let found: PartialObject = match get(client, &path).await {
        Err(error) if is_not_found(&error) => return Ok(None),
        found => found?,
    };
    Ok(if found.is_migrating() {
        Some(Exception::Migration)
    } else {
        found.is_owner_record(resource, record_names).then_some(Exception::OwnerRecord)
    })
}

/// Whether the controller has nothing to do in the Namespace but to migrate: each object of its kinds is being migrated, and there is one.
async fn of_controller(
    client: &Client,
    namespace: &str,
    kinds: &[String],
) -> Result<Option<Exception>, kube::Error> {
    if !is_plain(namespace) {
        return Ok(None);
    }
    let mut is_any = false;
    for kind in kinds {
        let path =
            format!("/apis/{EXTENSIONS_GROUP}/{V1ALPHA1}/namespaces/{namespace}/{kind}?limit={MOST_OBJECTS}");
        let list: PartialList = get(client, &path).await?;
        let is_whole = list.metadata.r#continue.is_none_or(|token| token.is_empty());
        if !is_whole || !list.items.iter().all(PartialObject::is_migrating) {
            return Ok(None);
        }
        is_any |= !list.items.is_empty();
    }
    Ok(is_any.then_some(Exception::Migration))
}

async fn get<T: serde::de::DeserializeOwned>(client: &Client, path: &str) -> Result<T, kube::Error> {
    let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    client.request(request).await
}

/// Whether a name can stand in a path as it is.
fn is_plain(name: impl AsRef<str>) -> bool {
    let name = name.as_ref();
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte))
}

impl PartialObject {
    /// The annotation asks for it, or none asks for anything and it was the last operation: then its controller removes its finalizer.
    fn is_migrating(&self) -> bool {
        let annotations = &self.metadata.annotations;
        let mut asked =
            [OPERATION, OPERATION_GEP_7].into_iter().filter_map(|key| annotations.get(key)).peekable();
        if asked.peek().is_some() {
            return asked.all(|operation| operation == OPERATION_MIGRATE);
        }
        let last = self.status.as_ref().and_then(|status| status.last_operation.as_ref());
        last.and_then(|last| last.r#type.as_deref()) == Some(MIGRATE)
    }

    fn is_owner_record(&self, resource: &str, names: &[String]) -> bool {
        let plain = |name: &str| name.trim_end_matches('.').to_ascii_lowercase();
        let own = self.spec.name.as_deref().map(plain);
        resource == "dnsrecords"
            && self.spec.record_type.as_deref() == Some("TXT")
            && own.is_some_and(|own| names.iter().any(|name| plain(name) == own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> PartialObject {
        serde_json::from_str(text).expect("an object")
    }

    #[test]
    fn only_a_migration_that_was_asked_for_or_was_last_counts() {
        let asked = |operation: &str, last: &str| {
            let text = format!(
                r#"{{"metadata":{{"annotations":{{"gardener.cloud/operation":"{operation}"}}}},"status":{{"lastOperation":{{"type":"{last}"}}}}}}"#
            );
            object(&text).is_migrating()
        };
        assert!(asked("migrate", "Reconcile") && asked("migrate", "Migrate"));
        assert!(!asked("reconcile", "Migrate") && !asked("restore", "Migrate") && !asked("", "Migrate"));
        assert!(object(r#"{"metadata":{},"status":{"lastOperation":{"type":"Migrate"}}}"#).is_migrating());
        assert!(!object(r#"{"metadata":{},"status":{"lastOperation":{"type":"Reconcile"}}}"#).is_migrating());
        assert!(!object(r#"{"metadata":{}}"#).is_migrating());
        let both = r#"{"metadata":{"annotations":{"gardener.cloud/operation":"migrate","core.gardener.cloud/operation":"reconcile"}}}"#;
        assert!(!object(both).is_migrating());
    }

    #[test]
    fn owner_record_is_the_txt_record_of_that_name() {
        let names = ["owner.A.example.org".to_owned()];
        let is = |resource: &str, name: &str, kind: &str| {
            object(&format!(r#"{{"spec":{{"name":"{name}","recordType":"{kind}"}}}}"#))
                .is_owner_record(resource, &names)
        };
        assert!(is("dnsrecords", "owner.a.example.org.", "TXT"));
        assert!(!is("dnsrecords", "owner.a.example.org", "A"));
        assert!(!is("dnsrecords", "api.a.example.org", "TXT"));
        assert!(!is("workers", "owner.a.example.org", "TXT"));
    }
}
