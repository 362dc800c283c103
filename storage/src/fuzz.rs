//! Everything that reads what rests, as functions of any bytes: for fuzzers and for tests that replay what these found.
//!
//! They may refuse what they are given; they must not panic, and what they take apart has to come back as it was. Sealed
//! inputs are sealed here first, by keys that everybody knows, since no fuzzer would ever guess a tag.

use std::{io::Cursor, sync::Arc};

use bytes::Bytes;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use uuid::Uuid;

use crate::{
    Keyring, Store, StoreOptions,
    backend::{
        embedded::{self, Embedded},
        tiered::pointer,
    },
    chunk::{self, ChunkRef},
    keyring,
    record::{self, Packed, Payload, Record, Sealed},
    seal::DataKey,
    store::{archive, manifest, path},
};

/// Where the records of fuzzers rest.
const PATH: &[u8] = b"/registry/g.io/rs/ns/name";
const UID: Uuid = Uuid::from_u128(7);
/// What is taken from the input as a length is not more than this, as in what the callers of decoders check.
const MOST: u32 = 1 << 20;

/// An `EncryptionConfiguration` with every provider that works without a service.
pub const PROVIDERS: &str = "
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: ['*.*']
  providers:
  - aesgcm: {keys: [{name: a, secret: AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=}]}
  - secretbox: {keys: [{name: a, secret: AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=}]}
  - aescbc: {keys: [{name: a, secret: AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=}]}
  - kms: {apiVersion: v2, name: main, endpoint: 'unix:///nowhere/kms.sock'}
  - identity: {}
";

fn key() -> DataKey {
    DataKey::from_bytes(&[7; 32]).expect("32 bytes")
}

/// A record as it rests, and the same bytes as the body of one that is sealed well.
pub fn record(input: &[u8]) {
    if let Ok(sealed) = Sealed::parse(Bytes::copy_from_slice(input)) {
        let _ = sealed.open(PATH, &key());
    }
    let Ok(record) = record::decode(Bytes::copy_from_slice(input)) else { return };
    if let Payload::Inline(packed) = &record.payload {
        let _ = packed.unpack();
    }
    let cipher = key().cipher().expect("a cipher");
    let Ok(value) = record.seal(PATH, UID, &cipher, b"wrapped") else { return };
    let again =
        Sealed::parse(value).and_then(|sealed| sealed.open(PATH, &key())).expect("what was sealed opens");
    assert_eq!((&again.meta, &again.summary), (&record.meta, &record.summary));
    assert_eq!((again.payload_len, again.token), (record.payload_len, record.token));
    assert_eq!(again.payload.chunks(), record.payload.chunks());
}

/// A chunk as it rests, and the same bytes, after flags and a length, as the content of one that is sealed well.
pub fn chunk(input: &[u8]) {
    let (cipher, id) = (key().cipher().expect("a cipher"), chunk::name([1; 16], 2, 3));
    let open = |len, value| chunk::open(&cipher, UID, &ChunkRef { id, len }, value);
    let _ = open(MOST, Bytes::copy_from_slice(input));
    let Some((flags, rest)) = input.split_first() else { return };
    let Some((len, content)) = rest.split_first_chunk::<4>() else { return };
    let len = u32::from_be_bytes(*len) % (MOST + 1);
    let value = chunk::sealed_raw(&cipher, UID, &id, flags & 1, content).expect("sealed");
    let mut room = vec![0; len as usize];
    let into = chunk::open_into(&cipher, UID, &ChunkRef { id, len }, value.clone(), &mut room);
    match open(len, value) {
        Ok(plain) => assert!(into.is_ok() && plain == room, "two ways to open a chunk differ"),
        Err(_) => assert!(into.is_err(), "two ways to open a chunk differ"),
    }
}

/// Reads the input as an `EncryptionConfiguration`, where it is UTF-8.
pub fn configuration(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Ok(keys) = Keyring::parse(text) {
        let _ = keys.failing();
    }
}

/// A wrapped data key, as each of the providers would have left it.
#[derive(Debug)]
pub struct Wrapped {
    runtime: Runtime,
    keys: Keyring,
}

impl Wrapped {
    /// Reads the keys of [`PROVIDERS`].
    #[must_use]
    pub fn begin() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { runtime, keys: Keyring::parse(PROVIDERS).expect("keys") }
    }

    /// Reads the input as a wrapped data key: it may be refused, and what unwraps has 32 bytes.
    pub fn attempt(&self, input: &[u8]) {
        let object = path::parse_record(PATH).expect("a key");
        let _ = self.keys.keeps(&object, input);
        let _ = keyring::label(input);
        if let Ok(unwrapped) = self.runtime.block_on(self.keys.unwrap(&object, PATH, input)) {
            assert_eq!(unwrapped.key.bytes().len(), 32);
        }
    }
}

/// What stands in the place of a value that is in an object store.
pub fn pointer(input: &[u8]) {
    if let Some(pointer) = pointer::Pointer::read(input) {
        assert!(pointer::is_like(input));
        assert_eq!(pointer.bytes(), input);
    }
}

/// Paths of all kinds. One that is understood is the one that would be made of what was understood.
pub fn paths(input: &[u8]) {
    let bytes = Bytes::copy_from_slice(input);
    if let Some(key) = path::parse_record(input)
        && let Ok(again) = path::record(&key)
    {
        assert_eq!(again, bytes);
    }
    match path::parse_chunk(&bytes) {
        Some(path::Beneath::Chunk(uid, id)) => drop(path::chunk(uid, &id)),
        Some(path::Beneath::Owner(uid, record)) => drop(path::owner(uid, &record)),
        None => {}
    }
    let _ = (path::parse_intent(input), path::parse_quarantined(&bytes));
    let _ = (path::parse_manifest(input), manifest::read(input));
}

/// The parts of an archive; its begin and its hash are made to fit.
#[derive(Debug)]
pub struct Archive {
    runtime: Runtime,
    store: Store,
    /// Where the store rests.
    _dir: TempDir,
}

impl Archive {
    /// Opens an empty store.
    #[must_use]
    pub fn begin() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let dir = tempfile::tempdir().expect("a directory");
        let store = runtime.block_on(async {
            let options = embedded::Options { min_free_bytes: 0, ..embedded::Options::default() };
            let backend = Arc::new(Embedded::open(dir.path(), options).await.expect("a backend"));
            let keys = Keyring::parse(PROVIDERS).expect("keys").into();
            Store::open(backend, keys, StoreOptions::default()).await.expect("a store")
        });
        Self { runtime, store, _dir: dir }
    }

    /// Imports the input as an archive: as it is, and with the magic and a hash that fits.
    pub fn attempt(&self, input: &[u8]) {
        let mut whole = b"REPOTAR1".to_vec();
        whole.extend_from_slice(input);
        let hash = blake3::hash(&whole);
        whole.extend_from_slice(hash.as_bytes());
        self.import(&whole);
        self.import(input);
    }

    fn import(&self, file: &[u8]) {
        let _ = self.runtime.block_on(self.store.import(Cursor::new(file), archive::Existing::Skip, |_| {}));
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        self.runtime.block_on(self.store.close());
    }
}

/// Something for each of these to begin with, by the name of the function.
pub async fn samples(keys: &Keyring) -> Vec<(&'static str, Bytes)> {
    let object = path::parse_record(PATH).expect("a key");
    let wrapped = keys.wrap(&object, PATH, &key()).await.expect("wrapped");
    let (cipher, id) = (key().cipher().expect("a cipher"), chunk::name([1; 16], 2, 3));
    let text = b"{\"kind\":\"Machine\",\"name\":\"worker-1\"},".repeat(40);
    let chunks = [ChunkRef { id, len: 1000 }, ChunkRef { id, len: 24 }];
    let mut samples = Vec::new();
    for (payload, len) in [
        (Payload::Inline(Packed::new(&text)), text.len() as u64),
        (Payload::Inline(Packed::new(b"short")), 5),
        (Payload::Chunks(chunks.as_slice().into()), 1024),
    ] {
        let (meta, summary) = (Bytes::from(text.clone()), Bytes::from_static(b"summary"));
        let record = Record { meta, summary, payload_len: len, token: [9; 16], payload };
        samples.push(("record", record::encode(&record).into()));
        samples.push(("record", record.seal(PATH, UID, &cipher, &wrapped).expect("sealed")));
    }
    let mut content = vec![0, 0, 0, 0, 0];
    content[1..].copy_from_slice(&(text.len() as u32).to_be_bytes());
    content[0] = u8::from(crate::compress::append(&mut content, &text, crate::compress::Worth::Tenth, 0));
    samples.push(("chunk", content.into()));
    samples.push((
        "chunk",
        chunk::seal(&cipher, UID, &id, &text, crate::compress::Worth::Tenth).expect("sealed"),
    ));
    samples.push(("pointer", pointer::Pointer { name: UID, len: 300_000 }.bytes()));
    samples.push(("wrapped", wrapped));
    for path in [path::record(&object).expect("a path"), path::chunk(UID, &id), path::owner(UID, PATH)] {
        samples.push(("paths", path));
    }
    samples.push(("paths", path::intent(77)));
    samples.push(("paths", path::manifest(77, 1, UID)));
    samples.push(("paths", path::quarantined(PATH, crate::backend::Revision(8))));
    samples
}
