//! From a URL to an object store, and whether it is the one that belongs to a backend.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use bytes::Bytes;
use object_store::{
    ClientOptions, ObjectStore, ObjectStoreExt, PutMode, RetryConfig, aws::AmazonS3Builder,
    azure::MicrosoftAzureBuilder, gcp::GoogleCloudStorageBuilder, local::LocalFileSystem, path::Path,
};
use parking_lot::Mutex;
use url::Url;
use uuid::Uuid;

use super::{MARKER, Options, Shelf, Tiered};
use crate::backend::{Backend, Compare, Error, Op, Outcome, Result, Revision, Txn};

/// The object that says which store the others belong to.
const OWN: &str = "repot-store";
/// What stands before the name of a store in its marker until [`OWN`] is known to be there.
const FOUNDING: &str = "founding ";
/// How often a request is tried again.
const RETRIES: usize = 3;
const CONNECT: Duration = Duration::from_secs(3);

/// Environment variables.
pub type Environment = BTreeMap<String, String>;

impl Tiered {
    /// Puts large values of a backend into the object store at a URL.
    ///
    /// | URL | variables |
    /// |---|---|
    /// | `file:///directory` | none |
    /// | `s3://bucket/prefix` | `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT`, `AWS_ALLOW_HTTP`, … |
    /// | `gs://bucket/prefix` | `GOOGLE_SERVICE_ACCOUNT` (a file), `GOOGLE_SERVICE_ACCOUNT_KEY`, `GOOGLE_APPLICATION_CREDENTIALS`, … |
    /// | `az://container/prefix` | `AZURE_STORAGE_ACCOUNT_NAME`, `AZURE_STORAGE_ACCOUNT_KEY`, `AZURE_STORAGE_SAS_TOKEN`, … |
    ///
    /// # Errors
    /// [`Error::Refused`] for a URL that names none, and where the objects there belong to another store or those of this one
    /// are elsewhere; [`Error::Unavailable`].
    pub async fn open(
        inner: Arc<dyn Backend>,
        url: &str,
        environment: &Environment,
        options: Options,
    ) -> Result<Self> {
        let (objects, root) = reach(url, environment)?;
        let shelf = Shelf {
            objects,
            root,
            url: url.to_owned(),
            options,
            bytes: AtomicU64::new(0),
            suspects: Mutex::new(HashMap::new()),
        };
        let tiered = Self { inner, shelf: Arc::new(shelf) };
        tiered.recognise().await?;
        Ok(tiered)
    }

    /// Makes sure that backend and object store belong together, or makes them so.
    async fn recognise(&self) -> Result<()> {
        let known = match self.marker().await? {
            Some((known, _)) => known,
            None => {
                let name = format!("{FOUNDING}{}", Uuid::new_v4());
                // Another replica may be quicker; then it is that one's name.
                self.mark(&name, Revision(0)).await?;
                self.marker().await?.map(|(known, _)| known).unwrap_or_default()
            }
        };
        let own = self.shelf.root.clone().join(OWN);
        let url = &self.shelf.url;
        if let Some(name) = known.strip_prefix(FOUNDING) {
            let body = Bytes::copy_from_slice(name.as_bytes()).into();
            let put = self.shelf.objects.put_opts(&own, body, PutMode::Create.into());
            match tokio::time::timeout(self.shelf.options.timeout, put).await {
                Ok(Ok(_) | Err(object_store::Error::AlreadyExists { .. })) => {}
                Ok(Err(error)) => return Err(self.shelf.error(&error)),
                Err(_) => return Err(Error::Unavailable(format!("{url} does not answer"))),
            }
        }
        let read = async { self.shelf.objects.get(&own).await?.bytes().await };
        let there = match self.shelf.within(read).await {
            Err(Error::Corrupt(_)) => {
                return Err(Error::Refused(format!("the objects of this store are not in {url}")));
            }
            there => there?,
        };
        let name = known.strip_prefix(FOUNDING).unwrap_or(&known);
        if there != name.as_bytes() {
            return Err(Error::Refused(format!("what is in {url} belongs to another store")));
        }
        if known.starts_with(FOUNDING)
            && let Some((_, modified)) = self.marker().await?.filter(|(now, _)| *now == known)
        {
            self.mark(name, modified).await?;
        }
        Ok(())
    }

    async fn marker(&self) -> Result<Option<(String, Revision)>> {
        let found = self.inner.get(MARKER.into(), None).await?;
        Ok(found.map(|kv| (String::from_utf8_lossy(&kv.value).into_owned(), kv.modified)))
    }

    async fn mark(&self, name: &str, modified: Revision) -> Result<Outcome> {
        let compares = vec![Compare::ModifiedAt(MARKER.into(), modified)];
        let value = Bytes::copy_from_slice(name.as_bytes());
        self.inner.txn(Txn { compares, ops: vec![Op::Put(MARKER.into(), value)] }).await
    }
}

fn reach(url: &str, environment: &Environment) -> Result<(Arc<dyn ObjectStore>, Path)> {
    let refuse = |why: String| Error::Refused(format!("this is no object store for chunks: {why}"));
    let parsed = Url::parse(url).map_err(|error| refuse(error.to_string()))?;
    if !parsed.username().is_empty() || parsed.password().is_some() || parsed.query().is_some() {
        return Err(refuse("credentials belong into environment variables".into()));
    }
    if parsed.scheme() == "file" {
        let directory = parsed.to_file_path().map_err(|()| refuse("it names no directory".into()))?;
        let root = Path::from_absolute_path(&directory).map_err(|error| refuse(error.to_string()))?;
        return Ok((Arc::new(LocalFileSystem::new().with_fsync(true)), root));
    }
    let Some(bucket) = parsed.host_str().filter(|host| !host.is_empty()) else {
        return Err(refuse("it names no bucket".into()));
    };
    let root = Path::from_url_path(parsed.path()).map_err(|error| refuse(error.to_string()))?;
    let retry = RetryConfig {
        max_retries: RETRIES,
        retry_timeout: Duration::from_secs(10),
        ..RetryConfig::default()
    };
    let client = ClientOptions::new().with_connect_timeout(CONNECT);
    let known = environment.iter().map(|(name, value)| (name.to_ascii_lowercase(), value));
    let opened: Result<Arc<dyn ObjectStore>, object_store::Error> = match parsed.scheme() {
        "s3" | "s3a" => {
            let known = known.filter_map(|(name, value)| Some((name.parse().ok()?, value)));
            let with = AmazonS3Builder::new().with_client_options(client).with_retry(retry);
            let builder = known.fold(with, |with, (key, value)| with.with_config(key, value));
            builder.with_bucket_name(bucket).build().map(|store| Arc::new(store) as _)
        }
        "gs" | "gcs" => {
            let known = known.filter_map(|(name, value)| Some((name.parse().ok()?, value)));
            let with = GoogleCloudStorageBuilder::new().with_client_options(client).with_retry(retry);
            let builder = known.fold(with, |with, (key, value)| with.with_config(key, value));
            builder.with_bucket_name(bucket).build().map(|store| Arc::new(store) as _)
        }
        "az" | "azblob" | "azure" | "abs" => {
            let known = known.filter_map(|(name, value)| Some((name.parse().ok()?, value)));
            let with = MicrosoftAzureBuilder::new().with_client_options(client).with_retry(retry);
            let builder = known.fold(with, |with, (key, value)| with.with_config(key, value));
            builder.with_container_name(bucket).build().map(|store| Arc::new(store) as _)
        }
        _ => return Err(refuse("it begins with none of file:, s3:, gs: and az:".into())),
    };
    Ok((opened.map_err(|error| refuse(error.to_string()))?, root))
}
