//! Reading everything that rests, to the last byte.
//!
//! Servers may run beside it: an object that changes while it is read is read again, and what is being written is no fault. A
//! repair never removes anything: what nobody can read is put into [`quarantine`](super::quarantine), where nothing serves it
//! and the collector leaves its chunks alone.

use std::fmt;

use bytes::Bytes;

use super::{
    Core, Store,
    audit::Named,
    collect::Duty,
    pages::Pages,
    path,
    payload::{Lost, Reader},
    quarantine::Strays,
    types::{Key, Object},
};
use crate::{
    Error, Result,
    backend::{Compare, KeyValue, Op, Outcome, Revision, Txn},
    record::Payload,
};

/// How often an object is read again that somebody changes at the same time.
const TRIES: usize = 20;

/// What is wrong with what rests at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The record does not open: nothing of the object can be read.
    Record(&'static str),
    /// Head and some of the payload can be read, but not these parts.
    Payload(Vec<Lost>),
    /// The backend cannot read its record: where it rests is broken.
    Unread,
    /// The key that wraps it is not in the configuration at hand; the object may be whole.
    Locked(String),
    /// Nothing beside its chunks says that they are in use: the collector of an earlier version takes them for garbage.
    Unowned,
    /// What rests here is none of ours.
    Foreign,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(what) => write!(f, "all of it is lost: {what}"),
            Self::Payload(lost) => {
                let bytes: u64 = lost.iter().map(|part| part.bytes.end - part.bytes.start).sum();
                write!(f, "{bytes} bytes of its payload are lost:")?;
                let mut parts = lost
                    .iter()
                    .map(|part| format!(" {} to {} ({})", part.bytes.start, part.bytes.end, part.what));
                parts.try_for_each(|part| f.write_str(&part))
            }
            Self::Unread => f.write_str("all of it is lost: the backend cannot read its record"),
            Self::Locked(why) => write!(f, "it cannot be opened with this configuration: {why}"),
            Self::Unowned => f.write_str("its chunks are not marked as in use; --repair marks them"),
            Self::Foreign => f.write_str("this key is none of an object"),
        }
    }
}

/// What was done about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing: that was not asked for, or there is nothing that could be done.
    Left,
    /// It is in quarantine under this name.
    Quarantined(String),
    /// What was missing is there again.
    Mended,
    /// Somebody changed the object meanwhile: check again.
    Changed,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The object, or the path of what is none.
    pub place: String,
    /// What is wrong with what is there.
    pub trouble: Damage,
    /// What was done about it.
    pub remedy: Remedy,
}

/// What a check has read and found so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Objects whose record opens; some of their payload may be lost.
    pub objects: u64,
    /// Bytes of payload that were read and proved.
    pub bytes: u64,
    /// Chunks in the store; known only at the end of the check.
    pub chunks: u64,
    /// Chunks that no object names; the collector removes them.
    pub orphans: u64,
    /// Chunks that are being written.
    pub in_flight: u64,
    /// Findings, with or without a remedy.
    pub findings: u64,
    /// Findings that nothing was done about.
    pub open: u64,
}

impl Store {
    /// Reads every object to its last byte and looks at every chunk. `found` is told what is wrong, `progress` how far it is.
    ///
    /// With `repair`, what cannot be read is put into quarantine, and marks that are missing are set.
    ///
    /// # Errors
    /// Where the backend or a key management service fails: nothing is taken for damaged because of that.
    pub async fn fsck(
        &self,
        repair: bool,
        mut found: impl FnMut(Finding),
        mut progress: impl FnMut(Checked),
    ) -> Result<Checked> {
        let core = &self.inner.core;
        let (mut checked, mut strays) = (Checked::default(), None);
        let mut records = Pages::new(core, path::REGISTRY, None, true);
        while let Some(page) = records.next().await? {
            for kv in page {
                let troubles = check(self, kv.key.clone(), &mut checked).await?;
                for (trouble, state) in troubles {
                    let remedy = match repair {
                        true => core.remedy(&trouble, state, &mut strays).await?,
                        false => Remedy::Left,
                    };
                    checked.findings += 1;
                    checked.open += u64::from(matches!(remedy, Remedy::Left | Remedy::Changed));
                    found(Finding { place: place(&kv.key), trouble, remedy });
                }
            }
            progress(checked);
        }
        let chunks = core.audit(&Duty { remove: false, fence: None }, Named::All).await?;
        (checked.chunks, checked.orphans, checked.in_flight) =
            (chunks.chunks, chunks.removed, chunks.in_flight);
        Ok(checked)
    }
}

/// The state that was judged.
struct State {
    path: Bytes,
    modified: Revision,
    object: Option<Object>,
}

/// What is wrong with the record at a path, in its newest state.
async fn check(store: &Store, path: Bytes, checked: &mut Checked) -> Result<Vec<(Damage, State)>> {
    let core = &store.inner.core;
    for _ in 0..TRIES {
        let (kv, at) = match core.read(&path).await {
            Ok((Some(kv), at)) => (kv, at),
            Ok((None, _)) => return Ok(Vec::new()),
            Err(Error::Damaged(_)) => {
                let unread = State { path, modified: Revision(0), object: None };
                return Ok(vec![(Damage::Unread, unread)]);
            }
            Err(error) => return Err(error),
        };
        let state = |object| State { path: path.clone(), modified: kv.modified, object };
        let object = match core.open(kv.clone(), at).await {
            Ok(object) => object,
            Err(error) => return Ok(vec![(trouble(&kv, error)?, state(None))]),
        };
        let lost = match Reader::new(core.clone(), object.clone()).lost().await {
            Ok(lost) => lost,
            // It changed meanwhile, and its old state is gone.
            Err(Error::Expired { .. }) => continue,
            Err(error) => return Err(error),
        };
        if !lost.is_empty() && core.read(&path).await?.0.is_none_or(|now| now.modified != kv.modified) {
            continue;
        }
        checked.objects += 1;
        checked.bytes += object.payload_len;
        let unowned = !core.is_owned(&object, &path).await?;
        let mut troubles = Vec::new();
        if unowned {
            troubles.push((Damage::Unowned, state(Some(object.clone()))));
        }
        if !lost.is_empty() {
            troubles.push((Damage::Payload(lost), state(Some(object))));
        }
        return Ok(troubles);
    }
    Err(Error::Unavailable(format!("{} changes faster than it can be read", place(&path))))
}

/// What it means that a record does not open.
fn trouble(kv: &KeyValue, error: Error) -> Result<Damage> {
    match error {
        Error::Corrupt { .. } if path::parse_record(&kv.key).is_none() => Ok(Damage::Foreign),
        Error::Corrupt { what, .. } => Ok(Damage::Record(what)),
        Error::Sealing { source, .. } => Ok(Damage::Locked(source.to_string())),
        other => Err(other),
    }
}

fn place(path: &Bytes) -> String {
    path::parse_record(path)
        .map_or_else(|| String::from_utf8_lossy(path).into_owned(), |key: Key| key.to_string())
}

impl Core {
    async fn is_owned(&self, object: &Object, path: &Bytes) -> Result<bool> {
        let Payload::Chunks(_) = object.record.payload else { return Ok(true) };
        let owner = path::owner(object.uid, path);
        Ok(self.backend.get(owner, None).await.map_err(|error| self.error(error))?.is_some())
    }

    async fn remedy(&self, trouble: &Damage, state: State, strays: &mut Option<Strays>) -> Result<Remedy> {
        match trouble {
            Damage::Record(_) | Damage::Payload(_) => {
                let moved = self.quarantine(&state.path, state.modified, strays).await?;
                Ok(moved.map_or(Remedy::Changed, Remedy::Quarantined))
            }
            Damage::Unowned => {
                let Some(object) = &state.object else { return Ok(Remedy::Left) };
                let owner = Op::Put(path::owner(object.uid, &state.path), Bytes::new());
                let compares = vec![Compare::ModifiedAt(state.path.clone(), state.modified)];
                let outcome = self.backend.txn(Txn { compares, ops: vec![owner] }).await;
                Ok(match outcome.map_err(|error| self.error(error))? {
                    Outcome::Committed(_) => Remedy::Mended,
                    Outcome::Failed => Remedy::Changed,
                })
            }
            Damage::Unread | Damage::Locked(_) | Damage::Foreign => Ok(Remedy::Left),
        }
    }
}
