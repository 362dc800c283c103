//! Restores elsewhere, only to read what came of it.

use std::path::{Path, PathBuf};

use repot_etcd_core::{digest::Digest, snapshot::Revision};

use super::{Error, Options, Result, Selection, private};
use crate::{digest, snapshot::store::Store};

/// The programs that do it.
#[derive(Clone, Debug)]
pub struct Tools {
    /// Path or name of the program `etcd`.
    pub etcd: PathBuf,
    /// Path or name of the program `etcdutl`.
    pub etcdutl: PathBuf,
}

/// Restores the newest state of a store into a throw-away directory of `scratch`, starts a private etcd on it and reads all of
/// it. Gives the revision of the snapshots, and what is there.
///
/// # Errors
/// [`Error`].
pub async fn prove(store: &Store, scratch: &Path, tools: &Tools) -> Result<(Revision, Digest)> {
    let place = tempfile::Builder::new().prefix("proof.").tempdir_in(scratch).map_err(super::at(scratch))?;
    let options = Options {
        data_dir: place.path().join("data"),
        etcdutl: tools.etcdutl.clone(),
        etcd: tools.etcd.clone(),
        from: Selection::Newest,
        bump_revision: 0,
        lease_ttl: std::time::Duration::from_secs(3600),
        member: private::member(),
        parallel: 4,
    };
    let restored = super::restore(store, &options, &|_| {}).await?;
    let mut etcd = private::Etcd::start(&tools.etcd, place.path(), &options.data_dir).await?;
    let found = digest::digest(&etcd.client).await;
    // Why it died explains more than what failed for it.
    if let Some(error) = etcd.died() {
        return Err(error);
    }
    let found = found.map_err(Error::Digest)?;
    etcd.stop().await?;
    Ok((restored.revision, found))
}
