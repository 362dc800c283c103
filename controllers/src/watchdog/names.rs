//! Names in the body of a request that creates an object in no Namespace. Pure.

use serde::Deserialize;

/// First bytes of an object in protobuf, as Kubernetes writes it.
const PROTOBUF: &[u8] = b"k8s\0";
/// Field of the object in that envelope, and of the metadata in each object.
const RAW: u64 = 2;
const METADATA: u64 = 1;
/// Fields of the metadata: name, generateName, namespace.
const NAMES: [u64; 3] = [1, 2, 3];

/// The names cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name of the new object cannot be read: send JSON or Kubernetes protobuf")]
pub struct Unreadable;

#[derive(Deserialize)]
struct PartialObject {
    #[serde(default)]
    metadata: Option<PartialMetadata>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PartialMetadata {
    name: Option<String>,
    generate_name: Option<String>,
    namespace: Option<String>,
}

/// Name, generateName and namespace of the object in a body, as far as it has them.
///
/// # Errors
/// Where the body is neither JSON nor protobuf. Fields that are there twice are an error, too: parsers differ in which one they take.
pub fn names(body: &[u8]) -> Result<Vec<String>, Unreadable> {
    if let Some(envelope) = body.strip_prefix(PROTOBUF) {
        return of_protobuf(envelope).ok_or(Unreadable);
    }
    let object: PartialObject = serde_json::from_slice(body).map_err(|_| Unreadable)?;
    let PartialMetadata { name, generate_name, namespace } = object.metadata.unwrap_or_default();
    Ok([name, generate_name, namespace].into_iter().flatten().filter(|name| !name.is_empty()).collect())
}

fn of_protobuf(envelope: &[u8]) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for object in fields(envelope)?.into_iter().filter(|(field, _)| *field == RAW) {
        for metadata in fields(object.1)?.into_iter().filter(|(field, _)| *field == METADATA) {
            for (_, name) in fields(metadata.1)?.into_iter().filter(|(field, _)| NAMES.contains(field)) {
                names.push(String::from_utf8(name.to_vec()).ok()?);
            }
        }
    }
    names.retain(|name| !name.is_empty());
    Some(names)
}

/// The fields of a message that have a length, in their order; `None` where the bytes are no message.
fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, &[u8])>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        match tag & 7 {
            0 => _ = varint(&mut bytes)?,
            1 => bytes = bytes.get(8..)?,
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                found.push((tag >> 3, bytes.get(..length)?));
                bytes = bytes.get(length..)?;
            }
            5 => bytes = bytes.get(4..)?,
            _ => return None,
        }
    }
    Some(found)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, data: &[u8]) -> Vec<u8> {
        let length = u8::try_from(data.len()).expect("short");
        [&[(number << 3) | 2, length][..], data].concat()
    }

    #[test]
    fn names_are_read_from_json_and_protobuf() {
        let json = br#"{"metadata":{"name":"a","generateName":"b-","labels":{"name":"no"}},"name":"no"}"#;
        assert_eq!(names(json), Ok(vec!["a".to_owned(), "b-".to_owned()]));
        assert_eq!(names(br#"{"spec":{}}"#), Ok(Vec::new()));
        let metadata = [field(1, b"a"), vec![5 << 3, 0x96, 1], field(2, b"b-"), field(9, b"no")].concat();
        let object = [field(1, &metadata), field(2, b"spec")].concat();
        let envelope = [field(1, b"type"), field(2, &object), field(4, b"")].concat();
        let body = [PROTOBUF, &envelope].concat();
        assert_eq!(names(&body), Ok(vec!["a".to_owned(), "b-".to_owned()]));
        for end in 0..body.len() {
            let _ = names(&body[..end]);
        }
        assert_eq!(names(&body[..body.len() - 3]), Err(Unreadable));
    }

    #[test]
    fn other_bodies_and_fields_that_are_there_twice_are_refused() {
        for body in [
            &b"metadata: {name: a}"[..],
            br#"{"metadata":{"name":"a","name":"b"}}"#,
            br#"{"metadata":{"name":"a"},"metadata":{"name":"b"}}"#,
            br#"{"metadata":{"name":1}}"#,
            b"\x00\xff",
            b"",
        ] {
            assert_eq!(names(body), Err(Unreadable), "{body:?}");
        }
        assert_eq!(names(&[PROTOBUF, &[0xff; 20]].concat()), Err(Unreadable));
    }
}
