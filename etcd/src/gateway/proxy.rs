//! One call: to which member it goes, and whether it may go to another one after that.

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use http::request::Parts;
use http_body_util::{Either, Full};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
};
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    body::{self, Answer, Rest},
    client::{Client, NOT_DONE},
    gate::Pass,
    grpc::{self, Status},
    members::{InFlightCall, Member},
    method::Method,
    watch,
};

/// The first member that has not begun to answer a read in this time may not be able to: another one is asked. That one has all the
/// time there is, or reads that take long would never end.
const STALL: Duration = Duration::from_secs(4);
/// What is no fault of the member that says it.
const NOT_ILL: &str = "etcdserver: leader changed";

/// A call that waits for an answer.
struct Call<'a> {
    method: Method,
    head: &'a Parts,
    message: &'a Bytes,
    deadline: Option<Instant>,
}

/// An attempt that came to nothing.
struct Failed {
    status: Status,
    /// Whether another one is safe.
    again: bool,
}

impl Failed {
    fn new(again: bool, message: impl AsRef<str>) -> Self {
        Self { status: Status::unavailable(message), again }
    }
}

impl Client {
    /// Answers one call. A client that goes away drops this, and with it the call to etcd.
    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Answer>, Infallible> {
        let method = Method::of(request.uri().path());
        let deadline = grpc::timeout(request.headers()).and_then(|left| Instant::now().checked_add(left));
        let answer = async {
            self.shared.auth.check(request.uri().path(), request.headers())?;
            match method {
                Method::Watch if !grpc::is_compressed(request.headers()) => {
                    Ok(watch::start(self.clone(), request, deadline))
                }
                Method::Stream | Method::Watch => self.stream(request, deadline).await,
                Method::Write | Method::Read | Method::Once => {
                    let call = self.calls.begin();
                    let mut answer = self.unary(method, request, deadline).await?;
                    answer.body_mut().count(call);
                    Ok(answer)
                }
            }
        };
        let answer = match deadline {
            Some(deadline) => timeout_at(deadline, answer).await.unwrap_or(Err(Status::past_deadline())),
            None => answer.await,
        };
        Ok(answer.unwrap_or_else(|status| body::refusal(&status)))
    }

    /// A call of one message.
    async fn unary(
        &self,
        method: Method,
        request: Request<Incoming>,
        deadline: Option<Instant>,
    ) -> Result<Response<Answer>, Status> {
        let (head, body) = request.into_parts();
        let message = self.shared.room.collect(body).await?;
        let mut pass = match method {
            Method::Write => Some(self.shared.gate.enter().await),
            Method::Read | Method::Once | Method::Stream | Method::Watch => None,
        };
        let give_up = deadline.unwrap_or_else(|| Instant::now() + self.shared.limits.patience);
        let call = Call { method, head: &head, message: &message.bytes, deadline };
        let (mut tried, mut retried, began) = (Vec::new(), false, Instant::now());
        loop {
            let flight = self.next(&mut tried, began).await?;
            let member = flight.member().clone();
            let limit = if retried { Duration::MAX } else { STALL };
            match self.attempt(&call, flight, &mut pass, limit).await {
                Ok(answer) => return Ok(answer),
                Err(failed) if !failed.again || Instant::now() >= give_up => return Err(failed.status),
                Err(_) => {
                    retried = true;
                    tried.push(member);
                }
            }
        }
    }

    async fn attempt(
        &self,
        call: &Call<'_>,
        flight: InFlightCall,
        pass: &mut Option<Pass>,
        limit: Duration,
    ) -> Result<Response<Answer>, Failed> {
        let member = flight.member().clone();
        let repeatable = call.method == Method::Read;
        let response = match repeatable {
            true => timeout(limit, self.send(call, &member)).await.unwrap_or_else(|_| {
                Err(Failed::new(true, format!("gateway: {} does not answer", member.url)))
            }),
            false => self.send(call, &member).await,
        };
        let (head, body) = response.inspect_err(|_| member.mark_unhealthy())?.into_parts();
        member.backoff.answered();
        let broken = Status::unavailable(broken(call.method, &member));
        let mut answer = match Answer::whole(Rest::new(body, broken, Some(flight))).await {
            Ok(answer) => answer,
            Err(status) => {
                member.mark_unhealthy();
                return Err(Failed { status, again: repeatable });
            }
        };
        if let Some(failure) = grpc::failure(&head.headers).or_else(|| answer.failure()) {
            let not_done = NOT_DONE.contains(&failure.message);
            if not_done || failure.unavailable && failure.message != NOT_ILL {
                member.mark_unhealthy();
            }
            if not_done || failure.unavailable && repeatable {
                return Err(Failed::new(true, failure.message));
            }
        }
        answer.keep(pass.take());
        Ok(Response::from_parts(head, answer))
    }

    /// Sends a call; gives the beginning of its answer.
    async fn send(&self, call: &Call<'_>, member: &Arc<Member>) -> Result<Response<Incoming>, Failed> {
        let connected = self.pool.to(member).await;
        let mut sender = connected.map_err(|error| {
            Failed::new(true, format!("gateway: failed to connect to {}: {error}", member.url))
        })?;
        let body = Either::Left(Full::new(call.message.clone()));
        let request = self
            .to_member(call.head, member, call.deadline, body)
            .map_err(|status| Failed { status, again: false })?;
        sender.try_send_request(request).await.map_err(|mut error| {
            // A connection that ended before it took the request gives it back.
            let unsent = error.take_message().is_some();
            if unsent {
                let why = io::Error::new(io::ErrorKind::ConnectionReset, error.error().to_string());
                member.backoff.failed(Instant::now(), &why);
            }
            Failed::new(unsent || call.method == Method::Read, broken(call.method, member))
        })
    }

    /// A call of many messages, for as long as it is wanted.
    async fn stream(
        &self,
        request: Request<Incoming>,
        deadline: Option<Instant>,
    ) -> Result<Response<Answer>, Status> {
        let (head, body) = request.into_parts();
        let (member, mut sender) = self.connect(deadline).await?;
        let request = self.to_member(&head, &member, deadline, Either::Right(Either::Left(body)))?;
        let answer = member.gone.run_until_cancelled(sender.send_request(request)).await;
        let broken = Status::unavailable(broken(Method::Stream, &member));
        let Some(Ok(response)) = answer else {
            if answer.is_some() {
                member.mark_unhealthy();
            }
            return Err(broken);
        };
        member.backoff.answered();
        let (head, body) = response.into_parts();
        let rest = Rest::new(body, broken, None).until(member.gone.clone().cancelled_owned());
        let answer = Answer::begun(rest).await;
        if let Some(failure) = grpc::failure(&head.headers).or_else(|| answer.failure()) {
            member.mark_unhealthy();
            // Clients give up a watch for anything but this.
            if NOT_DONE.contains(&failure.message) {
                return Err(Status::unavailable(failure.message));
            }
        }
        Ok(Response::from_parts(head, answer))
    }
}

/// What is known of a call whose member went away.
fn broken(method: Method, member: &Member) -> String {
    let url = &member.url;
    match method {
        Method::Write | Method::Once => {
            format!("gateway: {url} went away; it is not known whether this was done")
        }
        Method::Read | Method::Stream | Method::Watch => format!("gateway: {url} went away"),
    }
}
