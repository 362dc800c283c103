//! Watches: what happens to the objects of a collection, as a stream of JSON lines.

use std::{pin::Pin, sync::Arc, time::Duration};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt};
use http::{HeaderValue, StatusCode, header};
use repot_api::names::INITIAL_EVENTS_END;
use repot_storage::{Event, Object, ResourceVersion, Store, WatchItem};
use serde_json::json;
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    Answer, Request,
    options::Selectors,
    resource_version,
    table::{self, Include},
};
use crate::{
    negotiate::{self, Form},
    resource::Resource,
    status::{Status, from_storage},
    wire::{self, ListMeta},
};

/// How often a watch on which nothing happens says how far it has come.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// Frames that may wait for a client before the store's own queue begins to fill.
const FRAMES_AHEAD: usize = 4;

/// Begins a watch.
pub(super) async fn watch(request: Request<'_>) -> Answer {
    let form = negotiate::form(&request.call.headers, false)?;
    let query = &request.call.query;
    let mut selectors = Selectors::parse(query)?;
    if !request.target.name.is_empty() {
        selectors = selectors.only(&request.target.name);
    }
    let plan = Plan {
        start: start(&request)?,
        bookmarks: query.flag("allowWatchBookmarks")?,
        until: Instant::now() + duration(query.number("timeoutSeconds")?),
        include: Include::parse(query)?,
        form,
        selectors,
    };
    let (frames, receiver) = mpsc::channel(FRAMES_AHEAD);
    let watcher = Watcher {
        store: request.server.store.clone(),
        resource: request.resource.clone(),
        scope: request.scope(),
        plan,
        frames,
        first_table: true,
    };
    let stop = request.server.watches_end.clone();
    tokio::spawn(async move { watcher.run(stop).await });
    let body = Body::from_stream(tokio_stream::wrappers::ReceiverStream::new(receiver));
    let mut response = wire::json_response(StatusCode::OK, body);
    if !matches!(form, Form::Object) {
        response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    }
    Ok(response)
}

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// With the present state; `marked`: a bookmark says where it ends; not older than this version.
    Present { marked: bool, at_least: Option<ResourceVersion> },
    /// After a version.
    After(ResourceVersion),
}

struct Plan {
    start: Start,
    bookmarks: bool,
    until: Instant,
    include: Include,
    form: Form,
    selectors: Selectors,
}

fn start(request: &Request<'_>) -> Result<Start, Status> {
    let query = &request.call.query;
    let version = resource_version::resource_version(query)?;
    let matching = query.get("resourceVersionMatch");
    let forbidden = |field: &str, why: &str| {
        let error = repot_api::field::FieldError::forbidden(field, why);
        Err(Status::invalid(("meta.k8s.io", "ListOptions"), "", &[error]))
    };
    let at_least = version.filter(|version| *version > 0).map(ResourceVersion);
    match (query.maybe_flag("sendInitialEvents")?, matching) {
        (Some(true), Some("NotOlderThan")) => Ok(Start::Present { marked: true, at_least }),
        (Some(_), None | Some(_)) if matching != Some("NotOlderThan") => forbidden(
            "resourceVersionMatch",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (None, Some(_)) => forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
        _ => Ok(at_least.map_or(Start::Present { marked: false, at_least: None }, Start::After)),
    }
}

/// As asked for, else between half an hour and an hour, so that not all watches end at once.
fn duration(seconds: Option<u64>) -> Duration {
    let random = u64::from(uuid::Uuid::new_v4().as_bytes()[0]) * 7;
    Duration::from_secs(seconds.filter(|s| *s > 0).unwrap_or(1800 + random))
}

/// Why a watch is over.
enum End {
    /// The client went away, the time is up, or the server stops: nothing more to say.
    Quiet,
    /// The client has to be told.
    Told(Status),
}

struct Watcher {
    store: Store,
    resource: Resource,
    scope: repot_storage::Scope,
    plan: Plan,
    frames: mpsc::Sender<Result<Bytes, std::convert::Infallible>>,
    first_table: bool,
}

type Items = Pin<Box<dyn Stream<Item = Result<WatchItem, repot_storage::Error>> + Send>>;

impl Watcher {
    async fn run(mut self, stop: CancellationToken) {
        if let End::Told(status) = self.follow(stop).await {
            let mut frame = BytesMut::from(&b"{\"type\":\"ERROR\",\"object\":"[..]);
            frame.extend_from_slice(&status.to_json());
            wire::put(&mut frame, "}\n");
            let _ = self.frames.send(Ok(frame.freeze())).await;
        }
    }

    async fn follow(&mut self, stop: CancellationToken) -> End {
        let until = self.plan.until;
        let (mut items, mut reached) = match self.open().await {
            Ok(opened) => opened,
            Err(end) => return end,
        };
        let mut bookmark = tokio::time::interval(BOOKMARK_INTERVAL);
        bookmark.reset();
        let last_word = self.plan.until.checked_sub(Duration::from_secs(2));
        let mut said_last_word = false;
        loop {
            let near_end = async {
                match last_word {
                    Some(at) if !said_last_word => tokio::time::sleep_until(at).await,
                    _ => std::future::pending().await,
                }
            };
            let end = tokio::select! {
                // Between events, so that a line is never cut.
                () = self.frames.closed() => Err(End::Quiet),
                () = stop.cancelled() => Err(End::Quiet),
                () = tokio::time::sleep_until(until) => Err(End::Quiet),
                item = items.next() => self.item(item, &mut reached).await,
                _ = bookmark.tick() => self.bookmark(reached, false).await,
                () = near_end => {
                    said_last_word = true;
                    self.bookmark(reached, false).await
                }
            };
            if let Err(end) = end {
                return end;
            }
        }
    }

    /// The stream of what happens, and the version up to which the client knows everything.
    async fn open(&mut self) -> Result<(Items, ResourceVersion), End> {
        let after = match self.plan.start {
            Start::After(version) => version,
            Start::Present { marked, at_least } => {
                let store = self.store.clone();
                if let Some(version) = at_least {
                    resource_version::reach(&store, version).await.map_err(End::Told)?;
                }
                let list = store.list_cached(&self.scope, None).await.map_err(|e| self.told(&e))?;
                for object in list.objects {
                    let object = object.map_err(|e| self.told(&e))?;
                    if self.plan.selectors.matches(&object) {
                        self.event("ADDED", &object).await?;
                    }
                }
                if marked && self.plan.bookmarks {
                    self.bookmark(list.version, true).await?;
                }
                list.version
            }
        };
        match self.store.watch(&self.scope, after).await {
            Ok(items) => Ok((items, after)),
            Err(repot_storage::Error::Expired { oldest }) => {
                Err(End::Told(Status::expired(format!("too old resource version: {after} ({oldest})"), None)))
            }
            Err(error) => Err(self.told(&error)),
        }
    }

    fn told(&self, error: &repot_storage::Error) -> End {
        match error {
            // The client goes on from the last version it saw.
            repot_storage::Error::Slow => End::Quiet,
            other => End::Told(from_storage(other, &self.resource.name, "")),
        }
    }

    async fn item(
        &mut self,
        item: Option<Result<WatchItem, repot_storage::Error>>,
        reached: &mut ResourceVersion,
    ) -> Result<(), End> {
        match item {
            None => Err(End::Quiet),
            Some(Err(error)) => Err(self.told(&error)),
            Some(Ok(WatchItem::Bookmark(version))) => {
                *reached = version.max(*reached);
                Ok(())
            }
            Some(Ok(WatchItem::Event(event))) => {
                self.happened(&event).await?;
                *reached = event.version;
                Ok(())
            }
        }
    }

    /// An event as it looks through the selectors: what enters them is added, what leaves them is deleted.
    async fn happened(&mut self, event: &Arc<Event>) -> Result<(), End> {
        let selected =
            |object: &Option<Object>| object.clone().filter(|object| self.plan.selectors.matches(object));
        match (selected(&event.before), selected(&event.now)) {
            (None, None) => Ok(()),
            (None, Some(now)) => self.event("ADDED", &now).await,
            (Some(_), Some(now)) => self.event("MODIFIED", &now).await,
            (Some(mut before), None) => {
                before.version = event.version;
                self.event("DELETED", &before).await
            }
        }
    }

    async fn event(&mut self, kind: &str, object: &Object) -> Result<(), End> {
        let mut frame = BytesMut::from(format!("{{\"type\":\"{kind}\",\"object\":").as_bytes());
        match self.plan.form {
            Form::Metadata(version) => frame.extend_from_slice(&wire::partial(object, version)),
            Form::Table(version) => {
                let meta = ListMeta { resource_version: object.version.to_string(), ..ListMeta::default() };
                let first = std::mem::take(&mut self.first_table);
                frame.extend_from_slice(&table::before_rows(&self.resource, version, &meta, first));
                let row = table::row(&self.store, &self.resource, object, version, self.plan.include).await;
                frame.extend_from_slice(&row.map_err(End::Told)?);
                wire::put(&mut frame, "]}");
            }
            Form::Object => {
                frame.extend_from_slice(&wire::before_stored(&self.resource, object));
                let mut payload = self.store.payload(object);
                while let Some(piece) = payload.next().await {
                    let piece = piece.map_err(|e| self.told(&e))?;
                    if frame.is_empty() {
                        self.send(piece).await?;
                    } else if frame.len() + piece.len() < 64 << 10 {
                        frame.extend_from_slice(&piece);
                    } else {
                        self.send(frame.split().freeze()).await?;
                        self.send(piece).await?;
                    }
                }
                wire::put(&mut frame, "}");
            }
        }
        wire::put(&mut frame, "}\n");
        self.send(frame.freeze()).await
    }

    async fn bookmark(&mut self, version: ResourceVersion, initial_end: bool) -> Result<(), End> {
        if !self.plan.bookmarks {
            return Ok(());
        }
        let annotations = if initial_end { json!({INITIAL_EVENTS_END: "true"}) } else { json!(null) };
        let mut meta = json!({"resourceVersion": version.to_string(), "creationTimestamp": null});
        if initial_end {
            meta["annotations"] = annotations;
        }
        let object = match self.plan.form {
            Form::Object => {
                json!({"kind": self.resource.kind.kind, "apiVersion": self.resource.api_version(), "metadata": meta})
            }
            Form::Metadata(v) => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": v.api_version(), "metadata": meta})
            }
            Form::Table(v) => {
                let object =
                    json!({"kind": "PartialObjectMetadata", "apiVersion": v.api_version(), "metadata": meta});
                let list = json!({"resourceVersion": version.to_string()});
                let row = json!({"cells": [], "object": object});
                json!({"kind": "Table", "apiVersion": v.api_version(), "metadata": list, "columnDefinitions": [], "rows": [row]})
            }
        };
        let frame = format!("{}\n", json!({"type": "BOOKMARK", "object": object}));
        self.send(frame.into()).await
    }

    async fn send(&self, frame: Bytes) -> Result<(), End> {
        self.frames.send(Ok(frame)).await.map_err(|_| End::Quiet)
    }
}
