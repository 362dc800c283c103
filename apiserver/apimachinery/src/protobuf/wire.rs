//! The wire format of Protocol Buffers (protobuf.dev/programming-guides/encoding), as far as Kubernetes uses it.

/// Wire type of numbers and flags.
const VARINT: u64 = 0;
/// Wire type of text, bytes and messages.
const LENGTH_DELIMITED: u64 = 2;
/// Bytes of the longest varint of 64 bits.
const MAX_VARINT: usize = 10;

/// The bytes are not a protobuf message of the expected type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the protobuf message is malformed")]
pub struct Malformed;

/// Appends a number, seven bits a byte, the lowest bits first.
pub(crate) fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        #[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    #[expect(clippy::cast_possible_truncation, reason = "less than 0x80")]
    out.push(value as u8);
}

/// Appends a field with text, bytes or an encoded message.
pub(crate) fn bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    varint(out, u64::from(number) << 3 | LENGTH_DELIMITED);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a field with a number. A negative one takes ten bytes, as `int32` and `int64` prescribe.
#[expect(clippy::cast_sign_loss, reason = "two's complement is the encoding")]
pub(crate) fn integer(out: &mut Vec<u8>, number: u32, value: i64) {
    varint(out, u64::from(number) << 3 | VARINT);
    varint(out, value as u64);
}

/// Appends a field with a message that `write` appends. The length goes in front afterwards, so that a message is written
/// once and its bytes move once for each level around it.
pub(crate) fn message(out: &mut Vec<u8>, number: u32, write: impl FnOnce(&mut Vec<u8>)) {
    varint(out, u64::from(number) << 3 | LENGTH_DELIMITED);
    let start = out.len();
    write(out);
    let mut length = Vec::with_capacity(MAX_VARINT);
    varint(&mut length, (out.len() - start) as u64);
    out.splice(start..start, length);
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    pub(crate) fn bytes(self) -> Result<&'a [u8], Malformed> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) => Err(Malformed),
        }
    }

    pub(crate) fn text(self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed)
    }

    pub(crate) fn number(self) -> Result<u64, Malformed> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Bytes(_) => Err(Malformed),
        }
    }
}

/// The fields of a message in their order. Ends after the first error.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for at in 0..MAX_VARINT {
            let (&byte, rest) = self.0.split_first().ok_or(Malformed)?;
            self.0 = rest;
            // The tenth byte has room for one bit.
            if at == MAX_VARINT - 1 && byte > 1 {
                return Err(Malformed);
            }
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(length).map_err(|_| Malformed)?;
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn field(&mut self) -> Result<(u32, Value<'a>), Malformed> {
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).map_err(|_| Malformed)?;
        let value = match key & 7 {
            VARINT => Value::Number(self.varint()?),
            1 => Value::Bytes(self.take(8)?),
            LENGTH_DELIMITED => {
                let length = self.varint()?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Bytes(self.take(4)?),
            // Groups, which Kubernetes never had.
            _ => return Err(Malformed),
        };
        if number == 0 { Err(Malformed) } else { Ok((number, value)) }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        varint(&mut out, value);
        out
    }

    #[test]
    fn numbers_are_written_as_the_specification_shows() {
        assert_eq!(number(0), [0]);
        assert_eq!(number(127), [0x7f]);
        assert_eq!(number(150), [0x96, 0x01]);
        assert_eq!(number(u64::MAX), [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
        let mut out = Vec::new();
        integer(&mut out, 7, -1);
        assert_eq!(out, [0x38, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
    }

    #[test]
    fn a_nested_message_has_its_length_in_front_however_long_it_is() {
        for length in [0, 1, 127, 128, 300, 70_000] {
            let text = vec![b'x'; length];
            let (mut nested, mut inner) = (vec![9], Vec::new());
            message(&mut nested, 3, |out| bytes(out, 1, &text));
            bytes(&mut inner, 1, &text);
            let mut expected = vec![9];
            bytes(&mut expected, 3, &inner);
            assert_eq!(nested, expected, "{length}");
        }
    }

    #[test]
    fn fields_are_read_back() {
        let mut out = Vec::new();
        integer(&mut out, 1, 300);
        bytes(&mut out, 17, b"ab");
        let read: Vec<_> = Fields(&out).collect();
        assert_eq!(read, [Ok((1, Value::Number(300))), Ok((17, Value::Bytes(b"ab")))]);
        // Fixed numbers are skipped by whoever does not know them.
        assert_eq!(Fields(b"\x0d1234").collect::<Vec<_>>(), [Ok((1, Value::Bytes(b"1234")))]);
    }

    #[test]
    fn malformed_messages_are_refused_and_end() {
        for wrong in [
            &b"\x08"[..],
            b"\x0a\x05ab",
            b"\x0b",
            b"\x00\x01",
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
        ] {
            assert_eq!(Fields(wrong).last(), Some(Err(Malformed)), "{wrong:?}");
        }
    }
}
