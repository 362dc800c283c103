//! Watches: what happens to the objects of a collection, as a stream of JSON lines.

mod lines;

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use http::{HeaderValue, StatusCode, header};
use repot_storage::{Event, Object, ResourceVersion, Store, WatchItem};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Answer, Request, options::Selectors, resource_version, table::Include};
use crate::{
    call::Query,
    metrics::WatchMetrics,
    negotiate::{self, Form},
    resource::Resource,
    status::{Status, from_storage},
    wire,
};

/// How often a watch on which nothing happens says how far it has come.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// Frames that may wait for a client before the store's own queue begins to fill.
const FRAMES_AHEAD: usize = 4;

/// Begins a watch.
pub(super) async fn watch(request: Request<'_>) -> Answer {
    let form = negotiate::form(&request.call.headers, false)?;
    let query = &request.call.query;
    let mut selectors = Selectors::parse(query, request.resource.kind)?;
    if !request.target.name.is_empty() {
        selectors = selectors.only(&request.target.name);
    }
    let plan = Plan {
        start: start(query)?,
        bookmarks: query.flag("allowWatchBookmarks"),
        until: Instant::now() + duration(query.number("timeoutSeconds")?),
        include: Include::parse(query)?,
        form,
        selectors,
    };
    let (frames, receiver) = mpsc::channel(FRAMES_AHEAD);
    let cut = Arc::new(AtomicBool::new(false));
    let over = end_of_time(plan.until, request.server.watches_end.clone(), request.server.limits.watch_grace);
    let watcher = Watcher {
        store: request.server.store.clone(),
        resource: request.resource.clone(),
        scope: request.scope(),
        plan,
        frames,
        cut: cut.clone(),
        over: over.clone(),
        _over: over.drop_guard(),
        first_table: true,
        metrics: request.server.metrics.watch(request.resource),
    };
    tokio::spawn(watcher.run());
    let lines = tokio_stream::wrappers::ReceiverStream::new(receiver).map(Ok);
    // A line that had to be cut ends the connection with an error: a clean end would make half a line look whole.
    let end =
        stream::once(async move { cut.load(Ordering::Acquire).then_some(Err(io::ErrorKind::Interrupted)) });
    let body = Body::from_stream(lines.chain(end.filter_map(std::future::ready)).map_err(io::Error::from));
    let mut response = wire::json_response(StatusCode::OK, body);
    if !matches!(form, Form::Object) {
        response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    }
    Ok(response)
}

/// Cancelled when the watch's time is up, or when the server stops: then spread over the grace period, so that not all
/// clients come back elsewhere at once.
fn end_of_time(until: Instant, stop: CancellationToken, grace: Duration) -> CancellationToken {
    let over = CancellationToken::new();
    let token = over.clone();
    tokio::spawn(async move {
        let share = f32::from(uuid::Uuid::new_v4().as_bytes()[0]) / 255.0;
        let stopped = async {
            stop.cancelled().await;
            tokio::time::sleep(grace.mul_f32(share)).await;
        };
        tokio::select! {
            () = tokio::time::sleep_until(until) => {}
            () = stopped => {}
            () = token.cancelled() => {}
        }
        token.cancel();
    });
    over
}

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// With the present state; `marked`: a bookmark says where it ends; not older than this version.
    Present { marked: bool, at_least: Option<ResourceVersion> },
    /// With what comes next.
    Now,
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

fn start(query: &Query) -> Result<Start, Status> {
    resource_version::check(query, true)?;
    let at_least =
        resource_version::resource_version(query)?.filter(|version| *version > 0).map(ResourceVersion);
    Ok(match (query.maybe_flag("sendInitialEvents"), at_least) {
        (Some(true), at_least) => Start::Present { marked: true, at_least },
        (Some(false), None) => Start::Now,
        (None, None) => Start::Present { marked: false, at_least: None },
        (_, Some(version)) => Start::After(version),
    })
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
    /// In the middle of a line.
    Cut,
    /// The client has to be told.
    Told(Status),
}

struct Watcher {
    store: Store,
    resource: Resource,
    scope: repot_storage::Scope,
    plan: Plan,
    frames: mpsc::Sender<Bytes>,
    cut: Arc<AtomicBool>,
    over: CancellationToken,
    _over: DropGuard,
    first_table: bool,
    metrics: WatchMetrics,
}

type Items = Pin<Box<dyn Stream<Item = Result<WatchItem, repot_storage::Error>> + Send>>;

impl Watcher {
    async fn run(mut self) {
        match self.follow().await {
            End::Quiet => {}
            End::Cut => self.cut.store(true, Ordering::Release),
            End::Told(status) => {
                let mut frame = BytesMut::from(&b"{\"type\":\"ERROR\",\"object\":"[..]);
                frame.extend_from_slice(&status.to_json());
                wire::put(&mut frame, "}\n");
                let _ = self.send(frame.freeze(), false).await;
            }
        }
    }

    async fn follow(&mut self) -> End {
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
                () = self.frames.closed() => Err(End::Quiet),
                () = self.over.cancelled() => Err(End::Quiet),
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
            Start::Now => self.store.current().await.map_err(|error| self.told(&error))?,
            Start::Present { marked, at_least } => {
                let store = self.store.clone();
                if let Some(version) = at_least {
                    resource_version::reach(&store, version).await.map_err(End::Told)?;
                }
                let list = store.list_cached(&self.scope, None).await.map_err(|e| self.told(&e))?;
                for object in list.objects {
                    let object = match object {
                        Ok(object) => object,
                        // Who only asks for metadata is better served without the object than not at all.
                        Err(error) if self.plan.form != Form::Object => {
                            tracing::error!(%error, "object left out of a watch of metadata");
                            continue;
                        }
                        Err(error) => return Err(self.told(&error)),
                    };
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
            // Passing over an object would be taken for its absence.
            error @ (repot_storage::Error::Corrupt { .. } | repot_storage::Error::Sealing { .. }) => {
                tracing::error!(%error, "an object of a watch cannot be read");
                End::Told(Status::internal("an object cannot be read; the watch cannot go on"))
            }
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begins_where_the_parameters_say() {
        let start = |query: &str| {
            let request = http::Request::builder().uri(format!("/apis/g/v1/rs?watch=1&{query}"));
            let request = request.body(Body::empty()).expect("a request");
            let call = crate::call::Call::begin(request, Arc::default()).map_err(|(status, _)| status);
            start(&call.expect("a call").query).map_err(|status| status.code().as_u16())
        };
        let present = |marked, at_least: Option<u64>| {
            Ok(Start::Present { marked, at_least: at_least.map(ResourceVersion) })
        };
        let newer = "resourceVersionMatch=NotOlderThan";
        for (query, expected) in [
            (String::new(), present(false, None)),
            ("resourceVersion=0".into(), present(false, None)),
            ("resourceVersion=7".into(), Ok(Start::After(ResourceVersion(7)))),
            (format!("sendInitialEvents=true&{newer}"), present(true, None)),
            (format!("sendInitialEvents=true&{newer}&resourceVersion=0"), present(true, None)),
            (format!("sendInitialEvents=true&{newer}&resourceVersion=7"), present(true, Some(7))),
            (format!("sendInitialEvents=false&{newer}"), Ok(Start::Now)),
            (format!("sendInitialEvents=false&{newer}&resourceVersion=0"), Ok(Start::Now)),
            (
                format!("sendInitialEvents=false&{newer}&resourceVersion=7"),
                Ok(Start::After(ResourceVersion(7))),
            ),
            ("sendInitialEvents=true".into(), Err(422)),
            ("sendInitialEvents=false".into(), Err(422)),
            ("sendInitialEvents=true&resourceVersionMatch=Exact".into(), Err(422)),
            (newer.into(), Err(422)),
            (format!("sendInitialEvents=true&{newer}&continue=x"), Err(422)),
            ("resourceVersion=x".into(), Err(400)),
        ] {
            assert_eq!(start(&query), expected, "{query}");
        }
    }
}
