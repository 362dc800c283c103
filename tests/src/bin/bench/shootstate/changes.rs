//! Changes at a fixed rate, and how late some of them are in the garden.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Config, ResourceExt};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::{interval, sleep, timeout};

use super::clusters::{Clusters, PROJECT, Size, shoot};

/// One change of so many is followed until the garden has it.
const FOLLOWED: usize = 5;
/// Changes at a time at most.
const AT_ONCE: usize = 64;
/// How much later the last change may come than its time: a slower seed would have changed less than the report says.
const LATE: Duration = Duration::from_secs(2);
/// From a change that failed to the next attempt.
const AGAIN: Duration = Duration::from_millis(500);
/// A change that is not in the garden after this time is lost.
const DEADLINE: Duration = Duration::from_secs(180);

/// Changes of a run.
#[derive(Clone, Copy, Debug)]
pub struct Changes {
    /// What there is to be changed.
    pub size: Size,
    /// Changes in a second.
    pub rate: u32,
    /// For how long they come.
    pub time: Duration,
}

/// Changes that are followed, by the name of the Shoot: their mark, when they were acknowledged, and when the garden had them.
#[derive(Default)]
struct Followed {
    open: HashMap<String, (String, Instant)>,
    lags: Vec<Duration>,
    repeated: usize,
}

/// What a run has measured.
pub struct Measured {
    /// From a change that was acknowledged to the garden.
    pub lags: Vec<Duration>,
    /// Changes that the seed did not take at once, and that were made again.
    pub repeated: usize,
}

impl Changes {
    /// Makes all changes, and gives the lags of those that were followed.
    ///
    /// The last extension resource of each Shoot changes only for those that are followed, so no other change takes their mark away.
    pub async fn run(self, clusters: &Clusters) -> Result<Measured> {
        let followed = Mutex::new(Followed::default());
        let watch = follow(clusters, &followed);
        let load = async {
            let (begun, ticks) = (Instant::now(), interval(Duration::from_secs(1) / self.rate));
            let count = usize::try_from(u64::from(self.rate) * self.time.as_secs())?;
            let numbers = stream::unfold((ticks, 0), async |(mut ticks, number)| {
                ticks.tick().await;
                Some((number, (ticks, number + 1)))
            });
            let changes = numbers.take(count).map(|number| self.change(clusters, number, &followed));
            changes.buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
            let took = begun.elapsed();
            ensure!(took < self.time + self.time / 20 + LATE, "the seed took {count} changes in {took:?}");
            timeout(DEADLINE, until_all(&followed)).await.context("changes do not come to the garden")
        };
        tokio::select! {
            done = load => done?,
            ended = watch => ended.context("the watch of the garden ended")?,
        }
        let Followed { lags, repeated, .. } = followed.into_inner();
        Ok(Measured { lags, repeated })
    }

    async fn change(&self, clusters: &Clusters, number: usize, followed: &Mutex<Followed>) -> Result<()> {
        // A prime far from the number of Shoots spreads changes.
        let at = number * 7919 % self.size.shoots;
        let (name, mark, bytes) = (shoot(at), format!("mark-{number:08}"), self.size.bytes);
        let is_followed = number.is_multiple_of(FOLLOWED) && !followed.lock().open.contains_key(&name);
        if !is_followed {
            let extension = number % (self.size.extensions - 1);
            return change_at_last(clusters, (at, extension), &mark, bytes, followed).await;
        }
        change_at_last(clusters, (at, self.size.extensions - 1), &mark, bytes, followed).await?;
        followed.lock().open.insert(name, (mark, Instant::now()));
        Ok(())
    }
}

/// As a controller does: while the etcd of the seed compacts, it may answer some seconds late, and kube-apiserver fails then.
async fn change_at_last(
    clusters: &Clusters,
    which: (usize, usize),
    mark: &str,
    bytes: usize,
    followed: &Mutex<Followed>,
) -> Result<()> {
    let end = Instant::now() + DEADLINE;
    loop {
        match clusters.change(which, mark, bytes).await {
            Err(_) if Instant::now() < end => followed.lock().repeated += 1,
            outcome => return outcome,
        }
        sleep(AGAIN).await;
    }
}

async fn until_all(followed: &Mutex<Followed>) {
    let mut ticks = interval(Duration::from_millis(100));
    while !followed.lock().open.is_empty() {
        ticks.tick().await;
    }
}

/// Looks at each ShootState that has changed and that a followed change belongs to.
async fn follow(clusters: &Clusters, followed: &Mutex<Followed>) -> Result<()> {
    let file = Kubeconfig::read_from(clusters.garden.kubeconfig())?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let states = ApiResource {
        group: "migration.gardener.cloud".to_owned(),
        version: "v1alpha1".to_owned(),
        api_version: "migration.gardener.cloud/v1alpha1".to_owned(),
        kind: "ShootState".to_owned(),
        plural: "shootstates".to_owned(),
    };
    let all =
        Api::<PartialObjectMeta<DynamicObject>>::namespaced_with(Client::try_from(config)?, PROJECT, &states);
    let events = watcher::watcher(all, watcher::Config::default().page_size(500)).touched_objects();
    let mut events = std::pin::pin!(events);
    while let Some(changed) = events.next().await.transpose()? {
        let (name, seen) = (changed.name_any(), Instant::now());
        let Some((mark, since)) = followed.lock().open.get(&name).cloned() else { continue };
        let at = name.trim_start_matches("s-").parse()?;
        if has(&clusters.state(at).await?, &mark) {
            let mut followed = followed.lock();
            followed.open.remove(&name);
            followed.lags.push(seen.saturating_duration_since(since));
        }
    }
    Ok(())
}

fn has(state: &Value, mark: &str) -> bool {
    let mut entries = state["spec"]["extensions"].as_array().into_iter().flatten();
    entries.any(|entry| entry["state"]["mark"] == mark)
}
