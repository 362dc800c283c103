//! `application/vnd.kubernetes.protobuf`: what kube-apiserver writes and reads for kinds that have no protobuf of their own,
//! custom resources for example: metadata, `Status`, discovery and options of a deletion.
//!
//! A document is an envelope: four bytes of magic and a `runtime.Unknown` with `apiVersion`, `kind` and the encoded message
//! (`k8s.io/apimachinery/pkg/runtime/serializer/protobuf`). A watch is a stream of `metav1.WatchEvent`, each after its length
//! in four bytes, the highest first, and without an envelope; the object in it has one.

mod decode;
mod encode;
mod messages;
pub(crate) mod wire;

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use self::wire::Fields;
pub use self::wire::Malformed;

/// The media type of protobuf in Kubernetes.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// What begins each document.
const MAGIC: &[u8] = b"k8s\0";

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Head {
    kind: String,
    api_version: String,
}

/// Encodes a document in JSON, byte for byte as kube-apiserver does. `None`: its kind has no protobuf here, or it is no JSON.
#[must_use]
pub fn encode(json: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(json.len());
    document(&mut out, json)?;
    Some(out)
}

/// Encodes one event of a watch whose object is in JSON, with its length in front. `None` as for [`encode`], or when the
/// event has 4 GiB or more.
#[must_use]
pub fn watch_event(kind: &str, object: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(object.len());
    out.extend_from_slice(&[0; 4]);
    wire::bytes(&mut out, 1, kind.as_bytes());
    let mut encoded = Some(());
    wire::message(&mut out, 2, |out| wire::message(out, 1, |out| encoded = document(out, object)));
    encoded?;
    let length = u32::try_from(out.len() - 4).ok()?;
    out[..4].copy_from_slice(&length.to_be_bytes());
    Some(out)
}

fn document(out: &mut Vec<u8>, json: &[u8]) -> Option<()> {
    let head: Head = serde_json::from_slice(json).ok()?;
    let shape = messages::of(&head.api_version, &head.kind)?;
    let json: &RawValue = serde_json::from_slice(json).ok()?;
    out.extend_from_slice(MAGIC);
    wire::message(out, 1, |out| {
        wire::bytes(out, 1, head.api_version.as_bytes());
        wire::bytes(out, 2, head.kind.as_bytes());
    });
    wire::message(out, 2, |out| encode::message(out, shape, json));
    // Content encoding and type, which are for objects within objects.
    wire::bytes(out, 3, b"");
    wire::bytes(out, 4, b"");
    Some(())
}

/// Reads `DeleteOptions` from a request body, and gives them in JSON.
///
/// # Errors
/// [`Malformed`].
pub fn delete_options(body: &[u8]) -> Result<Value, Malformed> {
    let body = body.strip_prefix(MAGIC).ok_or(Malformed)?;
    let (mut api_version, mut kind, mut raw) = ("", "", &[][..]);
    for field in Fields(body) {
        match field? {
            (1, head) => {
                for field in Fields(head.bytes()?) {
                    match field? {
                        (1, text) => api_version = text.text()?,
                        (2, text) => kind = text.text()?,
                        _ => {}
                    }
                }
            }
            (2, message) => raw = message.bytes()?,
            _ => {}
        }
    }
    let mut options = decode::message(&messages::DELETE_OPTIONS, raw)?;
    let head = [("apiVersion", api_version), ("kind", kind)].into_iter().filter(|(_, text)| !text.is_empty());
    options.extend(head.map(|(key, text)| (key.to_owned(), text.into())));
    Ok(options.into())
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
