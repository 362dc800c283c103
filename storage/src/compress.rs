//! Compression: zstd level 1 where a look at the start says that it is worth its time, raw bytes otherwise.
//!
//! A decompressor is never given more room than the caller knows the plaintext to need, so a crafted frame cannot make
//! us allocate. Contexts are kept and used again: setting one up costs more than compressing a small record.

use parking_lot::Mutex;
use zstd::bulk::{Compressor, Decompressor};

const LEVEL: i32 = 1;
/// How much of the input is tried first.
const PROBE: usize = 16 << 10;
/// Contexts of each kind that are kept; a few hundred KiB each.
const KEPT: usize = 4;
/// A buffer for frames that is longer than this is not kept.
const KEPT_FRAME: usize = 768 << 10;

static COMPRESSORS: Mutex<Vec<Press>> = Mutex::new(Vec::new());
static DECOMPRESSORS: Mutex<Vec<Decompressor<'static>>> = Mutex::new(Vec::new());

/// The input is not a frame of exactly the length it should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotInflated;

/// From which saving on compression is worth its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worth {
    /// A tenth of the bytes: where space is short. The output of gzip, of a cipher or of a random generator does not
    /// shrink so far; the same in base64 does, by a quarter.
    Tenth,
    /// A third: where space is cheap. Text and JSON shrink to much less; base64 of what is dense already takes more time to
    /// shrink than its quarter takes to be written.
    Third,
}

impl Worth {
    /// The most bytes that the probe may shrink to.
    fn most(self) -> usize {
        match self {
            Self::Tenth => PROBE / 10 * 9,
            Self::Third => PROBE / 3 * 2,
        }
    }
}

/// A compressor, and a buffer for its frames: nobody knows before how long a frame will be, and a buffer for the longest one would be
/// taken from the system and given back for each.
struct Press {
    compressor: Compressor<'static>,
    frame: Vec<u8>,
}

impl Press {
    fn new() -> std::io::Result<Self> {
        Ok(Self { compressor: Compressor::new(LEVEL)?, frame: Vec::new() })
    }

    /// Compresses into the frame and gives its length.
    fn press(&mut self, input: &[u8]) -> Option<usize> {
        self.frame.clear();
        self.frame.reserve(zstd::zstd_safe::compress_bound(input.len()));
        self.compressor.compress_to_buffer(input, &mut self.frame).ok()
    }

    /// Whether the first bytes shrink enough.
    fn helps(&mut self, input: &[u8], worth: Worth) -> bool {
        if input.len() <= PROBE {
            return !input.is_empty(); // Trying it all costs no more than trying a part.
        }
        self.press(&input[..PROBE]).is_some_and(|size| size < worth.most())
    }

    /// Whether the frame holds the input, and is shorter.
    fn shrinks(&mut self, input: &[u8], worth: Worth) -> bool {
        self.helps(input, worth) && self.press(input).is_some_and(|size| size < input.len())
    }
}

/// Appends `input` to `out`, compressed if that pays, and says whether it is. `out` has room for `tail` bytes more then, and for no
/// others that it had not before.
pub(crate) fn append(out: &mut Vec<u8>, input: &[u8], worth: Worth, tail: usize) -> bool {
    let press = borrow(&COMPRESSORS, Press::new);
    let shrunk = press.is_some_and(|mut press| {
        let shrinks = press.shrinks(input, worth);
        if shrinks {
            out.reserve_exact(press.frame.len() + tail);
            out.extend_from_slice(&press.frame);
        }
        if press.frame.capacity() > KEPT_FRAME {
            press.frame = Vec::new();
        }
        give_back(&COMPRESSORS, press);
        shrinks
    });
    if !shrunk {
        out.reserve_exact(input.len() + tail);
        out.extend_from_slice(input);
    }
    shrunk
}

/// Inflates a frame into exactly `room`.
pub(crate) fn inflate(frame: &[u8], room: &mut [u8]) -> Result<(), NotInflated> {
    let mut decompressor = borrow(&DECOMPRESSORS, Decompressor::new).ok_or(NotInflated)?;
    let size = decompressor.decompress_to_buffer(frame, room);
    give_back(&DECOMPRESSORS, decompressor);
    match size {
        Ok(size) if size == room.len() => Ok(()),
        Ok(_) | Err(_) => Err(NotInflated),
    }
}

/// Inflates a frame into a fresh buffer of exactly `len` bytes; `len` comes from the caller, never from the frame.
pub(crate) fn inflated(frame: &[u8], len: usize) -> Result<Vec<u8>, NotInflated> {
    let mut decompressor = borrow(&DECOMPRESSORS, Decompressor::new).ok_or(NotInflated)?;
    let mut room = Vec::with_capacity(len);
    let size = decompressor.decompress_to_buffer(frame, &mut room);
    give_back(&DECOMPRESSORS, decompressor);
    match size {
        Ok(size) if size == len => Ok(room),
        Ok(_) | Err(_) => Err(NotInflated),
    }
}

fn borrow<T>(pool: &Mutex<Vec<T>>, make: impl Fn() -> std::io::Result<T>) -> Option<T> {
    let kept = pool.lock().pop();
    kept.or_else(|| make().ok())
}

fn give_back<T>(pool: &Mutex<Vec<T>>, context: T) {
    let mut pool = pool.lock();
    if pool.len() < KEPT {
        pool.push(context);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn gives_back_what_it_took(input in prop::collection::vec(any::<u8>(), 0..40_000), repeat in 1usize..4) {
            let input = input.repeat(repeat);
            let mut out = b"head".to_vec();
            let shrunk = append(&mut out, &input, Worth::Third, 3);
            prop_assert!(out.capacity() - out.len() >= 3);
            prop_assert_eq!(&out[..4], b"head");
            let back = if shrunk { inflated(&out[4..], input.len()).unwrap() } else { out[4..].to_vec() };
            prop_assert_eq!(back, input);
        }
    }

    #[test]
    fn refuses_a_frame_that_is_longer_or_shorter_than_known() {
        let mut frame = Vec::new();
        assert!(append(&mut frame, &[b'a'; 1 << 20], Worth::Third, 0));
        assert!(frame.len() < 1000);
        assert_eq!(inflated(&frame, (1 << 20) - 1), Err(NotInflated));
        assert_eq!(inflated(&frame, (1 << 20) + 1), Err(NotInflated));
        assert_eq!(inflate(&frame, &mut [0; 10]), Err(NotInflated));
        assert_eq!(inflated(&frame[..frame.len() - 1], 1 << 20), Err(NotInflated));
        assert_eq!(inflated(b"no frame", 8), Err(NotInflated));
    }

    #[test]
    fn leaves_what_does_not_shrink_enough() {
        let mut noise = vec![0; 300_000];
        aws_lc_rs::rand::fill(&mut noise).unwrap();
        let mut out = Vec::new();
        assert!(!append(&mut out, &noise, Worth::Tenth, 0));
        assert_eq!(out, noise);
        // As base64 it has six bits of content in each byte.
        let letters: Vec<u8> = noise.iter().map(|byte| b'0' + (byte & 63)).collect();
        for (worth, shrinks) in [(Worth::Tenth, true), (Worth::Third, false)] {
            assert_eq!(append(&mut Vec::new(), &letters, worth, 0), shrinks, "{worth:?}");
        }
    }
}
