//! Where a payload is cut: by its structure first, by its content within long parts, so that a small change of the payload
//! changes few pieces.
//!
//! - A long segment is cut by content on its own. Its short tail goes on with what follows.
//! - Short segments are packed together. A pack ends after a segment whose keyed hash says so, the likelier the longer it
//!   is: the same segments end packs wherever they stand, so an inserted segment does not shift later cuts.
//! - What is left over and too short for a chunk is glued to its neighbour: a few bytes between two long segments do not
//!   become a chunk.

use std::ops::Range;

use bytes::Bytes;
use fastcdc::v2020::{FastCDC, Normalization};

/// A payload shorter than this stays in the record. Bytes, as all sizes here.
pub(crate) const INLINE_LIMIT: usize = 64 << 10;
/// The shortest piece, unless the payload ends.
const MIN: usize = 64 << 10;
/// The usual piece: large enough that the cost of a key and a request does not count, small enough for a change.
const AVERAGE: usize = 256 << 10;
/// The longest piece before leftovers are glued on.
const MAX: usize = 512 << 10;
/// No piece is longer: leftovers may be glued on both sides. Far under etcd's limit of a request.
pub(crate) const MAX_CHUNK: usize = MAX + 2 * MIN;

/// A piece of payload, as one or more slices of the segments.
#[derive(Clone, Default)]
pub(crate) struct Piece {
    /// The slices in order.
    pub parts: Vec<Bytes>,
    /// Bytes in sum.
    pub len: usize,
}

impl Piece {
    /// The same bytes as one slice: many small slices are slow to hash, and compression wants one anyway.
    pub fn joined(self) -> Self {
        Self { parts: vec![super::joined(&self.parts)], len: self.len }
    }

    fn push(&mut self, part: Bytes) {
        self.len += part.len();
        self.parts.push(part);
    }
}

/// Cuts a payload into pieces, none longer than [`MAX_CHUNK`]. Deterministic: same segments and key, same cuts.
pub(crate) fn split(segments: &[Bytes], key: &[u8; 32]) -> Vec<Piece> {
    let mut splitter = Splitter { key, pieces: Vec::new(), open: Piece::default() };
    for segment in segments.iter().filter(|segment| !segment.is_empty()) {
        if segment.len() < MIN {
            splitter.short(segment);
        } else {
            splitter.long(segment);
        }
    }
    splitter.finish()
}

struct Splitter<'a> {
    key: &'a [u8; 32],
    pieces: Vec<Piece>,
    /// What is not yet in a piece; at most [`MAX`].
    open: Piece,
}

impl Splitter<'_> {
    fn short(&mut self, segment: &Bytes) {
        if self.open.len + segment.len() > MAX {
            self.close();
        }
        self.open.push(segment.clone());
        if self.open.len >= MIN && ends_pack(segment, self.key) {
            self.close();
        }
    }

    fn long(&mut self, segment: &Bytes) {
        if self.open.len >= MIN {
            self.close();
        }
        for cut in cuts(segment, self.key) {
            let tail = cut.end == segment.len() && cut.len() < MIN;
            self.open.push(segment.slice(cut));
            if !tail {
                self.close();
            }
        }
    }

    fn close(&mut self) {
        self.pieces.push(std::mem::take(&mut self.open));
    }

    fn finish(mut self) -> Vec<Piece> {
        match self.pieces.last_mut() {
            Some(last) if self.open.len < MIN => self.open.parts.drain(..).for_each(|part| last.push(part)),
            Some(_) | None if self.open.len > 0 => self.close(),
            Some(_) | None => {}
        }
        self.pieces
    }
}

fn cuts(segment: &[u8], key: &[u8; 32]) -> impl Iterator<Item = Range<usize>> {
    FastCDC::with_level_and_seed(segment, MIN, AVERAGE, MAX, Normalization::Level1, seed(key))
        .map(|cut| cut.offset..cut.offset + cut.length)
}

/// True with a chance of `length / (AVERAGE - MIN)`, decided by the content alone. A quick hash will do: nobody but the
/// length of chunks tells what it said, and it is seeded.
fn ends_pack(segment: &[u8], key: &[u8; 32]) -> bool {
    let draw = xxhash_rust::xxh3::xxh3_64_with_seed(segment, seed(key)) >> 32;
    let chance = segment.len() as u64 * u64::from(u32::MAX) / (AVERAGE - MIN) as u64;
    draw < chance
}

fn seed(key: &[u8; 32]) -> u64 {
    u64::from_le_bytes([key[0], key[1], key[2], key[3], key[4], key[5], key[6], key[7]])
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
