//! Messages of a stream, one by one.

use bytes::{Buf, BytesMut};
use http_body_util::BodyExt;
use hyper::{
    HeaderMap,
    body::{Bytes, Incoming},
};

/// Before each message: whether it is compressed, and its length.
pub(super) const PREFIX: usize = 5;
/// Messages up to this size are read; larger ones are passed on in parts.
const WHOLE: usize = 4 << 20;

/// What comes next.
#[derive(Debug)]
pub(super) enum Next {
    /// A message with its prefix.
    Message(Bytes),
    /// A part of one that is too large to be read, or compressed.
    Part(Bytes),
    /// The end, with what is said there.
    End(Option<HeaderMap>),
}

/// The messages of a body.
pub(super) struct Messages {
    body: Incoming,
    buffer: BytesMut,
    /// How much of a message is passed on without being read.
    passing: usize,
}

impl Messages {
    pub(super) fn new(body: Incoming) -> Self {
        Self { body, buffer: BytesMut::new(), passing: 0 }
    }

    /// The next one. Nothing is lost where this is dropped while it waits.
    ///
    /// # Errors
    /// Where the stream breaks.
    pub(super) async fn next(&mut self) -> Result<Next, hyper::Error> {
        loop {
            if let Some(next) = self.buffered() {
                return Ok(next);
            }
            match self.body.frame().await.transpose()?.map(|frame| frame.into_data()) {
                Some(Ok(data)) => self.buffer.extend_from_slice(&data),
                Some(Err(frame)) => return Ok(Next::End(frame.into_trailers().ok())),
                None => return Ok(Next::End(None)),
            }
        }
    }

    fn buffered(&mut self) -> Option<Next> {
        if self.passing > 0 && !self.buffer.is_empty() {
            let part = self.buffer.split_to(self.passing.min(self.buffer.len()));
            self.passing -= part.len();
            return Some(Next::Part(part.freeze()));
        }
        let mut prefix = self.buffer.get(..PREFIX)?;
        let (compressed, length) = (prefix.get_u8() != 0, usize::try_from(prefix.get_u32()).ok()?);
        let whole = PREFIX.saturating_add(length);
        if compressed || length > WHOLE {
            self.passing = whole;
            return self.buffered();
        }
        (self.buffer.len() >= whole).then(|| Next::Message(self.buffer.split_to(whole).freeze()))
    }
}
