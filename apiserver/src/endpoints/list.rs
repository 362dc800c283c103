//! GET of a collection.

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::StatusCode;
use repot_storage::{Key, ListRequest, Object, ResourceVersion};

use super::{
    Answer, Request,
    continuation::Continue,
    heads::Listed,
    options::Selectors,
    resource_version::{self, Freshness},
    shown::{self, Shown},
    table,
};
use crate::{
    negotiate::{self, Form, MetaVersion},
    pretty,
    shares::Permit,
    status::Status,
    trimmed,
    wire::{self, ListMeta},
};

/// A page ends before its payloads pass this many bytes, whatever the limit by count: clients ask for pages of 500, and
/// 500 large objects are more than can be sent before their deadline.
const PAGE_BYTES: u64 = 128 << 20;

/// How many heads are asked of the store at once.
const HEADS_AT_ONCE: usize = 500;

/// Answers with a page of objects, of metadata, or with a table.
pub(super) async fn list(request: Request<'_>) -> Answer {
    let form = negotiate::form(&request.call.headers, true)?;
    let selectors = Selectors::parse(&request.call.query, request.resource.kind)?;
    let include = table::Include::parse(&request.call.query)?;
    let with_payload = match form {
        Form::Object => true,
        Form::Table(_) => include == table::Include::Object,
        Form::Metadata(_) => false,
    };
    let page = page(&request, &selectors, with_payload).await?;
    let (meta, shown) = (page.meta(), page.show(&request, selectors, with_payload));
    Ok(match form {
        Form::Object => objects(&request, shown, &meta).await?,
        Form::Metadata(version) => metadata(&request, shown, &meta, version).await?,
        Form::Table(version) => table::answer(&request, version, include, &meta, shown).await?,
    })
}

async fn metadata(request: &Request<'_>, shown: Shown, meta: &ListMeta, version: MetaVersion) -> Answer {
    let before = wire::before_items("PartialObjectMetadataList", version.api_version(), meta);
    shown::send(request, before, shown, move |object| wire::partial(object, version)).await
}

/// Heads of one page.
pub(super) struct Page {
    pub(super) objects: Vec<Object>,
    pub(super) version: ResourceVersion,
    /// The key before the first object.
    after: Option<Key>,
    token: Option<String>,
    remaining: Option<u64>,
    /// Why an object is left out of a page without payload, if one is.
    pub(super) unreadable: Option<repot_storage::Error>,
    /// Where the heads may have been read from the backend: they are of this request alone until they are dropped.
    turn: Option<Permit>,
}

impl Page {
    fn meta(&self) -> ListMeta {
        ListMeta {
            resource_version: self.version.to_string(),
            token: self.token.clone(),
            remaining_item_count: self.remaining,
        }
    }

    /// The objects, of which few are kept.
    fn show(self, request: &Request<'_>, selectors: Selectors, with_payload: bool) -> Shown {
        let Self { objects, version: at, after, turn: _turn, .. } = self;
        Shown::new(request, Listed { scope: request.scope(), at, after, selectors, with_payload }, objects)
    }
}

/// Reads the page that the parameters ask for.
pub(super) async fn page(
    request: &Request<'_>,
    selectors: &Selectors,
    with_payload: bool,
) -> Result<Page, Status> {
    let query = &request.call.query;
    let limit = query.number("limit")?.unwrap_or(0);
    let freshness = resource_version::of_list(query, limit)?;
    let token = query.get("continue").map(|text| Continue::decode(text, request)).transpose()?;
    let (at, at_least, after) = match (&token, freshness) {
        (Some(token), Freshness::Latest | Freshness::Any) => (token.at(), None, Some(token.after(request))),
        (Some(_), _) => {
            return Err(Status::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        (None, Freshness::Exact(version)) => (Some(version), None, None),
        (None, Freshness::NotOlderThan(version)) => {
            resource_version::reach(&request.server.store, version).await?;
            (None, Some(version), None)
        }
        // As kube-apiserver answers `resourceVersion=0`: from the cache, without asking what is newest.
        (None, Freshness::Any) => (None, Some(ResourceVersion(0)), None),
        (None, Freshness::Latest) => (None, None, None),
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if limit == 0 && at.is_none() && after.is_none() {
        return everything(request, selectors, at_least, with_payload).await;
    }
    let start = ListRequest { at, after, limit, count: true, ..ListRequest::all(request.scope()) };
    let turn = request.server.memory.to_read_heads(&request.flow()).await;
    let turn = Some(turn.ok_or_else(Status::busy)?);
    let read = bounded(request, selectors, start, at_least, with_payload).await;
    let read = read.map(|page| Page { turn, ..page });
    // A page that came too late is told where to go on, at the price of consistency.
    read.map_err(|error| match (&error, &token) {
        (repot_storage::Error::Expired { .. }, Some(token)) => {
            let why = "The provided continue parameter is too old to display a consistent list result. You can start a \
                       new list without the continue parameter, or use the continue token in this response to retrieve \
                       the remainder of the results.";
            Status::expired(why, Some(token.inconsistent().encode()))
        }
        _ => request.failed(&error),
    })
}

/// All objects of the scope, as of one version.
async fn everything(
    request: &Request<'_>,
    selectors: &Selectors,
    at_least: Option<ResourceVersion>,
    with_payload: bool,
) -> Result<Page, Status> {
    let list = request.server.store.list_cached(&request.scope(), at_least).await;
    let list = list.map_err(|error| request.failed(&error))?;
    let mut unreadable = None;
    let objects =
        readable(list.objects, with_payload, &mut unreadable).map_err(|error| request.failed(&error))?;
    let objects = objects.into_iter().filter(|object| selectors.matches(object)).collect();
    let (after, token, remaining) = (None, None, None);
    Ok(Page { objects, version: list.version, after, token, remaining, unreadable, turn: None })
}

/// Objects that cannot be opened: without payload the others are worth showing where one is damaged for good; with payload a list
/// that left some out would be taken for the truth. What may open later is never left out: clients would take it for deleted.
fn readable(
    objects: Vec<Result<Object, repot_storage::Error>>,
    with_payload: bool,
    unreadable: &mut Option<repot_storage::Error>,
) -> Result<Vec<Object>, repot_storage::Error> {
    if with_payload {
        return objects.into_iter().collect();
    }
    let mut good = Vec::with_capacity(objects.len());
    for object in objects {
        match object {
            Ok(object) => good.push(object),
            Err(error) if !error.is_proven_damage() => return Err(error),
            Err(error) => {
                tracing::error!(%error, "object left out of a list of metadata");
                *unreadable = Some(error);
            }
        }
    }
    Ok(good)
}

async fn bounded(
    request: &Request<'_>,
    selectors: &Selectors,
    start: ListRequest,
    at_least: Option<ResourceVersion>,
    with_payload: bool,
) -> Result<Page, repot_storage::Error> {
    let limit = if start.limit == 0 { usize::MAX } else { start.limit };
    let most = if with_payload && start.limit > 0 { PAGE_BYTES } else { u64::MAX };
    let (mut at, mut after) = (start.at, start.after.clone());
    let (mut objects, mut size, mut unreadable) = (Vec::new(), 0, None);
    loop {
        // What a selector leaves over is not known beforehand: a few at a time would be a request for each that is not selected.
        let missing = if selectors.is_empty() { limit - objects.len() } else { HEADS_AT_ONCE };
        let limit_now = missing.min(HEADS_AT_ONCE);
        let ask = ListRequest { at, after: after.take(), limit: limit_now, ..start.clone() };
        // The payload of a past state may be compacted, of which the cache knows nothing: the backend tells before the answer begins.
        let list = match with_payload && at.is_some() {
            true => request.server.store.list(ask).await?,
            false => request.server.store.list_page(ask, at_least).await?,
        };
        at = Some(list.version);
        let read = readable(list.objects, with_payload, &mut unreadable)?;
        let count = read.len() as u64;
        // Where to go on, and how much is then left.
        let mut end = list.next.map(|next| (next, list.remaining));
        let mut full = false;
        for (seen, object) in read.into_iter().enumerate() {
            if !selectors.matches(&object) {
                continue;
            }
            size += trimmed::shown_len(request.resource, &object);
            if let (true, Some(last)) = (size > most || objects.len() == limit, objects.last()) {
                let last: &Object = last;
                end = Some((last.key.clone(), list.remaining.map(|more| more + count - seen as u64)));
                full = true;
                break;
            }
            objects.push(object);
        }
        match end {
            Some((next, _)) if !full && objects.len() < limit => after = Some(next),
            end => {
                let remaining = match &end {
                    Some((_, Some(counted))) if selectors.is_empty() => Some(*counted),
                    // An estimate: what has come and gone since the version of the list is counted as of now.
                    Some((next, None)) if selectors.is_empty() => {
                        request.server.store.count_cached(&start.scope, next)?
                    }
                    _ => None,
                };
                let token = end.map(|(next, _)| Continue::new(request, list.version, &next).encode());
                let version = list.version;
                let after = start.after;
                return Ok(Page { objects, version, after, token, remaining, unreadable, turn: None });
            }
        }
    }
}

async fn objects(request: &Request<'_>, mut shown: Shown, meta: &ListMeta) -> Answer {
    let (store, resource) = (request.server.store.clone(), request.resource.clone());
    let before = wire::before_items(resource.kind.list_kind, &resource.api_version(), meta).freeze();
    let commas = shown.count.saturating_sub(1) as u64;
    let length = before.len() as u64 + shown.items + commas + 2;
    let held = length + pretty::held(request.call);
    let longest = shown.lengths.longest();
    request.keep(request.server.memory.to_stream_pieces(&request.flow(), held, longest).await)?;
    shown.probe(request).await?;
    let items = shown.heads.stream().enumerate().flat_map(move |(at, object)| {
        let comma = stream::iter((at > 0).then(|| Ok(Bytes::from_static(b","))));
        comma.chain(match object {
            Ok(object) => trimmed::shown_pieces(&store, &resource, &object).left_stream(),
            Err(error) => stream::iter([Err(error)]).right_stream(),
        })
    });
    let pieces = stream::iter([Ok(before)]).chain(items).chain(stream::iter([Ok(Bytes::from_static(b"]}"))]));
    Ok(wire::sized(StatusCode::OK, length, wire::ahead(pieces)))
}
