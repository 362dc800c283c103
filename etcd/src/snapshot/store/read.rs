//! Reading objects: in large pieces, and a large object of a remote store by several requests at once.

use std::{fs::File, io::Read, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, future, stream, stream::BoxStream};
use object_store::{Attribute, Attributes, GetOptions, GetRange, GetResultPayload, ObjectStore, path::Path};
use tokio::{sync::mpsc, task::spawn_blocking};

use super::{Error, Result, Store, Stored};

/// Metadata by which etcd-backup-restore marks objects that are not to be listed.
const EXCLUDED: &str = "x-etcd-snapshot-exclude";
/// Read from a file at once: it is still in the processor's cache when it is hashed.
const PIECE_BYTES: u64 = 256 << 10;
/// How many pieces may wait.
const PIECES: usize = 4;
/// Asked of a remote store at once. One connection to it is slow where it is far, and several are not.
const RANGE_BYTES: u64 = 4 << 20;
/// How many ranges are on their way at once.
const RANGES: usize = 8;

type Pieces<E> = BoxStream<'static, Result<Bytes, E>>;

/// A snapshot that is being read.
pub struct Reading {
    /// Its bytes, as they are in the store.
    pub bytes: BoxStream<'static, Result<Bytes>>,
    /// Whether other tools are told to leave it out.
    pub marked: bool,
}

impl Store {
    /// The bytes of a snapshot, as they are in the store. A snapshot that was replaced since it was listed is an error.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub async fn read(&self, snapshot: &Stored) -> Result<Reading> {
        let failed = |place: String| {
            move |source: object_store::Error| Error::Read { place: place.clone(), source: source.into() }
        };
        let place = self.place(&snapshot.path);
        let (bytes, attributes) = self.fetch(snapshot).await.map_err(failed(place.clone()))?;
        Ok(Reading { bytes: bytes.map_err(failed(place)).boxed(), marked: is_mark(&attributes) })
    }

    async fn fetch(
        &self,
        snapshot: &Stored,
    ) -> object_store::Result<(Pieces<object_store::Error>, Attributes)> {
        let options = GetOptions { if_match: snapshot.e_tag.clone(), ..GetOptions::default() };
        if self.directory.is_none() && snapshot.bytes > RANGE_BYTES {
            return fetch_in_ranges(Arc::clone(&self.objects), snapshot, options).await;
        }
        let got = self.objects.get_opts(&snapshot.path, options).await?;
        let attributes = got.attributes.clone();
        let pieces = match got.payload {
            GetResultPayload::File(file, _) => read_file(file),
            GetResultPayload::Stream(stream) => stream,
        };
        Ok((pieces, attributes))
    }
}

/// Whether these are the attributes of an object that is not to be listed.
pub(super) fn is_mark(attributes: &Attributes) -> bool {
    attributes.get(&Attribute::Metadata(EXCLUDED.into())).is_some_and(|value| value.as_ref() == "true")
}

/// The first range tells what the object is like; the others are asked for while it is used.
async fn fetch_in_ranges(
    objects: Arc<dyn ObjectStore>,
    snapshot: &Stored,
    options: GetOptions,
) -> object_store::Result<(Pieces<object_store::Error>, Attributes)> {
    let (path, end) = (snapshot.path.clone(), snapshot.bytes);
    let range = move |start: u64| {
        let range = GetRange::Bounded(start..end.min(start + RANGE_BYTES));
        GetOptions { range: Some(range), ..options.clone() }
    };
    let first = objects.get_opts(&path, range(0)).await?;
    // What is beyond would not be seen.
    if first.meta.size != end {
        let source = format!("{path} has {} bytes in place of {end}", first.meta.size).into();
        return Err(object_store::Error::Generic { store: "ranges", source });
    }
    let attributes = first.attributes.clone();
    let starts = (1..end.div_ceil(RANGE_BYTES)).map(|at| at * RANGE_BYTES);
    let rest = stream::iter(starts).map(move |start| get(Arc::clone(&objects), path.clone(), range(start)));
    // The others are not begun before the first one is read.
    Ok((first.into_stream().chain(rest.buffered(RANGES)).boxed(), attributes))
}

async fn get(objects: Arc<dyn ObjectStore>, path: Path, options: GetOptions) -> object_store::Result<Bytes> {
    // On a task of its own, so that it comes in while what came before is used.
    let got = tokio::spawn(async move { objects.get_opts(&path, options).await?.bytes().await });
    got.await.unwrap_or_else(|source| Err(object_store::Error::JoinError { source }))
}

/// A thread of its own reads ahead.
fn read_file(file: File) -> Pieces<object_store::Error> {
    let (sender, mut receiver) = mpsc::channel(PIECES);
    spawn_blocking(move || {
        loop {
            let mut piece = Vec::with_capacity(PIECE_BYTES as usize);
            let outcome = (&file).take(PIECE_BYTES).read_to_end(&mut piece);
            let last = !matches!(outcome, Ok(count) if count > 0);
            let outcome = outcome.map(|_| Bytes::from(piece));
            let outcome =
                outcome.map_err(|error| object_store::Error::Generic { store: "file", source: error.into() });
            // Whoever reads no more does not want to know.
            if sender.blocking_send(outcome).is_err() || last {
                return;
            }
        }
    });
    stream::poll_fn(move |context| receiver.poll_recv(context))
        .try_filter(|piece| future::ready(!piece.is_empty()))
        .boxed()
}
