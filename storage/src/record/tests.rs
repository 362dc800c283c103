use proptest::prelude::*;

use super::*;

const UID: Uuid = Uuid::from_u128(9);
const PATH: &[u8] = b"/registry/g/r/ns/n";

fn mk_record(meta: &[u8], summary: &[u8], payload: Payload, payload_len: u64) -> Record {
    let (meta, summary) = (Bytes::copy_from_slice(meta), Bytes::copy_from_slice(summary));
    Record { meta, summary, payload_len, token: [3; 16], payload }
}

fn sealed(record: &Record, key: &DataKey) -> Bytes {
    record.seal(PATH, UID, &key.cipher().unwrap(), b"wrapped").unwrap()
}

fn opened(value: &Bytes, path: &[u8], key: &DataKey) -> Result<(Uuid, Bytes, Record), Defect> {
    let parsed = Sealed::parse(Bytes::copy_from_slice(value))?;
    Ok((parsed.uid, parsed.wrapped.clone(), parsed.open(path, key)?))
}

fn inline(payload: &[u8]) -> Payload {
    Payload::Inline(Packed::new(payload))
}

proptest! {
    #[test]
    fn comes_back_as_it_was(
        meta in prop::collection::vec(any::<u8>(), 0..3000),
        summary in prop::collection::vec(any::<u8>(), 0..300),
        payload in prop::collection::vec(0u8..4, 0..5000),
        chunks in prop::collection::vec((any::<[u8; 28]>(), 1u32..600_000), 1..40),
    ) {
        let key = DataKey::random().unwrap();
        let record = mk_record(&meta, &summary, inline(&payload), payload.len() as u64);
        let (uid, wrapped, back) = opened(&sealed(&record, &key), PATH, &key).unwrap();
        prop_assert_eq!((uid, &wrapped[..]), (UID, &b"wrapped"[..]));
        prop_assert_eq!((&back.meta[..], &back.summary[..], back.token), (&meta[..], &summary[..], [3; 16]));
        let Payload::Inline(packed) = back.payload else { panic!("not inline") };
        prop_assert_eq!(packed.unpack().unwrap(), payload);

        let chunks: Arc<[ChunkRef]> = chunks.into_iter().map(|(id, len)| ChunkRef { id, len }).collect();
        let len = chunks.iter().map(|chunk| u64::from(chunk.len)).sum();
        let record = mk_record(&meta, &summary, Payload::Chunks(chunks.clone()), len);
        let (_, _, back) = opened(&sealed(&record, &key), PATH, &key).unwrap();
        prop_assert_eq!(back.payload.chunks(), &chunks[..]);
        prop_assert_eq!(back.payload_len, len);
    }

    #[test]
    fn never_panics_on_foreign_bytes(value in prop::collection::vec(any::<u8>(), 0..200)) {
        let key = DataKey::random().unwrap();
        prop_assert!(opened(&Bytes::from(value.clone()), PATH, &key).is_err());
        // Even if somebody who has the key wrote nonsense.
        prop_assert!(wire::decode(value.into()).is_err());
    }
}

#[test]
fn every_altered_byte_is_noticed_or_belongs_to_the_wrapped_key() {
    let key = DataKey::random().unwrap();
    let good = sealed(&mk_record(b"meta", b"summary", inline(b"payload"), 7), &key);
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.to_vec();
            bad[at] ^= 1 << bit;
            match opened(&bad.into(), PATH, &key) {
                Err(_) => {}
                // Noticed by who unwraps it; here the key is at hand.
                Ok((_, wrapped, _)) => assert_ne!(wrapped, "wrapped", "byte {at} bit {bit}"),
            }
        }
    }
    for len in 0..good.len() {
        assert!(opened(&good.slice(..len), PATH, &key).is_err(), "cut to {len}");
    }
    assert!(opened(&good, b"/registry/g/r/ns/m", &key).is_err());
    assert!(opened(&good, PATH, &DataKey::random().unwrap()).is_err());
}

#[test]
fn a_map_that_does_not_add_up_is_refused() {
    let key = DataKey::random().unwrap();
    let chunk = |len| ChunkRef { id: [1; 28], len };
    for (payload, len, why) in [
        (Payload::Chunks([chunk(10)].into()), 11, "gaps"),
        (Payload::Chunks([chunk(700_000)].into()), 700_000, "too large"),
        (Payload::Chunks([].into()), 0, "no payload map"),
        (inline(b"seven"), 7, "no payload map"),
        (inline(&[b'a'; 70_000]), 70_000, "too large"),
    ] {
        let error = opened(&sealed(&mk_record(b"", b"", payload, len), &key), PATH, &key).err().unwrap();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn keeps_little_of_what_is_large() {
    let mk = |payload| Opened {
        key: DataKey::random().unwrap(),
        wrapped: Bytes::from_static(b"w"),
        token: [0; 16],
        payload,
    };
    let mut noise = vec![0; 60_000];
    aws_lc_rs::rand::fill(&mut noise).unwrap();
    assert!(matches!(mk(inline(&noise)).slim().payload, Payload::InRecord));
    assert!(matches!(mk(inline(&[b'a'; 60_000])).slim().payload, Payload::Inline(_)));
}
