//! A final snapshot that came after another etcd had gone on from its store: it is kept beside that one's, and what it holds more is told.
//!
//! ```text
//! <target>/histories/<name>/v2/…        the snapshot, as it was at the source
//! <target>/histories/<name>/late.json   what it holds that the other etcd did not begin with: names of keys, and no values
//! ```
//!
//! The history never is the current one of the store, so no etcd is restored from it.

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use repot_etcd_core::snapshot::{Revision, SnapshotName};
use serde::{Deserialize, Serialize};

use super::{
    changes::{self, Change, Changes, changes},
    copy, inspect,
    store::{self, Store},
};

/// Name of the object with the report.
const REPORT: &str = "late.json";
/// So many names of keys are in a report, each with so many characters: it becomes a part of a status.
pub const NAMED: usize = 100;
const NAME_CHARACTERS: usize = 400;

/// Why a late snapshot is not kept.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A store cannot be read or written.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The source does not have it.
    #[error("{store} has no snapshot {name} in its current history")]
    Gone {
        /// URL of the source.
        store: String,
        /// The snapshot.
        name: SnapshotName,
    },
    /// It cannot be copied.
    #[error("snapshot {name} cannot be copied")]
    Copy {
        /// The snapshot.
        name: SnapshotName,
        /// Why.
        #[source]
        source: Arc<inspect::Error>,
    },
    /// The report is no JSON.
    #[error("the report of a late snapshot is damaged")]
    Report(#[source] serde_json::Error),
}

/// What a late snapshot holds that the other etcd did not begin with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LateReport {
    /// Name of the snapshot.
    pub name: String,
    /// Revision of etcd that it holds.
    pub revision: i64,
    /// Revision that the other etcd began with.
    pub held_revision: i64,
    /// Keys that were created in between.
    pub created: u64,
    /// Keys that were written in between, and existed before.
    pub updated: u64,
    /// Keys that were deleted in between.
    pub deleted: u64,
    /// Their names, no more than [`NAMED`], in the order of keys.
    pub keys: Vec<String>,
    /// Why some or all of it is not known; empty where all is.
    pub message: String,
}

/// Copies a final snapshot of the source into a history of its own at the target, and reports what it holds more than the first history
/// there, which is what the etcd of the target began with: at least the revision `least`, whose snapshots may have been collected since.
/// Again after any failure.
///
/// # Errors
/// [`Error`]. That the keys are not known is no error: the report says why.
pub async fn keep(
    source: &Store,
    target: &Store,
    name: &SnapshotName,
    (history, least): (&str, Revision),
    scratch: &Path,
) -> Result<LateReport, Error> {
    let held = held_revision(target, name.last).await?.max(least);
    let place = target.history(history);
    copy_one(source, &place, name).await?;
    let report = match changes(&place, held, scratch).await {
        Ok(found) => report(name, held, &found),
        Err(error) => unknown(name, held, &error),
    };
    let json = serde_json::to_vec(&report).map_err(Error::Report)?;
    place.write_small(REPORT, Bytes::from(json)).await?;
    Ok(report)
}

/// The revision that the etcd of a store began with, by what was copied there of a source that has reached `reached`; 0 where nothing
/// was. The etcd itself has raised its revision far beyond that when it began.
///
/// # Errors
/// [`store::Error`].
pub async fn held_revision(target: &Store, reached: Revision) -> store::Result<Revision> {
    let all = target.history(store::FIRST_HISTORY).list_quickly().await?;
    let copied = all.iter().map(|one| one.name.last).filter(|last| *last <= reached);
    Ok(copied.max().unwrap_or_default())
}

/// The report of a late snapshot; `None` where it was not made.
///
/// # Errors
/// [`Error::Store`], [`Error::Report`].
pub async fn read_report(target: &Store, history: &str) -> Result<Option<LateReport>, Error> {
    let json = target.history(history).read_small(REPORT).await?;
    json.map(|json| serde_json::from_slice(&json).map_err(Error::Report)).transpose()
}

async fn copy_one(source: &Store, place: &Store, name: &SnapshotName) -> Result<(), Error> {
    let source = source.current().await?;
    let mut all = source.list_quickly().await?;
    all.retain(|one| one.name == *name);
    if all.is_empty() {
        return Err(Error::Gone { store: source.url().to_owned(), name: name.clone() });
    }
    let report = copy::copy_these(all, &source, place).await?;
    match report.failed.into_iter().next() {
        Some((name, source)) => Err(Error::Copy { name, source }),
        None => Ok(()),
    }
}

fn report(name: &SnapshotName, held: Revision, found: &Changes) -> LateReport {
    let count = |change| u64::try_from(found.count(change)).unwrap_or(u64::MAX);
    let forgotten = found.forgotten.map(|revision| {
        format!("keys that were deleted between revisions {held} and {revision} may be missing here")
    });
    let further = (found.further > 0).then(|| format!("{} changes of further keys", found.further));
    LateReport {
        name: name.to_string(),
        revision: found.reaches.0,
        held_revision: held.0,
        created: count(Change::Created),
        updated: count(Change::Updated),
        deleted: count(Change::Deleted),
        keys: found.keys.keys().take(NAMED).map(|key| short(text(key))).collect(),
        message: forgotten.into_iter().chain(further).collect::<Vec<_>>().join("; "),
    }
}

fn unknown(name: &SnapshotName, held: Revision, error: &changes::Error) -> LateReport {
    let mut message = format!("the keys are not known: {error}");
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        message.push_str(&format!(": {error}"));
        cause = error.source();
    }
    LateReport {
        name: name.to_string(),
        revision: name.last.0,
        held_revision: held.0,
        message,
        ..LateReport::default()
    }
}

fn short(name: String) -> String {
    match name.char_indices().nth(NAME_CHARACTERS) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name,
    }
}

/// A key as a text of one line: what is no printable character is escaped.
#[must_use]
pub fn text(key: &[u8]) -> String {
    match std::str::from_utf8(key) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        Ok(_) | Err(_) => key.escape_ascii().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn report_names_keys_and_says_what_is_not_known() {
        let name: SnapshotName = "Full-00000000-00000020-1700000000.gz.final".parse().expect("a name");
        let keys: BTreeMap<_, _> =
            (0..150).map(|at| (format!("/k/{at:03}").into_bytes(), Change::Created)).collect();
        let mut found = Changes { reaches: Revision(20), forgotten: None, keys, further: 0 };
        let all = report(&name, Revision(5), &found);
        assert_eq!((all.created, all.updated, all.keys.len()), (150, 0, NAMED));
        assert_eq!((all.keys[0].as_str(), all.message.as_str()), ("/k/000", ""));
        (found.forgotten, found.further) = (Some(Revision(9)), 3);
        let message = report(&name, Revision(5), &found).message;
        assert!(message.contains("between revisions 5 and 9"), "{message}");
        assert!(message.contains("3 changes of further keys"), "{message}");
    }

    #[test]
    fn long_names_are_cut_in_a_report() {
        assert_eq!(short("k".repeat(NAME_CHARACTERS)).len(), NAME_CHARACTERS);
        let cut = short("ä".repeat(1 << 20));
        assert_eq!((cut.chars().count(), cut.chars().last()), (NAME_CHARACTERS + 1, Some('…')));
    }

    #[test]
    fn key_is_one_line_whatever_it_holds() {
        assert_eq!(text("/registry/pods/ä".as_bytes()), "/registry/pods/ä");
        assert_eq!(text(b"a\nb\xff"), r"a\nb\xff");
    }
}
