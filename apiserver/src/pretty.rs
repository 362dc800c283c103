//! JSON indented for people. Only white space outside of strings is added: what rests as it was written is shown so, too.

use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt;
use http::{Response, header};

use crate::call::Call;

/// Programs behind which mostly people sit.
const PEOPLE: &[&str] = &["curl", "Wget", "Mozilla/5.0"];

/// Whether somebody is to read the answer. What is neither true nor false counts as false, as with kube-apiserver.
#[must_use]
pub fn wanted(call: &Call) -> bool {
    let agent = call.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
    let people = agent.is_some_and(|agent| PEOPLE.iter().any(|name| agent.starts_with(name)));
    let asked = call.query.maybe_flag("pretty").unwrap_or(Some(false));
    asked.unwrap_or(people) && !call.info.long_running()
}

/// Indents an answer if it is JSON.
#[must_use]
pub fn answer(response: Response<Body>) -> Response<Body> {
    let json = |value: &http::HeaderValue| value.as_bytes().starts_with(b"application/json");
    if !response.headers().get(header::CONTENT_TYPE).is_some_and(json) {
        return response;
    }
    response.map(|body| {
        let mut indenter = Indenter::default();
        let pieces = body.into_data_stream();
        Body::from_stream(pieces.map(move |piece| piece.map(|piece| Bytes::from(indenter.indent(&piece)))))
    })
}

/// Where in the text we are, from piece to piece.
#[derive(Default)]
struct Indenter {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// A bracket was opened, and nothing came in it yet.
    opened: bool,
}

impl Indenter {
    fn indent(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut text = Vec::with_capacity(piece.len() * 5 / 4);
        for &byte in piece {
            if self.in_string {
                text.push(byte);
                self.string(byte);
            } else if !byte.is_ascii_whitespace() {
                self.token(byte, &mut text);
            }
        }
        text
    }

    fn string(&mut self, byte: u8) {
        self.in_string = self.escaped || byte != b'"';
        self.escaped = !self.escaped && byte == b'\\';
    }

    fn token(&mut self, byte: u8, text: &mut Vec<u8>) {
        let closing = matches!(byte, b'}' | b']');
        let opened = std::mem::replace(&mut self.opened, matches!(byte, b'{' | b'['));
        if closing {
            self.depth = self.depth.saturating_sub(1);
        }
        // Empty brackets stay together.
        if opened != closing {
            self.line(text);
        }
        text.push(byte);
        match byte {
            b'{' | b'[' => self.depth += 1,
            b',' => self.line(text),
            b':' => text.push(b' '),
            b'"' => self.in_string = true,
            _ => {}
        }
    }

    fn line(&self, text: &mut Vec<u8>) {
        text.push(b'\n');
        text.resize(text.len() + 2 * self.depth, b' ');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indents_without_touching_what_is_inside_strings() {
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
            let mut indenter = Indenter::default();
            let pieces: Vec<u8> = text.as_bytes().chunks(size).flat_map(|p| indenter.indent(p)).collect();
            assert_eq!(String::from_utf8(pieces).expect("text"), expected);
        }
    }

    #[test]
    fn people_get_it_indented_and_programs_when_they_ask() {
        let call = |uri: &str, agent: &str| {
            let request = http::Request::builder().uri(uri).header("user-agent", agent);
            let request = request.body(Body::empty()).expect("a request");
            Call::begin(request, std::sync::Arc::default()).map_err(|(status, _)| status).expect("a call")
        };
        for (uri, agent, expected) in [
            ("/apis", "kubectl/v1.36", false),
            ("/apis?pretty=true", "kubectl/v1.36", true),
            ("/apis", "curl/8.0", true),
            ("/apis?pretty=perhaps", "curl/8.0", false),
            ("/apis?pretty=false", "Mozilla/5.0 (X11)", false),
            ("/apis/g/v1/rs?watch=1&pretty=true", "curl/8.0", false),
        ] {
            assert_eq!(wanted(&call(uri, agent)), expected, "{uri} {agent}");
        }
    }
}
