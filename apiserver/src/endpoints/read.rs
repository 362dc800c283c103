//! Reads whole objects from request bodies, within the memory that the request has.

use std::ops::RangeInclusive;

use bytes::Bytes;
use parking_lot::Mutex;
use repot_apimachinery::{
    document::{self, Document},
    json::{self, Census, census},
    kind::Kind,
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
    /// Whether there is no whitespace between its tokens.
    compact: bool,
    /// What was decoded already, to be taken by who decodes first.
    first: Mutex<Option<Decoded>>,
    /// What it takes in memory.
    pub(super) needs: MemoryEstimate,
}

/// A tree takes at least and at most so many bytes where it is made before it is counted.
const DECODED_AT_ONCE: RangeInclusive<usize> = 64 << 10..=8 << 20;

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
        let compact = !yaml && sent.is_compact();
        let body = request.server.open(request.call, sent, need(&needs)).await?;
        let (kind, length) = (request.resource.kind, body.len());
        let read = move || {
            let json = if yaml { config::json(body, limit)? } else { body };
            let (census, first) = match compact.then(|| decode_at_once(&json, kind)).flatten() {
                Some((census, decoded)) => (census, Some(decoded)),
                None => (census::count(&json, kind.schema), None),
            };
            Ok::<_, config::Unreadable>((json, census, first))
        };
        let (json, census, mut first) =
            heavy(request, length, read).await?.map_err(|error| Status::bad_request(error.to_string()))?;
        needs.parsed = cost(census);
        // Who could not be replaced or patched any more could not be repaired either: there both states are read.
        request.server.expect_room(need(&needs) + needs.parsed)?;
        if request.server.fits(request.call, need(&needs)) == Some(false) {
            // It would keep the body in memory, which makes place.
            first = None;
        }
        let json = request.server.keep(request.call, json, need(&needs)).await?;
        Ok(Self { json, compact, first: Mutex::new(first), needs })
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
        if let Some(first) = self.first.lock().take() {
            return Ok(first);
        }
        let (json, kind, length) = (self.json.clone(), request.resource.kind, self.json.len());
        let compact = self.compact;
        let decode = move || match compact {
            true => Document::decode_compact(&json, kind, usize::MAX)
                .map(|(document, strict, _)| (document, strict)),
            false => Document::decode(&json, kind),
        };
        heavy(request, length, decode).await
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

/// Decodes a body in the same pass that counts it, where the tree takes little: no more than the text that is printed later, for which
/// the request has room from the beginning. Short bodies have none, and their trees are small.
fn decode_at_once(json: &Bytes, kind: &Kind) -> Option<(Census, Decoded)> {
    let most = json.len().clamp(*DECODED_AT_ONCE.start(), *DECODED_AT_ONCE.end());
    match Document::decode_compact(json, kind, most) {
        Ok((document, strict, census)) => Some((census, Ok((document, strict)))),
        Err(document::Error::Json(json::Error::TooMuch(_))) => None,
        Err(error) => Some((Census::default(), Err(error))),
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
    let census = heavy(request, payload.len(), move || document::count_payload(&counted, schema)).await?;
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
