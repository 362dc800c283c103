//! Streams of watches, which outlive the member that serves them.
//!
//! The requests of a client and how far each watch has come are kept; when the member goes away, another one is asked for the same
//! watches from the next revision on, and its confirmations are kept to oneself. So the client sees every event once and in order.
//! It is told of the break only where the place to go on is not known: in the middle of a revision that came in fragments, or after a
//! message of more than 4 MiB, which is passed on unread.

mod messages;
mod record;
mod wire;

use std::{collections::VecDeque, sync::Arc};

use futures::future::BoxFuture;
use http::request::Parts;
use http_body_util::Either;
use hyper::{
    HeaderMap, Request, Response,
    body::{Bytes, Frame, Incoming},
};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};

pub(super) use self::wire::number as varint_field;
use self::{
    messages::{Messages, Next, PREFIX},
    record::Record,
};
use super::{
    body::{self, Answer, Pipe},
    client::{Client, NOT_DONE, pause_since},
    grpc::{self, Code, Status},
    members::Member,
};

/// Messages that may wait in each direction.
const WAITING: usize = 4;

/// A client's stream.
struct Stream {
    client: Arc<Client>,
    head: Parts,
    deadline: Option<Instant>,
    record: Record,
    out: mpsc::Sender<Frame<Bytes>>,
    /// Since when no member has said anything.
    trouble: Option<Instant>,
}

/// The client's side of it.
struct Inbound {
    /// Nothing after the client has said that it will ask for nothing more.
    messages: Option<Messages>,
    /// What is to be sent to etcd.
    queue: VecDeque<Bytes>,
}

/// The stream at a member.
struct Upstream {
    member: Arc<Member>,
    requests: Option<mpsc::Sender<Bytes>>,
    replies: Replies,
}

/// The member answers when it has something to say.
enum Replies {
    Opening(BoxFuture<'static, Result<Response<Incoming>, hyper::Error>>),
    Open(Messages),
}

/// How a stream at a member ended.
enum End {
    /// The client is gone.
    Client,
    /// This is the end for the client, too.
    Said(HeaderMap),
    /// Another member can go on.
    Broken(Status),
}

/// Answers with a stream that goes on for as long as the client likes.
pub(super) fn start(
    client: Arc<Client>,
    request: Request<Incoming>,
    deadline: Option<Instant>,
) -> Response<Answer> {
    let (mut head, body) = request.into_parts();
    // What etcd says has to be read.
    head.headers.remove("grpc-accept-encoding");
    let (out, answer) = mpsc::channel(WAITING);
    let stream = Stream { client, head, deadline, record: Record::default(), out, trouble: None };
    tokio::spawn(async move {
        match deadline {
            // The client knows of its deadline.
            Some(deadline) => drop(timeout_at(deadline, stream.run(body)).await),
            None => stream.run(body).await,
        }
    });
    body::stream(Answer::piped(answer))
}

impl Stream {
    async fn run(mut self, body: Incoming) {
        let mut inbound = Inbound { messages: Some(Messages::new(body)), queue: VecDeque::new() };
        let said = loop {
            let end = match self.open().await {
                Ok(mut upstream) => self.pump(&mut inbound, &mut upstream).await,
                Err(status) => End::Said(status.trailers()),
            };
            let status = match end {
                End::Client => return,
                End::Said(trailers) => break trailers,
                End::Broken(status) => status,
            };
            let since = *self.trouble.get_or_insert_with(Instant::now);
            match self.record.again() {
                Some(requests) if since.elapsed() < self.client.patience() => {
                    inbound.queue = requests.iter().map(framed).collect();
                }
                _ => break status.trailers(),
            }
            tokio::select! {
                () = pause_since(since) => {}
                () = self.out.closed() => return,
            }
        };
        // A client that is gone does not hear it.
        let _ = self.out.send(Frame::trailers(said)).await;
    }

    /// A stream at a member.
    async fn open(&self) -> Result<Upstream, Status> {
        let (member, mut sender) = self.client.connect(self.deadline).await?;
        let (requests, body) = mpsc::channel(WAITING);
        let body = Either::Right(Either::Right(Pipe::new(body)));
        let request = self.client.to_member(&self.head, &member, self.deadline, body)?;
        let replies = Box::pin(async move { sender.send_request(request).await });
        Ok(Upstream { member, requests: Some(requests), replies: Replies::Opening(replies) })
    }

    /// Passes messages in both directions until one side ends.
    async fn pump(&mut self, inbound: &mut Inbound, upstream: &mut Upstream) -> End {
        loop {
            if inbound.queue.is_empty() && inbound.messages.is_none() {
                upstream.requests = None;
            }
            tokio::select! {
                () = self.out.closed() => return End::Client,
                () = upstream.member.gone.cancelled() => return End::Broken(Status::unavailable("gateway: this member is not used any more")),
                () = send_next(&upstream.requests, &mut inbound.queue), if !inbound.queue.is_empty() => {}
                asked = next_request(&mut inbound.messages), if inbound.queue.is_empty() && inbound.messages.is_some() => {
                    match self.ask(asked) {
                        Ok(Some(message)) => inbound.queue.push_back(message),
                        Ok(None) => inbound.messages = None,
                        Err(end) => return end,
                    }
                }
                said = upstream.replies.next() => match self.hear(said, &upstream.member) {
                    Ok(Some(data)) => if self.out.send(Frame::data(data)).await.is_err() {
                        return End::Client;
                    },
                    Ok(None) => {}
                    Err(end) => return end,
                },
            }
        }
    }

    /// What to ask etcd for; nothing where the client has ended.
    fn ask(&mut self, asked: Result<Next, hyper::Error>) -> Result<Option<Bytes>, End> {
        let too_much = |what| End::Said(Status::new(Code::ResourceExhausted, what).trailers());
        match asked {
            Ok(Next::Message(message)) => {
                let message = self.record.ask(message.slice(PREFIX..));
                let message = message.map_err(|_| too_much("gateway: too many watches in one stream"))?;
                Ok(Some(framed(&message)))
            }
            Ok(Next::Part(_)) => Err(too_much("gateway: the request is compressed or too large")),
            Ok(Next::End(_)) => Ok(None),
            Err(_) => Err(End::Client),
        }
    }

    /// What the client is to hear, if anything.
    fn hear(&mut self, said: Result<Next, Failed>, member: &Member) -> Result<Option<Bytes>, End> {
        let trailers = match said {
            Ok(Next::Message(message)) => {
                self.trouble = None;
                member.backoff.answered();
                return Ok(self.record.hear(&message[PREFIX..]).then_some(message));
            }
            Ok(Next::Part(part)) => {
                self.record.miss();
                return Ok(Some(part));
            }
            Ok(Next::End(trailers)) => trailers,
            Err(Failed::Said(headers)) => Some(headers),
            Err(Failed::Broken) => None,
        };
        let failure = trailers.as_ref().and_then(grpc::failure);
        match (&trailers, failure) {
            (Some(trailers), None) => Err(End::Said(trailers.clone())),
            (Some(trailers), Some(failure))
                if !failure.unavailable && !NOT_DONE.contains(&failure.message) =>
            {
                Err(End::Said(trailers.clone()))
            }
            (_, failure) => {
                member.mark_unhealthy();
                let message = failure.map_or("gateway: the member went away", |failure| failure.message);
                Err(End::Broken(Status::unavailable(message)))
            }
        }
    }
}

/// Why nothing comes any more.
enum Failed {
    Broken,
    Said(HeaderMap),
}

impl Replies {
    async fn next(&mut self) -> Result<Next, Failed> {
        if let Self::Opening(opening) = self {
            let response = opening.await.map_err(|_| Failed::Broken)?;
            if grpc::failure(response.headers()).is_some() {
                return Err(Failed::Said(response.headers().clone()));
            }
            *self = Self::Open(Messages::new(response.into_body()));
        }
        match self {
            Self::Open(messages) => messages.next().await.map_err(|_| Failed::Broken),
            Self::Opening(_) => Err(Failed::Broken),
        }
    }
}

async fn next_request(messages: &mut Option<Messages>) -> Result<Next, hyper::Error> {
    match messages {
        Some(messages) => messages.next().await,
        None => Ok(Next::End(None)),
    }
}

/// Sends the first message of the queue. It stays there where this is dropped, or where nobody takes it: the end of the stream
/// tells why.
async fn send_next(requests: &Option<mpsc::Sender<Bytes>>, queue: &mut VecDeque<Bytes>) {
    let Some(requests) = requests else { return std::future::pending().await };
    match requests.reserve().await {
        Ok(room) => {
            if let Some(message) = queue.pop_front() {
                room.send(message);
            }
        }
        Err(_) => std::future::pending().await,
    }
}

/// The message with its prefix.
fn framed(message: &Bytes) -> Bytes {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut framed = Vec::with_capacity(PREFIX + message.len());
    framed.push(0);
    framed.extend(length.to_be_bytes());
    framed.extend_from_slice(message);
    framed.into()
}
