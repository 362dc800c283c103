//! gzip by several threads: what is compressed is cut into blocks, which are compressed each by itself and put one after the other.
//! The result is one ordinary member of gzip.

use std::{
    collections::VecDeque,
    io::{self, Write},
    thread::{self, JoinHandle},
};

use flate2::{Compress, Compression as Level, Crc, FlushCompress, Status};

/// What a thread compresses at once. A block knows nothing of the one before it; at this length that costs a thousandth.
const BLOCK_BYTES: usize = 1 << 20;
/// However many cores there are: each thread holds two blocks.
const MOST_THREADS: usize = 4;
/// gzip, deflated, no name and no time, of an unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];

/// A writer of gzip.
pub struct Blocks<W: Write> {
    inner: W,
    block: Vec<u8>,
    running: VecDeque<JoinHandle<io::Result<Vec<u8>>>>,
    threads: usize,
    sum: Crc,
    begun: bool,
}

impl<W: Write> Blocks<W> {
    /// A writer that compresses into `inner`, with as many threads as the machine can run, up to a limit.
    pub fn new(inner: W) -> Self {
        let threads = thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
        let (block, running) = (Vec::new(), VecDeque::new());
        Self { inner, block, running, threads, sum: Crc::new(), begun: false }
    }

    fn start(&mut self, flush: FlushCompress) -> io::Result<()> {
        if self.running.len() >= self.threads {
            self.write_oldest()?;
        }
        let block = std::mem::replace(&mut self.block, Vec::with_capacity(BLOCK_BYTES));
        self.running.push_back(thread::Builder::new().spawn(move || pack(&block, flush))?);
        Ok(())
    }

    fn write_oldest(&mut self) -> io::Result<()> {
        let Some(oldest) = self.running.pop_front() else { return Ok(()) };
        let packed = oldest.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))?;
        if !self.begun {
            self.inner.write_all(&HEADER)?;
            self.begun = true;
        }
        self.inner.write_all(&packed)
    }

    /// Writes what is left and gives `inner` back.
    ///
    /// # Errors
    /// Those of `inner`, and where the machine has no thread left.
    pub fn finish(mut self) -> io::Result<W> {
        self.start(FlushCompress::Finish)?;
        while !self.running.is_empty() {
            self.write_oldest()?;
        }
        self.inner.write_all(&self.sum.sum().to_le_bytes())?;
        self.inner.write_all(&self.sum.amount().to_le_bytes())?;
        Ok(self.inner)
    }
}

impl<W: Write> Write for Blocks<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = BLOCK_BYTES - self.block.len();
        let taken = &bytes[..bytes.len().min(room)];
        self.sum.update(taken);
        self.block.extend_from_slice(taken);
        if self.block.len() == BLOCK_BYTES {
            self.start(FlushCompress::Sync)?;
        }
        Ok(taken.len())
    }

    /// What is in a block that is not full stays there.
    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// One block, ending at a whole byte.
fn pack(block: &[u8], flush: FlushCompress) -> io::Result<Vec<u8>> {
    let mut deflate = Compress::new(Level::default(), false);
    let mut packed = Vec::with_capacity(block.len() + block.len() / 100 + 1024);
    loop {
        let at = usize::try_from(deflate.total_in()).map_err(io::Error::other)?;
        let status = deflate.compress_vec(&block[at..], &mut packed, flush)?;
        let all_read = deflate.total_in() == block.len() as u64;
        // Where room is left there was nothing more to write.
        let flushed = flush == FlushCompress::Sync && all_read && packed.len() < packed.capacity();
        if status == Status::StreamEnd || flushed {
            return Ok(packed);
        }
        packed.reserve(64 << 10);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::snapshot::codec::decoder;
    use repot_etcd_core::snapshot::Compression;

    fn random(count: usize, letters: u64) -> Vec<u8> {
        let mut seed = 1_u64;
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u8::try_from((seed >> 33) % letters).expect("a byte")
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn blocks_are_one_member_of_gzip() {
        for letters in [3, 256] {
            for count in [0, 1, 70_000, BLOCK_BYTES, BLOCK_BYTES + 1, 5 * BLOCK_BYTES + 12345] {
                let bytes = random(count, letters);
                let mut blocks = Blocks::new(Vec::new());
                bytes.chunks(77_777).for_each(|piece| blocks.write_all(piece).expect("memory"));
                let packed = blocks.finish().expect("memory");
                let mut out = Vec::new();
                decoder(Compression::Gzip, &packed[..]).read_to_end(&mut out).expect("gzip");
                assert!(out == bytes, "{count} bytes of {letters}");
                assert!(letters == 256 || packed.len() < count / 3 + 100, "{} of {count}", packed.len());
            }
        }
    }
}
