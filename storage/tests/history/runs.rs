//! Several clients on two stores over one backend that fails in every way it may, on each backend.

use std::time::Instant;

use repot_storage::Error;
use tokio::task::JoinHandle;

use super::{
    chaos::{Chaos, Rates, Wrong},
    clients::{Client, END, Recorder, name},
    record::{Answer, History, Watched},
    watcher::follow,
    *,
};
use crate::store::{Lab, mk_keyring};

/// How long anything may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
const CLIENTS: u32 = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embedded_answers_as_one_order_explains() {
    rough(&Lab::embedded().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tiered_answers_as_one_order_explains() {
    rough(&Lab::tiered().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_answers_as_one_order_explains() {
    rough(&Lab::etcd().await).await;
}

/// With all the faults there are, and with none.
async fn rough(lab: &Lab) {
    let seed = std::env::var("REPOT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let chaos = Chaos::new(lab.backend().await, Rates::ROUGH, None, seed);
    let (history, faults) = run(&chaos, period(4), seed).await;
    judge(&history, &faults);
    assert!(history.operations.len() > 200, "hardly anything was done");
    eprintln!("seed {seed}: {}; {}", counts(&history), chaos.met());
}

/// Fails with all that is wrong.
pub fn judge(history: &History, more: &[String]) {
    let mut faults = agree::faults(history);
    faults.extend_from_slice(more);
    let first = faults.iter().take(10).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(faults.is_empty(), "{} faults, such as\n{first}\n{}", faults.len(), counts(history));
}

/// What a history holds, in words.
pub fn counts(history: &History) -> String {
    let of = |answer: fn(Answer) -> bool| history.operations.iter().filter(|o| answer(o.answer)).count();
    format!(
        "{} operations ({} done, {} seen, {} refused, {} not done, {} unknown), {} lists, {} watches of {} events",
        history.operations.len(),
        of(|answer| matches!(answer, Answer::Done(_))),
        of(|answer| matches!(answer, Answer::Seen(_))),
        of(|answer| matches!(answer, Answer::Refused)),
        of(|answer| matches!(answer, Answer::NotDone)),
        of(|answer| matches!(answer, Answer::Unknown(_))),
        history.listings.len(),
        history.watches.len(),
        history.watches.first().map_or(0, |watched| watched.told.len()),
    )
}

/// Lets clients work over this backend. The history, and what a check of everything that rests found in the end.
pub async fn run(chaos: &Arc<Chaos>, period: Duration, seed: u64) -> (History, Vec<String>) {
    let recorder = Recorder::new(1, 1, false);
    let stores = [open(chaos.clone()).await, open(chaos.clone()).await];
    let mut team = Team::begin(&stores, &recorder, seed).await;
    team.work(period).await;
    chaos.calm().await;
    let history = team.end().await;
    let faults = check(&stores[0]).await;
    for store in stores {
        store.close().await;
    }
    (history, faults)
}

/// Opens a store, in as many tries as its backend needs.
pub async fn open(backend: Arc<dyn Backend>) -> Store {
    // A short ring, so that watchers have to go back to the backend now and then; intents that change under writers.
    let options = StoreOptions {
        ring_events: 64,
        bookmark_every: Duration::from_millis(30),
        intent_rotation: Duration::from_millis(300),
        ..StoreOptions::default()
    };
    let begin = Instant::now();
    loop {
        match Store::open(Arc::clone(&backend), mk_keyring(), options.clone()).await {
            Ok(store) => return store,
            Err(error) if begin.elapsed() > PATIENCE => panic!("the store does not open: {error}"),
            Err(Error::Unavailable(_)) => {}
            Err(error) => panic!("the store does not open: {error}"),
        }
    }
}

/// Clients and watchers of some stores.
pub struct Team<'a> {
    stores: &'a [Store],
    recorder: Arc<Recorder>,
    seed: u64,
    watchers: Vec<JoinHandle<Watched>>,
}

impl<'a> Team<'a> {
    /// From now on, everything is watched.
    pub async fn begin(stores: &'a [Store], recorder: &Arc<Recorder>, seed: u64) -> Self {
        let start = current(&stores[0]).await;
        let mut team = Self { stores, recorder: Arc::clone(recorder), seed, watchers: Vec::new() };
        for store in stores {
            team.watch(store, start);
        }
        team
    }

    /// Everything after a version is watched, by nobody but one who comes late.
    pub fn after(stores: &'a [Store], recorder: &Arc<Recorder>, start: u64) -> Self {
        let mut team = Self { stores, recorder: Arc::clone(recorder), seed: 0, watchers: Vec::new() };
        team.watch(&stores[0], start);
        team
    }

    fn watch(&mut self, store: &Store, after: u64) {
        let dice = Dice(self.seed + self.watchers.len() as u64);
        self.watchers.push(tokio::spawn(follow(store.clone(), Arc::clone(&self.recorder), after, dice)));
    }

    /// Lets clients work for a while, a collector with them, and more watchers join.
    pub async fn work(&mut self, period: Duration) {
        let until = Instant::now() + period;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let store = &self.stores[number as usize % self.stores.len()];
                tokio::spawn(Client::new(number, &self.recorder, store, self.seed).work(until))
            })
            .collect();
        let collector = tokio::spawn(collect(self.stores[0].clone(), Arc::clone(&self.recorder), until));
        let start = current(&self.stores[0]).await;
        while Instant::now() < until {
            tokio::time::sleep(period / 8).await;
            let newest = current(&self.stores[0]).await;
            // One from the present, one from the past.
            for (store, after) in [(0, newest), (1, start + (newest - start) / 2)] {
                let store = self.stores[store % self.stores.len()].clone();
                self.watch(&store, after);
            }
        }
        for task in clients {
            task.await.unwrap();
        }
        collector.await.unwrap();
    }

    /// Makes the object that ends all, and waits until every watcher has seen it.
    pub async fn end(self) -> History {
        let mut last = Client::new(u32::MAX, &self.recorder, &self.stores[0], 0);
        let begin = Instant::now();
        while !last.known.contains_key(&END) {
            assert!(begin.elapsed() < PATIENCE, "the last object cannot be made: {}", last.excuse);
            last.create(END).await;
            last.get(END).await;
        }
        last.list().await;
        for watcher in self.watchers {
            match tokio::time::timeout(PATIENCE / 4, watcher).await {
                Ok(watched) => self.recorder.change(|history| history.watches.push(watched.unwrap())),
                Err(_) => self.recorder.breach("a watch does not come to the end".into()),
            }
        }
        self.recorder.change(std::mem::take)
    }
}

/// The newest version, in as many tries as it takes.
async fn current(store: &Store) -> u64 {
    let begin = Instant::now();
    loop {
        match store.current().await {
            Ok(version) => return version.0,
            Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
        }
    }
}

/// Collects chunks all the time, which must never be noticed.
async fn collect(store: Store, recorder: Arc<Recorder>, until: Instant) {
    while Instant::now() < until {
        match store.collect().await {
            Ok(report) if report.unreadable > 0 => recorder.breach(format!("the collector found {report:?}")),
            Ok(_) | Err(Error::Unavailable(_) | Error::UnknownOutcome(_) | Error::NoSpace(_)) => {}
            Err(error) => recorder.breach(format!("the collector was told: {error}")),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Reads everything that rests: nothing is wrong, and nothing is left over once the collector was there.
pub async fn check(store: &Store) -> Vec<String> {
    let mut faults = Vec::new();
    let begin = Instant::now();
    loop {
        // Manifests have to tell of all garbage: what fsck counts goes, or is found here to stay.
        let idle = match store.collect().await {
            Ok(report) => report.removed == 0 && report.in_flight == 0,
            Err(error) => {
                faults.push(format!("the collector was told: {error}"));
                break;
            }
        };
        match store.fsck(false, |finding| faults.push(format!("{finding:?}")), |_| {}).await {
            Ok(checked) if (checked.orphans, checked.in_flight) == (0, 0) => break,
            Ok(checked) if idle && checked.orphans > 0 => {
                faults.push(format!("no manifest tells of garbage: {checked:?}"));
                break;
            }
            // A store that is idle lets go of its intent when it looks after itself, which is once a minute.
            Ok(checked) if begin.elapsed() > 2 * PATIENCE => {
                faults.push(format!("the collector does not come to an end: {checked:?}"));
                break;
            }
            Ok(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(error) => {
                faults.push(format!("fsck failed: {error}"));
                break;
            }
        }
        if !faults.is_empty() {
            break;
        }
    }
    let listed = store.list_cached(&clients::scope(), None).await.unwrap();
    let recorder = Recorder::new(1, 1, false);
    for object in listed.objects {
        match object {
            Ok(object) => clients::prove(store, &recorder, &object).await,
            Err(error) => faults.push(error.to_string()),
        }
    }
    faults.extend(recorder.change(|history| std::mem::take(&mut history.breaches)));
    faults
}

/// Whether a checker that never finds anything would have passed: it has to see every object.
#[test]
fn names_of_objects_come_back() {
    for number in [0, 3, END] {
        assert_eq!(name(&clients::key(number)), number);
    }
}

/// A run with a promise broken: what was found.
pub async fn found(lab: &Lab, wrong: Wrong, seed: u64) -> (u64, Vec<String>) {
    let chaos = Chaos::new(lab.backend().await, Rates::CALM, Some(wrong), seed);
    let (history, faults) = run(&chaos, Duration::from_millis(1500), seed).await;
    let mut all = agree::faults(&history);
    all.extend(faults);
    (chaos.wrongs(), all)
}
