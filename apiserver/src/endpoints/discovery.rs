//! Discovery: which groups, versions and resources there are, in the legacy and in the aggregated form.

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use repot_apimachinery::{openapi::GroupVersion, protobuf};
use serde_json::{Value, json};

use super::Answer;
use crate::{
    call::Call,
    negotiate::{self, Encoding},
    server::Server,
    status::Status,
    wire,
};

/// What is implemented, sorted.
const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const STATUS_VERBS: &[&str] = &["get", "patch", "update"];

/// `/`, `/api`, `/apis`.
pub(super) fn root(server: &Server, call: &Call, path: &str) -> Answer {
    let groups = &server.groups;
    match (path, negotiate::aggregated_discovery(&call.headers)) {
        ("", _) => {
            let mut paths = vec!["/apis".to_owned()];
            paths.extend(groups.iter().flat_map(|g| [format!("/apis/{}", g.group), group_path(g)]));
            paths.extend(
                ["/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
                    .map(str::to_owned),
            );
            Ok(wire::whole(StatusCode::OK, json!({"paths": paths}).to_string()))
        }
        (_, Some((version, encoding))) => {
            let items: Vec<Value> =
                if path == "/apis" { groups.iter().map(aggregated_group).collect() } else { Vec::new() };
            let document = json!({
                "kind": "APIGroupDiscoveryList",
                "apiVersion": format!("apidiscovery.k8s.io/{version}"),
                "metadata": {},
                "items": items,
            });
            let (text, media) = encoded(&document, encoding);
            let content_type = format!("{media};g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
            Ok(cacheable(&call.headers, text, &content_type))
        }
        ("/api", None) => {
            let document = json!({"kind": "APIVersions", "versions": [], "serverAddressByClientCIDRs": []});
            legacy(&call.headers, &document)
        }
        (_, None) => {
            let list: Vec<Value> = groups.iter().map(legacy_group).collect();
            let document = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": list});
            let mut response = legacy(&call.headers, &document)?;
            response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
            Ok(response)
        }
    }
}

/// A document in the encoding that the client asks for.
fn legacy(headers: &HeaderMap, document: &Value) -> Answer {
    let (text, media) = encoded(document, negotiate::document(headers)?);
    let mut response = wire::whole(StatusCode::OK, text);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    Ok(response)
}

fn encoded(document: &Value, encoding: Encoding) -> (Bytes, &'static str) {
    let text = document.to_string();
    let protobuf = match encoding {
        Encoding::Json => None,
        Encoding::Protobuf => protobuf::encode(text.as_bytes()),
    };
    match protobuf {
        Some(bytes) => (bytes.into(), protobuf::MEDIA_TYPE),
        None => (text.into(), "application/json"),
    }
}

/// `/apis/G` and `/apis/G/V`.
pub(super) fn below(server: &Server, call: &Call, path: &str) -> Answer {
    let mut segments = path.trim_start_matches("/apis/").split('/');
    let group = segments.next().unwrap_or_default();
    let known = |group_version: &&GroupVersion| group_version.group == group;
    let document = match (server.groups.iter().find(known), segments.next(), segments.next()) {
        (Some(found), None, _) => {
            let mut document = legacy_group(found);
            document["kind"] = "APIGroup".into();
            document["apiVersion"] = "v1".into();
            document
        }
        (Some(found), Some(version), None) if found.version == version => resource_list(found),
        _ => return Err(Status::no_such_path()),
    };
    legacy(&call.headers, &document)
}

fn group_path(group: &GroupVersion) -> String {
    format!("/apis/{}/{}", group.group, group.version)
}

fn legacy_group(group: &GroupVersion) -> Value {
    let version =
        json!({"groupVersion": format!("{}/{}", group.group, group.version), "version": group.version});
    json!({"name": group.group, "versions": [version], "preferredVersion": version})
}

fn resource_list(group: &GroupVersion) -> Value {
    let resources: Vec<Value> = group
        .kinds
        .iter()
        .flat_map(|kind| {
            let resource = json!({
                "name": kind.plural,
                "singularName": kind.singular,
                "namespaced": kind.namespaced,
                "kind": kind.kind,
                "verbs": VERBS,
                "shortNames": kind.short_names,
                "categories": kind.categories,
                "storageVersionHash": storage_version_hash(group, kind.kind),
            });
            let status = json!({
                "name": format!("{}/status", kind.plural),
                "singularName": "",
                "namespaced": kind.namespaced,
                "kind": kind.kind,
                "verbs": STATUS_VERBS,
            });
            [Some(resource), kind.has_status().then_some(status)].into_iter().flatten()
        })
        .collect();
    let group_version = format!("{}/{}", group.group, group.version);
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources})
}

/// Changes when the stored version does: clients that migrate storage compare it.
fn storage_version_hash(group: &GroupVersion, kind: &str) -> String {
    use base64::Engine;
    let text = format!("{}/{}/{kind}", group.group, group.version);
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(&digest.as_ref()[..8])
}

fn aggregated_group(group: &GroupVersion) -> Value {
    let resources: Vec<Value> = group
        .kinds
        .iter()
        .map(|kind| {
            let response_kind = json!({"group": group.group, "version": group.version, "kind": kind.kind});
            let mut resource = json!({
                "resource": kind.plural,
                "responseKind": response_kind,
                "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
                "singularResource": kind.singular,
                "verbs": VERBS,
                "shortNames": kind.short_names,
                "categories": kind.categories,
            });
            if kind.has_status() {
                let status =
                    json!({"subresource": "status", "responseKind": response_kind, "verbs": STATUS_VERBS});
                resource["subresources"] = json!([status]);
            }
            resource
        })
        .collect();
    let version = json!({"version": group.version, "resources": resources, "freshness": "Current"});
    json!({"metadata": {"name": group.group, "creationTimestamp": null}, "versions": [version]})
}

/// An answer with an ETag, or 304 where the client has it already.
pub(super) fn cacheable(headers: &HeaderMap, text: Bytes, content_type: &str) -> Response<Body> {
    let etag = wire::etag(&text, content_type);
    let known = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let fresh =
        known.flat_map(|value| value.split(',')).any(|tag| matches!(tag.trim(), "*") || tag.trim() == etag);
    let mut response = if fresh {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        wire::whole(StatusCode::OK, text)
    };
    let out = response.headers_mut();
    for (name, value) in [(header::CONTENT_TYPE, content_type), (header::ETAG, &etag)] {
        if let Ok(value) = HeaderValue::from_str(value) {
            out.insert(name, value);
        }
    }
    out.insert(header::VARY, HeaderValue::from_static("Accept"));
    out.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    response
}
