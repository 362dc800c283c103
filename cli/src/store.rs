//! Where objects rest and what seals them: the flags of every role that opens the store.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use clap::Args;
use repot_etcd::snapshot::store as snapshots;
use repot_storage::{
    Keyring, Store, StoreOptions,
    backend::{Backend, embedded, etcd, tiered},
    keyring::Follow,
    store::high_water::Guard,
};
use tokio_util::sync::CancellationToken;

use crate::serving::duration;

/// Flags that say where objects rest and what seals them.
#[derive(Args)]
pub struct StoreFlags {
    /// Where objects rest: `embedded:DIR` or `etcd`
    #[arg(long, default_value = "etcd", value_name = "STORAGE", value_parser = storage)]
    storage: Storage,
    /// EncryptionConfiguration with the keys that wrap the objects' data keys
    #[arg(long, required = true, value_name = "FILE")]
    encryption_provider_config: PathBuf,
    /// Read the EncryptionConfiguration again when it changes; another one is used when its key management services are well
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set, value_name = "BOOL")]
    encryption_provider_config_automatic_reload: bool,
    /// How long a second is to whatever follows keys; for tests, which cannot wait for minutes
    #[arg(long, hide = true, default_value = "1s", value_name = "DURATION", value_parser = duration)]
    encryption_second: Duration,
    /// URLs of etcd, with --storage=etcd
    #[arg(long, value_delimiter = ',', value_name = "URLS")]
    etcd_servers: Vec<String>,
    /// Authorities of etcd's certificates, PEM
    #[arg(long, value_name = "FILE")]
    etcd_cafile: Option<PathBuf>,
    /// Client certificate for etcd, PEM
    #[arg(long, requires = "etcd_keyfile", value_name = "FILE")]
    etcd_certfile: Option<PathBuf>,
    /// Key of the client certificate for etcd, PEM
    #[arg(long, requires = "etcd_certfile", value_name = "FILE")]
    etcd_keyfile: Option<PathBuf>,
    /// Prefix of all keys in etcd
    #[arg(long, default_value = "/repot", value_name = "PREFIX")]
    etcd_prefix: String,
    /// Where chunks of payload rest instead: `file:///DIR`, `s3://BUCKET/PREFIX`, `gs://…` or `az://…`, with credentials in the
    /// usual environment variables. Records stay; a store that has begun with one is not opened without it
    #[arg(long, value_name = "URL")]
    chunk_store: Option<String>,
    /// How long objects of the chunk store are kept after nothing names them any more. A snapshot of etcd that is older than this
    /// cannot be restored whole, so it has to be longer than snapshots are kept. All servers of a store need the same
    #[arg(long, default_value = "168h", requires = "chunk_store", value_name = "DURATION", value_parser = duration)]
    chunk_retention: Duration,
    /// Bytes of such objects at most; 0: no limit. Over it the oldest are removed earlier, and snapshots of etcd that need them
    /// cannot be restored whole. What a version that can still be read needs is kept. All servers of a store need the same
    #[arg(long, default_value_t = 0, requires = "chunk_store", value_name = "BYTES")]
    chunk_retention_max_bytes: u64,
}

/// Below this, `--chunk-retention` is taken for a mistake that is worth a warning.
const SHORT_RETENTION: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone, Debug)]
enum Storage {
    Embedded(PathBuf),
    Etcd,
}

fn storage(text: &str) -> Result<Storage, String> {
    match text.split_once(':') {
        None if text == "etcd" => Ok(Storage::Etcd),
        Some(("embedded", dir)) if !dir.is_empty() => Ok(Storage::Embedded(dir.into())),
        _ => Err("must be `etcd` or `embedded:DIR`".to_owned()),
    }
}

impl StoreFlags {
    /// Opens the store, unless it was put back to an older copy as the guard sees it. Keys are followed until `end`.
    pub async fn open(&self, end: &CancellationToken, guard: Option<Guard>) -> anyhow::Result<Store> {
        let follow = Follow {
            path: self.encryption_provider_config.clone(),
            reload: self.encryption_provider_config_automatic_reload,
            server: server(),
            second: self.encryption_second,
        };
        let keyring = Keyring::follow(follow, end.clone()).await.context("--encryption-provider-config")?;
        let backend: Arc<dyn Backend> = match &self.storage {
            Storage::Embedded(dir) => {
                let opened = embedded::Embedded::open(dir, embedded::Options::default()).await;
                Arc::new(opened.context("failed to open the embedded store")?)
            }
            Storage::Etcd if self.etcd_servers.is_empty() => bail!("--storage=etcd needs --etcd-servers"),
            Storage::Etcd => {
                Arc::new(etcd::Etcd::connect(self.etcd_options()?).await.context("failed to use etcd")?)
            }
        };
        let backend = self.tiered(backend).await?;
        let opened = Store::open_guarded(backend, keyring, StoreOptions::default(), guard).await;
        opened.context("failed to open the store")
    }

    /// Something to call the store among others of the same kube-apiserver.
    pub fn name(&self) -> String {
        let text = self.etcd_prefix.to_ascii_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let name = text.trim_matches('-');
        if name.is_empty() { "repot".to_owned() } else { name.to_owned() }
    }

    async fn tiered(&self, backend: Arc<dyn Backend>) -> anyhow::Result<Arc<dyn Backend>> {
        let Some(place) = self.chunk_objects()? else { return Ok(backend) };
        if self.chunk_retention < SHORT_RETENTION {
            let retention = self.chunk_retention.as_secs();
            tracing::warn!(
                retention,
                "snapshots of etcd older than --chunk-retention cannot be restored whole"
            );
        }
        let options = tiered::Options {
            retention: self.chunk_retention,
            retention_max_bytes: self.chunk_retention_max_bytes,
            ..tiered::Options::default()
        };
        let opened = tiered::Tiered::open(backend, place, options).await;
        Ok(Arc::new(opened.context("--chunk-store")?))
    }

    /// Where chunks are kept instead, if anywhere.
    pub fn chunk_objects(&self) -> anyhow::Result<Option<tiered::ObjectLocation>> {
        let Some(url) = &self.chunk_store else { return Ok(None) };
        let mut environment = snapshots::environment();
        // Clients wait for an answer: one that comes after their patience is of no use.
        environment.entry("STORE_PATIENCE_SECONDS".to_owned()).or_insert_with(|| "10".to_owned());
        let (objects, root) = snapshots::Store::open(url, &environment).context("--chunk-store")?.objects();
        Ok(Some(tiered::ObjectLocation { objects, root, url: url.clone() }))
    }

    /// The directory in which objects rest, where they rest in one.
    pub fn dir(&self) -> Option<&Path> {
        match &self.storage {
            Storage::Embedded(dir) => Some(dir),
            Storage::Etcd => None,
        }
    }

    fn etcd_options(&self) -> anyhow::Result<etcd::Options> {
        let mut options = etcd::Options::new(self.etcd_servers.clone(), self.etcd_prefix.clone());
        options.tls.ca_file.clone_from(&self.etcd_cafile);
        if let (Some(certificate), Some(key)) = (&self.etcd_certfile, &self.etcd_keyfile) {
            options.tls.client =
                Some(etcd::ClientFiles { certificate: certificate.clone(), key: key.clone() });
        }
        if !self.etcd_prefix.starts_with('/') {
            bail!("--etcd-prefix must start with \"/\", got {:?}", self.etcd_prefix);
        }
        Ok(options)
    }
}

/// What this server is called in metrics about keys: the machine, which for a Pod is the Pod.
pub fn server() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}
