//! What passes through: messages that are taken in whole before they are sent, and answers that are passed on as they come.

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http_body_util::{BodyExt, Either, Full};
use hyper::{
    Response,
    body::{Body, Bytes, Frame, Incoming},
    header::{CONTENT_TYPE, HeaderValue},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::{
    calls::CallInProgress,
    gate::Pass,
    grpc::{self, Code, Failure, Status},
    members::InFlightCall,
};

/// Answers up to this size are passed on when they are whole, so that nothing of one that breaks has reached the client.
const WHOLE: usize = 256 << 10;
/// Before each message of gRPC: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// What is sent to etcd: a message, what a client sends, or what is made of that.
pub(super) type Outgoing = Either<Full<Bytes>, Either<Incoming, Pipe>>;

/// Messages as they are made.
pub(super) struct Pipe(mpsc::Receiver<Bytes>);

impl Pipe {
    pub(super) fn new(messages: mpsc::Receiver<Bytes>) -> Self {
        Self(messages)
    }
}

impl Body for Pipe {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|message| message.map(|message| Ok(Frame::data(message))))
    }
}

/// Room for messages of all clients together.
pub(super) struct MessageBudget {
    free: Arc<Semaphore>,
    largest: usize,
}

/// The one message of a call, whole.
pub(super) struct Message {
    pub bytes: Bytes,
    _room: OwnedSemaphorePermit,
}

impl MessageBudget {
    pub(super) fn new(all: usize, largest: usize) -> Self {
        let all = all.min(Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(all)), largest: largest.min(all.saturating_sub(PREFIX)) }
    }

    /// Takes in the message of a call. The room for all of it is taken when its length is known, so that no two ever wait for the
    /// room that the other has.
    ///
    /// # Errors
    /// Where it is too large, or did not arrive whole.
    pub(super) async fn collect(&self, mut body: Incoming) -> Result<Message, Status> {
        let broken = || Status::new(Code::Internal, "gateway: the message did not arrive whole");
        let mut bytes = Vec::new();
        let mut room = None;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| broken())?.into_data() else { continue };
            bytes.extend_from_slice(&data);
            if room.is_none()
                && let Some(length) = self.length(&bytes)?
            {
                let permits = u32::try_from(length).map_err(|_| broken())?;
                let taken = self.free.clone().acquire_many_owned(permits).await.map_err(|_| broken())?;
                bytes.reserve_exact(length.saturating_sub(bytes.len()));
                room = Some((length, taken));
            }
            if room.as_ref().is_some_and(|(length, _)| bytes.len() > *length) {
                return Err(Status::new(Code::Internal, "gateway: the call has more than one message"));
            }
        }
        match room {
            Some((length, taken)) if length == bytes.len() => {
                Ok(Message { bytes: bytes.into(), _room: taken })
            }
            _ => Err(broken()),
        }
    }

    /// How long the message is, with what is before it.
    fn length(&self, bytes: &[u8]) -> Result<Option<usize>, Status> {
        let Some(prefix) = bytes.first_chunk::<PREFIX>() else { return Ok(None) };
        let [_, length @ ..] = *prefix;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > self.largest {
            let message = format!("gateway: the message has {length} bytes, more than {}", self.largest);
            return Err(Status::new(Code::ResourceExhausted, message));
        }
        Ok(Some(length + PREFIX))
    }
}

/// What a client is answered: what is there already, and then what still comes.
#[derive(Default)]
pub(super) struct Answer {
    first: VecDeque<Frame<Bytes>>,
    rest: Option<Rest>,
    piped: Option<mpsc::Receiver<Frame<Bytes>>>,
    call: Option<CallInProgress>,
}

/// What still comes from etcd.
pub(super) struct Rest {
    body: Incoming,
    broken: Status,
    gone: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    _flight: Option<InFlightCall>,
    pass: Option<Pass>,
}

impl Rest {
    pub(super) fn new(body: Incoming, broken: Status, flight: Option<InFlightCall>) -> Self {
        Self { body, broken, gone: None, _flight: flight, pass: None }
    }

    /// Ends when its member is not to be used any more.
    pub(super) fn until(mut self, gone: WaitForCancellationFutureOwned) -> Self {
        self.gone = Some(Box::pin(gone));
        self
    }
}

impl Answer {
    /// What is made for it.
    pub(super) fn piped(frames: mpsc::Receiver<Frame<Bytes>>) -> Self {
        Self { piped: Some(frames), ..Self::default() }
    }

    /// Waits for the first frame, and passes on what comes. etcd sends no headers before it has that frame.
    pub(super) async fn begun(mut rest: Rest) -> Self {
        match poll_fn(|cx| rest.poll(cx)).await {
            None => Self::default(),
            Some(Ok(frame)) => Self { first: [frame].into(), rest: Some(rest), piped: None, call: None },
            Some(Err(status)) => {
                Self { first: [Frame::trailers(status.trailers())].into(), ..Self::default() }
            }
        }
    }

    /// Waits until it is whole, or too large for that.
    ///
    /// # Errors
    /// Where it breaks before.
    pub(super) async fn whole(mut rest: Rest) -> Result<Self, Status> {
        let (mut first, mut size) = (VecDeque::new(), 0);
        while size <= WHOLE {
            match rest.body.frame().await {
                None => return Ok(Self { first, ..Self::default() }),
                Some(Err(_)) => return Err(rest.broken),
                Some(Ok(frame)) => {
                    size += frame.data_ref().map_or(0, Bytes::len);
                    first.push_back(frame);
                }
            }
        }
        Ok(Self { first, rest: Some(rest), piped: None, call: None })
    }

    /// Why it was not done, where that is all that the answer says. With TLS, etcd says it in trailers, after headers that say nothing.
    pub(super) fn failure(&self) -> Option<Failure<'_>> {
        let mut frames =
            self.first.iter().filter(|frame| frame.data_ref().is_none_or(|data| !data.is_empty()));
        match (frames.next(), frames.next()) {
            (Some(only), None) => grpc::failure(only.trailers_ref()?),
            _ => None,
        }
    }

    /// Counts as a call of one message until it has passed.
    pub(super) fn count(&mut self, call: CallInProgress) {
        self.call = Some(call);
    }

    /// Counts as a write until it has passed.
    pub(super) fn keep(&mut self, pass: Option<Pass>) {
        if let Some(rest) = &mut self.rest {
            rest.pass = pass;
        }
    }
}

/// A call that was not done: an answer of headers only.
pub(super) fn refusal(status: &Status) -> Response<Answer> {
    let mut response = stream(Answer::default());
    response.headers_mut().extend(status.trailers());
    response
}

/// The beginning of a stream.
pub(super) fn stream(answer: Answer) -> Response<Answer> {
    let mut response = Response::new(answer);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

impl Rest {
    /// The next frame; what the end is where it is not a good one.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(gone) = &mut self.gone
            && gone.as_mut().poll(cx).is_ready()
        {
            let status = Status::unavailable("gateway: this member of etcd is not used any more");
            return Poll::Ready(Some(Err(status)));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        Poll::Ready(frame.map(|frame| frame.map_err(|_| self.broken.clone())))
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(frame) = self.first.pop_front() {
            return Poll::Ready(Some(Ok(frame)));
        }
        if let Some(frames) = &mut self.piped {
            return frames.poll_recv(cx).map(|frame| frame.map(Ok));
        }
        let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
        let frame = match ready!(rest.poll(cx)) {
            Some(Ok(frame)) => return Poll::Ready(Some(Ok(frame))),
            Some(Err(status)) => Some(Ok(Frame::trailers(status.trailers()))),
            None => None,
        };
        self.rest = None;
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_empty() && self.rest.is_none() && self.piped.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_said_in_headers_alone() {
        let answer = refusal(&Status::unavailable("100 % gone\n"));
        let expected = Failure { unavailable: true, message: "100 ? gone?" };
        assert_eq!(grpc::failure(answer.headers()), Some(expected));
        let late = refusal(&Status::past_deadline());
        assert!(grpc::failure(late.headers()).is_some_and(|failure| !failure.unavailable));
        assert_eq!(grpc::failure(&hyper::HeaderMap::new()), None);
        assert!(answer.body().is_end_stream());
    }
}
