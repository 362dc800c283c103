//! The last events of an etcd that has lost ownership, as deltas of the chain that its store has: whoever follows that chain needs
//! nothing else, however large the etcd is. The final full snapshot is taken after it.

use std::{collections::VecDeque, time::Duration};

use etcd_client::Client;
use jiff::Timestamp;
use repot_etcd_core::snapshot::{Kind, Revision, SnapshotName, chain, decide};
use tokio::{task::yield_now, time::timeout};

use super::{history::OwnHistory, settings::Snapshots};
use crate::snapshot::{
    store,
    take::{self, Draft, Events},
};

/// How long the next event may take to come.
const EVENTS: Duration = Duration::from_secs(10);

/// Why there is no final delta.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The events cannot be had, or cannot be stored.
    #[error(transparent)]
    Take(#[from] take::Error),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// An event did not come in time.
    #[error("the events up to revision {0} did not come within {EVENTS:?} of each other")]
    Late(Revision),
    /// There is nothing that the events could follow on.
    #[error("the snapshots in the store are not continued: {0}")]
    NoChain(String),
}

impl Error {
    /// Whether the store failed: it is worth another attempt.
    pub(super) fn is_of_store(&self) -> bool {
        matches!(self, Self::Store(_) | Self::Take(take::Error::Store(_)))
    }
}

/// What the final delta is made of.
pub(super) struct FinalDelta<'a> {
    pub(super) client: &'a Client,
    pub(super) history: &'a OwnHistory,
    pub(super) settings: &'a Snapshots,
    /// All snapshots of the history.
    pub(super) names: &'a [SnapshotName],
    /// Id of the cluster, hexadecimal.
    pub(super) cluster: &'a str,
    /// The revision that etcd is at.
    pub(super) current: Revision,
}

impl FinalDelta<'_> {
    /// Stores all events after the newest snapshot, and gives the snapshot that reaches the revision of etcd: the last delta, or the
    /// newest snapshot where there are no events after it.
    ///
    /// # Errors
    /// [`Error`]. Deltas that were stored before it are ordinary ones.
    pub(super) async fn store(&self) -> Result<SnapshotName, Error> {
        let store = self.history.snapshots();
        let full = self.names.iter().filter(|name| name.kind == Kind::Full).max();
        let ours = match full {
            Some(full) => store.cluster(full).await?.as_deref() == Some(self.cluster),
            None => false,
        };
        let facts =
            decide::Facts { names: self.names, ours, current: self.current, due: false, broken: false };
        let after = match decide::start(&facts) {
            decide::Start::Continue(after) => after,
            decide::Start::Full(why) => return Err(Error::NoChain(why.to_owned())),
            decide::Start::Refuse(why) => return Err(Error::NoChain(why)),
        };
        self.history.make_current().await?;
        if after < self.current {
            return self.store_events(after).await;
        }
        let plan = chain::plan(self.names, None).map_err(|error| Error::NoChain(error.to_string()))?;
        Ok(plan.deltas.last().unwrap_or(&plan.base).clone())
    }

    async fn store_events(&self, after: Revision) -> Result<SnapshotName, Error> {
        let late = || Error::Late(self.current);
        let events = timeout(EVENTS, Events::after(self.client, after)).await;
        let mut events = events.map_err(|_| late())??;
        let compression = self.settings.compression;
        let (mut draft, mut came) = (Draft::new(compression, after)?, VecDeque::new());
        loop {
            if came.is_empty() {
                came = timeout(EVENTS, events.next()).await.map_err(|_| late())??.into();
            }
            draft.push_some(&mut came, Timestamp::now())?;
            yield_now().await;
            let reached = draft.last().unwrap_or(after);
            if reached >= self.current {
                return self.save(draft).await;
            }
            // No more of it is kept in memory than of any delta.
            if draft.bytes() >= self.settings.memory {
                let full = std::mem::replace(&mut draft, Draft::new(compression, reached)?);
                self.save(full).await?;
            }
        }
    }

    async fn save(&self, draft: Draft) -> Result<SnapshotName, Error> {
        self.history.check_is_open().await?;
        Ok(draft.save(self.history.snapshots(), Timestamp::now()).await?.name)
    }
}
