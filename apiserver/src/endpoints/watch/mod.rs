//! Watches: what happens to the objects of a collection, as a stream of JSON lines.

mod flow;
mod follow;
mod limits;
mod lines;
mod present;
mod shared;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use http::{HeaderValue, StatusCode, header};
use repot_storage::{ResourceVersion, Store};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::{
    flow::Flow,
    limits::{Users, WatchPermit},
    shared::Bodies,
};
use super::{Answer, Request, options::Selectors, resource_version, table::Include};
use crate::{
    call::Query,
    metrics::WatchMetrics,
    negotiate::{self, Encoding, Form},
    protobuf,
    resource::Resource,
    shares::{self, FairPool},
    status::Status,
    wire,
};

/// What all watches of a server share.
pub(crate) struct Watching {
    users: Users,
    bodies: Arc<Bodies>,
    /// KiB of heads of the present state that watches hold.
    heads: FairPool,
}

impl Watching {
    /// So many watches for one user.
    pub(crate) fn new(per_user: usize) -> Self {
        Self {
            users: Users::new(per_user),
            bodies: Bodies::new(),
            heads: FairPool::new(u64::from(shared::kib(HEADS))),
        }
    }
}

/// Heads of the present state that all watches together hold while their clients take them, in bytes. A user has a share of it.
const HEADS: u64 = 32 << 20;
/// Frames that may wait for a client before the store's own queue begins to fill.
const FRAMES_AHEAD: usize = 4;

/// Begins a watch.
pub(super) async fn watch(request: Request<'_>) -> Answer {
    let (form, encoding) = negotiate::form_and_encoding(&request.call.headers, false)?;
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
        encoding,
        selectors,
    };
    let permit = request.server.watching.users.begin(&request.call.user)?;
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
        flow: Arc::default(),
        stall: request.server.limits.watch_stall,
        permit,
        bodies: Arc::clone(&request.server.watching.bodies),
        heads: request.server.watching.heads.clone(),
        reader: request.flow(),
    };
    tokio::spawn(watcher.run());
    let lines = tokio_stream::wrappers::ReceiverStream::new(receiver).map(Ok);
    // A line that had to be cut ends the connection with an error: a clean end would make half a line look whole.
    let end =
        stream::once(async move { cut.load(Ordering::Acquire).then_some(Err(io::ErrorKind::Interrupted)) });
    let body = Body::from_stream(lines.chain(end.filter_map(std::future::ready)).map_err(io::Error::from));
    let mut response = wire::json_response(StatusCode::OK, body);
    protobuf::mark_stream(&mut response, encoding);
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
    encoding: Encoding,
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
    /// The client takes nothing: the connection resets its stream ([`crate::answer::Limit::Stalled`]).
    Stalled,
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
    flow: Arc<Flow>,
    stall: Duration,
    permit: WatchPermit,
    bodies: Arc<Bodies>,
    heads: FairPool,
    reader: shares::Flow,
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
