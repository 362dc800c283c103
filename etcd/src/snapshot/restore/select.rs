//! Which snapshots of a store are restored.

use repot_etcd_core::snapshot::{
    SnapshotName,
    chain::{self, Plan},
};

use super::{Error, Result};
use crate::snapshot::store::{Store, Stored};

/// Which snapshots of a store are restored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Selection {
    /// The newest full one and the deltas after it.
    #[default]
    Newest,
    /// This full one and the deltas after it.
    Base(SnapshotName),
    /// These and no others.
    Exactly(Plan),
}

/// Works out what a restore of the newest state would apply.
///
/// # Errors
/// [`Error::Store`], [`Error::Plan`].
pub async fn plan(store: &Store) -> Result<Plan> {
    select(store, &store.list().await?, &Selection::Newest)
}

pub(super) fn select(store: &Store, all: &[Stored], from: &Selection) -> Result<Plan> {
    let names: Vec<SnapshotName> = all.iter().map(|one| one.name.clone()).collect();
    let base = match from {
        Selection::Newest => None,
        Selection::Base(base) => Some(base),
        Selection::Exactly(plan) => {
            let mut needed = std::iter::once(&plan.base).chain(&plan.deltas);
            return match needed.find(|name| !names.contains(name)) {
                Some(gone) => Err(Error::Gone { store: store.url().to_owned(), name: gone.clone() }),
                None => Ok(plan.clone()),
            };
        }
    };
    let failed = |source| Error::Plan { store: store.url().to_owned(), source };
    chain::plan(&names, base).map_err(failed)
}
