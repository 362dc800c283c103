//! The server: what requests find when they arrive, and the way it starts and stops.

use std::{sync::Arc, time::Duration};

use parking_lot::RwLock;
use repot_apimachinery::openapi::GroupVersion;
use repot_storage::{Keyring, Scope, Spool, Store};
use repot_telemetry::{RequestSampler, profile::CpuProfiler};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    admission::follow::Admission,
    audit::Auditor,
    compress::Compression,
    connection_shares::{CONNECTIONS, ConnectionLimits, ConnectionShares},
    delegation::{GroupConflict, Namespaces},
    endpoints::watch::Watching,
    filters::{
        authentication::Authenticator, authorization::Authorizer, overload::Overload, request_info::Target,
    },
    heavy::HeavyWork,
    memory::Memory,
    metrics::Metrics,
    openapi::Documents,
    resource::{GroupResource, Resource},
    status::Status,
    trimmed,
};

/// What can be set about serving.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The largest object, in bytes of its JSON form.
    pub object_bytes: usize,
    /// What the objects of one resource in one namespace may come to, in bytes of their JSON form.
    pub namespace_bytes: Option<u64>,
    /// Bytes of bodies and payloads that may be in memory at once: see [`crate::memory`]. Requests that find no room wait on a
    /// disk; answers that find none are sent as they are read.
    pub memory: u64,
    /// Over how long watches end when the server stops.
    pub watch_grace: Duration,
    /// How often objects without their namespace are looked for.
    pub orphan_interval: Duration,
    /// How long their namespace has to be gone before they are deleted.
    pub orphan_grace: Duration,
    /// When a request that is not a watch is given up.
    pub request_timeout: Duration,
    /// Requests that only read, at once.
    pub readers: usize,
    /// Requests that write, at once.
    pub writers: usize,
    /// Connections that may be open at once, with credentials and without.
    pub connections: ConnectionLimits,
    /// How likely a request is the last on its connection.
    pub goaway_chance: f64,
    /// When long answers are compressed for clients that take gzip.
    pub compression: Compression,
    /// Watches that one user may have at once; anonymous users together a twentieth of it.
    pub watches_per_user: usize,
    /// A watch is ended whose client has taken nothing for so long although there was something to take.
    pub watch_stall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            object_bytes: DEFAULT_OBJECT_BYTES,
            namespace_bytes: None,
            memory: 256 << 20,
            watch_grace: Duration::ZERO,
            orphan_interval: Duration::from_secs(300),
            orphan_grace: Duration::from_secs(3600),
            request_timeout: Duration::from_secs(60),
            readers: 400,
            writers: 200,
            connections: ConnectionLimits {
                unauthenticated: UNAUTHENTICATED_CONNECTIONS,
                authenticated: CONNECTIONS,
            },
            goaway_chance: 0.0,
            compression: Compression::Auto,
            watches_per_user: 2000,
            watch_stall: Duration::from_secs(30),
        }
    }
}

/// Connections without credentials by default: each may make this program keep about 0.4 MiB.
pub const UNAUTHENTICATED_CONNECTIONS: usize = 500;
/// The largest object by default: what fits into a frame of a watch.
pub const DEFAULT_OBJECT_BYTES: usize = trimmed::FRAME_BYTES;
/// The largest object that may be allowed.
pub const MAX_OBJECT_BYTES: usize = 256 << 20;

/// How often readiness looks at the store.
const STORAGE_PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// How often objects are counted.
const COUNT_INTERVAL: Duration = Duration::from_secs(60);

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Two metrics have one name.
    #[error("failed to register metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// The system allows no more threads.
    #[error("failed to start threads for heavy work: {0}")]
    Threads(std::io::Error),
}

/// A server; shared by all connections.
pub struct Server {
    pub(crate) store: Store,
    pub(crate) resources: Vec<Resource>,
    pub(crate) groups: Vec<GroupVersion>,
    pub(crate) documents: Documents,
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) authorizer: Authorizer,
    pub(crate) namespaces: Namespaces,
    pub(crate) admission: Admission,
    pub(crate) overload: Overload,
    pub(crate) connections: ConnectionShares,
    pub(crate) memory: Memory,
    pub(crate) heavy: HeavyWork,
    pub(crate) spool: Spool,
    pub(crate) limits: Limits,
    pub(crate) metrics: Metrics,
    pub(crate) health: Health,
    pub(crate) watches_end: CancellationToken,
    pub(crate) watching: Watching,
    pub(crate) auditor: Auditor,
    pub(crate) sampler: RequestSampler,
    pub(crate) profiler: Option<CpuProfiler>,
    /// Requests that a stop waits for.
    pub(crate) requests: TaskTracker,
}

/// What a server is made of.
pub struct Parts {
    /// The store in which objects are kept.
    pub store: Store,
    /// The resources that the server serves.
    pub resources: Vec<Resource>,
    /// Finds out which user makes a request.
    pub authenticator: Arc<Authenticator>,
    /// Who may do what.
    pub authorizer: Authorizer,
    /// Where objects may live.
    pub namespaces: Namespaces,
    /// Who else has a say in writes.
    pub admission: Admission,
    /// How much at once.
    pub limits: Limits,
    /// Where bodies wait for room in memory.
    pub spool: Spool,
    /// Records requests in the audit log.
    pub auditor: Auditor,
    /// Decides which requests are traced.
    pub sampler: RequestSampler,
    /// Whether CPU profiles may be taken.
    pub profiling: bool,
    /// Whether the authentication configuration is known yet.
    pub trust_loaded: Option<tokio::sync::watch::Receiver<bool>>,
    /// Why this server may not serve what another one serves too, if so.
    pub group_conflict: Option<GroupConflict>,
}

impl Server {
    /// A server that is ready to be given connections.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn new(parts: Parts) -> Result<Self, StartError> {
        let groups = groups(&parts.resources);
        let watching = Watching::new(parts.limits.watches_per_user);
        Ok(Self {
            documents: Documents::new(&groups),
            groups,
            resources: parts.resources,
            authenticator: parts.authenticator,
            authorizer: parts.authorizer,
            namespaces: parts.namespaces.clone(),
            admission: parts.admission.clone(),
            overload: Overload::new(parts.limits.readers, parts.limits.writers),
            connections: ConnectionShares::new(parts.limits.connections.authenticated),
            memory: Memory::new(parts.limits.memory),
            heavy: HeavyWork::start().map_err(StartError::Threads)?,
            spool: parts.spool,
            limits: parts.limits,
            metrics: Metrics::new(parts.store.collectors())?,
            health: Health {
                trust_loaded: parts.trust_loaded,
                group_conflict: parts.group_conflict,
                admission: parts.admission,
                namespaces: parts.namespaces,
                keyring: Arc::clone(parts.store.keyring()),
                state: RwLock::default(),
            },
            store: parts.store,
            watches_end: CancellationToken::new(),
            watching,
            auditor: parts.auditor,
            sampler: parts.sampler,
            profiler: parts.profiling.then(CpuProfiler::new),
            requests: TaskTracker::new(),
        })
    }

    /// Looks every few seconds whether the store answers, for readiness, until `stop`.
    pub async fn watch_storage(self: Arc<Self>, stop: CancellationToken) {
        let mut tick = tokio::time::interval(STORAGE_PROBE_INTERVAL);
        while stop.run_until_cancelled(tick.tick()).await.is_some() {
            let failing = match tokio::time::timeout(STORAGE_PROBE_INTERVAL, self.store.current()).await {
                Ok(Ok(_)) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("the store does not answer".to_owned()),
            };
            self.health.set_storage(failing);
        }
    }

    /// Counts what rests, for metrics, until `stop`.
    pub async fn count_objects(self: Arc<Self>, stop: CancellationToken) {
        let mut tick = tokio::time::interval(COUNT_INTERVAL);
        while stop.run_until_cancelled(tick.tick()).await.is_some() {
            for resource in &self.resources {
                let GroupResource { group, resource: plural } = resource.name.clone();
                let scope = Scope { group, resource: plural, namespace: None };
                // What cannot be counted now is told by other means.
                if let Ok(usage) = self.store.usage(&scope).await
                    && usage.values().all(|usage| usage.unknown == 0)
                {
                    self.metrics.at_rest(resource, &usage);
                }
            }
        }
    }

    /// Writes what is still to be written to the audit log.
    pub async fn close_audit(&self) {
        self.auditor.close().await;
    }

    /// The resource at a path.
    pub(crate) fn resource(&self, target: &Target) -> Option<&Resource> {
        self.resources.iter().find(|resource| {
            resource.name.group == target.group
                && resource.version == target.version
                && resource.name.resource == target.resource
        })
    }
}

/// The kinds by group and version, in a stable order.
fn groups(resources: &[Resource]) -> Vec<GroupVersion> {
    let mut groups: Vec<GroupVersion> = Vec::new();
    for resource in resources {
        let same = |g: &&mut GroupVersion| g.group == resource.name.group && g.version == resource.version;
        match groups.iter_mut().find(same) {
            Some(group) => group.kinds.push(resource.kind),
            None => groups.push(GroupVersion {
                group: resource.name.group.clone(),
                version: resource.version.clone(),
                kinds: vec![resource.kind],
            }),
        }
    }
    groups.sort_by(|a, b| (&a.group, &a.version).cmp(&(&b.group, &b.version)));
    for group in &mut groups {
        group.kinds.sort_by_key(|kind| kind.plural);
    }
    groups
}

/// Whether the server can do its work.
pub(crate) struct Health {
    trust_loaded: Option<tokio::sync::watch::Receiver<bool>>,
    group_conflict: Option<GroupConflict>,
    admission: Admission,
    namespaces: Namespaces,
    keyring: Arc<Keyring>,
    state: RwLock<HealthState>,
}

#[derive(Default)]
struct HealthState {
    storage: Option<String>,
    stopping: bool,
    draining: Option<Draining>,
}

/// What is said to requests that come too late.
#[derive(Clone, Copy)]
enum Draining {
    /// 503: the port is closed already, this connection is a leftover.
    Unavailable,
    /// 429: the port stays open for a while to say so.
    RetryAfter,
}

impl Health {
    /// Why a check fails, if it does.
    pub(crate) fn failing(&self, check: &str) -> Option<String> {
        let state = self.state.read();
        match check {
            "etcd" | "etcd-readiness" => state.storage.clone(),
            "kms-providers" => self.keyring.failing(),
            "shutdown" => state.stopping.then(|| "process is shutting down".to_owned()),
            "poststarthook/start-authentication-config" => {
                let loaded = self.trust_loaded.as_ref().is_none_or(|loaded| *loaded.borrow());
                (!loaded).then(|| "authentication configuration is not loaded".to_owned())
            }
            "shootstate-group" => self.group_conflict.as_ref().and_then(|why| why.borrow().clone()),
            "informer-sync" => match (self.namespaces.synced(), self.admission.is_synced()) {
                (false, _) => Some("namespaces are not listed".to_owned()),
                (_, false) => Some("admission configurations are not listed".to_owned()),
                (true, true) => None,
            },
            _ => None,
        }
    }

    pub(crate) fn set_storage(&self, failing: Option<String>) {
        self.state.write().storage = failing;
    }

    pub(crate) fn set_stopping(&self) {
        self.state.write().stopping = true;
    }

    pub(crate) fn set_draining(&self, send_retry_after: bool) {
        let how = if send_retry_after { Draining::RetryAfter } else { Draining::Unavailable };
        self.state.write().draining = Some(how);
    }

    /// Whether requests other than probes are answered at all.
    pub(crate) fn accepting(&self) -> Result<(), Status> {
        match self.state.read().draining {
            None => Ok(()),
            Some(Draining::Unavailable) => Err(Status::unavailable("apiserver is shutting down", 1)),
            Some(Draining::RetryAfter) => Err(Status::shutting_down()),
        }
    }

    /// Whether a request for data may be answered at all: before that a wrong 404 would cost objects elsewhere.
    pub(crate) fn ready_for_data(&self) -> Result<(), Status> {
        let trust = self.failing("poststarthook/start-authentication-config");
        match trust.or_else(|| self.failing("shootstate-group")) {
            Some(why) => Err(Status::unavailable(why, 5)),
            None => Ok(()),
        }
    }
}
