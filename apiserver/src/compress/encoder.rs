//! A gzip stream that spends effort only where something comes of it.
//!
//! Keys and machine state are base64 of what is random or compressed already: the codec takes a quarter off, at several times the
//! cost of serving them, and a kube-apiserver in front asks for gzip whatever its own client takes and pays as much again. So a
//! batch that hardly shrinks goes into the stream as it is; gzip knows such blocks, and every reader takes them.

use bytes::Bytes;
use flate2::{Compress, CompressError, Compression, Crc, FlushCompress};

/// Least effort: higher levels cost several times as much for a tenth less.
const LEVEL: Compression = Compression::new(1);
/// How much of a batch is tried, in its middle.
const SAMPLE: usize = 8 << 10;
/// Room that a call of the codec finds at least.
const ROOM: usize = 4 << 10;
/// Deflate, no flags, no time, fastest codec, any system (RFC 1952, section 2.3).
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255];
/// A stored block holds so much at most (RFC 1951, section 3.2.4).
const BLOCK: usize = 0xffff;

/// One gzip stream. Each batch ends on a byte, so that blocks of either sort may follow.
pub struct Encoder {
    deflate: Compress,
    sum: Crc,
    begun: bool,
}

impl Encoder {
    pub fn new() -> Self {
        Self { deflate: Compress::new(LEVEL, false), sum: Crc::new(), begun: false }
    }

    /// Adds a batch; gives what the stream goes on with.
    ///
    /// Errors: those of the codec, which correct use does not meet.
    pub fn add(&mut self, batch: &[Bytes], last: bool) -> Result<Bytes, CompressError> {
        let plain = batch.concat();
        let mut text = Vec::with_capacity(plain.len() + ROOM);
        if !std::mem::replace(&mut self.begun, true) {
            text.extend_from_slice(&HEADER);
        }
        self.sum.update(&plain);
        if shrinks(&plain)? {
            // What was stored in between is not in the codec's window.
            self.deflate.reset();
            self.run(&plain, FlushCompress::Sync, &mut text)?;
        } else {
            store(&plain, &mut text);
        }
        if last {
            self.end(&mut text);
        }
        Ok(text.into())
    }

    /// Gives all of `input` to the codec, and takes what it gives for that.
    fn run(
        &mut self,
        mut input: &[u8],
        flush: FlushCompress,
        text: &mut Vec<u8>,
    ) -> Result<(), CompressError> {
        loop {
            text.reserve(ROOM);
            let before = self.deflate.total_in();
            self.deflate.compress_vec(input, text, flush)?;
            input = &input[usize::try_from(self.deflate.total_in() - before).unwrap_or(input.len())..];
            if input.is_empty() && text.len() < text.capacity() {
                return Ok(());
            }
        }
    }

    /// An empty last block, the checksum, and the length modulo 2^32.
    fn end(&self, text: &mut Vec<u8>) {
        text.extend_from_slice(&block_header(0, true));
        text.extend_from_slice(&self.sum.sum().to_le_bytes());
        text.extend_from_slice(&self.sum.amount().to_le_bytes());
    }
}

/// Text as it is, in blocks.
fn store(plain: &[u8], text: &mut Vec<u8>) {
    for block in plain.chunks(BLOCK) {
        text.extend_from_slice(&block_header(block.len(), false));
        text.extend_from_slice(block);
    }
}

/// Of a stored block of at most [`BLOCK`] bytes.
fn block_header(length: usize, last: bool) -> [u8; 5] {
    let [low, high, ..] = length.to_le_bytes();
    [u8::from(last), low, high, !low, !high]
}

/// Whether a batch shrinks by a third or more, judged by its middle.
fn shrinks(plain: &[u8]) -> Result<bool, CompressError> {
    let begin = plain.len().saturating_sub(SAMPLE) / 2;
    let sample = &plain[begin..plain.len().min(begin + SAMPLE)];
    let mut small = Vec::with_capacity(SAMPLE + ROOM);
    Compress::new(LEVEL, false).compress_vec(sample, &mut small, FlushCompress::Finish)?;
    Ok(small.len() * 3 < sample.len() * 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::{Engine, engine::general_purpose::STANDARD};
    use flate2::read::GzDecoder;
    use std::io::Read;

    fn words(length: usize) -> Vec<u8> {
        br#"{"name":"machine","labels":{"node":"a"}},"#.iter().copied().cycle().take(length).collect()
    }

    fn keys(length: usize) -> Vec<u8> {
        let random: Vec<u8> = (0..=length / 16).flat_map(|_| *uuid::Uuid::new_v4().as_bytes()).collect();
        STANDARD.encode(random).into_bytes()[..length].to_vec()
    }

    fn encoded(batches: &[Vec<u8>]) -> Vec<u8> {
        let mut encoder = Encoder::new();
        let mut text = Vec::new();
        for batch in batches {
            let pieces: Vec<Bytes> = batch.chunks(5000).map(Bytes::copy_from_slice).collect();
            text.push(encoder.add(&pieces, false).expect("a batch"));
        }
        text.push(encoder.add(&[], true).expect("the end"));
        text.concat()
    }

    #[test]
    fn every_order_of_batches_comes_back() {
        let (short, long) = (1000, 300_000);
        for batches in [
            vec![],
            vec![words(short)],
            vec![keys(short)],
            vec![keys(long), words(long), keys(short), keys(long), words(short), words(long)],
            vec![words(long), keys(long), words(long)],
            vec![keys(1), words(1), keys(long)],
        ] {
            let mut plain = Vec::new();
            GzDecoder::new(&encoded(&batches)[..]).read_to_end(&mut plain).expect("gzip");
            assert!(plain == batches.concat(), "{:?}", batches.iter().map(Vec::len).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_shrinks_is_compressed_and_the_rest_is_not_made_longer() {
        let (words, keys) = (words(1 << 20), keys(1 << 20));
        assert!(encoded(std::slice::from_ref(&words)).len() * 20 < words.len());
        let stored = encoded(std::slice::from_ref(&keys)).len();
        assert!(stored > keys.len() && stored < keys.len() + keys.len() / 500, "{stored}");
        let mixed = encoded(&[keys.clone(), words]).len();
        assert!(mixed < keys.len() + keys.len() / 10, "{mixed}");
    }
}
