//! A client of the gateway, and its ways to members.

use std::{sync::Arc, time::Duration};

use http::request::Parts;
use hyper::{Request, Uri};
use tokio::time::{Instant, sleep};

use super::{
    Shared, backoff,
    body::Outgoing,
    calls::Calls,
    grpc::{self, Code, Status},
    members::{InFlightCall, Member},
    upstream::{Pool, Sender},
};

/// The longest pause of a call after all members were tried. The first attempts are to find the new leader as soon as there is one,
/// see [`backoff::pause`].
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// What etcd says before it looks at a call: then it is certain that it was not done. A member that was just promoted takes itself
/// for a learner until it has heard of it.
pub(super) const NOT_DONE: &[&str] = &["etcdserver: no leader", "etcdserver: rpc not supported for learner"];

/// A client, with its connections to members.
pub(super) struct Client {
    pub(super) shared: Arc<Shared>,
    pub(super) pool: Pool,
    /// Which of equally good members it prefers.
    pub(super) turn: usize,
    /// Calls of one message that are being answered.
    pub(super) calls: Calls,
}

impl Client {
    pub(super) fn new(shared: Arc<Shared>, turn: usize) -> Self {
        let pool = Pool::new(shared.dialer.clone());
        Self { shared, pool, turn, calls: Calls::default() }
    }

    /// The next member to try; when all were, they are tried again after a pause. `began`: when the first one was.
    pub(super) async fn next(
        &self,
        tried: &mut Vec<Arc<Member>>,
        began: Instant,
    ) -> Result<InFlightCall, Status> {
        if let Some(flight) = self.shared.members.pick(self.turn, tried) {
            return Ok(flight);
        }
        tried.clear();
        pause_since(began).await;
        let none = || Status::unavailable("gateway: there is no member of etcd to ask");
        self.shared.members.pick(self.turn, tried).ok_or_else(none)
    }

    /// A connection to the best member that can be reached.
    pub(super) async fn connect(&self, deadline: Option<Instant>) -> Result<(Arc<Member>, Sender), Status> {
        let give_up = deadline.unwrap_or_else(|| Instant::now() + self.patience());
        let (mut tried, began) = (Vec::new(), Instant::now());
        loop {
            let flight = self.next(&mut tried, began).await?;
            let member = flight.member().clone();
            match self.pool.to(&member).await {
                Ok(sender) => return Ok((member, sender)),
                Err(error) if Instant::now() >= give_up => {
                    return Err(Status::unavailable(format!("gateway: failed to connect: {error}")));
                }
                Err(_) => {
                    member.mark_unhealthy();
                    tried.push(member);
                }
            }
        }
    }

    /// How long another member is looked for.
    pub(super) fn patience(&self) -> Duration {
        self.shared.limits.patience
    }

    /// The request as the member sees it: the same path and headers, what is left of the time, another host.
    pub(super) fn to_member(
        &self,
        head: &Parts,
        member: &Member,
        deadline: Option<Instant>,
        body: Outgoing,
    ) -> Result<Request<Outgoing>, Status> {
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let uri: Result<Uri, _> = format!("{}{path}", member.url.trim_end_matches('/')).parse();
        let uri =
            uri.map_err(|_| Status::new(Code::Internal, "gateway: the path of the call cannot be used"))?;
        let mut request = Request::new(body);
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = head.headers.clone();
        self.shared.auth.mark(request.headers_mut());
        if let Some(deadline) = deadline {
            grpc::set_timeout(request.headers_mut(), deadline.saturating_duration_since(Instant::now()));
        }
        Ok(request)
    }
}

/// Waits before members are tried again, longer the longer they have been.
pub(super) async fn pause_since(began: Instant) {
    sleep(backoff::pause(began.elapsed(), LONGEST_PAUSE)).await;
}
