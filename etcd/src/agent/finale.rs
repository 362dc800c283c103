//! The final snapshot of an etcd that has lost ownership: once, and of everything that clients ever wrote.
//!
//! Every member runs privately: it talks to the other members, and clients reach it only on the loopback interface. So members of
//! which each lost ownership for itself still have a quorum. The agent of the leader takes the snapshot, once no other member
//! serves clients any more; the others wait until it is in the store. It counts where it holds all that the own member has.

use std::time::Duration;

use repot_plan::time::Time;
use tokio::time::{Instant, sleep, timeout};

use super::{
    Agent, clients,
    clock::Deadline,
    http::peers,
    owner::now,
    settings::{chain, open_current},
    supervisor::Etcd,
};
use crate::{
    owner::Settings,
    snapshot::{Kind, Revision, SnapshotName, store::Store, take},
};

/// From one look to the next.
const LOOK: Duration = Duration::from_secs(1);
/// How long a member or a store has for a short answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// An agent that hangs leaves a private etcd running for no longer.
const LIFE: Duration = Duration::from_secs(60);

/// How it ended.
pub(super) enum Outcome {
    /// The snapshot of this name is in the store.
    Taken(String),
    /// There is none, and trying again makes no sense.
    GivenUp(String),
}

/// Why it is not there yet.
enum Obstacle {
    /// The store; it is waited for as long as it takes.
    Store(String),
    /// This member or the others.
    Members(String),
}

/// The final snapshot to be.
pub(super) struct Finale<'a> {
    pub(super) agent: &'a Agent,
    pub(super) settings: &'a Settings,
    /// When the look began that told of the loss.
    pub(super) lost: Time,
}

impl Finale<'_> {
    /// Starts etcd privately and waits until the snapshot is in the store. etcd is not stopped then.
    pub(super) async fn run(&self, say: &(impl Fn(&str) + Sync)) -> Outcome {
        if self.agent.settings.config.store.is_none() {
            return Outcome::GivenUp(
                "no store for snapshots is configured: there is no final snapshot".to_owned(),
            );
        }
        self.agent.supervisor.order(Etcd::Private, Some(Deadline::after(LIFE)));
        let live = async {
            loop {
                sleep(LIFE / 4).await;
                self.agent.supervisor.renew(Deadline::after(LIFE));
            }
        };
        tokio::select! {
            outcome = self.attempts(say) => outcome,
            outcome = live => outcome,
        }
    }

    /// Goes on until every member runs privately: one that comes late sees nothing, not even what itself has, without a quorum.
    pub(super) async fn linger(&self) {
        if self.agent.settings.config.members.len() < 2 {
            return;
        }
        let end = self.lost.after(self.settings.timing.wait());
        while now() < end {
            self.agent.supervisor.renew(Deadline::after(LIFE));
            sleep(LOOK).await;
        }
    }

    async fn attempts(&self, say: &(impl Fn(&str) + Sync)) -> Outcome {
        let mut own = None;
        let mut end = Instant::now() + self.settings.quorum;
        loop {
            match self.attempt(&mut own).await {
                Ok(name) => return Outcome::Taken(name.to_string()),
                Err(Obstacle::Store(why)) => {
                    say(&format!("the store is waited for: {why}"));
                    end = Instant::now() + self.settings.quorum;
                }
                Err(Obstacle::Members(why)) if Instant::now() >= end && self.leases_are_over() => {
                    return Outcome::GivenUp(format!("there is no final snapshot: {why}"));
                }
                Err(Obstacle::Members(why)) => say(&why),
            }
            sleep(LOOK).await;
        }
    }

    async fn attempt(&self, own: &mut Option<Revision>) -> Result<SnapshotName, Obstacle> {
        let members = |error: clients::Error| Obstacle::Members(chain(&error));
        if timeout(PATIENCE, self.agent.supervisor.reached(Etcd::Private)).await.is_err() {
            return Err(Obstacle::Members(format!("etcd does not run: {}", self.agent.board.read().message)));
        }
        let client = self.agent.client().await.map_err(members)?;
        let mut maintenance = client.maintenance_client();
        let status = timeout(PATIENCE, maintenance.status()).await;
        let slow =
            |_| Obstacle::Members("the members have no quorum, it seems: etcd does not answer".to_owned());
        let status =
            status.map_err(slow)?.map_err(clients::Error::of("ask etcd how it is")).map_err(members)?;
        let header = status.header();
        // What it has at first: keys whose leases end while it runs privately are nobody's loss.
        let own = *own.get_or_insert(Revision(header.map_or(0, etcd_client::ResponseHeader::revision)));
        let store = self.store().await?;
        let names = names_in(&store).await?;
        if let Some(name) = found(&names, own) {
            return Ok(name.clone());
        }
        let id = header.map_or(0, etcd_client::ResponseHeader::member_id);
        match status.leader() {
            0 => return Err(Obstacle::Members("the members have no quorum".to_owned())),
            leader if leader != id => {
                return Err(Obstacle::Members(format!("the leader, {leader:x}, has to take it")));
            }
            _ => self.alone().await?,
        }
        // A restore would take what reaches further, and never look at this one.
        let current = Revision(header.map_or(0, etcd_client::ResponseHeader::revision));
        let furthest = names.iter().map(|name| name.last).max();
        if let Some(further) = furthest.filter(|furthest| *furthest > current) {
            return Err(Obstacle::Store(format!(
                "AnotherHistory: it has snapshots up to revision {further}, and this etcd is at {current}"
            )));
        }
        let how = (self.agent.settings.snapshots.compression, true);
        match take::full(&client, &store, &self.agent.scratch, how, jiff::Timestamp::now()).await {
            Ok(taken) => {
                self.name_owner(&store, &taken.name).await;
                Ok(taken.name)
            }
            Err(take::Error::Store(error)) => Err(Obstacle::Store(chain(&error))),
            Err(error) => Err(Obstacle::Members(chain(&error))),
        }
    }

    /// Says whose time the snapshot ends. The next owner that does not hear it waits until leases are over.
    async fn name_owner(&self, store: &Store, name: &SnapshotName) {
        let named = timeout(PATIENCE, store.set_ended_owner(name, &self.settings.id)).await;
        if !matches!(named, Ok(Ok(()))) {
            tracing::warn!(snapshot = %name, "the final snapshot does not say whose time it ends");
        }
    }

    async fn store(&self) -> Result<Store, Obstacle> {
        let config = self.agent.settings.config.store.as_ref();
        let config = config.ok_or_else(|| Obstacle::Store("none is configured".to_owned()))?;
        open_current(config).await.map_err(|error| Obstacle::Store(chain(&error)))
    }

    fn leases_are_over(&self) -> bool {
        now() >= self.lost.after(self.settings.timing.wait())
    }

    /// Whether no other member serves clients, by its own word. The lease of one that does not answer is over when the other side starts.
    async fn alone(&self) -> Result<(), Obstacle> {
        if self.leases_are_over() {
            return Ok(());
        }
        let settings = &self.agent.settings;
        for member in settings.config.members.iter().filter(|member| member.name != settings.own.name) {
            let Some(url) = member.client_urls.first() else { continue };
            if !peers::says_that_it_is_cut_off(self.agent, url, PATIENCE).await {
                let why = format!("{} has not said that it serves no clients any more", member.name);
                return Err(Obstacle::Members(why));
            }
        }
        Ok(())
    }
}

/// Names of the snapshots in the store.
async fn names_in(store: &Store) -> Result<Vec<SnapshotName>, Obstacle> {
    let listed = store.list_quickly().await.map_err(|error| Obstacle::Store(chain(&error)))?;
    Ok(listed.into_iter().map(|stored| stored.name).collect())
}

/// The final snapshot, where there is one. One that ends before the own data is of an earlier life: copied from another store.
fn found(names: &[SnapshotName], own: Revision) -> Option<&SnapshotName> {
    names.iter().filter(|name| name.kind == Kind::Full && name.is_final && name.last >= own).max()
}
