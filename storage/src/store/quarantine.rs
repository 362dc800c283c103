//! Records that nothing serves: they cannot be read, and are kept in case that somebody still can make something of them.
//!
//! A record is moved in one transaction, together with what protects its chunks: an owner that does not open. So the collector
//! leaves them alone until the record is put back or purged.

use std::collections::HashMap;

use bytes::Bytes;
use uuid::Uuid;

use super::{Store, core::Core, manifest, pages::Pages, path};
use crate::{
    Error, Result,
    backend::{Compare, Effect, KeyValue, Op, Outcome, Revision, Txn},
    record::Sealed,
};

/// Owners under uids of which no record tells, by the path of their record.
pub(super) type Strays = HashMap<Bytes, Vec<Uuid>>;

/// A record in quarantine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    /// Its name, by which it is put back or purged.
    pub name: String,
    /// The object that it was.
    pub object: String,
    /// Bytes of the record, as it rests.
    pub bytes: u64,
}

impl Store {
    /// Everything in quarantine.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn quarantined(&self) -> Result<Vec<Quarantined>> {
        let mut all = Vec::new();
        let mut pages = Pages::new(&self.inner.core, path::QUARANTINE, None, false);
        while let Some(page) = pages.next().await? {
            all.extend(page.into_iter().map(describe));
        }
        Ok(all)
    }

    /// Puts a record back to where it was.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that is none, [`Error::Exists`] where an object of this name is there again.
    pub async fn unquarantine(&self, name: &str) -> Result<()> {
        let core = &self.inner.core;
        let (hidden, home) = paths(name)?;
        let kv = core.hidden(&hidden).await?;
        let mut ops = vec![Op::Delete(hidden.clone()), Op::Put(home.clone(), kv.value)];
        for uid in core.uids_of(&hidden, &mut None).await? {
            ops.extend([
                Op::Delete(path::owner(uid, &hidden)),
                Op::Put(path::owner(uid, &home), Bytes::new()),
            ]);
        }
        let compares =
            vec![Compare::ModifiedAt(hidden.clone(), kv.modified), Compare::ModifiedAt(home, Revision(0))];
        if core.move_record(&hidden, compares, ops).await? { Ok(()) } else { Err(Error::Exists) }
    }

    /// Removes a record for good; its chunks go with the next collection.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that is none.
    pub async fn purge(&self, name: &str) -> Result<()> {
        let core = &self.inner.core;
        let (hidden, _) = paths(name)?;
        let kv = core.hidden(&hidden).await?;
        let mut ops = vec![Op::Delete(hidden.clone())];
        for uid in core.uids_of(&hidden, &mut None).await? {
            let manifest = manifest::of_all(uid).map_err(|_| Error::cipher_refused())?;
            ops.extend([Op::Delete(path::owner(uid, &hidden)), manifest]);
        }
        let compares = vec![Compare::ModifiedAt(hidden.clone(), kv.modified)];
        if core.move_record(&hidden, compares, ops).await? { Ok(()) } else { Err(Error::Conflict) }
    }
}

impl Core {
    /// Moves the record at a path out of the way, if it is still in this state; the name under which it is kept.
    pub(super) async fn quarantine(
        &self,
        home: &Bytes,
        modified: Revision,
        strays: &mut Option<Strays>,
    ) -> Result<Option<String>> {
        let uids = self.uids_of(home, strays).await?;
        let (Some(kv), _) = self.read(home).await? else { return Ok(None) };
        let hidden = path::quarantined(home, modified);
        let mut ops = vec![Op::Delete(home.clone()), Op::Put(hidden.clone(), kv.value)];
        for uid in uids {
            ops.extend([
                Op::Delete(path::owner(uid, home)),
                Op::Put(path::owner(uid, &hidden), Bytes::new()),
            ]);
        }
        let compares = vec![Compare::ModifiedAt(home.clone(), modified)];
        let moved = self.move_record(home, compares, ops).await?;
        Ok(moved.then(|| name(&hidden)))
    }

    /// Whether a transaction that takes a record away from `from` did so.
    async fn move_record(&self, from: &Bytes, compares: Vec<Compare>, ops: Vec<Op>) -> Result<bool> {
        match self.backend.txn(Txn { compares, ops }).await {
            Ok(outcome) => Ok(matches!(outcome, Outcome::Committed(_))),
            // Nobody else moves what is looked after: where it is gone, it was this.
            Err(error) if error.effect() != Effect::None && self.read(from).await?.0.is_none() => Ok(true),
            Err(error) => Err(self.error(error)),
        }
    }

    async fn hidden(&self, path: &Bytes) -> Result<KeyValue> {
        self.read(path).await?.0.ok_or(Error::Invalid("there is nothing of this name in quarantine"))
    }

    /// The objects whose chunks a record may name. A record tells its uid in clear; where that is damaged, `strays` are searched,
    /// and read first where they are not known yet.
    async fn uids_of(&self, record: &Bytes, strays: &mut Option<Strays>) -> Result<Vec<Uuid>> {
        if let Some(kv) = self.read(record).await?.0
            && let Ok(sealed) = Sealed::parse(kv.value)
        {
            let owner = path::only(&path::owner(sealed.uid, record));
            if self.backend.count(owner, None).await.map_err(|error| self.error(error))? > 0 {
                return Ok(vec![sealed.uid]);
            }
        }
        let strays = match strays {
            Some(known) => known,
            None => strays.insert(self.stray_owners().await?),
        };
        Ok(strays.get(record).cloned().unwrap_or_default())
    }
}

fn describe(kv: KeyValue) -> Quarantined {
    let home = path::parse_quarantined(&kv.key);
    let object = home.and_then(|home| path::parse_record(&home)).map(|key| key.to_string());
    Quarantined { name: name(&kv.key), object: object.unwrap_or_default(), bytes: kv.value.len() as u64 }
}

/// What people call it.
fn name(hidden: &Bytes) -> String {
    let text = String::from_utf8_lossy(hidden);
    text.strip_prefix(path::QUARANTINE).unwrap_or(&text).to_owned()
}

/// Where it is, and where it was.
fn paths(name: &str) -> Result<(Bytes, Bytes)> {
    let hidden = Bytes::from(format!("{}{name}", path::QUARANTINE));
    let home = path::parse_quarantined(&hidden).ok_or(Error::Invalid("this is no name in quarantine"))?;
    Ok((hidden, home))
}
