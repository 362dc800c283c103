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

use crate::store::types::Segmented;

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

/// Cuts a payload into pieces, none longer than [`MAX_CHUNK`]. Deterministic: same segments and key, same cuts.
pub(crate) fn split(payload: &Segmented, key: &[u8; 32]) -> Vec<Bytes> {
    let mut splitter = Splitter { text: payload.text(), key, ends: Vec::new(), start: 0, end: 0 };
    for segment in payload.segments() {
        if segment.len() < MIN {
            splitter.short(segment);
        } else {
            splitter.long(segment);
        }
    }
    splitter.finish()
}

struct Splitter<'a> {
    text: &'a Bytes,
    key: &'a [u8; 32],
    /// Where the pieces end that are done.
    ends: Vec<usize>,
    /// From here to `end` is what is not yet in a piece; at most [`MAX`].
    start: usize,
    end: usize,
}

impl Splitter<'_> {
    fn short(&mut self, segment: Range<usize>) {
        if self.open() + segment.len() > MAX {
            self.close();
        }
        self.end = segment.end;
        if self.open() >= MIN && ends_pack(&self.text[segment], self.key) {
            self.close();
        }
    }

    fn long(&mut self, segment: Range<usize>) {
        if self.open() >= MIN {
            self.close();
        }
        for cut in cuts(&self.text[segment.clone()], self.key) {
            let tail = cut.end == segment.len() && cut.len() < MIN;
            self.end = segment.start + cut.end;
            if !tail {
                self.close();
            }
        }
    }

    fn open(&self) -> usize {
        self.end - self.start
    }

    fn close(&mut self) {
        self.ends.push(self.end);
        self.start = self.end;
    }

    fn finish(mut self) -> Vec<Bytes> {
        let open = self.open();
        match self.ends.last_mut() {
            Some(last) if open < MIN => *last = self.end,
            Some(_) | None if open > 0 => self.close(),
            Some(_) | None => {}
        }
        let mut start = 0;
        let piece = |end| self.text.slice(std::mem::replace(&mut start, end)..end);
        self.ends.into_iter().map(piece).collect()
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
