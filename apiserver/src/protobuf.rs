//! Answers in `application/vnd.kubernetes.protobuf`: metadata, and the `Status` of what failed.
//!
//! Endpoints answer in JSON, which the audit log keeps, and the chain encodes that again where the client prefers protobuf.
//! So both forms say the same, in lists and in watches: client-go's WatchList compares one with the other.

use axum::body::Body;
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderValue, Response, header};
use repot_apimachinery::protobuf::{self, MEDIA_TYPE};

use crate::{
    call::Call,
    heavy::UserWork,
    negotiate::{self, Encoding, Form},
    status::Status,
};

/// Encodes an answer in JSON where the client prefers protobuf and the answer has it. `failed`: it is the `Status` of a
/// failure.
pub(crate) async fn answer(
    call: &Call,
    work: &UserWork,
    response: Response<Body>,
    failed: bool,
) -> Response<Body> {
    let in_json =
        response.headers().get(header::CONTENT_TYPE).is_some_and(|value| value == "application/json");
    // A list that is too long for the memory of one response is streamed, in JSON.
    let streamed = http_body::Body::size_hint(response.body()).exact().is_none();
    if !in_json || streamed || encoding(call, failed) == Encoding::Json {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    // What is encoded again was put together in memory, and has room there.
    let Ok(text) = axum::body::to_bytes(body, usize::MAX).await else {
        return Status::internal("the answer could not be read").into_response();
    };
    let Some(encoded) = encode(work, text.clone()).await else {
        return Response::from_parts(parts, Body::from(text));
    };
    if let Some(room) = call.room.lock().as_mut() {
        room.shrink_to(encoded.len() as u64);
    }
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    Response::from_parts(parts, Body::from(encoded))
}

/// How many copies of an answer are in memory at once.
pub(crate) fn copies(call: &Call) -> u64 {
    if encoding(call, false) == Encoding::Protobuf { 2 } else { 1 }
}

fn encoding(call: &Call, failed: bool) -> Encoding {
    if failed {
        return negotiate::of_failure(&call.headers);
    }
    // Watches encode each event by themselves, and discovery its documents.
    if call.info.target.is_none() || call.info.long_running() {
        return Encoding::Json;
    }
    let list = matches!(call.info.verb, "list" | "deletecollection");
    match negotiate::form_and_encoding(&call.headers, list) {
        Ok((Form::Metadata(_), encoding)) => encoding,
        _ => Encoding::Json,
    }
}

async fn encode(work: &UserWork, text: Bytes) -> Option<Vec<u8>> {
    // Where encoding panicked, the answer is sent in JSON.
    work.run_sized(text.len(), move || protobuf::encode(&text)).await.ok().flatten()
}

/// One event of a watch whose object is metadata or a `Status` in JSON: a line, or a frame with its length in front.
pub(crate) fn event(encoding: Encoding, kind: &str, object: &[u8]) -> Bytes {
    if encoding == Encoding::Protobuf {
        return protobuf::watch_event(kind, object).unwrap_or_default().into();
    }
    let mut line = BytesMut::with_capacity(object.len() + 64);
    line.put_slice(format!("{{\"type\":\"{kind}\",\"object\":").as_bytes());
    line.put_slice(object);
    line.put_slice(b"}\n");
    line.freeze()
}

/// Says that a watch has frames in protobuf.
pub(crate) fn mark_stream(response: &mut Response<Body>, encoding: Encoding) {
    if encoding == Encoding::Protobuf {
        let stream = HeaderValue::from_static("application/vnd.kubernetes.protobuf;stream=watch");
        response.headers_mut().insert(header::CONTENT_TYPE, stream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire;
    use http::StatusCode;

    const OBJECTS: &str = "/apis/g/v1/namespaces/n/rs";
    const ONE: &str = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    const MANY: &str = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

    fn call(uri: &str, accept: &str) -> Call {
        let request = http::Request::builder().uri(uri).header(header::ACCEPT, accept);
        let request = request.body(Body::empty()).expect("a request");
        Call::begin(request, std::sync::Arc::default()).map_err(|(status, _)| status).expect("a call")
    }

    async fn answered(call: &Call, text: &'static str, failed: bool) -> (String, Bytes) {
        let response = answer(call, &UserWork::for_tests(), wire::whole(StatusCode::OK, text), failed).await;
        let media = response.headers()[header::CONTENT_TYPE].to_str().expect("text").to_owned();
        (media, axum::body::to_bytes(response.into_body(), usize::MAX).await.expect("a body"))
    }

    #[tokio::test]
    async fn only_who_prefers_protobuf_gets_it_and_only_where_there_is_one() {
        const METADATA: &str = r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1"}"#;
        const STATUS: &str = r#"{"kind":"Status","apiVersion":"v1"}"#;
        const OBJECT: &str = r#"{"kind":"R","apiVersion":"g/v1"}"#;
        let plain = format!("{MEDIA_TYPE},application/json");
        for (path, accept, text, failed, encoded) in [
            (format!("{OBJECTS}/a"), format!("{MEDIA_TYPE}{ONE}"), METADATA, false, true),
            (OBJECTS.to_owned(), format!("{MEDIA_TYPE}{MANY}"), METADATA, false, true),
            // The answer to a deletion, for example.
            (format!("{OBJECTS}/a"), format!("{MEDIA_TYPE}{ONE}"), STATUS, false, true),
            (
                format!("{OBJECTS}/a"),
                format!("application/json{ONE},{MEDIA_TYPE}{ONE}"),
                METADATA,
                false,
                false,
            ),
            (format!("{OBJECTS}/a"), plain.clone(), OBJECT, false, false),
            (format!("{OBJECTS}/a"), format!("{MEDIA_TYPE}{ONE}"), OBJECT, false, false),
            (format!("{OBJECTS}/a"), plain.clone(), STATUS, true, true),
            (format!("{OBJECTS}/a"), format!("{MEDIA_TYPE}{ONE}"), STATUS, true, false),
            ("/version".to_owned(), plain.clone(), STATUS, false, false),
            ("/nowhere".to_owned(), plain, STATUS, true, true),
        ] {
            let (media, body) = answered(&call(&path, &accept), text, failed).await;
            let expected = if encoded { MEDIA_TYPE } else { "application/json" };
            assert_eq!(media, expected, "{path} {accept} {text}");
            assert_eq!(body.starts_with(b"k8s\0"), encoded, "{path} {accept} {text}");
            assert_eq!(body == text, !encoded, "{path} {accept} {text}");
        }
    }

    #[tokio::test]
    async fn a_long_answer_is_encoded_off_the_workers_and_the_same() {
        let item =
            r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a"}},"#;
        let items = item.repeat((1 << 20) / item.len());
        let items = items.trim_end_matches(',');
        let text = format!(
            r#"{{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{{}},"items":[{items}]}}"#
        );
        let expected = protobuf::encode(text.as_bytes()).expect("a list");
        let call = call(OBJECTS, &format!("{MEDIA_TYPE}{MANY}"));
        let (_, body) = answered(&call, String::leak(text), false).await;
        assert!(body == expected);
    }

    #[test]
    fn events_are_lines_or_frames() {
        let object = br#"{"kind":"Status","apiVersion":"v1"}"#;
        let line = event(Encoding::Json, "ERROR", object);
        assert_eq!(
            line,
            &b"{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\"}}\n"[..]
        );
        let frame = event(Encoding::Protobuf, "ERROR", object);
        let (length, message) = frame.split_at(4);
        assert_eq!(u32::from_be_bytes(length.try_into().expect("four bytes")) as usize, message.len());
        assert!(message.starts_with(b"\x0a\x05ERROR\x12"));
    }
}
