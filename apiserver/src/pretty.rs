//! JSON indented for people, as kube-apiserver indents it (`isPrettyPrint` of its `negotiate.go`). Only white space outside of
//! strings is added: what is stored is shown token for token.
//!
//! The white space is bounded: an answer of N bytes becomes at most `9 N + 16 KiB`. Two spaces for each level would make 1.8 GB
//! of 198 KB of nested arrays. A line break that the bound does not allow is left out, and the text goes on in the same line;
//! objects that people write never come near it (a list of one-digit numbers does at a depth of eight).
//!
//! The text is made piece by piece as the client takes it: beside the answer itself, [`HELD`] bytes are in memory. Long pieces
//! are indented on the threads of [`crate::heavy`].

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};
use http::{HeaderMap, Response, header};

use crate::{
    call::Call,
    heavy::{NotDone, UserWork},
    negotiate,
};

/// Programs behind which mostly people sit, as in kube-apiserver.
const PEOPLE: &[&str] = &["curl", "Wget", "Mozilla/5.0"];
/// White space that each byte of an answer allows, in bytes.
const SPACE_PER_BYTE: usize = 8;
/// White space that is allowed beside that, and the most that is saved up, in bytes.
const SPACE: usize = 16 << 10;
/// An indented piece is passed on from this size on, in bytes.
const PIECE: usize = 32 << 10;
/// Pieces of a response up to this size are indented on the thread of the request, in bytes: that takes less than 1 ms.
const LIGHT: usize = 8 << 10;
/// What indenting one answer holds at most: an indented piece, with the last line that fits into the space saved up.
const HELD: usize = PIECE + SPACE + 2;

/// Whether somebody is to read the answer. Watches are never indented, since each event is one line.
#[must_use]
pub fn wanted(call: &Call) -> bool {
    !call.info.long_running() && (negotiate::pretty(&call.headers) || asked(call))
}

/// What an answer holds beside its own pieces, in bytes, for the budget of answers.
#[must_use]
pub fn held(call: &Call) -> u64 {
    if wanted(call) { HELD as u64 } else { 0 }
}

/// An empty parameter counts as absent, and what is no boolean as false (Go's `strconv.ParseBool`).
fn asked(call: &Call) -> bool {
    match call.query.get("pretty") {
        Some(text) => matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True"),
        None => is_person(&call.headers),
    }
}

fn is_person(headers: &HeaderMap) -> bool {
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
    agent.is_some_and(|agent| PEOPLE.iter().any(|name| agent.starts_with(name)))
}

/// Indents an answer if it is JSON.
#[must_use]
pub fn answer(work: &UserWork, response: Response<Body>) -> Response<Body> {
    let json = |value: &http::HeaderValue| value.as_bytes().starts_with(b"application/json");
    if !response.headers().get(header::CONTENT_TYPE).is_some_and(json) {
        return response;
    }
    response.map(|body| Body::from_stream(indented(work.clone(), body.into_data_stream())))
}

type Piece = Result<Bytes, axum::Error>;

/// The pieces of a text, indented. Each has about [`PIECE`] bytes, however long the pieces of the source are.
fn indented(
    work: UserWork,
    source: impl Stream<Item = Piece> + Send + Unpin + 'static,
) -> impl Stream<Item = Piece> + Send {
    let state = (source, Page::default());
    stream::unfold(state, move |(mut source, mut page)| {
        let work = work.clone();
        async move {
            while page.text.len() < PIECE {
                if page.left.is_empty() {
                    match source.next().await {
                        Some(Ok(piece)) => page.left = piece,
                        Some(Err(error)) => return Some((Err(error), (source, page))),
                        None if page.text.is_empty() => return None,
                        None => break,
                    }
                }
                page = match page.fill(&work).await {
                    Ok(page) => page,
                    Err(error) => {
                        return Some((Err(axum::Error::new(error)), (source, Page::default())));
                    }
                };
            }
            let text = std::mem::take(&mut page.text).freeze();
            Some((Ok(text), (source, page)))
        }
    })
}

/// What is being indented.
#[derive(Default)]
struct Page {
    indenter: Indenter,
    /// Bytes of the source that are not indented yet.
    left: Bytes,
    text: BytesMut,
}

impl Page {
    /// Indents what is left, until the text has [`PIECE`] bytes.
    async fn fill(mut self, work: &UserWork) -> Result<Self, NotDone> {
        let length = self.left.len();
        let fill = move || {
            self.indenter.indent(&mut self.left, &mut self.text);
            self
        };
        if length <= LIGHT { Ok(fill()) } else { work.run(fill).await }
    }
}

/// Where in the text we are, from piece to piece.
struct Indenter {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// A bracket was opened, and nothing came in it yet.
    opened: bool,
    /// White space that may still be written, in bytes.
    space: usize,
}

impl Default for Indenter {
    fn default() -> Self {
        Self { depth: 0, in_string: false, escaped: false, opened: false, space: SPACE }
    }
}

impl Indenter {
    /// Takes bytes from `piece` until it is empty or `text` has [`PIECE`] bytes.
    fn indent(&mut self, piece: &mut Bytes, text: &mut BytesMut) {
        while !piece.is_empty() && text.len() < PIECE {
            let string = self.in_string;
            let taken = if string { self.string(&piece[..piece.len().min(PIECE - text.len())]) } else { 1 };
            let taken = piece.split_to(taken);
            self.space = taken.len().saturating_mul(SPACE_PER_BYTE).saturating_add(self.space).min(SPACE);
            match taken[0] {
                _ if string => text.extend_from_slice(&taken),
                byte if byte.is_ascii_whitespace() => {}
                byte => self.token(byte, text),
            }
        }
    }

    /// How much of this is part of the string. Strings are long in this field: jump, do not step.
    fn string(&mut self, piece: &[u8]) -> usize {
        let from = usize::from(std::mem::take(&mut self.escaped));
        let Some(at) = memchr::memchr2(b'"', b'\\', &piece[from..]) else { return piece.len() };
        self.in_string = piece[from + at] != b'"';
        self.escaped = self.in_string;
        from + at + 1
    }

    fn token(&mut self, byte: u8, text: &mut BytesMut) {
        let closing = matches!(byte, b'}' | b']');
        let opened = std::mem::replace(&mut self.opened, matches!(byte, b'{' | b'['));
        if closing {
            self.depth = self.depth.saturating_sub(1);
        }
        // Empty brackets stay together.
        if opened != closing {
            self.line(text);
        }
        text.extend_from_slice(&[byte]);
        match byte {
            b'{' | b'[' => self.depth += 1,
            b',' => self.line(text),
            b':' if self.take_space(1) => text.extend_from_slice(b" "),
            b'"' => self.in_string = true,
            _ => {}
        }
    }

    /// Begins a line, where there is space for it.
    fn line(&mut self, text: &mut BytesMut) {
        let length = 1 + 2 * self.depth;
        if self.take_space(length) {
            text.extend_from_slice(b"\n");
            text.resize(text.len() + length - 1, b' ');
        }
    }

    fn take_space(&mut self, bytes: usize) -> bool {
        let left = self.space.checked_sub(bytes);
        self.space = left.unwrap_or(self.space);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    /// The indented text of a source that comes in pieces of this size; no piece of the answer is longer than it may be.
    async fn indent(text: &str, size: usize) -> String {
        let pieces: Vec<Piece> =
            text.as_bytes().chunks(size).map(|p| Ok(Bytes::copy_from_slice(p))).collect();
        let mut response = Response::new(Body::from_stream(stream::iter(pieces)));
        response.headers_mut().insert(header::CONTENT_TYPE, "application/json".parse().expect("a value"));
        let (mut body, mut whole) = (answer(&UserWork::for_tests(), response).into_body(), Vec::new());
        while let Some(frame) = body.frame().await {
            let data = frame.expect("a frame").into_data().expect("data");
            assert!(data.len() <= HELD, "a piece of {} bytes", data.len());
            whole.extend_from_slice(&data);
        }
        String::from_utf8(whole).expect("text")
    }

    #[tokio::test]
    async fn indents_without_touching_what_is_inside_strings() {
        let text = r#"{"a":[1,2.50,{"b":"x, \"{y}\": \\"}],"c":{},"d":[ ],"e":null}"#;
        let expected = r#"{
  "a": [
    1,
    2.50,
    {
      "b": "x, \"{y}\": \\"
    }
  ],
  "c": {},
  "d": [],
  "e": null
}"#;
        // However it is cut into pieces.
        for size in [1, 3, 1000] {
            assert_eq!(indent(text, size).await, expected);
        }
    }

    #[tokio::test]
    async fn white_space_is_bounded_and_no_token_is_lost() {
        let deep = "[".repeat(10_000) + &"]".repeat(10_000);
        let deep_members = r#"{"a":["#.repeat(5000) + "1,2" + &"]}".repeat(5000);
        let jagged = (0..100).map(|n| "[1,".repeat(n) + "2" + &"]".repeat(n)).collect::<Vec<_>>().join(",");
        for text in [deep, deep_members, format!("[{jagged}]"), format!("[{}0]", "0,".repeat(100_000))] {
            let shown = indent(&text, 10_000).await;
            assert!(shown.len() <= 9 * text.len() + SPACE, "{} bytes of {}", shown.len(), text.len());
            assert_eq!(shown.replace([' ', '\n'], ""), text);
            assert_eq!(shown, indent(&text, 7).await, "it hangs on how the text is cut");
        }
    }

    #[tokio::test]
    async fn lines_come_back_after_what_was_too_deep() {
        let deep = "[".repeat(5000) + &"]".repeat(5000);
        let shown = indent(&format!(r#"{{"a":{deep},"b":"{}","c":[1]}}"#, "x".repeat(2000)), 1 << 20).await;
        assert!(shown.ends_with("\",\n  \"c\": [\n    1\n  ]\n}"), "{}", &shown[shown.len() - 60..]);
    }

    #[test]
    fn people_get_it_indented_and_programs_when_they_ask() {
        let call = |uri: &str, agent: &str, accept: &str| {
            let request =
                http::Request::builder().uri(uri).header("user-agent", agent).header("accept", accept);
            let request = request.body(Body::empty()).expect("a request");
            Call::begin(request, std::sync::Arc::default()).map_err(|(status, _)| status).expect("a call")
        };
        for (uri, agent, accept, expected) in [
            ("/apis", "kubectl/v1.36", "*/*", false),
            ("/apis?pretty=true", "kubectl/v1.36", "*/*", true),
            ("/apis", "curl/8.0", "*/*", true),
            ("/apis?pretty=", "curl/8.0", "*/*", true),
            ("/apis?pretty", "kubectl/v1.36", "*/*", false),
            ("/apis?pretty=perhaps", "curl/8.0", "*/*", false),
            ("/apis?pretty=false", "Mozilla/5.0 (X11)", "*/*", false),
            ("/apis", "kubectl/v1.36", "application/json;pretty=1", true),
            ("/apis?pretty=0", "kubectl/v1.36", "application/json;pretty=1", true),
            ("/apis", "kubectl/v1.36", "application/json;pretty=0", false),
            ("/apis/g/v1/rs?watch=1&pretty=true", "curl/8.0", "*/*", false),
        ] {
            assert_eq!(wanted(&call(uri, agent, accept)), expected, "{uri} {agent} {accept}");
        }
    }
}
