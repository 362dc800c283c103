//! One event in the JSON that Go makes of etcd's own type: binary as base64, the kind as a number, zeros left out.

use std::fmt;

use base64::{Engine as _, display::Base64Display, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use repot_etcd_core::snapshot::Revision;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Visitor},
};

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It was written.
    Put,
    /// It was deleted.
    Delete,
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Whether the key was written or deleted.
    pub kind: EventKind,
    /// The key that was changed, as etcd keeps it.
    pub key: Vec<u8>,
    /// Its value; empty for a deletion.
    pub value: Vec<u8>,
    /// The revision that created the key; 0 for a deletion.
    pub create_revision: Revision,
    /// The revision of this change.
    pub mod_revision: Revision,
    /// How often the key was written since it was created; 0 for a deletion.
    pub version: i64,
    /// The lease that the key ends with; 0 for none.
    pub lease: i64,
}

impl From<&etcd_client::Event> for Event {
    fn from(event: &etcd_client::Event) -> Self {
        let kind = match event.event_type() {
            etcd_client::EventType::Put => EventKind::Put,
            etcd_client::EventType::Delete => EventKind::Delete,
        };
        let kv = event.kv();
        let number = |of: fn(&etcd_client::KeyValue) -> i64| kv.map_or(0, of);
        Self {
            kind,
            key: kv.map(|kv| kv.key().to_vec()).unwrap_or_default(),
            value: kv.map(|kv| kv.value().to_vec()).unwrap_or_default(),
            create_revision: Revision(number(etcd_client::KeyValue::create_revision)),
            mod_revision: Revision(number(etcd_client::KeyValue::mod_revision)),
            version: number(etcd_client::KeyValue::version),
            lease: number(etcd_client::KeyValue::lease),
        }
    }
}

/// An element of the list in a delta.
#[derive(Serialize)]
struct TimedEvent<'a> {
    #[serde(rename = "etcdEvent")]
    etcd_event: WireEvent<'a>,
    time: String,
}

#[derive(Serialize)]
struct WireEvent<'a> {
    #[serde(rename = "type", skip_serializing_if = "is_zero")]
    kind: i64,
    kv: WireKeyValue<'a>,
}

#[derive(Serialize)]
struct WireKeyValue<'a> {
    #[serde(serialize_with = "as_base64", skip_serializing_if = "is_empty")]
    key: &'a [u8],
    #[serde(skip_serializing_if = "is_zero")]
    create_revision: i64,
    #[serde(skip_serializing_if = "is_zero")]
    mod_revision: i64,
    #[serde(skip_serializing_if = "is_zero")]
    version: i64,
    #[serde(serialize_with = "as_base64", skip_serializing_if = "is_empty")]
    value: &'a [u8],
    #[serde(skip_serializing_if = "is_zero")]
    lease: i64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

fn is_empty(bytes: &&[u8]) -> bool {
    bytes.is_empty()
}

fn as_base64<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&Base64Display::new(bytes, &STANDARD))
}

impl Event {
    /// Appends its JSON, with the time at which it was seen.
    ///
    /// # Errors
    /// None that memory does not cause.
    pub fn write_json(&self, seen: Timestamp, out: &mut Vec<u8>) -> serde_json::Result<()> {
        let kv = WireKeyValue {
            key: &self.key,
            create_revision: self.create_revision.0,
            mod_revision: self.mod_revision.0,
            version: self.version,
            value: &self.value,
            lease: self.lease,
        };
        let kind = i64::from(self.kind == EventKind::Delete);
        serde_json::to_writer(out, &TimedEvent { etcd_event: WireEvent { kind, kv }, time: seen.to_string() })
    }
}

#[derive(Deserialize)]
struct ReadTimedEvent {
    #[serde(rename = "etcdEvent")]
    etcd_event: ReadEvent,
}

#[derive(Deserialize)]
struct ReadEvent {
    #[serde(rename = "type", default)]
    kind: ReadKind,
    kv: ReadKeyValue,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ReadKeyValue {
    #[serde(deserialize_with = "from_base64")]
    key: Vec<u8>,
    create_revision: i64,
    mod_revision: i64,
    version: i64,
    #[serde(deserialize_with = "from_base64")]
    value: Vec<u8>,
    lease: i64,
}

#[derive(Default)]
struct ReadKind(Option<EventKind>);

impl<'de> Deserialize<'de> for ReadKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match i64::deserialize(deserializer)? {
            0 => Ok(Self(Some(EventKind::Put))),
            1 => Ok(Self(Some(EventKind::Delete))),
            other => Err(de::Error::custom(format_args!("there is no kind {other} of events"))),
        }
    }
}

struct Base64Visitor;

impl Visitor<'_> for Base64Visitor {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("base64")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<u8>, E> {
        STANDARD.decode(text).map_err(E::custom)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Vec<u8>, E> {
        Ok(Vec::new())
    }
}

fn from_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    deserializer.deserialize_any(Base64Visitor)
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ReadEvent { kind, kv } = ReadTimedEvent::deserialize(deserializer)?.etcd_event;
        if kv.key.is_empty() {
            return Err(de::Error::custom("an event has no key"));
        }
        Ok(Self {
            kind: kind.0.unwrap_or(EventKind::Put),
            key: kv.key,
            value: kv.value,
            create_revision: Revision(kv.create_revision),
            mod_revision: Revision(kv.mod_revision),
            version: kv.version,
            lease: kv.lease,
        })
    }
}
