//! Messages of DNS (RFC 1035), as far as questions for TXT, NS, A and AAAA need them. Pure.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

const HEADER: usize = 12;
const TXT: u16 = 16;
const A: u16 = 1;
const NS: u16 = 2;
const CNAME: u16 = 5;
const SOA: u16 = 6;
const AAAA: u16 = 28;
const INTERNET: u16 = 1;
/// Compressed names point backwards; nobody needs more jumps than this.
const JUMPS: usize = 32;
/// Aliases in one answer.
const ALIASES: usize = 8;

/// A text that is no name in DNS.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no name in DNS: {why}")]
pub struct NameError {
    text: String,
    why: &'static str,
}

/// A name, in lower case: DNS makes no difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(Vec<Vec<u8>>);

impl Name {
    /// Reads `owner.example.org`, with or without a dot at its end. It is always absolute.
    ///
    /// # Errors
    /// Where a label is empty or longer than 63 bytes, or all are longer than 253.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let refuse = |why| NameError { text: text.to_owned(), why };
        let bare = text.strip_suffix('.').unwrap_or(text);
        if bare.is_empty() || bare.len() > 253 {
            return Err(refuse("it must have between 1 and 253 bytes"));
        }
        if !bare.is_ascii() || bare.contains(|c: char| c.is_ascii_whitespace() || c.is_ascii_control()) {
            return Err(refuse("it must be of printable ASCII characters"));
        }
        if bare.split('.').any(|label| label.is_empty() || label.len() > 63) {
            return Err(refuse("each part between dots must have between 1 and 63 bytes"));
        }
        Ok(Self(bare.split('.').map(|label| label.to_ascii_lowercase().into_bytes()).collect()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels: Vec<_> = self.0.iter().map(|label| String::from_utf8_lossy(label)).collect();
        f.write_str(&labels.join("."))
    }
}

/// What is asked for, beside the TXT record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Name servers of a zone.
    Ns,
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
}

impl Kind {
    fn number(self) -> u16 {
        match self {
            Self::Ns => NS,
            Self::A => A,
            Self::Aaaa => AAAA,
        }
    }
}

/// The question for the TXT record of a name; whoever is asked is asked to ask others.
#[must_use]
pub fn question(id: u16, name: &Name) -> Vec<u8> {
    question_of(id, name, TXT)
}

/// The question for records of another kind.
pub(super) fn question_for(id: u16, name: &Name, kind: Kind) -> Vec<u8> {
    question_of(id, name, kind.number())
}

fn question_of(id: u16, name: &Name, kind: u16) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + 260);
    for field in [id, 0x0100, 1, 0, 0, 0] {
        bytes.extend(field.to_be_bytes());
    }
    for label in &name.0 {
        bytes.push(u8::try_from(label.len()).unwrap_or(0));
        bytes.extend(label);
    }
    bytes.push(0);
    bytes.extend(kind.to_be_bytes());
    bytes.extend(INTERNET.to_be_bytes());
    bytes
}

/// What a server said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// These are the values; none where there is no such record.
    Values {
        /// A value for each TXT record.
        values: Vec<String>,
        /// For how long the answer may still be kept. From a server of the zone itself that is the TTL of the record.
        left: Duration,
    },
    /// It does not fit into a datagram.
    Truncated,
    /// It does not know, or does not say.
    Nothing(&'static str),
}

/// Reads the answer to [`question`]; `None` where these bytes are not the answer to this one.
#[must_use]
pub fn answer(bytes: &[u8], id: u16, name: &Name) -> Option<Said> {
    let (reader, counts, outcome) = head(bytes, id, name, TXT)?;
    Some(match outcome {
        Outcome::Records { no_name } => records(reader, counts, name, no_name),
        Outcome::Truncated => Said::Truncated,
        Outcome::Nothing(why) => Said::Nothing(why),
    })
}

/// A host or an address, as a record gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Data {
    /// Of an NS record.
    Host(Name),
    /// Of an A or AAAA record.
    Address(IpAddr),
}

/// What a server said to [`question_for`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The records; none where there are none.
    All(Vec<Data>),
    /// They do not fit into a datagram.
    Truncated,
    /// It does not know, or does not say.
    Nothing(&'static str),
}

/// Reads the answer to [`question_for`]; `None` where these bytes are not the answer to this one.
pub(super) fn answer_for(bytes: &[u8], id: u16, name: &Name, kind: Kind) -> Option<Found> {
    let (mut reader, counts, outcome) = head(bytes, id, name, kind.number())?;
    Some(match outcome {
        Outcome::Truncated => Found::Truncated,
        Outcome::Nothing(why) => Found::Nothing(why),
        Outcome::Records { .. } => {
            let all = reader.section(counts[1]).and_then(|answers| {
                let (name, _) = follow(name, &answers)?;
                let of_it =
                    answers.iter().filter(|record| record.kind == kind.number() && record.name == name);
                of_it.map(Record::data).collect()
            });
            all.map_or(Found::Nothing("its answer is mangled"), Found::All)
        }
    })
}

enum Outcome {
    Records { no_name: bool },
    Truncated,
    Nothing(&'static str),
}

/// Reads up to the end of the question.
fn head<'a>(bytes: &'a [u8], id: u16, name: &Name, kind: u16) -> Option<(Reader<'a>, [u16; 3], Outcome)> {
    let mut reader = Reader { bytes, at: 0 };
    let (got, flags) = (reader.number()?, reader.number()?);
    let counts = [reader.number()?, reader.number()?, reader.number()?];
    reader.number()?;
    let is_response = flags & 0x8000 != 0 && flags & 0x7800 == 0;
    if got != id || !is_response || counts[0] != 1 {
        return None;
    }
    let asked = (reader.name()?, reader.number()?, reader.number()?);
    if asked != (name.clone(), kind, INTERNET) {
        return None;
    }
    let outcome = match flags & 0x000f {
        _ if flags & 0x0200 != 0 => Outcome::Truncated,
        0 => Outcome::Records { no_name: false },
        3 => Outcome::Records { no_name: true },
        1 => Outcome::Nothing("it does not understand the question (FORMERR)"),
        2 => Outcome::Nothing("it failed (SERVFAIL)"),
        5 => Outcome::Nothing("it refuses (REFUSED)"),
        _ => Outcome::Nothing("it answers with an error"),
    };
    Some((reader, counts, outcome))
}

fn records(mut reader: Reader, counts: [u16; 3], name: &Name, no_name: bool) -> Said {
    const MANGLED: Said = Said::Nothing("its answer is mangled");
    let (Some(answers), Some(authorities)) = (reader.section(counts[1]), reader.section(counts[2])) else {
        return MANGLED;
    };
    let Some((name, through)) = follow(name, &answers) else {
        return Said::Nothing("its answer has a circle of aliases");
    };
    let found: Vec<&Record> = answers.iter().filter(|r| r.kind == TXT && r.name == name).collect();
    let texts: Option<Vec<String>> = found.iter().map(|record| text(record.data)).collect();
    let Some(values) = texts else { return MANGLED };
    // "There is none" is said together with the zone's SOA record (RFC 2308). What lacks it is a referral, or a server that does not know.
    let proof: Vec<&Record> = authorities.iter().filter(|r| values.is_empty() && r.kind == SOA).collect();
    if values.is_empty() && proof.is_empty() {
        return Said::Nothing("it neither has the record nor says that there is none");
    }
    if no_name && !values.is_empty() {
        return MANGLED;
    }
    let ttl = found.iter().chain(&proof).map(|record| record.ttl).chain(through).max();
    Said::Values { values, left: Duration::from_secs(ttl.unwrap_or(0).into()) }
}

/// The name behind aliases, and the longest time for which one of them may be kept.
fn follow(name: &Name, answers: &[Record]) -> Option<(Name, Option<u32>)> {
    let (mut name, mut longest) = (name.clone(), None);
    for _ in 0..ALIASES {
        let Some(alias) = answers.iter().find(|r| r.kind == CNAME && r.name == name) else {
            return Some((name, longest));
        };
        longest = longest.max(Some(alias.ttl));
        name = alias.target.clone()?;
    }
    None
}

/// The value of a TXT record: its strings, one after the other.
fn text(mut data: &[u8]) -> Option<String> {
    let mut all = Vec::new();
    while let Some((length, rest)) = data.split_first() {
        all.extend(rest.get(..usize::from(*length))?);
        data = &rest[usize::from(*length)..];
    }
    Some(String::from_utf8_lossy(&all).into_owned())
}

struct Record<'a> {
    name: Name,
    kind: u16,
    ttl: u32,
    data: &'a [u8],
    /// Of an alias, or of a name server.
    target: Option<Name>,
}

impl Record<'_> {
    fn data(&self) -> Option<Data> {
        match self.kind {
            NS => self.target.clone().map(Data::Host),
            A => <[u8; 4]>::try_from(self.data).ok().map(|ip| Data::Address(Ipv4Addr::from(ip).into())),
            AAAA => <[u8; 16]>::try_from(self.data).ok().map(|ip| Data::Address(Ipv6Addr::from(ip).into())),
            _ => None,
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn number(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_be_bytes)
    }

    fn name(&mut self) -> Option<Name> {
        let (mut labels, mut jumps, mut back) = (Vec::new(), 0, None);
        loop {
            let length = usize::from(*self.take(1)?.first()?);
            match length {
                0 => break,
                1..=63 => labels.push(self.take(length)?.to_ascii_lowercase()),
                192.. if jumps < JUMPS => {
                    let low = usize::from(*self.take(1)?.first()?);
                    back = back.or(Some(self.at));
                    self.at = ((length & 0x3f) << 8) | low;
                    jumps += 1;
                }
                _ => return None,
            }
        }
        self.at = back.unwrap_or(self.at);
        Some(Name(labels))
    }

    fn section(&mut self, count: u16) -> Option<Vec<Record<'a>>> {
        (0..count).map(|_| self.record()).collect()
    }

    fn record(&mut self) -> Option<Record<'a>> {
        let name = self.name()?;
        let (kind, class) = (self.number()?, self.number()?);
        let ttl = self.take(4)?.try_into().ok().map(u32::from_be_bytes)?;
        let length = usize::from(self.number()?);
        let target = match (kind, class) {
            (CNAME | NS, INTERNET) => Some(Reader { bytes: self.bytes, at: self.at }.name()?),
            _ => None,
        };
        let data = self.take(length)?;
        // Of another class it is another record.
        let kind = if class == INTERNET { kind } else { 0 };
        Some(Record { name, kind, ttl, data, target })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: u16 = 0x1234;

    fn name() -> Name {
        Name::parse("Owner.example.org.").expect("a name")
    }

    /// An answer with flags; each record has a name (a pointer to the question, where it is empty), kind, TTL and data.
    fn said(flags: u16, answers: &[(&[u8], u16, u32, &[u8])], authorities: &[u32]) -> Option<Said> {
        let mut bytes = question(ID, &name());
        bytes[2..4].copy_from_slice(&(flags | 0x8000).to_be_bytes());
        bytes[7] = u8::try_from(answers.len()).expect("few");
        bytes[9] = u8::try_from(authorities.len()).expect("few");
        let zone = authorities.iter().map(|ttl| (&[][..], SOA, *ttl, &[][..]));
        for (name, kind, ttl, data) in answers.iter().copied().chain(zone) {
            bytes.extend(if name.is_empty() { &[0xc0, 12] } else { name });
            bytes.extend(kind.to_be_bytes());
            bytes.extend(INTERNET.to_be_bytes());
            bytes.extend(ttl.to_be_bytes());
            bytes.extend(u16::try_from(data.len()).expect("short").to_be_bytes());
            bytes.extend(data);
        }
        // Nothing that is cut short makes it panic.
        for end in 0..bytes.len() {
            let _ = answer(&bytes[..end], ID, &name());
        }
        answer(&bytes, ID, &name())
    }

    fn values(values: &[&str], left: u64) -> Option<Said> {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        Some(Said::Values { values, left: Duration::from_secs(left) })
    }

    #[test]
    fn records_are_read_with_the_time_for_which_they_may_be_kept() {
        let seed_a = (&[][..], TXT, 30, &b"\x06seed-a"[..]);
        assert_eq!(said(0, &[seed_a], &[]), values(&["seed-a"], 30));
        // That it is authoritative is said of answers out of caches as well.
        assert_eq!(said(0x0400, &[seed_a], &[]), values(&["seed-a"], 30));
        let two = (&[][..], TXT, 10, &b"\x04seed\x02-b"[..]);
        assert_eq!(said(0, &[seed_a, two], &[]), values(&["seed-a", "seed-b"], 30));
        // An alias, which may be kept for longer than what it stands for.
        let alias = (&[][..], CNAME, 300, &b"\x01x\xc0\x12"[..]);
        let behind = (&b"\x01X\xc0\x12"[..], TXT, 5, &b"\x01a"[..]);
        assert_eq!(said(0, &[alias, behind], &[]), values(&["a"], 300));
        // One of another name is none of ours.
        assert!(matches!(said(0, &[behind], &[]), Some(Said::Nothing(_))));
    }

    #[test]
    fn that_there_is_no_record_is_believed_with_proof_only() {
        for flags in [0, 3] {
            assert_eq!(said(flags, &[], &[60]), values(&[], 60));
            assert_eq!(said(flags | 0x0400, &[], &[60]), values(&[], 60));
            assert!(matches!(said(flags, &[], &[]), Some(Said::Nothing(_))));
        }
        for code in [1, 2, 4, 5, 9] {
            assert!(matches!(said(code, &[], &[60]), Some(Said::Nothing(_))), "{code}");
        }
        assert_eq!(said(0x0200, &[], &[]), Some(Said::Truncated));
    }

    #[test]
    fn what_is_mangled_or_not_the_answer_says_nothing() {
        let looped = (&[][..], CNAME, 1, &b"\xc0\x0c"[..]);
        assert!(matches!(said(0, &[looped], &[]), Some(Said::Nothing(_))));
        assert!(matches!(said(0, &[(&[], TXT, 1, b"\x09short")], &[]), Some(Said::Nothing(_))));
        let mut bytes = question(ID, &name());
        assert_eq!(answer(&bytes, ID, &name()), None, "a question");
        bytes[2] |= 0x80;
        assert!(answer(&bytes, ID, &name()).is_some());
        assert_eq!(answer(&bytes, ID + 1, &name()), None, "of another question");
        assert_eq!(answer(&bytes, ID, &Name::parse("a.org").expect("a name")), None, "of another name");
        // A name that points to itself.
        bytes.truncate(HEADER);
        bytes.extend([0xc0, 12, 0, 16, 0, 1]);
        assert_eq!(answer(&bytes, ID, &name()), None);
    }

    #[test]
    fn name_servers_and_addresses_are_read() {
        let said = |kind: Kind, code: u8, records: &[(u16, &[u8])]| {
            let mut bytes = question_for(ID, &name(), kind);
            (bytes[2], bytes[3]) = (0x84, code);
            bytes[7] = u8::try_from(records.len()).expect("few");
            for (kind, data) in records {
                bytes.extend([0xc0, 12]);
                bytes.extend(kind.to_be_bytes());
                bytes.extend([0, 1, 0, 0, 0, 9]);
                bytes.extend(u16::try_from(data.len()).expect("short").to_be_bytes());
                bytes.extend(*data);
            }
            for end in 0..bytes.len() {
                let _ = answer_for(&bytes[..end], ID, &name(), kind);
            }
            assert_eq!(answer_for(&bytes, ID + 1, &name(), kind), None, "of another question");
            answer_for(&bytes, ID, &name(), kind).expect("an answer")
        };
        let hosts = [(NS, &b"\x03ns1\xc0\x12"[..]), (TXT, b"\x01a"), (NS, b"\x03NS2\xc0\x12")];
        let host = |text: &str| Data::Host(Name::parse(text).expect("a name"));
        let all = vec![host("ns1.example.org"), host("ns2.example.org")];
        assert_eq!(said(Kind::Ns, 0, &hosts), Found::All(all));
        assert_eq!(host("ns1.example.org"), Data::Host(Name::parse("ns1.example.org.").expect("a name")));
        let address = |text: &str| Data::Address(text.parse().expect("an address"));
        assert_eq!(said(Kind::A, 0, &[(A, &[10, 0, 0, 1])]), Found::All(vec![address("10.0.0.1")]));
        let ip = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
        assert_eq!(said(Kind::Aaaa, 0, &[(AAAA, &ip)]), Found::All(vec![address("fd00::7")]));
        assert_eq!(said(Kind::Aaaa, 3, &[]), Found::All(Vec::new()));
        assert!(matches!(said(Kind::A, 0, &[(A, &[1, 2, 3])]), Found::Nothing(_)));
        assert!(matches!(said(Kind::A, 2, &[]), Found::Nothing(_)));
        assert_eq!(name().to_string(), "owner.example.org");
    }

    #[test]
    fn names_are_checked() {
        let long = "a".repeat(64);
        for bad in ["", ".", "a..b", "a b", "ä.org", long.as_str(), &"a.".repeat(128)] {
            assert!(Name::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(Name::parse("A.org").ok(), Name::parse("a.org.").ok());
    }
}
