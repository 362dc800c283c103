//! The published OpenAPI documents.

use bytes::Bytes;
use repot_apimachinery::openapi::{self, GroupVersion};
use serde_json::{Map, json};

use crate::wire;

/// The media type of JSON documents, for their hashes.
pub(crate) const JSON: &str = "application/json";

/// The documents, made once.
pub struct Documents {
    pub(crate) v2: Bytes,
    pub(crate) v2_protobuf: Bytes,
    pub(crate) v3_index: Bytes,
    /// By their paths below `/openapi/v3/`.
    pub(crate) v3: Vec<(String, Bytes)>,
}

impl Documents {
    /// Makes the OpenAPI v2 and v3 documents of these groups.
    #[must_use]
    pub fn new(groups: &[GroupVersion]) -> Self {
        let version = format!("v{}", env!("CARGO_PKG_VERSION"));
        let v3: Vec<(String, Bytes)> = groups
            .iter()
            .map(|group| {
                let path = format!("apis/{}/{}", group.group, group.version);
                (path, Bytes::from(openapi::v3(group, &version).to_string()))
            })
            .collect();
        let paths: Map<_, _> = v3
            .iter()
            .map(|(path, text)| {
                let url = format!("/openapi/v3/{path}?hash={}", hash(text));
                (path.clone(), json!({"serverRelativeURL": url}))
            })
            .collect();
        let v3_index = Bytes::from(json!({"paths": paths}).to_string());
        let v2 = openapi::v2(groups, &version);
        let v2_protobuf = Bytes::from(openapi::proto::encode(&v2));
        Self { v2: Bytes::from(v2.to_string()), v2_protobuf, v3_index, v3 }
    }
}

/// The hash that the URL of a document has.
pub(crate) fn hash(text: &[u8]) -> String {
    wire::etag(text, JSON).trim_matches('"').to_owned()
}
