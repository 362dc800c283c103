//! Objects as clients see them, put together from the slices that rest in the store: nothing is parsed and printed again.

use axum::body::Body;
use bytes::{BufMut, Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};
use http::{HeaderValue, Response, StatusCode, header};
use http_body::{Frame, SizeHint};
use repot_apimachinery::{kind::Cell, meta::ObjectMeta};
use repot_storage::{Object, ResourceVersion, Store};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    pin::Pin,
    task::{Context, Poll},
};

use crate::{memory::Memory, negotiate::MetaVersion, resource::Resource};

/// What the store keeps beside an object, so that tables and comparisons need no payload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Hash of each member beside metadata.
    pub digests: BTreeMap<String, String>,
    /// Cells of the kind's columns.
    pub cells: Vec<Cell>,
    /// Values of the kind's selectable fields.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, String>,
}

impl Summary {
    /// Of a stored object.
    #[must_use]
    pub fn of(object: &Object) -> Self {
        serde_json::from_slice(&object.summary).unwrap_or_default()
    }
}

/// Metadata as JSON with the version in it.
#[must_use]
pub fn meta_json(meta: &[u8], version: ResourceVersion) -> BytesMut {
    let mut text = BytesMut::with_capacity(meta.len() + 64);
    put(&mut text, &format!("{{\"resourceVersion\":\"{version}\""));
    match meta.get(1..) {
        Some(rest) if rest.len() > 1 => {
            put(&mut text, ",");
            text.put_slice(rest);
        }
        _ => put(&mut text, "}"),
    }
    text
}

/// Everything of an object that comes before its payload. `None` for the version: nothing was stored (a dry run).
#[must_use]
pub fn before_payload(
    resource: &Resource,
    meta: &[u8],
    version: Option<ResourceVersion>,
    payload: bool,
) -> BytesMut {
    let mut text = BytesMut::with_capacity(meta.len() + 256);
    let (kind, api_version) = (resource.kind.kind, resource.api_version());
    put(&mut text, &format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":"));
    match version {
        Some(version) => text.put_slice(&meta_json(meta, version)),
        None => text.put_slice(meta),
    }
    if payload {
        put(&mut text, ",");
    }
    text
}

/// The same for an object at rest.
#[must_use]
pub fn before_stored(resource: &Resource, object: &Object) -> BytesMut {
    before_payload(resource, &object.meta, Some(object.version), object.payload_len > 0)
}

/// `PartialObjectMetadata` of an object.
#[must_use]
pub fn partial(object: &Object, version: MetaVersion) -> BytesMut {
    partial_of(&object.meta, Some(object.version), version)
}

/// `PartialObjectMetadata` around metadata. `None` for the version: nothing was stored.
#[must_use]
pub fn partial_of(meta: &[u8], version: Option<ResourceVersion>, form: MetaVersion) -> BytesMut {
    let mut text = BytesMut::with_capacity(meta.len() + 128);
    let api_version = form.api_version();
    put(
        &mut text,
        &format!("{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"{api_version}\",\"metadata\":"),
    );
    match version {
        Some(version) => text.put_slice(&meta_json(meta, version)),
        None => text.put_slice(meta),
    }
    put(&mut text, "}");
    text
}

/// Metadata of a list.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListMeta {
    /// Version the list shows.
    pub resource_version: String,
    /// Where the next page begins.
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// How many come after this page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining_item_count: Option<u64>,
}

/// Everything of a list that comes before its items.
#[must_use]
pub fn before_items(kind: &str, api_version: &str, meta: &ListMeta) -> BytesMut {
    let mut text = BytesMut::with_capacity(256);
    put(&mut text, &format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":"));
    let _ = serde_json::to_writer((&mut text).writer(), meta);
    put(&mut text, ",\"items\":[");
    text
}

/// The typed metadata of an object at rest.
#[must_use]
pub fn parse_meta(object: &Object) -> ObjectMeta {
    serde_json::from_slice(&object.meta).unwrap_or_default()
}

/// Now, as Kubernetes writes times.
pub(crate) fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub(crate) fn put(text: &mut BytesMut, more: &str) {
    text.put_slice(more.as_bytes());
}

/// A piece of a body, or why there will be no more.
pub type Piece = Result<Bytes, repot_storage::Error>;

/// How many pieces may wait for a connection that is slower than the store.
const PIECES_AHEAD: usize = 2;

/// The pieces of one object.
pub fn object_pieces(
    store: &Store,
    resource: &Resource,
    object: &Object,
) -> impl Stream<Item = Piece> + use<> {
    let before = before_stored(resource, object).freeze();
    let payload = store.payload(object);
    stream::iter([Ok(before)]).chain(payload).chain(stream::iter([Ok(Bytes::from_static(b"}"))]))
}

/// A payload between two texts, read beside the task that sends it.
pub fn around(
    before: Bytes,
    payload: impl Stream<Item = Piece> + Send + 'static,
    after: Bytes,
) -> impl Stream<Item = Piece> + Send {
    stream::iter([Ok(before)]).chain(ahead(payload)).chain(stream::iter([Ok(after)]))
}

/// Length of what [`object_pieces`] gives.
#[must_use]
pub fn object_len(resource: &Resource, object: &Object) -> u64 {
    before_stored(resource, object).len() as u64 + object.payload_len + 1
}

/// Payloads up to this size need no place in the budget of answers.
const LIGHT: u64 = 1 << 20;

/// As [`object_pieces`], after the payload has been read and checked as a whole: what is damaged is an error of its own and
/// not an answer that breaks off. Where too many large answers are on their way already, only the first MiB is checked, so
/// that slow clients cannot fill the memory.
///
/// # Errors
/// Why the payload cannot be read.
pub async fn checked(
    memory: &Memory,
    store: &Store,
    flow: &crate::shares::Flow,
    resource: &Resource,
    object: &Object,
) -> Result<Pin<Box<dyn Stream<Item = Piece> + Send>>, repot_storage::Error> {
    let place = (object.payload_len > LIGHT).then(|| memory.for_answer(flow, object.payload_len));
    let whole = place.as_ref().is_none_or(Option::is_some);
    let ahead_of_answer = if whole { object.payload_len } else { LIGHT };
    let mut read = vec![Ok(before_stored(resource, object).freeze())];
    let (mut payload, mut length) = (store.payload(object), 0);
    while length < ahead_of_answer {
        let Some(piece) = payload.next().await else { break };
        let piece = piece?;
        length += piece.len() as u64;
        read.push(Ok(piece));
    }
    let after = stream::iter([Ok(Bytes::from_static(b"}"))]);
    let read = stream::iter(read);
    if length < object.payload_len {
        return Ok(Box::pin(read.chain(ahead(payload)).chain(after)));
    }
    // The closure holds the place until the answer is sent, or its client gone.
    Ok(Box::pin(read.chain(after).map(move |piece| {
        let _held = &place;
        piece
    })))
}

/// Produces pieces beside the task that sends them, so that opening and encrypting share the cores.
pub fn ahead(pieces: impl Stream<Item = Piece> + Send + 'static) -> impl Stream<Item = Piece> + Send {
    let (sender, receiver) = tokio::sync::mpsc::channel(PIECES_AHEAD);
    tokio::spawn(async move {
        let mut pieces = std::pin::pin!(pieces);
        while let Some(piece) = pieces.next().await {
            // The client went away: nobody needs the rest.
            if sender.send(piece).await.is_err() {
                break;
            }
        }
    });
    tokio_stream::wrappers::ReceiverStream::new(receiver)
}

/// A body of pieces whose length may be known.
pub(crate) fn body_of<E>(
    pieces: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
    length: Option<u64>,
) -> Body
where
    E: Into<axum::BoxError> + std::fmt::Display + 'static,
{
    match length {
        Some(left) => Body::new(SizedBody { pieces: Box::pin(pieces), left }),
        None => Body::from_stream(pieces),
    }
}

/// A body of known length made of pieces. A piece that cannot be read ends the connection: an answer that is cut short is
/// seen by every client, a wrong one by none.
struct SizedBody<S> {
    pieces: Pin<Box<S>>,
    left: u64,
}

impl<E: std::fmt::Display, S: Stream<Item = Result<Bytes, E>>> http_body::Body for SizedBody<S> {
    type Data = Bytes;
    type Error = E;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let next = self.pieces.as_mut().poll_next(cx);
        if let Poll::Ready(Some(Ok(piece))) = &next {
            self.left = self.left.saturating_sub(piece.len() as u64);
        }
        if let Poll::Ready(Some(Err(error))) = &next {
            tracing::error!(%error, "an answer had to be cut short");
        }
        next.map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// A JSON answer of known length.
pub fn sized(
    code: StatusCode,
    length: u64,
    pieces: impl Stream<Item = Piece> + Send + 'static,
) -> Response<Body> {
    json_response(code, body_of(pieces, Some(length)))
}

/// A JSON answer that is at hand.
#[must_use]
pub fn whole(code: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    json_response(code, Body::from(text.into()))
}

/// A response with this code and body, marked as JSON and not to be cached.
#[must_use]
pub fn json_response(code: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// The `ETag` of a document: equal on all replicas for equal content; another for every form, since a client may ask for one form with the tag of
/// another.
pub(crate) fn etag(text: &[u8], content_type: &str) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(content_type.as_bytes()).update(b"\n").update(text);
    format!("\"{}\"", &hasher.finalize().to_hex().to_uppercase()[..32])
}

/// Characters of all warnings together; when there are more, each is cut short.
const WARNINGS: usize = 4096;
/// Characters of a warning that is cut short.
const SHORT_WARNING: usize = 256;

/// Adds `Warning` headers: without repetition, not more than clients should have to read, and nothing that could end a
/// header.
pub fn warn(response: &mut Response<Body>, warnings: &[String]) {
    let mut said = Vec::<String>::new();
    for warning in warnings {
        let clean: String = warning.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        if !clean.is_empty() && !said.contains(&clean) {
            said.push(clean);
        }
    }
    let length = |text: &String| text.chars().count();
    if said.iter().map(length).sum::<usize>() > WARNINGS {
        said = said.iter().map(|text| text.chars().take(SHORT_WARNING).collect()).collect();
        let mut left = WARNINGS;
        said.retain(|text| {
            let fits = left > 0;
            left = left.saturating_sub(length(text));
            fits
        });
    }
    for text in said {
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn puts_the_version_into_metadata() {
        let with = |meta: &str| {
            String::from_utf8(meta_json(meta.as_bytes(), ResourceVersion(7)).to_vec()).expect("text")
        };
        assert_eq!(with(r#"{"name":"a"}"#), r#"{"resourceVersion":"7","name":"a"}"#);
        assert_eq!(with("{}"), r#"{"resourceVersion":"7"}"#);
    }

    #[test]
    fn warnings_cannot_break_out_of_their_header() {
        let mut response = whole(StatusCode::OK, "");
        warn(&mut response, &["a \"b\"\r\nEvil: 1".into(), "a \"b\"\r\nEvil: 1".into(), String::new()]);
        let values: Vec<_> = response.headers().get_all(header::WARNING).iter().collect();
        assert_eq!(values[0], r#"299 - "a \"b\"  Evil: 1""#);
        assert_eq!(values.len(), 1);
    }

    #[test]
    fn warnings_are_cut_short_only_when_they_are_too_much_together() {
        let lengths = |count: usize, length: usize| {
            let mut response = whole(StatusCode::OK, "");
            let warnings: Vec<String> = (0..count).map(|n| format!("{n:0length$}")).collect();
            warn(&mut response, &warnings);
            let values = response.headers().get_all(header::WARNING).iter();
            values.map(|value| value.len() - "299 - \"\"".len()).collect::<Vec<_>>()
        };
        assert_eq!(lengths(8, 512), [512; 8]);
        assert_eq!(lengths(1, 5000), [256]);
        assert_eq!(lengths(100, 300), [256; 16]);
    }
}
