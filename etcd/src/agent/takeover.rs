//! A member that follows the snapshots of another etcd until it may found its own: `restore.standby` in the configuration.
//!
//! It follows while etcd is not to run, which an owner's record decides. Without a record it follows for as long as the configuration
//! says so. What is left to do when it founds its etcd is the last delta.

use std::sync::Arc;

use repot_etcd_core::{
    agent::{
        config::{ClusterState, Restore},
        http::RestoredStatus,
    },
    bootstrap::Volume as Content,
};
use tokio::time::{Instant, timeout_at};

use super::{
    begin::{Bootstrapper, Ready},
    report::Phase,
    settings::{chain, open_all},
    standby_etcd::StandbyEtcd,
};
use crate::snapshot::{
    restore::{
        Selection,
        follow::{self, Followed, Follower, Source},
    },
    store,
};

impl Bootstrapper {
    /// Whether a standby was begun, and the configuration does not say any more from where.
    pub(super) fn forgets_standby(&self) -> bool {
        self.settings.config.restore.is_none() && follow::is_left(&self.volume.data_dir())
    }

    /// Begins to follow where the configuration says so and the volume is empty. What fails is said, and tried again at the next call.
    pub(super) fn stand_by(&self) {
        let config = &self.settings.config;
        let Some(source) = config.restore.as_ref().filter(|restore| restore.standby) else { return };
        let is_empty = matches!(self.volume.inspect(), Ok(Content::Empty));
        if config.cluster_state != ClusterState::New || !is_empty {
            return;
        }
        if let Err(error) = self.follower(source) {
            tracing::warn!(error = chain(&error), "the standby cannot be started");
        }
    }

    /// Whether this member founds its etcd from a standby.
    pub(super) fn stands_by(&self, source: &Restore) -> bool {
        let founds_alone = self.settings.config.members.len() == 1;
        founds_alone && (source.standby || follow::is_left(&self.volume.data_dir()))
    }

    /// Takes over what the standby holds. Nothing, where it may not yet, or where that failed.
    pub(super) async fn take_over(&self, source: &Restore) -> Option<Ready> {
        let follower = match self.follower(source) {
            Ok(follower) => follower,
            Err(error) => {
                self.board.say(Phase::Waiting, format!("RestoreFailed: {}", chain(&error)));
                return None;
            }
        };
        if source.standby && self.settings.owner.is_none() {
            let message =
                "Standby: it follows the snapshots, and founds its etcd when restore.standby is switched off";
            self.board.say(Phase::Waiting, message);
            return None;
        }
        self.wait_for_end(&follower).await;
        self.board.say(Phase::Restoring, "the standby takes over");
        match follower.finish().await {
            Ok(followed) => {
                let Followed { base, deltas, revision, bumped, runs } = &followed;
                tracing::info!(%base, deltas, revision = revision.0, bumped = bumped.0, runs, "the standby has taken over");
                self.board.set_restored(restored(&followed));
                let etcd = self.standby.end();
                let running = match etcd.filter(|_| followed.runs) {
                    Some(etcd) => etcd.take().await,
                    None => None,
                };
                let entry = self.founding();
                Some(match running {
                    Some(running) => Ready::Running(Box::new(running), entry),
                    None => Ready::Start(entry),
                })
            }
            Err(error) => {
                self.board.say(Phase::Waiting, format!("RestoreFailed: {}", chain(&error)));
                None
            }
        }
    }

    /// Waits for what ends the time of the owner before, as long as the configuration says. When this is broken off, the next call waits
    /// for the rest.
    async fn wait_for_end(&self, follower: &Follower) {
        let end = self.standby.may_found_since() + self.settings.final_wait;
        if Instant::now() >= end || follower.state().ended {
            return;
        }
        self.board.say(Phase::Restoring, "the standby waits for the final delta or the final snapshot");
        // A standby that has ended is told of when it is asked to take over.
        if timeout_at(end, follower.watch().wait_for(|state| state.ended)).await.is_err() {
            tracing::warn!("the standby takes over without a final delta or a final snapshot");
        }
    }

    fn follower(&self, source: &Restore) -> Result<Arc<Follower>, store::Error> {
        self.standby.run(|| {
            let root = open_all(&source.store)?;
            let options = self.restore_options(Selection::Newest);
            // Without an owner's record, etcd serves at its own addresses, and has no deadline: it has to be started for that.
            let etcd = self
                .settings
                .owner
                .as_ref()
                .map(|_| Arc::new(StandbyEtcd::new(Arc::clone(&self.settings), self.programs.clone())));
            let own = etcd.clone().map(|etcd| etcd as Arc<dyn follow::MemberEtcd>);
            let source = Source { root, history: source.store.history.clone() };
            let follower = Follower::start_on(source, options, own);
            self.board.set_standby(follower.watch());
            Ok((follower, etcd))
        })
    }
}

fn restored(followed: &Followed) -> RestoredStatus {
    RestoredStatus {
        base: followed.base.to_string(),
        deltas: followed.deltas,
        revision: followed.revision.0,
        bumped_revision: followed.bumped.0,
    }
}
