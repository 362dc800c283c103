//! The final snapshot of an etcd that has lost ownership: once, and of everything that clients ever wrote.
//!
//! Every member runs privately: it talks to the other members, and clients reach it only on the loopback interface. So members of
//! which each lost ownership for itself still have a quorum. The agent of the leader takes the snapshot, once no other voter
//! serves clients any more, and says in the store whose time it ends; the others wait for that. It counts where it holds all that
//! the own member has and ends the time of the own id: one that a person asked for does not.

use std::{collections::BTreeSet, time::Duration};

use etcd_client::{Client, Member};
use repot_apimachinery::time::Time;
use repot_etcd_core::snapshot::{Kind, Revision, SnapshotName};
use tokio::time::{Instant, sleep, timeout};

use super::{
    Agent, clients,
    clock::{self, Deadline},
    final_delta::FinalDelta,
    history::OwnHistory,
    http::peers,
    settings::chain,
    supervisor::Etcd,
};
use crate::{
    owner::Settings,
    snapshot::{store::Store, take},
};

/// From one look to the next.
const LOOK: Duration = Duration::from_secs(1);
/// The same at first: the others are about to say that they serve nobody, and clients wait for the next owner.
const SWIFT_LOOK: Duration = Duration::from_millis(250);
/// How long "at first" is.
const SWIFT: Duration = Duration::from_secs(10);
/// How long a member or a store has for a short answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Final snapshots that are asked whose time they end: the newest ones.
const CANDIDATES: usize = 4;
/// From this size on, in bytes, the full snapshot waits after the final delta: it would take the store, the network and processors from
/// whoever takes over meanwhile.
const LARGE: i64 = 256 << 20;
/// How long the full snapshot of a large etcd waits after the final delta.
const HEAD_START: Duration = Duration::from_secs(20);
/// An agent that hangs leaves a private etcd running for no longer.
pub(super) const LIFE: Duration = Duration::from_secs(60);

/// How it ended.
pub(super) enum Outcome {
    /// The snapshot of this name is in the store, and what ends the chain of deltas, where there is one.
    StoredSnapshot(String, Option<String>),
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

/// What is remembered from one attempt to the next.
#[derive(Default)]
struct Memory {
    /// The revision of the own member at first.
    own: Option<Revision>,
    /// The snapshot that was taken, and that does not yet say whose time it ends.
    taken: Option<SnapshotName>,
    /// Whether the events after the newest snapshot were looked for: that is done once.
    has_tried_delta: bool,
    /// The snapshot that ends the chain of deltas, once it says whose time it ends.
    delta: Option<SnapshotName>,
}

/// The final snapshot to be.
pub(super) struct FinalSnapshotTask<'a> {
    pub(super) agent: &'a Agent,
    pub(super) settings: &'a Settings,
    /// When the look began that told of the loss.
    pub(super) lost: Time,
}

impl FinalSnapshotTask<'_> {
    /// Lets etcd run privately and waits until the snapshot is in the store. etcd is not stopped then.
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

    /// Goes on until the leases of all members are over: one that comes late sees nothing, not even what itself has, without a quorum.
    pub(super) async fn linger(&self) {
        if self.voters().await.is_ok_and(|voters| voters.len() < 2) {
            return;
        }
        let end = self.lost.after(self.settings.timing.wait());
        while clock::whole_seconds() < end {
            self.agent.supervisor.renew(Deadline::after(LIFE));
            sleep(LOOK).await;
        }
    }

    async fn attempts(&self, say: &(impl Fn(&str) + Sync)) -> Outcome {
        let (mut memory, begun) = (Memory::default(), Instant::now());
        let mut end = begun + self.settings.quorum;
        loop {
            match self.attempt(&mut memory).await {
                Ok(name) => {
                    let delta = memory.delta.map(|delta| delta.to_string());
                    return Outcome::StoredSnapshot(name.to_string(), delta);
                }
                Err(Obstacle::Store(why)) => {
                    say(&format!("the store is waited for: {why}"));
                    end = Instant::now() + self.settings.quorum;
                }
                Err(Obstacle::Members(why)) if Instant::now() >= end && self.leases_are_over() => {
                    return Outcome::GivenUp(format!("there is no final snapshot: {why}"));
                }
                Err(Obstacle::Members(why)) => say(&why),
            }
            sleep(if begun.elapsed() < SWIFT { SWIFT_LOOK } else { LOOK }).await;
        }
    }

    async fn attempt(&self, memory: &mut Memory) -> Result<SnapshotName, Obstacle> {
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
        let own =
            *memory.own.get_or_insert(Revision(header.map_or(0, etcd_client::ResponseHeader::revision)));
        let history = self.history()?;
        let store = history.snapshots();
        let names = names_in(store).await?;
        if let Some(name) = self.found(store, &names, own).await? {
            return Ok(name);
        }
        let id = header.map_or(0, etcd_client::ResponseHeader::member_id);
        match status.leader() {
            0 => return Err(Obstacle::Members("the members have no quorum".to_owned())),
            leader if leader != id => {
                return Err(Obstacle::Members(format!("the leader, {leader:x}, has to take it")));
            }
            _ => {}
        }
        let voters = self.alone().await?;
        // Asked after that: until then, clients of other members could write.
        let current = clients::read(&client, PATIENCE).await.map_err(members)?;
        if !memory.has_tried_delta {
            let delta = FinalDelta {
                client: &client,
                history: &history,
                settings: &self.agent.settings.snapshots,
                names: &names,
                cluster: &format!("{:x}", header.map_or(0, etcd_client::ResponseHeader::cluster_id)),
                current,
            };
            memory.delta = self.end_chain(&delta, &voters).await?;
            memory.has_tried_delta = true;
            self.agent.board.set_final_delta(memory.delta.as_ref().map(ToString::to_string));
            if memory.delta.is_some() && status.db_size() >= LARGE {
                sleep(HEAD_START).await;
            }
        }
        let name = match memory.taken.take() {
            Some(name) => name,
            None => self.take(&client, &history, &names, current).await?,
        };
        self.check_voters(&voters).await?;
        if let Err(why) = self.name_owner(store, &name).await {
            memory.taken = Some(name);
            return Err(why);
        }
        Ok(name)
    }

    /// Stores what ends the chain of deltas, and says whose time that is. Without it, the final snapshot does both.
    async fn end_chain(
        &self,
        delta: &FinalDelta<'_>,
        voters: &BTreeSet<u64>,
    ) -> Result<Option<SnapshotName>, Obstacle> {
        let name = match delta.store().await {
            Ok(name) => name,
            Err(error) if error.is_of_store() => return Err(Obstacle::Store(chain(&error))),
            Err(error) => {
                tracing::info!(why = chain(&error), "there is no final delta, only a final snapshot");
                return Ok(None);
            }
        };
        self.check_voters(voters).await?;
        self.name_owner(delta.history.snapshots(), &name).await?;
        tracing::info!(%name, "the final delta is in the store");
        Ok(Some(name))
    }

    /// Checks that nobody began to vote since it was found that no other voter serves clients.
    async fn check_voters(&self, before: &BTreeSet<u64>) -> Result<(), Obstacle> {
        if self.leases_are_over() || self.alone().await? == *before {
            return Ok(());
        }
        Err(Obstacle::Members("the members are others than before the snapshot".to_owned()))
    }

    async fn take(
        &self,
        client: &Client,
        history: &OwnHistory,
        names: &[SnapshotName],
        current: Revision,
    ) -> Result<SnapshotName, Obstacle> {
        // A restore would take what reaches further, and never look at this one.
        let furthest = names.iter().map(|name| name.last).max();
        if let Some(further) = furthest.filter(|furthest| *furthest > current) {
            return Err(Obstacle::Store(format!(
                "AnotherHistory: it has snapshots up to revision {further}, and this etcd is at {current}"
            )));
        }
        history.make_current().await.map_err(|error| Obstacle::Store(chain(&error)))?;
        let how = (self.agent.settings.snapshots.compression, true);
        match take::full(client, history.snapshots(), &self.agent.scratch, how, jiff::Timestamp::now()).await
        {
            Ok(taken) => Ok(taken.name),
            Err(take::Error::Store(error)) => Err(Obstacle::Store(chain(&error))),
            Err(error) => Err(Obstacle::Members(chain(&error))),
        }
    }

    /// Says whose time the snapshot ends.
    async fn name_owner(&self, store: &Store, name: &SnapshotName) -> Result<(), Obstacle> {
        match timeout(PATIENCE, store.set_ended_owner(name, &self.settings.id)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Obstacle::Store(chain(&error))),
            Err(_) => Err(Obstacle::Store("it does not say in time whose time the snapshot ends".to_owned())),
        }
    }

    /// The final snapshot, where there is one. One that ends before the own data is of an earlier life: copied from another store.
    async fn found(
        &self,
        store: &Store,
        names: &[SnapshotName],
        own: Revision,
    ) -> Result<Option<SnapshotName>, Obstacle> {
        let finals = names.iter().filter(|name| name.kind == Kind::Full && name.is_final && name.last >= own);
        let mut finals: Vec<&SnapshotName> = finals.collect();
        finals.sort_unstable();
        for name in finals.into_iter().rev().take(CANDIDATES) {
            let asked = timeout(PATIENCE, store.ended_owner(name)).await;
            let asked = asked.map_err(|_| Obstacle::Store("it does not answer in time".to_owned()))?;
            if asked.map_err(|error| Obstacle::Store(chain(&error)))?.as_ref() == Some(&self.settings.id) {
                return Ok(Some(name.clone()));
            }
        }
        Ok(None)
    }

    fn history(&self) -> Result<OwnHistory, Obstacle> {
        let config = self.agent.settings.config.store.as_ref();
        let config = config.ok_or_else(|| Obstacle::Store("none is configured".to_owned()))?;
        OwnHistory::open(config).map_err(|error| Obstacle::Store(chain(&error)))
    }

    fn leases_are_over(&self) -> bool {
        clock::whole_seconds() >= self.lost.after(self.settings.timing.wait())
    }

    /// All voters, where no other one serves clients, by its own word. The lease of one that does not answer, or is a member of another
    /// seed, is over when the other side starts.
    async fn alone(&self) -> Result<BTreeSet<u64>, Obstacle> {
        let over = self.leases_are_over();
        let voters = match self.voters().await {
            Err(_) if over => return Ok(BTreeSet::new()),
            found => found.map_err(|error| Obstacle::Members(chain(&error)))?,
        };
        let own = &self.agent.settings.own.name;
        for voter in voters.iter().filter(|voter| voter.name() != own && !over) {
            let told = voter.client_urls().first().map(String::as_str);
            let (name, id) = (voter.name(), &self.settings.id);
            if !peers::says_that_it_is_cut_off(self.agent, name, told, id, PATIENCE).await {
                let why = format!(
                    "{:x} {} has not said that it serves no clients any more",
                    voter.id(),
                    voter.name()
                );
                return Err(Obstacle::Members(why));
            }
        }
        Ok(voters.iter().map(Member::id).collect())
    }

    /// Who votes, by etcd itself: the configuration may be from before a change of the members.
    async fn voters(&self) -> Result<Vec<Member>, clients::Error> {
        let client = self.agent.client().await?;
        // A linearizable read first, so that the list behind it is not an old one.
        clients::read(&client, PATIENCE).await?;
        let members = clients::members(&client, PATIENCE).await?;
        Ok(members.into_iter().filter(|member| !member.is_learner()).collect())
    }
}

/// Names of the snapshots in the store.
async fn names_in(store: &Store) -> Result<Vec<SnapshotName>, Obstacle> {
    let listed = store.list_quickly().await.map_err(|error| Obstacle::Store(chain(&error)))?;
    Ok(listed.into_iter().map(|stored| stored.name).collect())
}
