//! The hash at the end of every snapshot: 32 raw bytes of SHA-256 over all that is before them.

use std::io::{self, Read};

use aws_lc_rs::digest;

use super::Error;

/// Length of the trailer.
pub const HASH_BYTES: usize = 32;

const BUFFER: usize = 128 << 10;

/// A SHA-256 over bytes that come piece by piece.
#[derive(Clone)]
pub struct Sha256(digest::Context);

impl Default for Sha256 {
    fn default() -> Self {
        Self(digest::Context::new(&digest::SHA256))
    }
}

impl std::fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sha256")
    }
}

impl Sha256 {
    /// Takes more bytes in.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash of all of them.
    #[must_use]
    pub fn finish(self) -> [u8; HASH_BYTES] {
        let mut hash = [0; HASH_BYTES];
        hash.copy_from_slice(self.0.finish().as_ref());
        hash
    }
}

/// Reads the content of a snapshot and keeps its trailer back.
///
/// # Guarantees
/// The end is reported only when the trailer is there and is the hash of all that was read: whoever reads to the end needs no
/// check of its own. Everything before the end is not yet checked.
pub struct Trailed<R> {
    inner: R,
    buffer: Vec<u8>,
    /// What is in the buffer and not yet given out.
    start: usize,
    end: usize,
    exhausted: bool,
    hash: Option<Sha256>,
    given: u64,
}

impl<R: Read> Trailed<R> {
    /// A reader of what is in `inner` before its trailer.
    pub fn new(inner: R) -> Self {
        let buffer = vec![0; BUFFER];
        Self { inner, buffer, start: 0, end: 0, exhausted: false, hash: Some(Sha256::default()), given: 0 }
    }

    /// How much of the content was given out.
    pub fn given(&self) -> u64 {
        self.given
    }

    /// The trailer; `None` before the end.
    pub fn trailer(&self) -> Option<[u8; HASH_BYTES]> {
        let rest = self.buffer.get(self.start..self.end)?;
        self.hash.is_none().then(|| rest.try_into().ok()).flatten()
    }

    /// Reads until something can be given out or nothing more comes.
    fn fill(&mut self) -> io::Result<()> {
        while !self.exhausted && self.end - self.start <= HASH_BYTES {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            match self.inner.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.exhausted = true,
                Ok(count) => self.end += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn check(&mut self) -> io::Result<()> {
        let rest = &self.buffer[self.start..self.end];
        if rest.len() < HASH_BYTES {
            return Err(Error::NoTrailer.into_io());
        }
        // The end may be asked for more than once.
        match self.hash.take() {
            Some(hash) if hash.clone().finish() != rest => {
                self.hash = Some(hash);
                Err(Error::Hash.into_io())
            }
            _ => Ok(()),
        }
    }
}

impl<R: Read> Read for Trailed<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        self.fill()?;
        let ready = (self.end - self.start).saturating_sub(HASH_BYTES).min(out.len());
        if ready == 0 {
            return self.check().map(|()| 0);
        }
        let bytes = &self.buffer[self.start..self.start + ready];
        out[..ready].copy_from_slice(bytes);
        if let Some(hash) = &mut self.hash {
            hash.update(bytes);
        }
        self.start += ready;
        self.given += ready as u64;
        Ok(ready)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sealed(content: &[u8]) -> Vec<u8> {
        let mut hash = Sha256::default();
        hash.update(content);
        [content, &hash.finish()].concat()
    }

    /// Gives what it has in pieces of a certain size.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let size = self.1.min(out.len());
            (&mut self.0).take(size as u64).read(out)
        }
    }

    fn read(bytes: &[u8], piece: usize) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        let mut reader = Trailed::new(Pieces(bytes, piece));
        reader.read_to_end(&mut out).map_err(Error::of)?;
        assert_eq!(reader.given(), out.len() as u64);
        assert_eq!(reader.trailer().map(Vec::from), Some(bytes[out.len()..].to_vec()));
        Ok(out)
    }

    proptest! {
        #[test]
        fn content_comes_back_and_every_change_is_noticed(
            content in proptest::collection::vec(any::<u8>(), 0..2000),
            piece in 1_usize..300,
            at in any::<proptest::sample::Index>(),
            bit in 0_u8..8,
        ) {
            let whole = sealed(&content);
            prop_assert_eq!(read(&whole, piece).expect("it is whole"), content);
            let mut flipped = whole.clone();
            flipped[at.index(whole.len())] ^= 1 << bit;
            prop_assert!(matches!(read(&flipped, piece), Err(Error::Hash)));
            let cut = &whole[..at.index(whole.len())];
            prop_assert!(matches!(read(cut, piece), Err(Error::Hash | Error::NoTrailer)));
        }
    }

    #[test]
    fn an_empty_text_has_no_trailer() {
        assert!(matches!(read(b"", 1), Err(Error::NoTrailer)));
        assert!(read(&sealed(b""), 7).expect("nothing, sealed").is_empty());
    }
}
