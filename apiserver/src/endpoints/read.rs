//! Reads whole objects from request bodies, within the memory that the request has.

use bytes::Bytes;
use repot_apimachinery::{
    document::Document,
    json::{Census, census},
    meta::OBJECT_META,
};
use repot_storage::Object;

use super::{
    Request, admit, config,
    decode::{self, Decoded},
    options::WriteOptions,
};
use crate::{body::Sent, heavy::NotDone, memory::MemoryEstimate, needs, negotiate, status::Status};

/// Whether a request body with a whole object is YAML, and not JSON.
pub(super) fn is_yaml(request: &Request<'_>) -> Result<bool, Status> {
    match negotiate::content_type(&request.call.headers).as_str() {
        "application/json" => Ok(false),
        "application/yaml" => Ok(true),
        _ => Err(Status::unsupported_media_type("application/json, application/yaml")),
    }
}

/// A body that can be decoded as often as a write is tried. The request has memory for it, and for what is made of it.
pub(super) struct Source {
    json: Bytes,
    /// What it takes in memory.
    pub(super) needs: MemoryEstimate,
}

impl Source {
    /// Takes a body into memory and counts what it will become. `need`: what the request holds then; `cost`: what is made of the
    /// text beside the text.
    ///
    /// # Errors
    /// 400 for YAML that cannot be read; 413 and 429 where there is no memory.
    pub(super) async fn open(
        request: &mut Request<'_>,
        sent: Sent,
        yaml: bool,
        need: impl Fn(&MemoryEstimate) -> u64,
        cost: fn(Census) -> u64,
    ) -> Result<Self, Status> {
        let mut needs = sent.needs(yaml, admit::largest_review(request));
        let limit = usize::try_from(sent.as_json()).unwrap_or(usize::MAX);
        let limit = limit.min(request.server.limits.object_bytes);
        let body = request.server.open(request.call, sent, need(&needs)).await?;
        let (kind, length) = (request.resource.kind, body.len());
        let read = move || {
            let json = if yaml { config::json(body, limit)? } else { body };
            let census = census::count(&json, kind.schema);
            Ok::<_, config::Unreadable>((json, census))
        };
        let (json, census) =
            heavy(request, length, read).await?.map_err(|error| Status::bad_request(error.to_string()))?;
        needs.parsed = cost(census);
        // Who could not be replaced or patched any more could not be repaired either: there both states are read.
        request.server.expect_room(need(&needs) + needs.parsed)?;
        let json = request.server.keep(request.call, json, need(&needs)).await?;
        Ok(Self { json, needs })
    }

    /// Its length as JSON, in bytes.
    pub(super) fn length(&self) -> usize {
        self.json.len()
    }

    /// The object as the client sent it. The second value: unknown and duplicate fields.
    ///
    /// # Errors
    /// The inner one says what is wrong with the body.
    pub(super) async fn decode(&self, request: &Request<'_>) -> Result<Decoded, Status> {
        let (json, kind) = (self.json.clone(), request.resource.kind);
        heavy(request, json.len(), move || Document::decode(&json, kind)).await
    }

    /// The object, in which nothing is wrong but what validation finds.
    ///
    /// # Errors
    /// 400.
    pub(super) async fn object(
        &self,
        request: &Request<'_>,
        write: &WriteOptions,
        warnings: &mut Vec<String>,
    ) -> Result<Document, Status> {
        decode::admit(request, self.decode(request).await?, write, warnings)
    }
}

/// Charges a request for what it makes of a stored payload beside its text.
///
/// # Errors
/// 413 and 429 where there is no memory.
pub(super) async fn charge_payload(
    request: &Request<'_>,
    payload: &Bytes,
    cost: fn(Census) -> u64,
) -> Result<(), Status> {
    let (counted, schema) = (payload.clone(), request.resource.kind.schema);
    let census = heavy(request, payload.len(), move || census::count_payload(&counted, schema)).await?;
    request.server.charge(request.call, cost(census))
}

/// Takes memory for the metadata of a stored object that is about to be deleted; `at_once`: of so many of them. An object that
/// could be stored can be deleted: it never takes more than there is.
///
/// # Errors
/// 429 where it is not free in time.
pub(super) async fn reserve_to_delete(
    request: &Request<'_>,
    stored: &[Object],
    at_once: usize,
) -> Result<(), Status> {
    let costs = stored.iter().map(|object| cost_of_meta(object, needs::typed));
    let most = costs.max().unwrap_or(0).saturating_mul(at_once as u64);
    request.server.reserve(request.call, most.min(request.server.memory.most())).await
}

/// The length of a stored payload and of so many bytes beside it.
pub(super) fn length_with(stored: &Object, more: usize) -> usize {
    usize::try_from(stored.payload_len).unwrap_or(usize::MAX).saturating_add(more)
}

/// What a request makes of stored metadata, in bytes.
pub(super) fn cost_of_meta(stored: &Object, cost: fn(Census) -> u64) -> u64 {
    cost(census::count(&stored.meta, &OBJECT_META))
}

/// Does work on so many bytes where it keeps nobody else waiting: see [`crate::heavy`].
///
/// # Errors
/// 429 where it was not its turn in time, and 500 where it panicked.
pub(super) async fn heavy<T: Send + 'static>(
    request: &Request<'_>,
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Status> {
    request.work().run_sized(bytes, work).await.map_err(not_done)
}

/// What is answered where work on a large request was not done. Nothing is written yet, so it can be tried again.
pub(super) fn not_done(why: NotDone) -> Status {
    match why {
        NotDone::Panicked => Status::internal("the request could not be worked on"),
        NotDone::Busy => Status::busy(),
    }
}
