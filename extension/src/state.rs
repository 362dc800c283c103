//! `status.state`: what an extension controller needs to continue its work in another seed.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};

use crate::raw::RawJson;

/// Encoding of bytes that are a text, as in the state of Gardener's terraformer.
const ENCODING_NONE: &str = "none";
/// Encoding of all other bytes, as in the state of Gardener's terraformer.
const ENCODING_BASE64: &str = "base64";

/// The state of an extension object.
///
/// kube-apiserver parses custom resources: it sorts keys, writes `1.0` as `1` and refuses `1e400`. [`State::Bytes`] survive that,
/// because they travel as a text. Use [`State::Json`] only for JSON whose spelling does not matter.
#[derive(Clone, PartialEq)]
pub enum State {
    /// Bytes that come back byte for byte. They are stored as `{"encoding":"none"|"base64","data":"…"}`, the form of
    /// Gardener's terraformer. A bare JSON text, the form of GEP-7, is read as the bytes of that text.
    Bytes(Vec<u8>),
    /// JSON that is stored as it is; API servers may spell it differently.
    Json(RawJson),
}

/// What is wrong with a state.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The envelope says base64, and its data are not.
    #[error("status.state says base64, but its data are not base64")]
    Base64(#[source] base64::DecodeError),
    /// The envelope names an encoding that this library does not know.
    #[error("status.state has the unknown encoding {0:?}: expected \"none\" or \"base64\"")]
    Encoding(String),
    /// The state is not JSON.
    #[error("status.state cannot be encoded as JSON")]
    Json(#[from] serde_json::Error),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope {
    data: String,
    encoding: String,
}

impl State {
    /// The bytes as a state that comes back byte for byte.
    #[must_use]
    pub fn bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Bytes(bytes.into())
    }

    /// Reads `status.state`. JSON's `null` is no state.
    ///
    /// # Errors
    /// When the envelope of bytes is damaged; other JSON is always accepted.
    pub fn read(raw: &RawJson) -> Result<Option<Self>, StateError> {
        if raw.is_null() {
            return Ok(None);
        }
        if let Ok(text) = raw.decode::<String>() {
            return Ok(Some(Self::Bytes(text.into_bytes())));
        }
        let Ok(envelope) = raw.decode::<Envelope>() else { return Ok(Some(Self::Json(raw.clone()))) };
        match envelope.encoding.as_str() {
            ENCODING_NONE => Ok(Some(Self::Bytes(envelope.data.into_bytes()))),
            ENCODING_BASE64 => {
                let bytes = STANDARD.decode(envelope.data).map_err(StateError::Base64)?;
                Ok(Some(Self::Bytes(bytes)))
            }
            _ => Err(StateError::Encoding(envelope.encoding)),
        }
    }

    /// What is written to `status.state`.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn write(&self) -> Result<RawJson, StateError> {
        let bytes = match self {
            Self::Json(raw) => return Ok(raw.clone()),
            Self::Bytes(bytes) => bytes,
        };
        let (data, encoding) = match std::str::from_utf8(bytes) {
            Ok(text) => (text.to_owned(), ENCODING_NONE),
            Err(_) => (STANDARD.encode(bytes), ENCODING_BASE64),
        };
        Ok(RawJson::encode(&Envelope { data, encoding: encoding.to_owned() })?)
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "Bytes({} bytes)", bytes.len()),
            Self::Json(raw) => write!(f, "Json({} bytes)", raw.get().len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<State>, StateError> {
        State::read(&RawJson::parse(text).expect("JSON"))
    }

    #[test]
    fn bytes_survive_a_server_that_parses_json() {
        let all: Vec<u8> = (0..=255).collect();
        for bytes in [&b"{\"b\": 1.0, \"a\": 1e400}\n"[..], &all, b"", "\u{0}\u{2028}\u{fffd}<&>".as_bytes()]
        {
            let written = State::bytes(bytes).write().expect("JSON");
            let parsed: serde_json::Value = written.decode().expect("JSON");
            let served = RawJson::encode(&parsed).expect("JSON");
            assert_eq!(State::read(&served).expect("a state"), Some(State::bytes(bytes)));
        }
    }

    #[test]
    fn other_json_and_the_text_of_gep_7_are_accepted() {
        assert_eq!(read("null").expect("nothing"), None);
        assert_eq!(read(r#""{\"version\": 3}""#).expect("a state"), Some(State::bytes("{\"version\": 3}")));
        for json in [r#"{"data":"x"}"#, r#"{"data":"x","encoding":"none","more":1}"#, "[1.0]", "1e400"] {
            let expected = State::Json(RawJson::parse(json).expect("JSON"));
            assert_eq!(read(json).expect("a state"), Some(expected));
        }
    }

    #[test]
    fn damaged_envelopes_are_errors() {
        assert!(matches!(read(r#"{"data":"%","encoding":"base64"}"#), Err(StateError::Base64(_))));
        assert!(matches!(read(r#"{"data":"x","encoding":"gzip"}"#), Err(StateError::Encoding(_))));
    }
}
