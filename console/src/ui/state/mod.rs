//! What the garden has, as the page shows it: one row of JSON for each object, shared by all pages that are open.
//!
//! | file | has |
//! |---|---|
//! | `kinds.rs` | the kinds that are watched |
//! | `rows.rs` | what a row of a migration, a Shoot or a Seed has |
//! | `etcd_rows.rs` | the same for isolations and hosted etcds |
//! | `watch.rs` | one watch for each kind |
//! | `changes.rs` | changes, collected and sent to all pages |

mod changes;
mod etcd_rows;
mod kinds;
mod rows;
mod watch;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use axum::body::Bytes;
use parking_lot::Mutex;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use tokio::sync::{Notify, broadcast};

use crate::{
    durations::Durations,
    migration::{Executor, Migration, Mode},
};

pub(super) use changes::publish;
pub(super) use kinds::Kind;
pub(super) use watch::follow_all;

/// Most objects of one kind that are kept. The page says where there are more.
pub(super) const MOST_OBJECTS: usize = 20_000;
/// Most migrations of the past by which it is told how long steps take.
const MOST_PAST: usize = 1000;
/// Batches of changes that a page may be behind. Then its stream ends, and it asks for all anew.
const BATCHES: usize = 64;

/// A row in JSON, shared by all that show it.
#[derive(Clone)]
pub(super) struct Row(Arc<RawValue>);

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// Whether a kind can be shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "state", content = "message")]
pub(super) enum Availability {
    /// It is being listed for the first time.
    #[default]
    Listing,
    /// It is watched.
    Watched,
    /// The API server does not serve it.
    NotServed,
    /// The user may not list or watch it.
    Forbidden(String),
    /// The watch has failed and is tried again; rows may be old.
    Failing(String),
}

/// One kind: its rows by namespace and name.
#[derive(Default)]
struct Table {
    availability: Availability,
    rows: BTreeMap<String, Row>,
    /// All of its objects were listed at some time.
    was_listed: bool,
    /// There are more objects than are kept.
    is_cut: bool,
}

#[derive(Default)]
struct Inner {
    tables: BTreeMap<Kind, Table>,
    /// Migrations, from which follows how long steps take.
    migrations: BTreeMap<String, Arc<Migration>>,
    /// Objects that changed since the last batch.
    changed: BTreeSet<(Kind, String)>,
    /// Kinds whose availability changed since the last batch.
    told: BTreeSet<Kind>,
}

/// All of it.
pub(super) struct State {
    inner: Mutex<Inner>,
    wake: Notify,
    batches: broadcast::Sender<Bytes>,
}

/// Part of a kind, as it goes to a page.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rows {
    kind: Kind,
    availability: Availability,
    is_cut: bool,
    /// Whether the page forgets the rows of the kind that it has.
    is_first: bool,
    rows: Vec<Row>,
    removed: Vec<String>,
}

/// All rows at one moment, and the changes that follow.
pub(super) struct Subscription {
    pub(super) rows: Vec<Rows>,
    pub(super) batches: broadcast::Receiver<Bytes>,
}

impl State {
    pub(super) fn new() -> Self {
        let tables = Kind::ALL.into_iter().map(|kind| (kind, Table::default())).collect();
        let (batches, _) = broadcast::channel(BATCHES);
        let inner = Mutex::new(Inner { tables, ..Inner::default() });
        Self { inner, wake: Notify::new(), batches }
    }

    /// All rows of a kind.
    pub(super) fn rows(&self, kind: Kind) -> Rows {
        self.inner.lock().rows(kind)
    }

    /// All rows, and the changes that follow. No change is missing between both; one may be in both.
    pub(super) fn subscribe(&self) -> Subscription {
        let inner = self.inner.lock();
        let batches = self.batches.subscribe();
        Subscription { rows: Kind::ALL.into_iter().map(|kind| inner.rows(kind)).collect(), batches }
    }

    /// How long steps took in the newest migrations of this kind that have succeeded.
    pub(super) fn durations(&self, mode: Mode, executor: Executor) -> Durations {
        let is_one =
            |one: &&Arc<Migration>| one.has_succeeded() && (one.mode, one.executor) == (mode, executor);
        let mut past: Vec<Arc<Migration>> =
            self.inner.lock().migrations.values().filter(is_one).cloned().collect();
        past.sort_by_key(|one| Reverse(one.created));
        past.truncate(MOST_PAST);
        Durations::of(past.iter().map(Arc::as_ref), mode, executor)
    }

    /// An object was created or changed.
    fn apply(&self, kind: Kind, key: String, object: kinds::Object) {
        let mut inner = self.inner.lock();
        if inner.apply(kind, &key, object) {
            inner.changed.insert((kind, key));
            drop(inner);
            self.wake.notify_one();
        }
    }

    /// An object is gone.
    fn remove(&self, kind: Kind, key: String) {
        let mut inner = self.inner.lock();
        if inner.remove(kind, &key) {
            inner.changed.insert((kind, key));
            drop(inner);
            self.wake.notify_one();
        }
    }

    /// All objects of a kind were listed.
    fn replace(&self, kind: Kind, objects: BTreeMap<String, kinds::Object>, is_cut: bool) {
        let mut inner = self.inner.lock();
        let table = inner.tables.entry(kind).or_default();
        (table.is_cut, table.was_listed) = (is_cut, true);
        let gone: Vec<String> =
            table.rows.keys().filter(|key| !objects.contains_key(*key)).cloned().collect();
        for key in gone {
            inner.remove(kind, &key);
            inner.changed.insert((kind, key));
        }
        for (key, object) in objects {
            if inner.apply(kind, &key, object) {
                inner.changed.insert((kind, key));
            }
        }
        drop(inner);
        self.tell(kind, Availability::Watched);
    }

    /// Whether the objects of a kind were listed, now or before.
    fn was_listed(&self, kind: Kind) -> bool {
        self.inner.lock().tables.get(&kind).is_some_and(|table| table.was_listed)
    }

    /// Whether a kind can be shown has become known.
    fn tell(&self, kind: Kind, availability: Availability) {
        let mut inner = self.inner.lock();
        let table = inner.tables.entry(kind).or_default();
        let is_same = table.availability == availability;
        if matches!(availability, Availability::NotServed | Availability::Forbidden(_)) {
            // What cannot be listed any more is not shown as if it were there.
            let keys: Vec<String> = table.rows.keys().cloned().collect();
            for key in keys {
                inner.remove(kind, &key);
                inner.changed.insert((kind, key));
            }
        }
        if let Some(table) = inner.tables.get_mut(&kind) {
            table.availability = availability;
        }
        if !is_same || !inner.changed.is_empty() {
            inner.told.insert(kind);
            drop(inner);
            self.wake.notify_one();
        }
    }
}

impl Inner {
    fn rows(&self, kind: Kind) -> Rows {
        let table = self.tables.get(&kind);
        Rows {
            kind,
            availability: table.map(|table| table.availability.clone()).unwrap_or_default(),
            is_cut: table.is_some_and(|table| table.is_cut),
            is_first: true,
            rows: table.map(|table| table.rows.values().cloned().collect()).unwrap_or_default(),
            removed: Vec::new(),
        }
    }

    /// Whether that changes what is shown.
    fn apply(&mut self, kind: Kind, key: &str, object: kinds::Object) -> bool {
        let table = self.tables.entry(kind).or_default();
        if table.rows.len() >= MOST_OBJECTS && !table.rows.contains_key(key) {
            return !std::mem::replace(&mut table.is_cut, true);
        }
        if let Some(migration) = object.migration {
            self.migrations.insert(key.to_owned(), Arc::new(migration));
        }
        let is_same = table.rows.get(key).is_some_and(|row| row.0.get() == object.row.0.get());
        if !is_same {
            table.rows.insert(key.to_owned(), object.row);
        }
        !is_same
    }

    fn remove(&mut self, kind: Kind, key: &str) -> bool {
        if kind == Kind::Migrations {
            self.migrations.remove(key);
        }
        self.tables.get_mut(&kind).is_some_and(|table| table.rows.remove(key).is_some())
    }
}
