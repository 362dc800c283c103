//! The published OpenAPI documents.

use http::{HeaderValue, StatusCode, header};

use super::{Answer, discovery};
use crate::{
    call::Call,
    negotiate,
    openapi::{JSON, hash},
    server::Server,
    status::Status,
    wire,
};

/// What kubectl up to 1.26 wants version 2 to be.
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// As it asks for it; in an answer it would not take that for a media type.
const PROTOBUF_ASKED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// `/openapi/v2`, `/openapi/v3`, `/openapi/v3/apis/G/V`.
pub(super) fn document(server: &Server, call: &Call, path: &str) -> Answer {
    let documents = &server.documents;
    if path == "/openapi/v2" {
        let (text, media) = match negotiate::best_of(&call.headers, &[PROTOBUF, PROTOBUF_ASKED])? {
            JSON => (&documents.v2, JSON),
            _ => (&documents.v2_protobuf, PROTOBUF),
        };
        return Ok(discovery::cacheable(&call.headers, text.clone(), media));
    }
    negotiate::json(&call.headers)?;
    match path {
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
