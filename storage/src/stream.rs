//! Sealed streams: bytes of any length, sealed piece by piece as they come, for what does not rest in a [`Store`](crate::Store).
//!
//! ```text
//! "REPOTSS1"                          8 bytes
//! length of the wrapped key           4 bytes, big-endian
//! wrapped key                         as the keyring wraps the data key of an object
//! frame, again and again:
//!   1 in the last one, 0 otherwise    1 byte
//!   length of what follows            4 bytes, big-endian
//!   nonce, ciphertext, tag            of at most 256 KiB
//! ```
//!
//! Every stream has a random key of its own, bound to the key of its object. The associated data of a frame is its number and whether it is the
//! last one: frames cannot be altered, moved, swapped, left out or taken from another stream unnoticed, and a stream cannot be cut.

use std::io::{self, BufRead, Read};

use bytes::{BufMut, Bytes, BytesMut};

use crate::{
    Key, Keyring, keyring,
    seal::{Cipher, DataKey, NONCE, TAG},
};

/// Of the first version.
const MAGIC: &[u8; 8] = b"REPOTSS1";
/// The largest key that is read: services wrap into a few hundred bytes.
const WRAPPED: usize = 64 << 10;
/// Plaintext of a frame that is not the last one.
pub const FRAME: usize = 256 << 10;
const HEAD: usize = 5;

/// Why a stream is not sealed, or not opened. Holds nothing of what is in it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its key cannot be wrapped or unwrapped.
    #[error(transparent)]
    Keys(#[from] keyring::Error),
    /// It would rest in clear.
    #[error("the first provider for {0} is identity, which seals nothing; put another one first")]
    Clear(String),
    /// The cipher refused to seal.
    #[error("the cipher refused to seal")]
    Cipher,
    /// It does not begin as a sealed stream does.
    #[error("it is no sealed stream of a version that is known here")]
    Foreign,
    /// A frame is not what was written there.
    #[error("frame {0} was altered or moved")]
    Altered(u64),
    /// It ends before its last frame.
    #[error("it is cut off")]
    Cut,
    /// It goes on after its last frame.
    #[error("bytes follow after its end")]
    Leftover,
    /// It cannot be read.
    #[error("failed to read the sealed stream")]
    Read(#[source] io::Error),
}

impl Error {
    /// Whether the stream is to blame, and not the keys or the way to it.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Foreign | Self::Altered(_) | Self::Cut | Self::Leftover => true,
            Self::Keys(_) | Self::Clear(_) | Self::Cipher | Self::Read(_) => false,
        }
    }
}

/// The result of this module's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a data key is bound to.
fn place(object: &Key) -> Vec<u8> {
    let Key { group, resource, namespace, name } = object;
    format!("/streams/{group}/{resource}/{namespace}/{name}").into_bytes()
}

/// Seals the frames of one stream, in order.
#[derive(Debug)]
pub struct Sealer {
    cipher: Cipher,
    plain: BytesMut,
    frames: u64,
}

impl Sealer {
    /// Begins a stream with a fresh key. The second value is what it begins with.
    ///
    /// # Errors
    /// [`Error::Keys`], and [`Error::Clear`] where the keyring would leave its key in clear.
    pub async fn begin(keys: &Keyring, object: &Key) -> Result<(Self, Bytes)> {
        if !keys.seals(object)? {
            return Err(Error::Clear(format!("{}.{}", object.resource, object.group)));
        }
        let key = DataKey::random().map_err(|_| Error::Cipher)?;
        let wrapped = keys.wrap(object, &place(object), &key).await?;
        let length = u32::try_from(wrapped.len()).map_err(|_| Error::Cipher)?;
        let mut header = BytesMut::with_capacity(MAGIC.len() + 4 + wrapped.len());
        header.put_slice(MAGIC);
        header.put_u32(length);
        header.put_slice(&wrapped);
        let cipher = key.streaming().map_err(|_| Error::Cipher)?;
        Ok((Self { cipher, plain: BytesMut::new(), frames: 0 }, header.freeze()))
    }

    /// Takes bytes, and gives the frames that they complete; none as long as there are too few.
    ///
    /// # Errors
    /// [`Error::Cipher`].
    pub fn push(&mut self, bytes: &[u8]) -> Result<Bytes> {
        self.plain.extend_from_slice(bytes);
        let mut out = Vec::new();
        // One is kept back: it may be the last.
        while self.plain.len() > FRAME {
            let frame = self.plain.split_to(FRAME);
            self.seal(&frame, false, &mut out)?;
        }
        Ok(out.into())
    }

    /// The last frame.
    ///
    /// # Errors
    /// [`Error::Cipher`].
    pub fn finish(mut self) -> Result<Bytes> {
        let (plain, mut out) = (self.plain.split(), Vec::new());
        self.seal(&plain, true, &mut out)?;
        Ok(out.into())
    }

    fn seal(&mut self, plain: &[u8], last: bool, out: &mut Vec<u8>) -> Result<()> {
        let length = u32::try_from(NONCE + plain.len() + TAG).map_err(|_| Error::Cipher)?;
        out.reserve(HEAD + NONCE + plain.len() + TAG);
        out.put_u8(last.into());
        out.put_u32(length);
        let start = out.len();
        out.put_bytes(0, NONCE);
        out.put_slice(plain);
        self.cipher.seal(start, &associated(self.frames, last), out).map_err(|_| Error::Cipher)?;
        self.frames += 1;
        Ok(())
    }
}

fn associated(frame: u64, last: bool) -> [u8; 9] {
    let mut bytes = [u8::from(last); 9];
    bytes[..8].copy_from_slice(&frame.to_be_bytes());
    bytes
}

/// The wrapped key of a stream.
#[derive(Debug)]
pub struct Wrapped(Vec<u8>);

impl Wrapped {
    /// Reads what a stream begins with; the thread is blocked meanwhile.
    ///
    /// # Errors
    /// [`Error::Foreign`], [`Error::Cut`], [`Error::Read`].
    pub fn read(from: &mut impl Read) -> Result<Self> {
        let (mut magic, mut length) = ([0; MAGIC.len()], [0; 4]);
        fill(from, &mut magic)?;
        fill(from, &mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if magic != *MAGIC || length > WRAPPED {
            return Err(Error::Foreign);
        }
        let mut wrapped = vec![0; length];
        fill(from, &mut wrapped)?;
        Ok(Self(wrapped))
    }

    /// What opens the frames.
    ///
    /// # Errors
    /// [`Error::Keys`]: whether the key was altered or the wrong ones are configured cannot be told.
    pub async fn open(&self, keys: &Keyring, object: &Key) -> Result<Opener> {
        let unwrapped = keys.unwrap(object, &place(object), &self.0).await?;
        let cipher = unwrapped.key.streaming().map_err(|_| Error::Cipher)?;
        Ok(Opener { cipher, frames: 0, ended: false })
    }
}

/// Opens the frames of one stream, in order.
#[derive(Debug)]
pub struct Opener {
    cipher: Cipher,
    frames: u64,
    ended: bool,
}

impl Opener {
    /// The next bytes; `None` at the end, which is an end only where nothing follows. The thread is blocked meanwhile.
    ///
    /// # Errors
    /// [`Error`]; the stream is over then.
    pub fn frame(&mut self, from: &mut impl BufRead) -> Result<Option<Bytes>> {
        if self.ended {
            return match from.fill_buf().map_err(Error::Read)?.is_empty() {
                true => Ok(None),
                false => Err(Error::Leftover),
            };
        }
        let mut head = [0; HEAD];
        fill(from, &mut head)?;
        let [last, length @ ..] = head;
        let (last, length) = (last != 0, u32::from_be_bytes(length) as usize);
        if head[0] > 1 || !(NONCE + TAG..=NONCE + FRAME + TAG).contains(&length) {
            return Err(Error::Altered(self.frames));
        }
        let mut frame = vec![0; length];
        fill(from, &mut frame)?;
        let opened = self.cipher.open(&associated(self.frames, last), &mut frame);
        let range = opened.map_err(|_| Error::Altered(self.frames))?;
        self.frames += 1;
        self.ended = last;
        Ok(Some(Bytes::from(frame).slice(range)))
    }
}

fn fill(from: &mut impl Read, buffer: &mut [u8]) -> Result<()> {
    from.read_exact(buffer).map_err(|error| match error.kind() {
        // Of `read_exact` itself: a reader that has a reason of its own says so.
        io::ErrorKind::UnexpectedEof if error.get_ref().is_none() => Error::Cut,
        _ => Error::Read(error),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const KEYS: &str = r#"{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": [{
        "resources": ["*.*"], "providers": [{"aesgcm": {"keys": [{"name": "a", "secret": "MDEyMzQ1Njc4OWFiY2RlZg=="}]}}]}]}"#;

    fn key(name: &str) -> Key {
        Key { group: "g".into(), resource: "rs".into(), namespace: String::new(), name: name.into() }
    }

    async fn sealed(plain: &[u8], piece: usize) -> Vec<u8> {
        let keys = Keyring::parse(KEYS).unwrap();
        let (mut sealer, header) = Sealer::begin(&keys, &key("n")).await.unwrap();
        let mut out = header.to_vec();
        for piece in plain.chunks(piece) {
            out.extend(sealer.push(piece).unwrap());
        }
        out.extend(sealer.finish().unwrap());
        out
    }

    async fn opened(mut from: &[u8], name: &str) -> Result<Vec<u8>> {
        let keys = Keyring::parse(KEYS).unwrap();
        let mut opener = Wrapped::read(&mut from)?.open(&keys, &key(name)).await?;
        let mut plain = Vec::new();
        while let Some(bytes) = opener.frame(&mut from)? {
            plain.extend(bytes);
        }
        Ok(plain)
    }

    #[tokio::test]
    async fn what_was_sealed_is_opened_whatever_its_length() {
        for length in [0, 1, FRAME - 1, FRAME, FRAME + 1, 3 * FRAME, 3 * FRAME + 7] {
            let plain: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            for piece in [1000, FRAME, 5 * FRAME] {
                let sealed = sealed(&plain, piece).await;
                assert!(length < 32 || !sealed.windows(32).any(|part| part == &plain[..32]));
                assert_eq!(opened(&sealed, "n").await.unwrap(), plain, "{length} by {piece}");
            }
        }
    }

    #[tokio::test]
    async fn nothing_is_altered_moved_cut_or_added_unnoticed() {
        let plain = vec![7; 2 * FRAME + 10];
        let good = sealed(&plain, FRAME).await;
        for at in (0..good.len()).step_by(997).chain(0..200).chain(good.len() - 50..good.len()) {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(opened(&bad, "n").await.is_err(), "byte {at}");
        }
        let frame = HEAD + NONCE + FRAME + TAG;
        let first = good.len() - (frame - FRAME + 10) - 2 * frame;
        let (head, frames) = good.split_at(first);
        let swapped = [head, &frames[frame..2 * frame], &frames[..frame], &frames[2 * frame..]].concat();
        assert!(matches!(opened(&swapped, "n").await, Err(Error::Altered(0))));
        let without = [head, &frames[frame..]].concat();
        assert!(matches!(opened(&without, "n").await, Err(Error::Altered(0))));
        for cut in [0, 5, 11, first - 1, first, first + frame, good.len() - 1] {
            let error = opened(&good[..cut], "n").await.unwrap_err();
            assert!(matches!(error, Error::Cut) && error.is_damage(), "{cut}: {error:?}");
        }
        let more = [good.as_slice(), b"x"].concat();
        assert!(matches!(opened(&more, "n").await, Err(Error::Leftover)));
        let error = opened(&good, "m").await.unwrap_err();
        // This keyring has opened nothing before: the key may be another one under the same name.
        assert!(matches!(error, Error::Keys(keyring::Error::WrongKey)) && !error.is_damage(), "{error:?}");
    }

    #[tokio::test]
    async fn nothing_is_sealed_under_a_key_in_clear() {
        let clear = KEYS.replace(r#"{"aesgcm""#, r#"{"identity": {}}, {"aesgcm""#);
        let keys = Keyring::parse(&clear).unwrap();
        assert!(matches!(Sealer::begin(&keys, &key("n")).await, Err(Error::Clear(_))));
        // What was sealed before is read.
        let good = sealed(b"text", 9).await;
        assert!(Wrapped::read(&mut &good[..]).unwrap().open(&keys, &key("n")).await.is_ok());
        let elsewhere = Keyring::parse(&KEYS.replace("*.*", "others.g")).unwrap();
        let error = Sealer::begin(&elsewhere, &key("n")).await.unwrap_err();
        assert!(matches!(error, Error::Keys(keyring::Error::Uncovered(_))));
    }
}
