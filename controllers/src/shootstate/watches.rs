//! Watches that tell in which namespaces of a seed something has changed that a ShootState stores. Only metadata are followed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::{Stream, StreamExt};
use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject, ObjectMeta, PartialObjectMeta},
    runtime::watcher::{self, Event},
};
use parking_lot::Mutex;
use repot_api::names::{CARRY, CORE_GROUP, PERSIST, SEED_LABEL_PREFIX};
use tokio::{sync::Notify, task::JoinSet, time::Instant};

use super::{
    kinds::{CARRIED_KINDS, CLUSTER, EXTENSION_KINDS, MACHINE_KINDS, SECRET, SeedKind},
    model::State,
    parts::Parts,
    queue::{Queue, Timing},
    seen::{Fingerprint, Seen},
};

/// Label of the namespaces that have a control plane.
const SHOOT_NAMESPACES: &str = "gardener.cloud/role=shoot";
/// Kinds that states refer to: all their objects are followed, since a reference is no label.
const REFERENCED_KINDS: [&str; 2] = ["Secret", "ConfigMap"];

type Meta = PartialObjectMeta<DynamicObject>;

/// What watches and the controller share.
pub(super) struct Changes {
    /// Shoots that are due.
    pub(super) queue: Mutex<Queue>,
    /// Tells that the queue has changed.
    pub(super) woken: Notify,
    /// Namespaces that have a control plane and are not going away.
    namespaces: Mutex<BTreeSet<String>>,
    /// Objects that states refer to, as kind and name, by namespace.
    references: Mutex<BTreeMap<String, BTreeSet<(String, String)>>>,
    /// Namespace of the control plane by namespace and name of the Shoot.
    shoots: Mutex<BTreeMap<(String, String), String>>,
}

impl Changes {
    pub(super) fn new(timing: Timing) -> Self {
        Self {
            queue: Mutex::new(Queue::new(timing)),
            woken: Notify::new(),
            namespaces: Mutex::default(),
            references: Mutex::default(),
            shoots: Mutex::default(),
        }
    }

    /// Whether the namespace has a control plane and is not going away.
    pub(super) fn has(&self, namespace: &str) -> bool {
        self.namespaces.lock().contains(namespace)
    }

    /// Makes all Shoots due.
    pub(super) fn touch_all(&self) {
        let all = self.namespaces.lock().clone();
        all.iter().for_each(|namespace| self.touch(namespace, Parts::ALL));
    }

    /// Remembers to which objects the states of a namespace refer, so that changes of these are noticed, too.
    pub(super) fn refer(&self, namespace: &str, state: &State) {
        let resources = state.extensions.iter().flat_map(|extension| &extension.resources);
        let references = resources.map(|resource| &resource.resource_ref);
        let names: BTreeSet<_> =
            references.map(|reference| (reference.kind.clone(), reference.name.clone())).collect();
        let mut all = self.references.lock();
        match names.is_empty() {
            true => drop(all.remove(namespace)),
            false => drop(all.insert(namespace.to_owned(), names)),
        }
    }

    /// Remembers which Shoot has its control plane in a namespace.
    pub(super) fn locate(&self, namespace: &str, shoot: (String, String)) {
        self.shoots.lock().insert(shoot, namespace.to_owned());
    }

    fn touch(&self, namespace: &str, parts: Parts) {
        if self.has(namespace) {
            self.queue.lock().touch(namespace, parts, Instant::now());
            self.woken.notify_one();
        }
    }

    fn touch_shoot(&self, meta: &ObjectMeta) {
        let key = (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default());
        let namespace = self.shoots.lock().get(&key).cloned();
        namespace.iter().for_each(|namespace| self.touch(namespace, Parts::ALL));
    }

    fn add(&self, namespace: &str) {
        if self.namespaces.lock().insert(namespace.to_owned()) {
            self.touch(namespace, Parts::ALL);
        }
    }

    fn forget(&self, namespace: &str) {
        self.namespaces.lock().remove(namespace);
        self.references.lock().remove(namespace);
        self.shoots.lock().retain(|_, of| of != namespace);
        self.queue.lock().forget(namespace);
    }

    /// Keeps namespaces up to what a list has.
    fn retain(&self, listed: &BTreeSet<String>) {
        let gone: Vec<_> = self.namespaces.lock().difference(listed).cloned().collect();
        gone.iter().for_each(|namespace| self.forget(namespace));
    }

    fn is_referenced(&self, kind: &str, meta: &ObjectMeta) -> bool {
        let (Some(namespace), Some(name)) = (&meta.namespace, &meta.name) else { return false };
        let all = self.references.lock();
        all.get(namespace).is_some_and(|names| names.contains(&(kind.to_owned(), name.clone())))
    }
}

/// Starts all watches; they end when the set is dropped.
pub(super) fn start(seed: &Client, garden: &Client, seed_name: &str, changes: &Arc<Changes>) -> JoinSet<()> {
    let mut watches = JoinSet::new();
    watches.spawn(follow_namespaces(seed.clone(), changes.clone()));
    watches.spawn(follow_clusters(seed.clone(), changes.clone()));
    watches.spawn(follow_shoots(garden.clone(), seed_name.to_owned(), changes.clone()));
    for kind in EXTENSION_KINDS {
        watches.spawn(follow(seed.clone(), kind, Fingerprint::ResourceVersion, changes.clone()));
    }
    for kind in MACHINE_KINDS.into_iter().chain(CARRIED_KINDS) {
        watches.spawn(follow(seed.clone(), kind, Fingerprint::Generation, changes.clone()));
    }
    watches
}

/// Follows a kind in all namespaces. Carried kinds are followed by their label where no reference can lead to them.
async fn follow(seed: Client, kind: SeedKind, fingerprint: Fingerprint, changes: Arc<Changes>) {
    let is_referenced_kind = REFERENCED_KINDS.contains(&kind.kind);
    let is_carried_kind = CARRIED_KINDS.contains(&kind);
    let config = match is_carried_kind && !is_referenced_kind {
        true => watcher::Config::default().labels(&format!("{CARRY}=true")),
        false => watcher::Config::default(),
    };
    let part = |meta: &ObjectMeta| {
        let has =
            |label| meta.labels.as_ref().and_then(|all| all.get(label)).is_some_and(|value| value == "true");
        let is_object = has(CARRY) || (is_referenced_kind && changes.is_referenced(kind.kind, meta));
        match (MACHINE_KINDS.contains(&kind), kind == SECRET && has(PERSIST)) {
            (true, _) => Some(Parts::MACHINES),
            (_, true) if !is_object => Some(Parts::SECRETS),
            _ => (!is_carried_kind || is_object).then_some(Parts::OBJECTS),
        }
    };
    let mut seen = Seen::new(fingerprint);
    let mut events = std::pin::pin!(events(seed, &kind.resource(), config));
    while let Some(event) = events.next().await {
        let touched = seen.observe(&event, |object| &object.metadata, part);
        touched.iter().for_each(|(namespace, parts)| changes.touch(namespace, *parts));
    }
}

async fn follow_namespaces(seed: Client, changes: Arc<Changes>) {
    let namespaces = SeedKind { group: "", version: "v1", kind: "Namespace", plural: "namespaces" };
    let config = watcher::Config::default().labels(SHOOT_NAMESPACES);
    let mut events = std::pin::pin!(events(seed, &namespaces.resource(), config));
    let mut listed = BTreeSet::new();
    while let Some(event) = events.next().await {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(object) | Event::Apply(object) => {
                let name = object.metadata.name.unwrap_or_default();
                // The objects of a namespace that goes away go first: nothing of that is a change to be stored.
                match object.metadata.deletion_timestamp {
                    None => changes.add(&name),
                    Some(_) => changes.forget(&name),
                }
                listed.insert(name);
            }
            Event::Delete(object) => changes.forget(&object.metadata.name.unwrap_or_default()),
            Event::InitDone => changes.retain(&std::mem::take(&mut listed)),
        }
    }
}

/// A Cluster is named as its namespace; gardenlet writes it when the Shoot changes.
async fn follow_clusters(seed: Client, changes: Arc<Changes>) {
    let mut events = std::pin::pin!(events(seed, &CLUSTER.resource(), watcher::Config::default()));
    while let Some(event) = events.next().await {
        if let Event::Apply(object) | Event::InitApply(object) = event {
            changes.touch(&object.metadata.name.unwrap_or_default(), Parts::ALL);
        }
    }
}

/// Shoots of the garden that are on this seed or going there: their status says whether this seed may write.
async fn follow_shoots(garden: Client, seed_name: String, changes: Arc<Changes>) {
    let config = watcher::Config::default().labels(&format!("{SEED_LABEL_PREFIX}{seed_name}=true"));
    let mut events = std::pin::pin!(events(garden, &shoots(), config));
    while let Some(event) = events.next().await {
        if let Event::Apply(object) | Event::InitApply(object) = event {
            changes.touch_shoot(&object.metadata);
        }
    }
}

/// The kind Shoot of the garden.
pub(super) fn shoots() -> ApiResource {
    SeedKind { group: CORE_GROUP, version: "v1beta1", kind: "Shoot", plural: "shoots" }.resource()
}

/// Events of a watch of all namespaces, which begins again after errors, such as for kinds that are not served yet.
fn events(
    client: Client,
    resource: &ApiResource,
    config: watcher::Config,
) -> impl Stream<Item = Event<Meta>> + Send + use<> {
    let (all, plural) = (Api::<Meta>::all_with(client, resource), resource.plural.clone());
    let mut pauses = Pauses::default();
    let events = watcher::watcher(all, config).then(move |event| {
        let pause = pauses.after(&event);
        let event = event.inspect_err(
            |error| tracing::debug!(resource = plural, %error, ?pause, "a watch failed, watching again"),
        );
        async move {
            tokio::time::sleep(pause).await;
            event.ok()
        }
    });
    events.filter_map(std::future::ready)
}

/// The shortest and the longest pause after a failed watch. A kind that a seed never serves costs one request in the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// How long to wait before a watch is tried again: twice as long each time, until one begins.
struct Pauses {
    next: Duration,
    failed: Instant,
}

impl Default for Pauses {
    fn default() -> Self {
        Self { next: PAUSES.0, failed: Instant::now() }
    }
}

impl Pauses {
    fn after<K>(&mut self, event: &Result<Event<K>, watcher::Error>) -> Duration {
        match event {
            Err(_) => {
                // A watch that nothing came through has worked all the same.
                if self.failed.elapsed() > PAUSES.1 * 3 {
                    *self = Self::default();
                }
                let pause = self.next;
                *self = Self { next: (pause * 2).min(PAUSES.1), failed: Instant::now() };
                pause
            }
            // This says that a list was asked for, and not that it came.
            Ok(Event::Init) => Duration::ZERO,
            Ok(Event::InitApply(_) | Event::InitDone | Event::Apply(_) | Event::Delete(_)) => {
                *self = Self::default();
                Duration::ZERO
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_a_list_has_come() {
        let failed = || Err::<Event<Meta>, _>(watcher::Error::NoResourceVersion);
        let mut pauses = Pauses::default();
        let mut all = Vec::new();
        for _ in 0..9 {
            assert_eq!(pauses.after::<Meta>(&Ok(Event::Init)), Duration::ZERO);
            all.push(pauses.after(&failed()).as_secs());
        }
        assert_eq!(all, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(pauses.after::<Meta>(&Ok(Event::InitDone)), Duration::ZERO);
        assert_eq!(pauses.after(&failed()), Duration::from_secs(1));
    }
}
