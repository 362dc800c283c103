//! The published OpenAPI documents.

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use repot_api::openapi::{self, GroupVersion};
use serde_json::{Map, json};

use super::{Answer, discovery};
use crate::{call::Call, negotiate, server::Server, status::Status, wire};

const JSON: &str = "application/json";

/// The documents, made once.
pub struct Documents {
    v2: Bytes,
    v3_index: Bytes,
    v3: Vec<(String, Bytes)>,
}

impl Documents {
    /// Of these groups.
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
        Self { v2: Bytes::from(openapi::v2(groups, &version).to_string()), v3_index, v3 }
    }
}

fn hash(text: &[u8]) -> String {
    discovery::etag(text, JSON).trim_matches('"').to_owned()
}

/// `/openapi/v2`, `/openapi/v3`, `/openapi/v3/apis/G/V`.
pub(super) fn document(server: &Server, call: &Call, path: &str) -> Answer {
    negotiate::json(&call.headers)?;
    let documents = &server.documents;
    match path {
        "/openapi/v2" => Ok(discovery::cacheable(&call.headers, documents.v2.clone(), JSON)),
        "/openapi/v3" => {
            let mut response = wire::whole(StatusCode::OK, documents.v3_index.clone());
            response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
            Ok(response)
        }
        _ => {
            let wanted = path.trim_start_matches("/openapi/v3/");
            let found = documents.v3.iter().find(|(path, _)| path == wanted);
            let (_, text) = found.ok_or_else(Status::no_such_path)?;
            let mut response = discovery::cacheable(&call.headers, text.clone(), JSON);
            // An outdated hash gets today's document: a redirect would be turned into an error on the way.
            if call.query.get("hash") == Some(&hash(text)) {
                let headers = response.headers_mut();
                headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
                let year = jiff::SignedDuration::from_hours(24 * 365);
                let expires = jiff::Timestamp::now().saturating_add(year).unwrap_or(jiff::Timestamp::MAX);
                let expires = expires.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
                headers.extend(HeaderValue::try_from(expires).ok().map(|value| (header::EXPIRES, value)));
            }
            Ok(response)
        }
    }
}
