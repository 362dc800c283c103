//! Clients that work on a few objects of a store at once, and take down what they ask and what they are told.
//!
//! The head of a state names the write that left it and the write that left its payload, which follows from that name: so
//! whoever reads one can tell from the head what all the rest must be.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Instant,
};

use parking_lot::Mutex;
use repot_storage::{Draft, Error, Key, List, ListRequest, Object, ResourceVersion, Scope};
use uuid::Uuid;

use super::{
    lines::Line,
    record::{Answer, Call, History, Listing, Name, Operation, State, Tag, Time},
    *,
};
use crate::store::{joined, mk_key, mk_noise, mk_scope};

/// The object that is made when everything is over.
pub const END: Name = Name::MAX;
/// Objects that clients work on: few, so that they meet.
pub const NAMES: u32 = 5;

/// Takes down what happens.
pub struct Recorder {
    clock: AtomicU64,
    tags: AtomicU64,
    /// Whether everything goes to stdout too, because this process is going to be killed.
    tells: bool,
    /// Whether a request may be delivered twice.
    repeats: AtomicBool,
    history: Mutex<History>,
}

impl Recorder {
    /// Time and the names of writes begin here.
    pub fn new(clock: Time, tags: Tag, tells: bool) -> Arc<Self> {
        let (clock, tags) = (AtomicU64::new(clock), AtomicU64::new(tags));
        Arc::new(Self { clock, tags, tells, repeats: AtomicBool::new(false), history: Mutex::default() })
    }

    /// From now on a removal that is refused may have happened: where it was delivered twice, the second answer says that the object
    /// is gone, and nothing tells who removed it.
    pub fn deliveries_repeat(&self) {
        self.repeats.store(true, Ordering::SeqCst);
    }

    pub fn now(&self) -> Time {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Nothing happens before this moment any more.
    pub fn reach(&self, moment: Time) {
        self.clock.fetch_max(moment + 1, Ordering::SeqCst);
    }

    pub fn tag(&self) -> Tag {
        self.tags.fetch_add(1, Ordering::SeqCst)
    }

    pub fn ask(&self, client: u32, name: Name, call: Call) -> usize {
        let mut history = self.history.lock();
        let (asked, answer) = (self.now(), Answer::Unknown(None));
        history.operations.push(Operation { client, name, call, asked, answered: asked, answer });
        let number = history.operations.len() - 1;
        if self.tells {
            println!("{}", Line::Asked { number, client, name, moment: asked, call }.text());
        }
        number
    }

    pub fn answer(&self, number: usize, answer: Answer) {
        let mut history = self.history.lock();
        let moment = self.now();
        let operation = &mut history.operations[number];
        let unsure = self.repeats.load(Ordering::SeqCst) && matches!(operation.call, Call::Delete { .. });
        let answer = if unsure && answer == Answer::Refused { Answer::Unknown(None) } else { answer };
        (operation.answered, operation.answer) = (moment, answer);
        if self.tells {
            println!("{}", Line::Answered { number, moment, answer }.text());
        }
    }

    pub fn breach(&self, what: String) {
        assert!(!self.tells, "{what}");
        self.history.lock().breaches.push(what);
    }

    pub fn change<T>(&self, change: impl FnOnce(&mut History) -> T) -> T {
        change(&mut self.history.lock())
    }
}

/// One of several clients that work at the same time.
pub struct Client {
    pub number: u32,
    pub recorder: Arc<Recorder>,
    pub store: Store,
    pub dice: Dice,
    /// States that it has met.
    pub known: BTreeMap<Name, Object>,
    /// Versions that it has met.
    pub versions: Vec<u64>,
    /// Why something was not done, the last time that it was not.
    pub excuse: String,
}

impl Client {
    pub fn new(number: u32, recorder: &Arc<Recorder>, store: &Store, seed: u64) -> Self {
        let dice = Dice(seed.wrapping_mul(1000) + u64::from(number));
        let (known, versions, excuse) = (BTreeMap::new(), Vec::new(), String::new());
        Self { number, recorder: Arc::clone(recorder), store: store.clone(), dice, known, versions, excuse }
    }

    pub async fn work(mut self, until: Instant) {
        while Instant::now() < until {
            let name = self.dice.below(u64::from(NAMES)) as Name;
            match self.dice.below(100) {
                0..24 => self.get(name).await,
                24..30 => self.list().await,
                30..33 => self.list_past().await,
                33..40 => self.list_cached().await,
                _ => self.write(name).await,
            }
            tokio::task::yield_now().await;
        }
    }

    pub async fn get(&mut self, name: Name) {
        let number = self.recorder.ask(self.number, name, Call::Get);
        match self.store.get(&key(name)).await {
            Ok(found) => {
                self.recorder.answer(number, Answer::Seen(found.as_ref().map(state)));
                let Some(found) = found else { return drop(self.known.remove(&name)) };
                if self.dice.below(3) == 0 {
                    prove(&self.store, &self.recorder, &found).await;
                }
                self.known.insert(name, found);
            }
            Err(error) => {
                self.recorder.answer(number, Answer::NotDone);
                self.excuse(error);
            }
        }
    }

    async fn write(&mut self, name: Name) {
        let Some(base) = self.known.get(&name).cloned() else {
            if self.dice.below(3) == 0 {
                return self.get(name).await;
            }
            return self.create(name).await;
        };
        match self.dice.below(20) {
            0..3 => self.delete(name, base).await,
            3..6 => self.update_head(name, base).await,
            6 => self.create(name).await,
            _ => self.update(name, base).await,
        }
    }

    pub async fn create(&mut self, name: Name) {
        let tag = self.recorder.tag();
        let (store, key) = (self.store.clone(), key(name));
        let draft = draft(Uuid::from_u128(tag.into()), tag, tag, content(name, tag));
        let done = async move { store.create(&key, draft).await };
        self.done(name, Call::Create(tag), done).await;
    }

    async fn update(&mut self, name: Name, base: Object) {
        let tag = self.recorder.tag();
        let (call, store) = (Call::Update { from: state(&base).tag, tag }, self.store.clone());
        let draft = draft(base.uid, tag, tag, content(name, tag));
        self.done(name, call, async move { store.update(&base, draft).await }).await;
    }

    async fn update_head(&mut self, name: Name, base: Object) {
        let tag = self.recorder.tag();
        let (call, store) = (Call::Update { from: state(&base).tag, tag }, self.store.clone());
        let (meta, summary) = head(tag, payload_tag(&base));
        self.done(name, call, async move { store.update_head(&base, meta, summary).await }).await;
    }

    async fn delete(&mut self, name: Name, base: Object) {
        let (call, store) = (Call::Delete { from: state(&base).tag }, self.store.clone());
        self.done(name, call, async move { store.delete(&base).await }).await;
    }

    /// Makes a write, waits for it as long as this client likes, and takes down what became of it.
    async fn done(&mut self, name: Name, call: Call, write: impl Future<Output = Result<Object, Error>>) {
        let hurries = self.dice.below(100) < 3;
        let patience = if hurries { self.dice.below(10) } else { 100_000 };
        let number = self.recorder.ask(self.number, name, call);
        let written = tokio::time::timeout(Duration::from_millis(patience), write).await;
        let unknown = |what| Err(Error::UnknownOutcome(what));
        let written = written.unwrap_or_else(|_| unknown("the client went away".into()));
        let answer = match &written {
            Ok(object) => Answer::Done(object.version.0),
            Err(Error::Exists | Error::Conflict) => Answer::Refused,
            // What is said to be full has done nothing either.
            Err(Error::Unavailable(_) | Error::NoSpace(_)) => Answer::NotDone,
            Err(_) => Answer::Unknown(None),
        };
        self.recorder.answer(number, answer);
        // Some go on with what they know, though they were told that it is old.
        if self.dice.below(10) > 0 {
            self.known.remove(&name);
        }
        match written {
            Ok(object) => {
                self.versions.push(object.version.0);
                if !matches!(call, Call::Delete { .. }) {
                    self.known.insert(name, object);
                }
            }
            Err(Error::Exists | Error::Conflict) => {}
            Err(error) => self.excuse(error),
        }
    }

    /// Fresh, page by page.
    pub async fn list(&mut self) {
        let asked = self.recorder.now();
        let limit = [0, 1, 3][self.dice.below(3) as usize];
        let memory = self.dice.below(2) == 0;
        match pages(&self.store, None, limit, memory).await {
            Ok(list) => self.listed(asked, &list, true, 0),
            Err(error) => self.excuse(error),
        }
    }

    async fn list_past(&mut self) {
        let Some(&version) = self.versions.get(self.dice.below(self.versions.len().max(1) as u64) as usize)
        else {
            return;
        };
        let asked = self.recorder.now();
        let memory = self.dice.below(2) == 0;
        match pages(&self.store, Some(ResourceVersion(version)), 2, memory).await {
            Ok(list) if list.version.0 == version => self.listed(asked, &list, false, version),
            Ok(list) => self.recorder.breach(format!("a list at {version} is at {}", list.version)),
            Err(error) => self.excuse(error),
        }
    }

    async fn list_cached(&mut self) {
        let newest = self.versions.last().copied().filter(|_| self.dice.below(2) == 0);
        let asked = self.recorder.now();
        match self.store.list_cached(&scope(), newest.map(ResourceVersion)).await {
            Ok(list) => self.listed(asked, &list, newest.is_none(), newest.unwrap_or(0)),
            Err(error) => self.excuse(error),
        }
    }

    fn listed(&mut self, asked: Time, list: &List, fresh: bool, at_least: u64) {
        let (answered, version) = (self.recorder.now(), list.version.0);
        self.versions.push(version);
        let mut states = BTreeMap::new();
        for object in &list.objects {
            match object {
                Ok(object) => drop(states.insert(name(&object.key), state(object))),
                Err(error) => return self.excuse(error.clone()),
            }
        }
        let listing = Listing { asked, answered, version, fresh, at_least, states };
        self.recorder.change(|history| history.listings.push(listing));
    }

    /// Only what a backend that fails may lead to is no breach.
    fn excuse(&mut self, error: Error) {
        self.excuse = error.to_string();
        if !matches!(error, Error::Unavailable(_) | Error::UnknownOutcome(_) | Error::NoSpace(_)) {
            self.recorder.breach(format!("a client was told: {error}"));
        }
    }
}

/// Reads the payload of a state, and compares it with what its head says.
pub async fn prove(store: &Store, recorder: &Recorder, object: &Object) {
    match store.payload_bytes(object).await {
        Ok(payload) if payload == joined(&content(name(&object.key), payload_tag(object))) => {}
        Ok(_) => recorder.breach(format!("{object:?} has the payload of another write")),
        Err(Error::Unavailable(_)) => {}
        Err(error) => recorder.breach(format!("the payload of {object:?} cannot be read: {error}")),
    }
}

/// All pages of a list, as of one version; `memory`: from the watch cache as far as that can tell.
async fn pages(
    store: &Store,
    at: Option<ResourceVersion>,
    limit: usize,
    memory: bool,
) -> Result<List, Error> {
    let request = |at, after| ListRequest { at, after, limit, count: true, ..ListRequest::all(scope()) };
    let read = async |request| match memory {
        true => store.list_page(request, None).await,
        false => store.list(request).await,
    };
    let mut list = read(request(at, None)).await?;
    while let Some(after) = list.next.take() {
        let page = read(request(Some(list.version), Some(after))).await?;
        list.objects.extend(page.objects);
        list.next = page.next;
    }
    Ok(list)
}

pub fn scope() -> Scope {
    mk_scope(Some("ns"))
}

pub fn key(name: Name) -> Key {
    mk_key(&format!("k-{name}"))
}

pub fn name(key: &Key) -> Name {
    key.name.strip_prefix("k-").unwrap().parse().unwrap()
}

pub fn state(object: &Object) -> State {
    State { tag: tags(object).0, version: object.version.0 }
}

fn payload_tag(object: &Object) -> Tag {
    tags(object).1
}

/// Which writes left the head and the payload.
pub fn tags(object: &Object) -> (Tag, Tag) {
    let text = std::str::from_utf8(&object.meta).unwrap();
    let (tag, payload) = text.split_once(' ').unwrap();
    (tag.parse().unwrap(), payload.parse().unwrap())
}

fn head(tag: Tag, payload: Tag) -> (Bytes, Bytes) {
    (format!("{tag} {payload}").into(), format!("{tag}").into())
}

fn draft(uid: Uuid, tag: Tag, payload: Tag, content: Vec<Bytes>) -> Draft {
    let (meta, summary) = head(tag, payload);
    Draft { uid, meta, summary, payload: content.into() }
}

/// Mostly small; some in chunks, of which one is the same in all states; a few larger than one transaction on etcd.
fn content(name: Name, tag: Tag) -> Vec<Bytes> {
    let kept = || mk_noise((1 << 60) + u64::from(name), 150_000);
    match tag % 24 {
        0 | 1 => vec![kept(), mk_noise(tag, 100_000)],
        2 | 3 => vec![kept(), mk_noise(tag, 5_000)],
        4 => vec![kept(), mk_noise(tag, 1_100_000)],
        _ => vec![mk_noise(tag, 200)],
    }
}
