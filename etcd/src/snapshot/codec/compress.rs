//! Compression in both directions. The end of the compressed data has to be the end of the object.

use std::io::{self, BufRead, Read, Write};

use flate2::{
    Compression as Level,
    bufread::{GzDecoder, ZlibDecoder},
    write::{GzEncoder, ZlibEncoder},
};
use repot_etcd_core::snapshot::Compression;
use weezl::{BitOrder, LzwStatus, decode::Decoder as LzwDecoder};

use super::{Error, blocks::Blocks};

/// Width of literals in LZW, as etcd-backup-restore writes it.
const LZW_WIDTH: u8 = 8;

/// Reads what was compressed. Bytes after the end of the compressed data are an error.
pub fn decoder<'a>(compression: Compression, inner: impl BufRead + Send + 'a) -> Box<dyn Read + Send + 'a> {
    match compression {
        Compression::None => Box::new(inner),
        Compression::Gzip => Box::new(Whole { inner: GzDecoder::new(inner) }),
        Compression::Zlib => Box::new(Whole { inner: ZlibDecoder::new(inner) }),
        Compression::Lzw => Box::new(Whole { inner: Lzw::new(inner) }),
    }
}

/// A decoder that shows what it reads from.
trait Decodes: Read {
    fn source(&mut self) -> &mut dyn BufRead;
}

impl<R: BufRead> Decodes for GzDecoder<R> {
    fn source(&mut self) -> &mut dyn BufRead {
        self.get_mut()
    }
}

impl<R: BufRead> Decodes for ZlibDecoder<R> {
    fn source(&mut self) -> &mut dyn BufRead {
        self.get_mut()
    }
}

impl<R: BufRead> Decodes for Lzw<R> {
    fn source(&mut self) -> &mut dyn BufRead {
        &mut self.inner
    }
}

/// Looks at the end whether something follows.
struct Whole<D> {
    inner: D,
}

impl<D: Decodes> Read for Whole<D> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(out)?;
        if count == 0 && !out.is_empty() && !self.inner.source().fill_buf()?.is_empty() {
            return Err(Error::Leftover.into_io());
        }
        Ok(count)
    }
}

struct Lzw<R> {
    inner: R,
    decoder: LzwDecoder,
    ended: bool,
}

impl<R: BufRead> Lzw<R> {
    fn new(inner: R) -> Self {
        Self { inner, decoder: LzwDecoder::new(BitOrder::Lsb, LZW_WIDTH), ended: false }
    }
}

impl<R: BufRead> Read for Lzw<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while !self.ended && !out.is_empty() {
            let input = self.inner.fill_buf()?;
            let dry = input.is_empty();
            let result = self.decoder.decode_bytes(input, out);
            self.inner.consume(result.consumed_in);
            let status = result.status.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            self.ended = matches!(status, LzwStatus::Done);
            if result.consumed_out > 0 {
                return Ok(result.consumed_out);
            }
            if dry && !self.ended {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(0)
    }
}

/// A writer that compresses what it is given, or passes it on as it is.
pub enum Encoder<W: Write> {
    /// As they are.
    None(W),
    /// gzip.
    Gzip(GzEncoder<W>),
    /// gzip, by several threads.
    Blocks(Blocks<W>),
    /// zlib.
    Zlib(ZlibEncoder<W>),
}

impl<W: Write> Encoder<W> {
    /// An encoder into `inner`.
    ///
    /// # Errors
    /// [`Error::LzwWriting`].
    pub fn new(compression: Compression, inner: W) -> Result<Self, Error> {
        match compression {
            Compression::None => Ok(Self::None(inner)),
            Compression::Gzip => Ok(Self::Gzip(GzEncoder::new(inner, Level::default()))),
            Compression::Zlib => Ok(Self::Zlib(ZlibEncoder::new(inner, Level::default()))),
            Compression::Lzw => Err(Error::LzwWriting),
        }
    }

    /// The same for something large, by as many threads as are worth it.
    ///
    /// # Errors
    /// [`Error::LzwWriting`].
    pub fn of_large(compression: Compression, inner: W) -> Result<Self, Error> {
        match compression {
            Compression::Gzip => Ok(Self::Blocks(Blocks::new(inner))),
            other => Self::new(other, inner),
        }
    }

    /// Writes what is left and gives `inner` back.
    ///
    /// # Errors
    /// Those of `inner`.
    pub fn finish(self) -> io::Result<W> {
        match self {
            Self::None(inner) => Ok(inner),
            Self::Gzip(encoder) => encoder.finish(),
            Self::Blocks(encoder) => encoder.finish(),
            Self::Zlib(encoder) => encoder.finish(),
        }
    }
}

impl<W: Write> Write for Encoder<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::None(inner) => inner.write(bytes),
            Self::Gzip(encoder) => encoder.write(bytes),
            Self::Blocks(encoder) => encoder.write(bytes),
            Self::Zlib(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::None(inner) => inner.flush(),
            Self::Gzip(encoder) => encoder.flush(),
            Self::Blocks(encoder) => encoder.flush(),
            Self::Zlib(encoder) => encoder.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weezl::encode::Encoder as LzwEncoder;

    use super::*;

    fn encode(compression: Compression, bytes: &[u8]) -> Vec<u8> {
        if compression == Compression::Lzw {
            return LzwEncoder::new(BitOrder::Lsb, LZW_WIDTH).encode(bytes).expect("LZW");
        }
        let mut encoder = Encoder::new(compression, Vec::new()).expect("a compression that is written");
        encoder.write_all(bytes).expect("memory");
        encoder.finish().expect("memory")
    }

    fn decode(compression: Compression, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        decoder(compression, io::BufReader::with_capacity(61, bytes)).read_to_end(&mut out).map(|_| out)
    }

    proptest! {
        #[test]
        fn bytes_come_back_and_a_cut_is_noticed(
            bytes in proptest::collection::vec(0_u8..4, 0..5000),
            at in any::<proptest::sample::Index>(),
        ) {
            for compression in [Compression::Gzip, Compression::Zlib, Compression::Lzw] {
                let packed = encode(compression, &bytes);
                prop_assert_eq!(decode(compression, &packed).expect("it is whole"), bytes.clone());
                prop_assert!(decode(compression, &packed[..at.index(packed.len())]).is_err());
                let longer = [packed.as_slice(), b"\x1f"].concat();
                // LZW is read ahead of its end; the hash trailer guards what it gives.
                prop_assert!(decode(compression, &longer).is_err() || compression == Compression::Lzw);
            }
            prop_assert_eq!(decode(Compression::None, &bytes).expect("as it is"), bytes);
        }
    }

    /// What Go's compress/lzw makes of these letters, called as etcd-backup-restore calls it.
    #[test]
    fn lzw_of_go_is_read_and_none_is_written() {
        let of_go = b"\x00\xc3\x08\x0c\x23\xa6\xa0\x98\x81\x04\x0d\x06\x04";
        assert_eq!(decode(Compression::Lzw, of_go).expect("LZW"), b"aaaabbbbaaaabbbb");
        let error = Encoder::new(Compression::Lzw, Vec::new()).err().expect("a refusal");
        assert!(error.to_string().contains("not written in LZW"), "{error}");
    }
}
