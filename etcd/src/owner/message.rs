//! The question for the TXT record of an owner, and what its answer says. Pure.

use std::time::Duration;

pub use super::wire::{Name, NameError};
use super::wire::{Outcome, Reader, Record, SOA, TXT, follow, head, question_of};

/// The question for the TXT record of a name; whoever is asked is asked to ask others.
#[must_use]
pub fn question(id: u16, name: &Name) -> Vec<u8> {
    question_of(id, name, TXT)
}

/// What a server said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsAnswer {
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
pub fn answer(bytes: &[u8], id: u16, name: &Name) -> Option<DnsAnswer> {
    let (reader, counts, outcome) = head(bytes, id, name, TXT)?;
    Some(match outcome {
        Outcome::Records { no_name } => records(reader, counts, name, no_name),
        Outcome::Truncated => DnsAnswer::Truncated,
        Outcome::Nothing(why) => DnsAnswer::Nothing(why),
    })
}

fn records(mut reader: Reader, counts: [u16; 3], name: &Name, no_name: bool) -> DnsAnswer {
    const MANGLED: DnsAnswer = DnsAnswer::Nothing("its answer is mangled");
    let (Some(answers), Some(authorities)) = (reader.section(counts[1]), reader.section(counts[2])) else {
        return MANGLED;
    };
    let Some((name, through)) = follow(name, &answers) else {
        return DnsAnswer::Nothing("its answer has a circle of aliases");
    };
    let found: Vec<&Record> = answers.iter().filter(|r| r.kind == TXT && r.name == name).collect();
    let texts: Option<Vec<String>> = found.iter().map(|record| text(record.data)).collect();
    let Some(values) = texts else { return MANGLED };
    // "There is none" is said together with the zone's SOA record (RFC 2308). What lacks it is a referral, or a server that does not know.
    let proof: Vec<&Record> = authorities.iter().filter(|r| values.is_empty() && r.kind == SOA).collect();
    if values.is_empty() && proof.is_empty() {
        return DnsAnswer::Nothing("it neither has the record nor says that there is none");
    }
    if no_name && !values.is_empty() {
        return MANGLED;
    }
    let ttl = found.iter().chain(&proof).map(|record| record.ttl).chain(through).max();
    DnsAnswer::Values { values, left: Duration::from_secs(ttl.unwrap_or(0).into()) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::wire::{CNAME, HEADER, INTERNET};

    const ID: u16 = 0x1234;

    fn name() -> Name {
        Name::parse("Owner.example.org.").expect("a name")
    }

    /// An answer with flags; each record has a name (a pointer to the question, where it is empty), kind, TTL and data.
    fn said(flags: u16, answers: &[(&[u8], u16, u32, &[u8])], authorities: &[u32]) -> Option<DnsAnswer> {
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

    fn values(values: &[&str], left: u64) -> Option<DnsAnswer> {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        Some(DnsAnswer::Values { values, left: Duration::from_secs(left) })
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
        assert!(matches!(said(0, &[behind], &[]), Some(DnsAnswer::Nothing(_))));
    }

    #[test]
    fn that_there_is_no_record_is_believed_with_proof_only() {
        for flags in [0, 3] {
            assert_eq!(said(flags, &[], &[60]), values(&[], 60));
            assert_eq!(said(flags | 0x0400, &[], &[60]), values(&[], 60));
            assert!(matches!(said(flags, &[], &[]), Some(DnsAnswer::Nothing(_))));
        }
        for code in [1, 2, 4, 5, 9] {
            assert!(matches!(said(code, &[], &[60]), Some(DnsAnswer::Nothing(_))), "{code}");
        }
        assert_eq!(said(0x0200, &[], &[]), Some(DnsAnswer::Truncated));
    }

    #[test]
    fn what_is_mangled_or_not_the_answer_says_nothing() {
        let looped = (&[][..], CNAME, 1, &b"\xc0\x0c"[..]);
        assert!(matches!(said(0, &[looped], &[]), Some(DnsAnswer::Nothing(_))));
        assert!(matches!(said(0, &[(&[], TXT, 1, b"\x09short")], &[]), Some(DnsAnswer::Nothing(_))));
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
}
