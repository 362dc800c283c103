use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

const KEY: &[u8; 32] = b"a key of thirty-two bytes, no le";

fn mk_noise(seed: u64, len: usize) -> Bytes {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes.into()
}

fn split(segments: &[Bytes], key: &[u8; 32]) -> Vec<Bytes> {
    super::split(&segments.to_vec().into(), key)
}

fn contents(pieces: &[Bytes]) -> HashSet<Bytes> {
    pieces.iter().cloned().collect()
}

/// The bytes that are in `new` and not in `old`, as whole pieces.
fn rewritten(old: &[Bytes], new: &[Bytes]) -> usize {
    let old = contents(&split(old, KEY));
    contents(&split(new, KEY)).iter().filter(|piece| !old.contains(*piece)).map(Bytes::len).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn pieces_are_the_payload_again(
        lens in prop::collection::vec(prop_oneof![0usize..200, 1000usize..70_000, 60_000usize..900_000], 0..12),
    ) {
        let segments: Vec<_> = lens.iter().enumerate().map(|(n, len)| mk_noise(n as u64, *len)).collect();
        let pieces = split(&segments, KEY);
        prop_assert_eq!(pieces.concat(), segments.concat());
        for (n, piece) in pieces.iter().enumerate() {
            prop_assert!(piece.len() <= MAX_CHUNK, "{}", piece.len());
            prop_assert!(piece.len() >= MIN || pieces.len() == 1, "piece {} of {} bytes", n, piece.len());
        }
        prop_assert_eq!(contents(&split(&segments, KEY)), contents(&pieces));
    }
}

#[test]
fn packs_are_of_the_usual_length() {
    let segments: Vec<_> = (0..4000).map(|n| mk_noise(n, 2000 + (n as usize * 37) % 1000)).collect();
    let pieces = split(&segments, KEY);
    let average = segments.concat().len() / pieces.len();
    assert!((AVERAGE / 2..AVERAGE * 3 / 2).contains(&average), "{average}");
}

#[test]
fn an_entry_more_among_short_ones_changes_few_pieces() {
    let old: Vec<_> = (0..4000).map(|n| mk_noise(n, 2500)).collect();
    for at in [0, 7, 1999, 3999] {
        let mut new = old.clone();
        new.insert(at, mk_noise(9999, 2500));
        assert!(rewritten(&old, &new) <= 3 * MAX, "at {at}: {}", rewritten(&old, &new));
        new.remove(at + 1);
        assert!(rewritten(&old, &new) <= 3 * MAX, "at {at}: {}", rewritten(&old, &new));
    }
}

#[test]
fn a_change_within_a_long_segment_changes_few_pieces() {
    let text = mk_noise(1, 10 << 20);
    for at in [0, 5_000_000, text.len()] {
        let longer = Bytes::from([&text[..at], b"something more", &text[at..]].concat());
        let rewritten = rewritten(std::slice::from_ref(&text), &[longer]);
        assert!(rewritten <= 2 * MAX_CHUNK, "at {at}: {rewritten}");
    }
}

#[test]
fn a_few_bytes_between_long_segments_are_no_piece() {
    let segments = [mk_noise(1, 400_000), mk_noise(2, 40), mk_noise(3, 400_000), mk_noise(4, 40)];
    let pieces = split(&segments, KEY);
    assert!(pieces.iter().all(|piece| piece.len() >= MIN));
    // Nor does a change of them rewrite more than their neighbours.
    let mut changed = segments.clone();
    changed[1] = mk_noise(5, 44);
    assert!(rewritten(&segments, &changed) <= MAX_CHUNK);
}

#[test]
fn cuts_differ_by_key() {
    let text = [mk_noise(1, 5 << 20)];
    let lens = |key: &[u8; 32]| split(&text, key).iter().map(|piece| piece.len()).collect::<Vec<_>>();
    assert_ne!(lens(KEY), lens(&[7; 32]));
}
