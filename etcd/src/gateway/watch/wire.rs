//! The few fields of watches that a gateway reads, and those that it sets.
//!
//! Nothing is decoded and encoded again: in this format the last of several values of a field is the one that counts, so a value is
//! set by appending it.

use hyper::body::Bytes;

const VARINT: u8 = 0;
const FIXED_64: u8 = 1;
const LENGTH: u8 = 2;
const FIXED_32: u8 = 5;

/// What a client asks of its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// A new watch.
    Create(Create),
    /// The end of the watch of this id.
    Cancel(i64),
    /// Anything else.
    Other,
}

/// A new watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Create {
    pub(super) body: Bytes,
    /// The id that the client wants; 0 leaves it to etcd.
    pub(super) watch_id: i64,
    /// The first revision that it wants; 0 is the next one.
    pub(super) start_revision: i64,
}

/// What etcd says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Response {
    /// Revision of the store.
    pub revision: i64,
    pub watch_id: i64,
    pub created: bool,
    pub canceled: bool,
    /// More of the same revision may follow.
    pub fragment: bool,
    /// Revision of the last event, if there is one.
    pub last_event: Option<i64>,
}

/// Not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) struct Malformed;

/// A field: its number, and its value.
enum Field<'a> {
    Varint(u64, u64),
    Bytes(u64, &'a [u8]),
    Fixed,
}

impl Request {
    pub(super) fn read(message: &Bytes) -> Result<Self, Malformed> {
        let mut request = Self::Other;
        each(message, |field| {
            match field {
                Field::Bytes(1, body) => {
                    let (watch_id, start_revision) = (number(body, 7)?, number(body, 3)?);
                    request =
                        Self::Create(Create { body: message.slice_ref(body), watch_id, start_revision });
                }
                Field::Bytes(2, body) => request = Self::Cancel(number(body, 1)?),
                Field::Varint(..) | Field::Bytes(..) | Field::Fixed => {}
            }
            Ok(())
        })?;
        Ok(request)
    }
}

impl Create {
    /// The request with this id, and from this revision on where it is not the client's own.
    pub(super) fn write(&self, watch_id: i64, start_revision: Option<i64>) -> Vec<u8> {
        let mut body = self.body.to_vec();
        put(&mut body, 7, watch_id);
        if let Some(revision) = start_revision {
            put(&mut body, 3, revision);
        }
        let mut message = vec![1 << 3 | LENGTH];
        put_varint(&mut message, body.len() as u64);
        message.extend(body);
        message
    }
}

/// The request that ends a watch.
pub(super) fn cancel(watch_id: i64) -> Vec<u8> {
    let mut body = Vec::new();
    put(&mut body, 1, watch_id);
    let mut message = vec![2 << 3 | LENGTH];
    put_varint(&mut message, body.len() as u64);
    message.extend(body);
    message
}

impl Response {
    pub(super) fn read(message: &[u8]) -> Result<Self, Malformed> {
        let mut response = Self::default();
        each(message, |field| {
            match field {
                Field::Bytes(1, header) => response.revision = number(header, 3)?,
                Field::Varint(2, id) => response.watch_id = id.cast_signed(),
                Field::Varint(3, set) => response.created = set != 0,
                Field::Varint(4, set) => response.canceled = set != 0,
                Field::Varint(7, set) => response.fragment = set != 0,
                Field::Bytes(11, event) => response.last_event = Some(event_revision(event)?),
                Field::Varint(..) | Field::Bytes(..) | Field::Fixed => {}
            }
            Ok(())
        })?;
        Ok(response)
    }
}

/// Revision of an event: that of the last change of its key.
fn event_revision(event: &[u8]) -> Result<i64, Malformed> {
    let mut revision = 0;
    each(event, |field| {
        if let Field::Bytes(2, kv) = field {
            revision = number(kv, 3)?;
        }
        Ok(())
    })?;
    Ok(revision)
}

/// A number among the fields; 0 where it is not there.
pub(in crate::gateway) fn number(message: &[u8], wanted: u64) -> Result<i64, Malformed> {
    let mut found = 0;
    each(message, |field| {
        if let Field::Varint(number, value) = field
            && number == wanted
        {
            found = value.cast_signed();
        }
        Ok(())
    })?;
    Ok(found)
}

pub(super) fn put(message: &mut Vec<u8>, field: u8, value: i64) {
    message.push(field << 3 | VARINT);
    put_varint(message, value.cast_unsigned());
}

fn put_varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

/// Calls with each field of a message.
fn each<'a>(
    mut message: &'a [u8],
    mut visit: impl FnMut(Field<'a>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    while !message.is_empty() {
        let key = varint(&mut message)?;
        let number = key >> 3;
        visit(match (key & 7) as u8 {
            VARINT => Field::Varint(number, varint(&mut message)?),
            LENGTH => {
                let length = usize::try_from(varint(&mut message)?).map_err(|_| Malformed)?;
                Field::Bytes(number, take(&mut message, length)?)
            }
            FIXED_64 => take(&mut message, 8).map(|_| Field::Fixed)?,
            FIXED_32 => take(&mut message, 4).map(|_| Field::Fixed)?,
            _ => return Err(Malformed),
        })?;
    }
    Ok(())
}

fn take<'a>(message: &mut &'a [u8], length: usize) -> Result<&'a [u8], Malformed> {
    let (taken, rest) = message.split_at_checked(length).ok_or(Malformed)?;
    *message = rest;
    Ok(taken)
}

fn varint(message: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let [byte, rest @ ..] = message else { return Err(Malformed) };
        *message = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_set_count_and_others_stay() {
        // Key "k", start revision 5, previous values, id 3.
        let body = [0x0a, 1, b'k', 0x18, 5, 0x30, 1, 0x38, 3];
        let mut message = vec![0x0a, body.len() as u8];
        message.extend(body);
        let Ok(Request::Create(create)) = Request::read(&message.into()) else { panic!("no create") };
        assert_eq!(create.watch_id, 3);
        let written = Bytes::from(create.write(300, Some(7)));
        let Ok(Request::Create(again)) = Request::read(&written) else { panic!("no create") };
        assert_eq!(again.watch_id, 300);
        assert_eq!((number(&again.body, 3), number(&again.body, 6)), (Ok(7), Ok(1)));
        assert_eq!(number(&Bytes::from(create.write(1, None))[2..], 3), Ok(5));
        assert_eq!(Request::read(&cancel(-1).into()), Ok(Request::Cancel(-1)));
        assert_eq!(Request::read(&Bytes::from_static(&[0x1a, 0])), Ok(Request::Other));
    }

    #[test]
    fn responses_are_read() {
        let header = [0x08, 1, 0x18, 9];
        let event = |revision| [0x12, 5, 0x0a, 1, b'k', 0x18, revision];
        let mut message = vec![0x0a, header.len() as u8];
        message.extend(header);
        message.extend([0x10, 4, 0x38, 1]);
        for revision in [7, 8] {
            message.extend([0x5a, 7]);
            message.extend(event(revision));
        }
        let expected =
            Response { revision: 9, watch_id: 4, fragment: true, last_event: Some(8), ..Response::default() };
        assert_eq!(Response::read(&message), Ok(expected));
        for cut in 1..message.len() {
            // Whatever is cut off, it is read or refused.
            let _ = Response::read(&message[..cut]);
        }
        assert_eq!(Response::read(&[0x10]), Err(Malformed));
        assert_eq!(Response::read(&[0xff; 11]), Err(Malformed));
    }
}
