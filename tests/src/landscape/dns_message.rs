//! DNS messages as bytes: a query for one record set (RFC 1035) and updates of one (RFC 2136). No I/O here.

use std::net::Ipv4Addr;

use anyhow::{Result, bail, ensure};

const HEADER_BYTES: usize = 12;
const CLASS_IN: u16 = 1;
/// In an update: "delete the record set" (RFC 2136, section 2.5.2).
const CLASS_ANY: u16 = 255;
const TYPE_A: u16 = 1;
const TYPE_CNAME: u16 = 5;
const TYPE_SOA: u16 = 6;
const TYPE_TXT: u16 = 16;
/// Response codes of an update whose prerequisite does not hold: no such name, no such record set (RFC 2136, section 2.2).
const UNMET: [u8; 2] = [3, 8];
/// The longest string of a TXT record.
const STRING_BYTES: usize = 255;

/// The values of a record set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// Addresses of version 4.
    A(Vec<Ipv4Addr>),
    /// The name that this one stands for.
    Cname(String),
    /// Texts, such as those of owner records.
    Txt(Vec<String>),
}

/// A type of records that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Addresses of version 4.
    A,
    /// Texts, such as those of owner records.
    Txt,
}

impl Values {
    fn kind(&self) -> u16 {
        match self {
            Self::A(_) => TYPE_A,
            Self::Cname(_) => TYPE_CNAME,
            Self::Txt(_) => TYPE_TXT,
        }
    }

    /// The data of each record.
    fn data(&self) -> Result<Vec<Vec<u8>>> {
        Ok(match self {
            Self::A(addresses) => addresses.iter().map(|address| address.octets().to_vec()).collect(),
            Self::Cname(name) => vec![encode(name)?],
            Self::Txt(texts) => texts.iter().map(|text| strings(text)).collect(),
        })
    }
}

impl Kind {
    fn code(self) -> u16 {
        match self {
            Self::A => TYPE_A,
            Self::Txt => TYPE_TXT,
        }
    }
}

/// A text as strings with their lengths.
fn strings(text: &str) -> Vec<u8> {
    let parts = text.as_bytes().chunks(STRING_BYTES);
    parts.flat_map(|part| [&[part.len().to_le_bytes()[0]], part].concat()).collect()
}

/// An update that replaces the record set of a name; without values it removes the set.
///
/// Errors: when a name is no DNS name.
pub fn update(id: u16, zone: &str, name: &str, ttl: u32, values: &Values) -> Result<Vec<u8>> {
    let (name, data) = (encode(name)?, values.data()?);
    let records = u16::try_from(data.len() + 1)?;
    let mut message = update_header(id, zone, 0, records)?;
    message.extend(record(&name, values.kind(), CLASS_ANY, 0, &[])?);
    for data in &data {
        message.extend(record(&name, values.kind(), CLASS_IN, ttl, data)?);
    }
    Ok(message)
}

/// An update that removes the record set of a name if it has exactly these values, whatever its TTL.
///
/// Errors: when a name is no DNS name, or there are no values.
pub fn removal(id: u16, zone: &str, name: &str, values: &Values) -> Result<Vec<u8>> {
    let (name, data) = (encode(name)?, values.data()?);
    ensure!(!data.is_empty(), "an empty record set cannot be compared");
    let mut message = update_header(id, zone, u16::try_from(data.len())?, 1)?;
    for data in &data {
        message.extend(record(&name, values.kind(), CLASS_IN, 0, data)?);
    }
    message.extend(record(&name, values.kind(), CLASS_ANY, 0, &[])?);
    Ok(message)
}

/// Opcode 5 is UPDATE; then one zone, prerequisites, updates, nothing additional.
fn update_header(id: u16, zone: &str, prerequisites: u16, updates: u16) -> Result<Vec<u8>> {
    let mut message = header(id, 5 << 3, [1, prerequisites, updates, 0]);
    message.extend(encode(zone)?);
    message.extend([TYPE_SOA, CLASS_IN].map(u16::to_be_bytes).concat());
    Ok(message)
}

/// A query for the records of a name.
///
/// Errors: when the name is no DNS name.
pub fn query(id: u16, name: &str, kind: Kind) -> Result<Vec<u8>> {
    let mut message = header(id, 0, [1, 0, 0, 0]);
    message.extend(encode(name)?);
    message.extend([kind.code(), CLASS_IN].map(u16::to_be_bytes).concat());
    Ok(message)
}

/// Checks that an answer belongs to a message of that id, and that it reports no error.
///
/// Errors: otherwise; the message has the response code of RFC 1035 or RFC 2136.
pub fn check(id: u16, answer: &[u8]) -> Result<()> {
    let code = response_code(id, answer)?;
    ensure!(code == 0, "the DNS server answered with response code {code}");
    Ok(())
}

/// Whether the prerequisite of [`removal`] held, by the answer to it.
///
/// Errors: as [`check`], for every other error.
pub fn is_met(id: u16, answer: &[u8]) -> Result<bool> {
    if UNMET.contains(&response_code(id, answer)?) {
        return Ok(false);
    }
    check(id, answer).map(|()| true)
}

fn response_code(id: u16, answer: &[u8]) -> Result<u8> {
    ensure!(answer.len() >= HEADER_BYTES && answer[..2] == id.to_be_bytes(), "an answer to something else");
    Ok(answer[3] & 0x0f)
}

/// The addresses in the answer to [`query`].
///
/// Errors: as [`check`], and when the message is cut.
pub fn addresses(id: u16, answer: &[u8]) -> Result<Vec<Ipv4Addr>> {
    let data = records(id, answer, Kind::A)?;
    data.into_iter().map(|data| Ok(Ipv4Addr::from(<[u8; 4]>::try_from(data)?))).collect()
}

/// The texts in the answer to [`query`].
///
/// Errors: as [`check`], and when the message is cut or a text is not UTF-8.
pub fn texts(id: u16, answer: &[u8]) -> Result<Vec<String>> {
    records(id, answer, Kind::Txt)?.into_iter().map(text).collect()
}

/// The text of a record: its strings without their lengths.
fn text(mut data: &[u8]) -> Result<String> {
    let mut text = Vec::new();
    while let Some((&length, rest)) = data.split_first() {
        let Some((part, rest)) = rest.split_at_checked(usize::from(length)) else { bail!("a cut answer") };
        text.extend_from_slice(part);
        data = rest;
    }
    Ok(String::from_utf8(text)?)
}

/// The data of all records of a type in an answer.
fn records(id: u16, answer: &[u8], of: Kind) -> Result<Vec<&[u8]>> {
    check(id, answer)?;
    let count = u16::from_be_bytes([answer[6], answer[7]]);
    // After the question: its name, type and class.
    let mut at = skip_name(answer, HEADER_BYTES)? + 4;
    let mut found = Vec::new();
    for _ in 0..count {
        at = skip_name(answer, at)?;
        let Some(fixed) = answer.get(at..at + 10) else { bail!("a cut answer") };
        let (kind, length) = ([fixed[0], fixed[1]], u16::from_be_bytes([fixed[8], fixed[9]]));
        at += 10;
        let Some(data) = answer.get(at..at + usize::from(length)) else { bail!("a cut answer") };
        if u16::from_be_bytes(kind) == of.code() {
            found.push(data);
        }
        at += data.len();
    }
    Ok(found)
}

fn header(id: u16, flags: u8, counts: [u16; 4]) -> Vec<u8> {
    let mut message = id.to_be_bytes().to_vec();
    message.extend([flags, 0]);
    message.extend(counts.map(u16::to_be_bytes).concat());
    message
}

fn record(name: &[u8], kind: u16, class: u16, ttl: u32, data: &[u8]) -> Result<Vec<u8>> {
    let mut record = name.to_vec();
    record.extend([kind, class].map(u16::to_be_bytes).concat());
    record.extend(ttl.to_be_bytes());
    record.extend(u16::try_from(data.len())?.to_be_bytes());
    record.extend(data);
    Ok(record)
}

fn encode(name: &str) -> Result<Vec<u8>> {
    let mut encoded = Vec::new();
    for label in name.trim_end_matches('.').split('.') {
        let length = u8::try_from(label.len())?;
        ensure!((1..64).contains(&length), "{name:?} is no DNS name");
        encoded.push(length);
        encoded.extend(label.as_bytes());
    }
    encoded.push(0);
    Ok(encoded)
}

/// The offset after a name, which ends with an empty label or with a pointer of two bytes.
fn skip_name(message: &[u8], mut at: usize) -> Result<usize> {
    loop {
        match message.get(at) {
            Some(0) => return Ok(at + 1),
            Some(length) if length & 0xc0 == 0xc0 => return Ok(at + 2),
            Some(&length) => at += usize::from(length) + 1,
            None => bail!("a cut answer"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_addresses_after_a_compressed_name() {
        let mut answer = query(7, "api.x.test", Kind::A).expect("a query");
        answer[7] = 1;
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 127, 77, 1, 1]);
        assert_eq!(addresses(7, &answer).expect("an answer"), [Ipv4Addr::new(127, 77, 1, 1)]);
        assert!(addresses(8, &answer).is_err(), "it answers another query");
        answer.truncate(answer.len() - 1);
        assert!(addresses(7, &answer).is_err(), "it is cut");
    }

    #[test]
    fn reports_response_codes() {
        let mut answer = query(7, "x.test", Kind::A).expect("a query");
        answer[3] = 5;
        let message = check(7, &answer).expect_err("it was refused").to_string();
        assert!(message.contains("response code 5"), "{message}");
    }

    #[test]
    fn splits_texts_at_255_bytes_and_joins_them() {
        let long = "x".repeat(300);
        assert_eq!(strings(&long).len(), 302);
        assert_eq!(strings(&long)[..1], [255]);
        assert_eq!(strings(&long)[256..257], [45]);
        assert_eq!(text(&strings(&long)).expect("a text"), long);
        assert!(text(&strings(&long)[..301]).is_err(), "it is cut");
    }
}
