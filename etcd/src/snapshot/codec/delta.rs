//! Deltas: the list of events, written and read an event at a time.

use std::{
    io::{Read, Write},
    ops::RangeInclusive,
};

use jiff::Timestamp;
use repot_etcd_core::snapshot::{Compression, Revision};

use super::{Encoder, Error, Event, EventKind, HASH_BYTES, Sha256, Trailed, list::Elements};

/// The largest event that is read, as JSON: far beyond what etcd takes in one request.
const EVENT_BYTES: u64 = 256 << 20;

/// Writes a delta. What it holds must begin after the snapshot before it and leave nothing out.
pub struct DeltaWriter<W: Write> {
    encoder: Encoder<W>,
    hash: Sha256,
    line: Vec<u8>,
    start: Revision,
    last: Option<Revision>,
    events: u64,
    bytes: u64,
}

/// What a delta holds that was written to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Revision of the first event.
    pub start: Revision,
    /// Revision of the last event.
    pub last: Revision,
    /// Number of events in the delta.
    pub events: u64,
}

impl<W: Write> DeltaWriter<W> {
    /// A delta that begins with a revision.
    ///
    /// # Errors
    /// [`Error::LzwWriting`].
    pub fn new(compression: Compression, start: Revision, out: W) -> Result<Self, Error> {
        let encoder = Encoder::new(compression, out)?;
        let (hash, line) = (Sha256::default(), Vec::new());
        Ok(Self { encoder, hash, line, start, last: None, events: 0, bytes: 0 })
    }

    /// Length so far, not compressed.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The revision of the last event; `None` before the first.
    pub fn last(&self) -> Option<Revision> {
        self.last
    }

    /// Adds an event that was seen at a time.
    ///
    /// # Errors
    /// [`Error::MissingRevision`] or [`Error::Backwards`] where it does not follow on what is there, [`Error::Read`] where it
    /// cannot be written.
    pub fn push(&mut self, event: &Event, seen: Timestamp) -> Result<(), Error> {
        step(self.start, self.last, event.mod_revision)?;
        self.line.clear();
        self.line.push(if self.events == 0 { b'[' } else { b',' });
        event.write_json(seen, &mut self.line).map_err(|error| Error::Read(error.into()))?;
        self.put()?;
        self.last = Some(event.mod_revision);
        self.events += 1;
        Ok(())
    }

    fn put(&mut self) -> Result<(), Error> {
        self.hash.update(&self.line);
        self.bytes += self.line.len() as u64;
        self.encoder.write_all(&self.line).map_err(Error::Read)
    }

    /// Closes the list and seals it.
    ///
    /// # Errors
    /// [`Error::Empty`] without events, [`Error::Read`] where it cannot be written.
    pub fn finish(mut self) -> Result<(W, Written), Error> {
        let last = self.last.ok_or(Error::Empty)?;
        self.line = b"]".to_vec();
        self.put()?;
        let hash: [u8; HASH_BYTES] = self.hash.finish();
        self.encoder.write_all(&hash).map_err(Error::Read)?;
        let out = self.encoder.finish().map_err(Error::Read)?;
        Ok((out, Written { start: self.start, last, events: self.events }))
    }
}

/// Every revision of etcd has an event, and each of them follows on the one before.
fn step(start: Revision, before: Option<Revision>, found: Revision) -> Result<(), Error> {
    match before {
        None if found > start => Err(Error::MissingRevision(start)),
        None if found < start => Err(Error::Backwards { from: start, to: found }),
        Some(before) if found < before => Err(Error::Backwards { from: before, to: found }),
        Some(before) if found > before.next() => Err(Error::MissingRevision(before.next())),
        _ => Ok(()),
    }
}

/// What a delta was found to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Number of events in the delta.
    pub events: u64,
    /// A hash over the events of each range that was asked for.
    pub hashes: Vec<[u8; HASH_BYTES]>,
}

/// Reads a delta to its end: every revision of its name, in order, nothing else, and the hash. Events are handed out before the
/// hash is known.
///
/// # Errors
/// Everything in [`Error`] that says what is wrong with it, and what `each` answers.
pub fn read(
    content: impl Read,
    (start, last): (Revision, Revision),
    ranges: &[RangeInclusive<Revision>],
    mut each: impl FnMut(Event) -> Result<(), Error>,
) -> Result<Found, Error> {
    let mut at = None;
    let mut found = Found::default();
    let mut hashes = vec![Sha256::default(); ranges.len()];
    read_events(Trailed::new(content), |event| {
        let revision = event.mod_revision;
        if revision < start || revision > last {
            return Err(Error::OutOfRange { found: revision, start, last });
        }
        step(start, at, revision)?;
        at = Some(revision);
        found.events += 1;
        for (range, hash) in ranges.iter().zip(&mut hashes) {
            if range.contains(&revision) {
                hash_event(&event, hash);
            }
        }
        each(event)
    })?;
    match at {
        None => return Err(Error::Empty),
        Some(at) if at < last => return Err(Error::MissingRevision(at.next())),
        Some(_) => {}
    }
    found.hashes = hashes.into_iter().map(Sha256::finish).collect();
    Ok(found)
}

/// The same for the same change, however it was written down.
fn hash_event(event: &Event, hash: &mut Sha256) {
    let numbers = [
        i64::from(event.kind == EventKind::Delete),
        event.mod_revision.0,
        i64::try_from(event.key.len()).unwrap_or(i64::MAX),
        i64::try_from(event.value.len()).unwrap_or(i64::MAX),
        event.lease,
    ];
    numbers.iter().for_each(|number| hash.update(&number.to_be_bytes()));
    hash.update(&event.key);
    hash.update(&event.value);
}

fn read_events(
    content: Trailed<impl Read>,
    mut each: impl FnMut(Event) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut list = Elements::new(content, EVENT_BYTES);
    while let Some(element) = list.next()? {
        each(serde_json::from_slice(element).map_err(|error| Error::Events(error.to_string()))?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::snapshot::codec::decoder;

    const SEEN: Timestamp = Timestamp::UNIX_EPOCH;

    fn any_event() -> impl Strategy<Value = Event> {
        let bytes = |least| proptest::collection::vec(any::<u8>(), least..40);
        (any::<bool>(), bytes(1), bytes(0), any::<i64>(), any::<bool>()).prop_map(
            |(delete, key, value, lease, _)| Event {
                kind: if delete { EventKind::Delete } else { EventKind::Put },
                key,
                value: if delete { Vec::new() } else { value },
                create_revision: Revision(0),
                mod_revision: Revision(0),
                version: 0,
                lease,
            },
        )
    }

    /// Events of one delta: the second number of a pair says whether a revision goes on.
    fn any_events() -> impl Strategy<Value = Vec<Event>> {
        proptest::collection::vec((any_event(), any::<bool>()), 1..30).prop_map(|list| {
            let mut revision = Revision(7);
            let number = |(at, (mut event, same)): (usize, (Event, bool))| {
                if at > 0 && !same {
                    revision = revision.next();
                }
                event.mod_revision = revision;
                event
            };
            list.into_iter().enumerate().map(number).collect()
        })
    }

    fn write(compression: Compression, events: &[Event]) -> (Vec<u8>, Written) {
        let mut writer = DeltaWriter::new(compression, Revision(7), Vec::new()).expect("a writer");
        events.iter().for_each(|event| writer.push(event, SEEN).expect("it follows"));
        writer.finish().expect("memory")
    }

    fn read_all(
        compression: Compression,
        bytes: &[u8],
        range: (Revision, Revision),
    ) -> Result<Vec<Event>, Error> {
        let mut events = Vec::new();
        read(decoder(compression, bytes), range, &[], |event| {
            events.push(event);
            Ok(())
        })?;
        Ok(events)
    }

    proptest! {
        #[test]
        fn events_come_back(events in any_events()) {
            for compression in [Compression::None, Compression::Gzip, Compression::Zlib] {
                let (bytes, written) = write(compression, &events);
                prop_assert_eq!(written.events, events.len() as u64);
                let range = (written.start, written.last);
                prop_assert_eq!(read_all(compression, &bytes, range).expect("it is whole"), events.clone());
                // Another name does not fit.
                for other in [(7, written.last.0 + 1), (6, written.last.0), (8, written.last.0 + 9)] {
                    let other = (Revision(other.0), Revision(other.1));
                    prop_assert!(read_all(compression, &bytes, other).is_err());
                }
            }
        }

        #[test]
        fn damage_is_found(events in any_events(), at in any::<proptest::sample::Index>(), bit in 0_u8..8) {
            let (mut bytes, written) = write(Compression::None, &events);
            let range = (written.start, written.last);
            let place = at.index(bytes.len());
            prop_assert!(read_all(Compression::None, &bytes[..place], range).is_err());
            bytes[place] ^= 1 << bit;
            prop_assert!(read_all(Compression::None, &bytes, range).is_err());
        }

        #[test]
        fn an_event_reads_as_itself(event in any_event()) {
            let mut json = Vec::new();
            event.write_json(SEEN, &mut json).expect("memory");
            prop_assert_eq!(serde_json::from_slice::<Event>(&json).expect("JSON"), event);
        }
    }

    fn event(kind: EventKind, mod_revision: i64) -> Event {
        let put = kind == EventKind::Put;
        Event {
            kind,
            key: b"foo".to_vec(),
            value: if put { b"b\xff>".to_vec() } else { Vec::new() },
            create_revision: Revision(if put { 3 } else { 0 }),
            mod_revision: Revision(mod_revision),
            version: i64::from(put),
            lease: if put { 9 } else { 0 },
        }
    }

    #[test]
    fn json_is_what_go_makes_of_an_event() {
        let mut json = Vec::new();
        event(EventKind::Put, 7).write_json(SEEN, &mut json).expect("memory");
        let put = r#"{"etcdEvent":{"kv":{"key":"Zm9v","create_revision":3,"mod_revision":7,"version":1,"value":"Yv8+","lease":9}},"time":"1970-01-01T00:00:00Z"}"#;
        assert_eq!(String::from_utf8(json).expect("text"), put);
        let mut json = Vec::new();
        event(EventKind::Delete, 8).write_json(SEEN, &mut json).expect("memory");
        let delete =
            r#"{"etcdEvent":{"type":1,"kv":{"key":"Zm9v","mod_revision":8}},"time":"1970-01-01T00:00:00Z"}"#;
        assert_eq!(String::from_utf8(json).expect("text"), delete);
        // A field of another release is no reason to fail.
        let other = r#"{"etcdEvent":{"type":0,"kv":{"key":"Zm9v","mod_revision":7},"prev_kv":null},"time":"2026-07-24T14:53:23.123456789+05:30"}"#;
        assert_eq!(serde_json::from_str::<Event>(other).expect("an event").mod_revision, Revision(7));
    }

    #[test]
    fn a_writer_takes_nothing_that_does_not_follow() {
        let mut writer = DeltaWriter::new(Compression::None, Revision(7), Vec::new()).expect("a writer");
        let mut push = |revision| writer.push(&event(EventKind::Put, revision), SEEN);
        assert!(matches!(push(8), Err(Error::MissingRevision(Revision(7)))));
        assert!(matches!(push(6), Err(Error::Backwards { .. })));
        push(7).expect("the first");
        push(7).expect("more of the same revision");
        assert!(matches!(push(9), Err(Error::MissingRevision(Revision(8)))));
        push(8).expect("the next");
        assert!(matches!(push(7), Err(Error::Backwards { .. })));
        let empty = DeltaWriter::new(Compression::None, Revision(7), Vec::new()).expect("a writer");
        assert!(matches!(empty.finish(), Err(Error::Empty)));
    }

    #[test]
    fn hashes_of_a_range_tell_whether_two_deltas_agree() {
        let hashes = |events: &[Event], range: RangeInclusive<Revision>| {
            let (bytes, written) = write(Compression::None, events);
            let found = read(&bytes[..], (written.start, written.last), &[range], |_| Ok(()));
            found.expect("it is whole").hashes
        };
        let list = |values: &[u8]| {
            let at = |(at, value): (usize, &u8)| {
                let mut event = event(EventKind::Put, 7 + i64::try_from(at).expect("few"));
                event.value = vec![*value];
                event
            };
            values.iter().enumerate().map(at).collect::<Vec<_>>()
        };
        let range = Revision(8)..=Revision(9);
        assert_eq!(hashes(&list(b"abcd"), range.clone()), hashes(&list(b"xbcy"), range.clone()));
        assert_ne!(hashes(&list(b"abcd"), range.clone()), hashes(&list(b"abXd"), range));
    }
}
