//! Secrets as entries of a ShootState, in Gardener's form `{"data": …, "immutable": …, "type": …}`.

use std::collections::BTreeMap;

use kube::core::ObjectMeta;
use repot_extension::RawJson;
use serde::{Deserialize, Serialize};

use super::{
    error::{Error, Result},
    model::{GardenerEntry, TYPE_SECRET},
};

/// What a Secret is beside its name and labels. Values are base64, as kube-apiserver has them.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SecretContent {
    /// Values by key, in base64.
    #[serde(default)]
    pub data: BTreeMap<String, String>,
    /// Whether the Secret can no longer be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub immutable: Option<bool>,
    /// Type of the Secret.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

impl std::fmt::Debug for SecretContent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SecretContent({} keys)", self.data.len())
    }
}

#[derive(Deserialize)]
struct Secret {
    metadata: ObjectMeta,
    #[serde(flatten)]
    content: SecretContent,
}

/// Makes the entry of a Secret as kube-apiserver lists it.
///
/// # Errors
/// [`Error::Malformed`] where it is no Secret.
pub fn entry(secret: &RawJson) -> Result<GardenerEntry> {
    let malformed = || Error::Malformed("a Secret".to_owned());
    let secret: Secret = secret.decode().map_err(|_| malformed())?;
    Ok(GardenerEntry {
        data: RawJson::encode(&secret.content).map_err(|_| malformed())?,
        labels: secret.metadata.labels.unwrap_or_default(),
        name: secret.metadata.name.unwrap_or_default(),
        kind: TYPE_SECRET.to_owned(),
    })
}

/// Reads what the Secret of an entry consists of.
///
/// # Errors
/// [`Error::Malformed`] where the entry has another form.
pub fn content(entry: &GardenerEntry) -> Result<SecretContent> {
    let malformed = || Error::Malformed(format!("data of Secret {} in the ShootState", entry.name));
    entry.data.decode().map_err(|_| malformed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_labels_type_and_immutable_survive() {
        let secret = r#"{"metadata":{"name":"ca","namespace":"n","uid":"u","annotations":{"a":"b"},"labels":{"persist":"true","name":"ca"}},
            "data":{"ca.key":"AAE=","empty":""},"immutable":true,"type":"Opaque"}"#;
        let entry = entry(&RawJson::parse(secret).expect("JSON")).expect("a Secret");
        assert_eq!(
            entry.data.get(),
            r#"{"data":{"ca.key":"AAE=","empty":""},"immutable":true,"type":"Opaque"}"#
        );
        assert_eq!((entry.name.as_str(), entry.kind.as_str()), ("ca", "secret"));
        let labels: Vec<_> = entry.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(labels, [("name", "ca"), ("persist", "true")]);
        let content = content(&entry).expect("a Secret");
        assert_eq!((content.immutable, content.kind.as_deref()), (Some(true), Some("Opaque")));
        assert_eq!(content.data["ca.key"], "AAE=");
    }

    #[test]
    fn secret_without_data_or_immutable_is_an_entry() {
        let secret = r#"{"metadata":{"name":"s"},"type":"x/y"}"#;
        let entry = entry(&RawJson::parse(secret).expect("JSON")).expect("a Secret");
        assert_eq!(entry.data.get(), r#"{"data":{},"type":"x/y"}"#);
    }

    #[test]
    fn errors_and_debug_show_no_content() {
        let data = RawJson::parse(r#"{"data":"geheim"}"#).expect("JSON");
        let wrong = GardenerEntry { data, labels: BTreeMap::new(), name: "s".into(), kind: "secret".into() };
        let error = content(&wrong).expect_err("no map");
        assert!(!format!("{error} {error:?} {wrong:?}").contains("geheim"));
    }
}
