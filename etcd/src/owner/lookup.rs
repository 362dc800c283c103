//! Questions for name servers (NS) and addresses (A, AAAA), and what their answers say. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::wire::{A, AAAA, NS, Name, Outcome, Record, follow, head, question_of};

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

/// The question for records of another kind.
pub(super) fn question_for(id: u16, name: &Name, kind: Kind) -> Vec<u8> {
    question_of(id, name, kind.number())
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
                of_it.map(data).collect()
            });
            all.map_or(Found::Nothing("its answer is mangled"), Found::All)
        }
    })
}

/// Reads the data of a record; `None` where they are mangled.
fn data(record: &Record) -> Option<Data> {
    match record.kind {
        NS => record.target.clone().map(Data::Host),
        A => <[u8; 4]>::try_from(record.data).ok().map(|ip| Data::Address(Ipv4Addr::from(ip).into())),
        AAAA => <[u8; 16]>::try_from(record.data).ok().map(|ip| Data::Address(Ipv6Addr::from(ip).into())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::wire::TXT;

    const ID: u16 = 0x1234;

    fn name() -> Name {
        Name::parse("Owner.example.org.").expect("a name")
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
}
