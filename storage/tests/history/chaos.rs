//! A backend between a store and a real one that is slow, fails and forgets to answer, by a schedule that follows from a
//! seed. It keeps all promises of [`Backend`], unless a test plants a [`Wrong`].

use std::{
    ops::Range,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use repot_storage::backend::{
    Error, KeyValue, Limits, Op, Outcome, Page, RangeRequest, Result, Revision, Txn, WatchItem, WatchStream,
};
use tokio_util::task::TaskTracker;

use super::*;

/// How many of a thousand calls meet what.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    /// Waits before or after it does what it should.
    pub slow: u64,
    /// Does nothing and says so.
    pub fails: u64,
    /// Of transactions: does nothing, and does not say.
    pub lost: u64,
    /// Of transactions: happens, and nobody says so.
    pub unanswered: u64,
    /// Of transactions: nobody says anything, and it happens some time later.
    pub late: u64,
    /// Of items of watches: the stream ends with an error.
    pub breaks: u64,
}

impl Rates {
    pub const ROUGH: Self = Self { slow: 60, fails: 25, lost: 20, unanswered: 25, late: 25, breaks: 10 };
    pub const CALM: Self = Self { slow: 30, fails: 0, lost: 0, unanswered: 0, late: 0, breaks: 0 };
}

/// A promise to break, in some of a hundred chances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A write of a record is acknowledged and not done.
    DroppedWrite,
    /// A transaction does not compare.
    SkippedCompare,
    /// Of a transaction, only the record is written.
    HalfWrite,
    /// A read of the newest shows what was some revisions ago.
    StaleRead,
    /// A transaction that happened is said not to have.
    FalseFailure,
    /// A page is taken at several revisions.
    TornPage,
    /// A watch leaves something out.
    LostEvent,
    /// A watch tells something twice.
    RepeatedEvent,
    /// A watch tells two things in the wrong order.
    SwappedEvents,
}

#[derive(Debug)]
pub struct Chaos {
    inner: Arc<dyn Backend>,
    rates: Rates,
    wrong: Option<Wrong>,
    dice: Mutex<Dice>,
    calm: Arc<AtomicBool>,
    late: TaskTracker,
    /// What was met, by kind: slow, fails, lost, unanswered, late, breaks, wrongs.
    met: Arc<[AtomicU64; 7]>,
}

/// What a call meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Calm,
    SlowBefore(Duration),
    SlowAfter(Duration),
    Fails,
    Lost,
    Unanswered,
    Late(Duration),
}

impl Chaos {
    pub fn new(inner: Arc<dyn Backend>, rates: Rates, wrong: Option<Wrong>, seed: u64) -> Arc<Self> {
        let (dice, calm, met) =
            (Mutex::new(Dice(seed)), Arc::new(AtomicBool::new(false)), Default::default());
        Arc::new(Self { inner, rates, wrong, dice, calm, late: TaskTracker::new(), met })
    }

    /// From now on everything is as it should be, once this returns.
    pub async fn calm(&self) {
        self.calm.store(true, Ordering::SeqCst);
        self.settle().await;
    }

    /// Waits for transactions that are still to happen.
    async fn settle(&self) {
        self.late.close();
        self.late.wait().await;
        self.late.reopen();
    }

    /// How often what was met.
    pub fn met(&self) -> String {
        let names = ["slow", "failed", "lost", "unanswered", "late", "broken watches", "wrongs"];
        let told =
            names.iter().zip(&*self.met).map(|(name, met)| format!("{} {name}", met.load(Ordering::SeqCst)));
        told.collect::<Vec<_>>().join(", ")
    }

    pub fn wrongs(&self) -> u64 {
        self.met[6].load(Ordering::SeqCst)
    }

    fn note(&self, kind: usize) {
        self.met[kind].fetch_add(1, Ordering::SeqCst);
    }

    fn fate(&self, writes: bool) -> Fate {
        if self.calm.load(Ordering::SeqCst) {
            return Fate::Calm;
        }
        let (mut dice, rates) = (self.dice.lock(), self.rates);
        let pause = Duration::from_millis(1 + dice.below(30));
        let mut drawn = dice.below(1000);
        let fates = [
            (rates.slow / 2, Fate::SlowBefore(pause), 0),
            (rates.slow / 2, Fate::SlowAfter(pause), 0),
            (rates.fails, Fate::Fails, 1),
            (if writes { rates.lost } else { 0 }, Fate::Lost, 2),
            (if writes { rates.unanswered } else { 0 }, Fate::Unanswered, 3),
            (if writes { rates.late } else { 0 }, Fate::Late(pause * 4), 4),
        ];
        for (rate, fate, kind) in fates {
            if drawn < rate {
                self.note(kind);
                return fate;
            }
            drawn -= rate;
        }
        Fate::Calm
    }

    /// Whether this promise is to be broken now.
    fn breaks(&self, wrong: Wrong, percent: u64) -> bool {
        let calm = self.calm.load(Ordering::SeqCst);
        let now = !calm && self.wrong == Some(wrong) && self.dice.lock().below(100) < percent;
        if now {
            self.note(6);
        }
        now
    }

    async fn read<T>(&self, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        match self.fate(false) {
            Fate::Fails => return Err(Error::Unavailable("failed".into())),
            Fate::SlowBefore(pause) => tokio::time::sleep(pause).await,
            Fate::SlowAfter(pause) => {
                let answer = call.await;
                tokio::time::sleep(pause).await;
                return answer;
            }
            Fate::Calm | Fate::Lost | Fate::Unanswered | Fate::Late(_) => {}
        }
        call.await
    }

    /// The transaction as it is done, and what is said of it if that is not the truth.
    fn distort(&self, mut txn: Txn) -> (Txn, Option<Wrong>) {
        if !touches_record(&txn) {
            return (txn, None);
        }
        if self.breaks(Wrong::SkippedCompare, 20) {
            txn.compares.clear();
        }
        if txn.ops.len() > 2 && self.breaks(Wrong::HalfWrite, 50) {
            txn.ops.retain(|op| op.key().starts_with(b"/registry/"));
        }
        if self.breaks(Wrong::DroppedWrite, 5) {
            // A revision has to come from somewhere.
            txn.ops = vec![Op::Put("/dropped".into(), Bytes::new())];
        }
        let lies = self.breaks(Wrong::FalseFailure, 10);
        (txn, lies.then_some(Wrong::FalseFailure))
    }

    async fn torn(&self, request: RangeRequest, page: Page) -> Result<Page> {
        let Some(at) = page.kvs.iter().map(|kv| kv.modified).max() else { return Ok(page) };
        let before = RangeRequest { at: Some(Revision(at.0 - 1)), ..request };
        let mut older = self.inner.range(before).await?;
        older.revision = page.revision;
        Ok(older)
    }
}

fn touches_record(txn: &Txn) -> bool {
    txn.ops.iter().any(|op| op.key().starts_with(b"/registry/"))
}

#[async_trait]
impl Backend for Chaos {
    async fn txn(&self, txn: Txn) -> Result<Outcome> {
        let (txn, lie) = self.distort(txn);
        match self.fate(true) {
            Fate::Fails => return Err(Error::Unavailable("failed".into())),
            Fate::Lost => return Err(Error::Unknown("lost".into())),
            Fate::Unanswered => {
                self.inner.txn(txn).await?;
                return Err(Error::Unknown("unanswered".into()));
            }
            Fate::Late(pause) => {
                let inner = Arc::clone(&self.inner);
                self.late.spawn(async move {
                    tokio::time::sleep(pause).await;
                    inner.txn(txn).await
                });
                return Err(Error::Unknown("late".into()));
            }
            Fate::SlowBefore(pause) => tokio::time::sleep(pause).await,
            Fate::SlowAfter(pause) => {
                let outcome = self.inner.txn(txn).await;
                tokio::time::sleep(pause).await;
                return outcome;
            }
            Fate::Calm => {}
        }
        let outcome = self.inner.txn(txn).await;
        if lie.is_some() { Err(Error::Unavailable("a lie".into())) } else { outcome }
    }

    fn prefers_compression(&self) -> bool {
        self.inner.prefers_compression()
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    async fn revision(&self) -> Result<Revision> {
        self.read(self.inner.revision()).await
    }

    async fn get(&self, key: Bytes, at: Option<Revision>) -> Result<Option<KeyValue>> {
        self.read(self.inner.get(key, at)).await
    }

    async fn get_many(&self, keys: Vec<Bytes>, at: Revision) -> Result<Vec<Option<KeyValue>>> {
        self.read(self.inner.get_many(keys, at)).await
    }

    async fn range(&self, mut request: RangeRequest) -> Result<Page> {
        let newest = request.at.is_none() && request.keys.start.starts_with(b"/registry/");
        let mut stale = None;
        if newest && self.breaks(Wrong::StaleRead, 20) {
            let now = self.inner.revision().await?;
            request.at = Some(Revision(now.0.saturating_sub(8).max(1)));
            stale = Some(now);
        }
        let mut page = self.read(self.inner.range(request.clone())).await?;
        // It does not say so: a store that is told of an older revision stops by itself.
        page.revision = stale.unwrap_or(page.revision);
        if newest && request.limit != 1 && self.breaks(Wrong::TornPage, 50) {
            return self.torn(request, page).await;
        }
        Ok(page)
    }

    async fn count(&self, keys: Range<Bytes>, at: Option<Revision>) -> Result<u64> {
        self.read(self.inner.count(keys, at)).await
    }

    async fn watch(&self, prefix: Bytes, after: Revision, progress: Duration) -> Result<WatchStream> {
        let items = self.read(self.inner.watch(prefix, after, progress)).await?;
        let mut dice = Dice(self.dice.lock().next());
        let (breaks, wrong) = (self.rates.breaks, self.wrong);
        let (calm, met) = (Arc::clone(&self.calm), Arc::clone(&self.met));
        let broken = items.flat_map(move |item| {
            let mut items = vec![item];
            if calm.load(Ordering::SeqCst) {
                return stream::iter(items);
            }
            if dice.below(1000) < breaks {
                met[5].fetch_add(1, Ordering::SeqCst);
                items.push(Err(Error::Unavailable("the watch broke".into())));
            } else if let (Some(wrong), Ok(WatchItem::Events(events))) = (wrong, &mut items[0])
                && dice.below(100) < 10
                && distort_events(wrong, events)
            {
                met[6].fetch_add(1, Ordering::SeqCst);
                items.retain(|item| !matches!(item, Ok(WatchItem::Events(events)) if events.is_empty()));
            }
            stream::iter(items)
        });
        Ok(ending(broken.boxed()))
    }

    async fn request_progress(&self) {
        self.inner.request_progress().await;
    }

    async fn compact(&self, revision: Revision) -> Result<()> {
        self.inner.compact(revision).await
    }

    async fn oldest(&self) -> Result<Revision> {
        self.read(self.inner.oldest()).await
    }

    async fn size(&self) -> Result<u64> {
        self.inner.size().await
    }

    async fn tidy(&self) -> Result<()> {
        self.inner.tidy().await
    }

    async fn close(&self) {
        self.settle().await;
        self.inner.close().await;
    }
}

fn distort_events(wrong: Wrong, events: &mut Vec<repot_storage::backend::KeyEvent>) -> bool {
    match wrong {
        Wrong::LostEvent => drop(events.pop()),
        Wrong::RepeatedEvent => events.extend(events.last().cloned()),
        Wrong::SwappedEvents => events.reverse(),
        _ => return false,
    }
    true
}

/// A stream that ends after its first error.
fn ending(items: WatchStream) -> WatchStream {
    let whole = stream::unfold(Some(items), |items| async {
        let mut items = items?;
        let item = items.next().await?;
        let rest = item.is_ok().then_some(items);
        Some((item, rest))
    });
    whole.boxed()
}
