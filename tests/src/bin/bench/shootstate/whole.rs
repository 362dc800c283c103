//! The peer: a controller that sends all extension states of a Shoot for each change, as a merge patch of the whole `spec`. It gathers
//! changes for as long as Repot does, and follows metadata only, as Repot does.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::StreamExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Config, ResourceExt};
use parking_lot::Mutex;
use repot_tests::access::Access;
use repot_tests::http::Api as Http;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::interval;

use super::clusters::STATES;

/// As long as Repot gathers changes.
const QUIET: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(10);
/// As many as Repot writes at a time.
const AT_ONCE: usize = 4;
const MERGE: &str = "application/merge-patch+json";
const EXTENSIONS: &str = "/apis/extensions.gardener.cloud/v1alpha1";

/// Namespaces that have changed: when first, and when last.
type Due = Mutex<HashMap<String, (Instant, Instant)>>;

struct Peer {
    seed: Http,
    garden: Http,
    due: Due,
    sent: AtomicU64,
}

/// Runs until it is killed, and writes to `told` how many bytes it has sent.
pub async fn run(seed: &Path, garden: &Path, told: &Path) -> Result<()> {
    let (seed_access, garden_access) = (Access::read(seed)?, Access::read(garden)?);
    let peer = Arc::new(Peer {
        seed: Http::new(&seed_access)?,
        garden: Http::new(&garden_access)?,
        due: Due::default(),
        sent: AtomicU64::new(0),
    });
    let file = Kubeconfig::read_from(seed)?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    tokio::try_join!(follow(Client::try_from(config)?, &peer), write(&peer, told)).map(drop)
}

async fn follow(seed: Client, peer: &Peer) -> Result<()> {
    let kind = ApiResource {
        group: "extensions.gardener.cloud".to_owned(),
        version: "v1alpha1".to_owned(),
        api_version: "extensions.gardener.cloud/v1alpha1".to_owned(),
        kind: "Extension".to_owned(),
        plural: "extensions".to_owned(),
    };
    let all = Api::<PartialObjectMeta<DynamicObject>>::all_with(seed, &kind);
    let mut events = std::pin::pin!(watcher::watcher(all, watcher::Config::default()).touched_objects());
    while let Some(changed) = events.next().await.transpose()? {
        let (now, namespace) = (Instant::now(), changed.namespace().unwrap_or_default());
        peer.due.lock().entry(namespace).or_insert((now, now)).1 = now;
    }
    Ok(())
}

async fn write(peer: &Arc<Peer>, told: &Path) -> Result<()> {
    let (mut ticks, places) = (interval(Duration::from_millis(50)), Arc::new(Semaphore::new(AT_ONCE)));
    loop {
        ticks.tick().await;
        std::fs::write(told, peer.sent.load(Ordering::SeqCst).to_string())?;
        let now = Instant::now();
        let is_due = |first: Instant, last: Instant| now - last >= QUIET || now - first >= LONGEST;
        let due: Vec<String> = {
            let mut all = peer.due.lock();
            all.extract_if(|_, (first, last)| is_due(*first, *last)).map(|(namespace, _)| namespace).collect()
        };
        for namespace in due {
            let (peer, place) = (peer.clone(), places.clone().acquire_owned().await?);
            tokio::spawn(async move {
                if let Err(error) = peer.rewrite(&namespace).await {
                    eprintln!("{namespace}: {error:#}");
                }
                drop(place);
            });
        }
    }
}

impl Peer {
    async fn rewrite(&self, namespace: &str) -> Result<()> {
        let all = self.seed.get(&format!("{EXTENSIONS}/namespaces/{namespace}/extensions")).await?.ok()?;
        let entry = |one: &Value| json!({"kind": "Extension", "name": one["metadata"]["name"], "state": one["status"]["state"]});
        let entries: Vec<Value> = all["items"].as_array().into_iter().flatten().map(entry).collect();
        let patch = json!({"spec": {"extensions": entries}});
        let name = namespace.trim_start_matches("shoot--bench--");
        self.garden.patch(&format!("{STATES}/{name}"), MERGE, &patch).await?.ok()?;
        self.sent.fetch_add(serde_json::to_vec(&patch)?.len() as u64, Ordering::SeqCst);
        Ok(())
    }
}
