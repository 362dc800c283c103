//! The store of objects, on every backend: each behaviour is a function of a [`Lab`], and is made a test on both.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use object_store::local::LocalFileSystem;
use repot_storage::{
    Draft, Key, Keyring, Object, ResourceVersion, Scope, Store, StoreOptions,
    backend::{self, Backend, Embedded, Etcd, Tiered, embedded, tiered},
};
use tempfile::TempDir;
use uuid::Uuid;

#[path = "../backend/etcd_process.rs"]
#[allow(dead_code, reason = "the tests of the backend use the rest")]
pub(crate) mod etcd_process;

mod archives;
mod basics;
mod cheap;
mod checking;
mod collecting;
mod compacted;
mod costs;
mod crash;
mod duty;
mod healing;
mod housekeeping;
mod keys;
mod lists;
mod memory_pages;
mod outcomes;
mod quota;
pub(crate) mod spy;
mod tampering;
mod usage;
mod watches;

pub(crate) use etcd_process::EtcdProcess;

/// How long anything may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A place for one store.
pub(crate) enum Lab {
    Embedded(TempDir),
    Etcd(Box<EtcdProcess>),
    /// Chunks in files, the rest in an embedded store.
    Tiered(TempDir),
}

impl Lab {
    pub(crate) async fn embedded() -> Self {
        Self::Embedded(tempfile::tempdir().unwrap())
    }

    pub(crate) async fn etcd() -> Self {
        Self::Etcd(Box::new(EtcdProcess::start(None, &[]).await))
    }

    pub(crate) async fn tiered() -> Self {
        Self::Tiered(tempfile::tempdir().unwrap())
    }

    pub(crate) async fn backend(&self) -> Arc<dyn Backend> {
        match self {
            Self::Embedded(dir) => {
                let options = embedded::Options { min_free_bytes: 0, ..embedded::Options::default() };
                Arc::new(Embedded::open(dir.path(), options).await.unwrap())
            }
            Self::Tiered(dir) => tiered_in(dir.path()).await,
            Self::Etcd(process) => Arc::new(Etcd::connect(process.options()).await.unwrap()),
        }
    }

    async fn open(&self) -> Store {
        self.open_with(StoreOptions::default()).await
    }

    async fn open_with(&self, options: StoreOptions) -> Store {
        Store::open(self.backend().await, mk_keyring(), options).await.unwrap()
    }
}

/// Chunks in files, the rest in an embedded store.
pub(crate) async fn tiered_in(dir: &std::path::Path) -> Arc<dyn Backend> {
    let options = embedded::Options { min_free_bytes: 0, ..embedded::Options::default() };
    let inner = Embedded::open(&dir.join("embedded"), options).await.unwrap();
    let place = files(&dir.join("objects"));
    Arc::new(Tiered::open(Arc::new(inner), place, tiered::Options::default()).await.unwrap())
}

/// A directory for objects.
pub fn files(dir: &std::path::Path) -> tiered::ObjectLocation {
    std::fs::create_dir_all(dir).unwrap();
    let objects = Arc::new(LocalFileSystem::new().with_fsync(true));
    let root = object_store::path::Path::from_absolute_path(dir).unwrap();
    tiered::ObjectLocation { objects, root, url: format!("file://{}", dir.display()) }
}

/// Makes a test of each behaviour on each backend.
macro_rules! on_every_backend {
    ($($behaviour:ident)*) => {
        mod on_embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $behaviour() {
                super::$behaviour(&super::super::Lab::embedded().await).await;
            })*
        }
        mod on_tiered {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $behaviour() {
                super::$behaviour(&super::super::Lab::tiered().await).await;
            })*
        }
        mod on_etcd {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $behaviour() {
                super::$behaviour(&super::super::Lab::etcd().await).await;
            })*
        }
    };
}
use on_every_backend;

const CONFIG: &str = "
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: ['*.*']
  providers:
  - aesgcm: {keys: [{name: first, secret: AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=}]}
";

pub(crate) fn mk_keyring() -> Arc<Keyring> {
    Arc::new(Keyring::parse(CONFIG).unwrap())
}

pub(crate) fn mk_key(name: &str) -> Key {
    mk_key_in("ns", name)
}

fn mk_key_in(namespace: &str, name: &str) -> Key {
    Key {
        group: "core.example.org".into(),
        resource: "states".into(),
        namespace: namespace.into(),
        name: name.into(),
    }
}

pub(crate) fn mk_scope(namespace: Option<&str>) -> Scope {
    Scope {
        group: "core.example.org".into(),
        resource: "states".into(),
        namespace: namespace.map(Into::into),
    }
}

/// A draft whose head names `label`, so that states can be told apart.
pub(crate) fn mk_draft(uid: Uuid, label: &str, payload: Vec<Bytes>) -> Draft {
    let (meta, summary) = (format!("meta {label}").into(), format!("summary {label}").into());
    Draft { uid, meta, summary, payload: payload.into() }
}

fn label(object: &Object) -> &str {
    std::str::from_utf8(&object.meta).unwrap().strip_prefix("meta ").unwrap()
}

/// Bytes that do not compress, the same for the same seed.
pub(crate) fn mk_noise(seed: u64, len: usize) -> Bytes {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes.into()
}

/// Text as of a machine list in JSON: compresses, and every machine differs.
fn mk_machines(seed: u64, len: usize) -> Bytes {
    let mut text = String::with_capacity(len + 400);
    let mut number = 0_u64;
    while text.len() < len {
        let id = blake3::hash(format!("{seed} {number}").as_bytes()).to_hex();
        text.push_str(&format!(
            "{{\"apiVersion\":\"machine.sapcloud.io/v1alpha1\",\"kind\":\"Machine\",\"name\":\"worker-{number}\",\
             \"providerID\":\"{}\",\"node\":\"ip-10-250-{}-{}\",\"state\":\"Running\"}},",
            &id[..24],
            number % 250,
            number % 97,
        ));
        number += 1;
    }
    text.truncate(len);
    text.into()
}

pub(crate) fn joined(parts: &[Bytes]) -> Bytes {
    parts.concat().into()
}

/// Waits until lists and watches are served from memory.
async fn wait_for_cache(store: &Store) {
    let begin = std::time::Instant::now();
    while store.count_cached(&mk_scope(None), &mk_key("first")).unwrap().is_none() {
        assert!(begin.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn current(store: &Store) -> ResourceVersion {
    store.current().await.unwrap()
}
