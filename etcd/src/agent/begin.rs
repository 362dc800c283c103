//! Before etcd is started: what the volume holds, what the others say, and what follows from that.

use std::{sync::Arc, time::Duration};

use etcd_client::Member;
use futures::{StreamExt, stream::FuturesUnordered};
use repot_api::conditions::Reason;
use repot_etcd_core::{
    agent::{config::ClusterState, http::RestoredStatus},
    bootstrap::{Cluster, Facts, PeerReport, StartMode, Volume as Content, decide},
};
use tokio::time::{sleep, timeout};

use super::{
    child::{Programs, STOP_GRACE},
    clients,
    flags::Entry,
    founding,
    identity::Identity,
    report::{Phase, StatusReporter},
    settings::{Settings, chain},
    standby::{STANDBY_LEFT, Standby},
    standby_etcd::Running,
    version,
    volume::{self, Volume},
};
use crate::snapshot::restore::{self, Progress, Restored, Selection};

/// From one look at what is waited for to the next.
const LOOK: Duration = Duration::from_secs(2);
/// A backup that could not be restored is not tried again sooner: it is read as a whole each time.
const RESTORE_AGAIN: Duration = Duration::from_secs(15);
/// How long a member has to say who is in the cluster.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a founder has to show that there is a quorum. Where it takes longer, the others begin as it did.
const QUORUM: Duration = Duration::from_secs(1);
/// How much the revision is raised, so that no client sees it go back: more than is written between a backup and its restore.
const BUMP: u64 = 1_000_000_000;
/// Length of leases that were granted after the last full snapshot.
const LEASE_TTL: Duration = Duration::from_secs(3600);
const PARALLEL: usize = 4;

/// How etcd may serve.
pub(super) enum Ready {
    /// It may be started with these members.
    Start(Entry),
    /// The etcd of a standby runs on the data directory, and may be given clients.
    Running(Box<Running>, Entry),
}

impl Ready {
    /// How it is started; one that runs is ended first.
    pub(super) async fn stop(self) -> Entry {
        match self {
            Self::Start(entry) => entry,
            Self::Running(running, entry) => {
                running.child.stop(STOP_GRACE).await;
                entry
            }
        }
    }
}

/// Gets a member to where its etcd can be started.
pub struct Bootstrapper {
    /// The checked configuration of this member.
    pub settings: Arc<Settings>,
    /// The volume that etcd's data is on.
    pub volume: Volume,
    /// The programs etcd and etcdutl, and how the guard is called.
    pub programs: Programs,
    /// Where it says what it waits for.
    pub board: StatusReporter,
    /// What follows the snapshots of another etcd, where something does.
    pub standby: Standby,
}

/// Who asks what others say of this member.
#[derive(Clone, Copy, Debug)]
enum Asker {
    /// A member with an empty volume, of an etcd that is founded.
    Founder,
    /// A member with an empty volume, of an etcd that exists.
    Newcomer,
    /// A member with data.
    Member(Identity),
}

impl Asker {
    fn is_of_other_cluster(self, cluster: u64) -> bool {
        matches!(self, Self::Member(own) if own.cluster != cluster)
    }
}

/// What a member of the cluster tells.
struct Told {
    /// Whether it has a quorum behind it.
    serves: bool,
    members: Vec<Member>,
}

impl Bootstrapper {
    /// Waits until etcd may be started, and tells how. It can be broken off at any time; a restore then begins anew the next time.
    pub(super) async fn ready(&self) -> Ready {
        loop {
            let flags = &self.settings.config.etcd_flags;
            if let Some(why) = version::too_old(&self.programs.etcd, flags).await {
                self.board.say(Phase::Waiting, why);
                sleep(LOOK).await;
                continue;
            }
            match self.look().await {
                Ok(Some(ready)) => return ready,
                Ok(None) => {}
                Err(error) => self.board.say(Phase::Waiting, chain(&error)),
            }
            sleep(LOOK).await;
        }
    }

    async fn look(&self) -> Result<Option<Ready>, volume::Error> {
        let content = self.volume.inspect()?;
        if content == Content::Empty {
            self.volume.forget_removal()?;
        }
        let config = &self.settings.config;
        // A cluster that has removed a member exists, however old the file is.
        let is_new = config.cluster_state == ClusterState::New && !self.volume.was_removed()?;
        let (heard, members) = match (&content, self.volume.identity()) {
            (Content::Empty, _) if is_new => self.hear(Asker::Founder).await,
            (Content::Empty, _) => self.hear(Asker::Newcomer).await,
            (Content::Data, Some(own)) => match self.hear(Asker::Member(own)).await {
                // The others may have ended since: an etcd that was joined ends once nobody needs it.
                (PeerReport::Nothing, members) if self.volume.records_removal_of(own) => {
                    (PeerReport::NotMember, members)
                }
                heard => heard,
            },
            (Content::Data, None) | (Content::Foreign(_), _) => (PeerReport::Nothing, Vec::new()),
        };
        let cluster = match is_new {
            true => Cluster::New { restore: config.restore.is_some() },
            false => Cluster::Existing,
        };
        let message = |why: Reason| format!("{}: {}", why.reason, why.message);
        match decide(&Facts { volume: content, cluster, heard }) {
            StartMode::Found if self.forgets_standby() => self.board.say(Phase::Waiting, STANDBY_LEFT),
            StartMode::Resume | StartMode::Found => return Ok(Some(Ready::Start(self.founding()))),
            StartMode::Restore => return Ok(self.restore().await),
            StartMode::Join => return Ok(Some(Ready::Start(self.joining(&members)))),
            StartMode::JoinAnew => {
                let place = self.volume.set_aside()?;
                tracing::warn!(place = %place.display(), "the data of a member that was removed is set aside");
                return Ok(Some(Ready::Start(self.joining(&members))));
            }
            StartMode::Removed(why) => {
                let noted = self.volume.identity().map(|own| self.volume.note_removal_of(own));
                if let Some(Err(error)) = noted {
                    tracing::warn!(error = chain(&error), "that this member was removed is not written down");
                }
                self.board.say_removed(message(why));
            }
            StartMode::Wait(why) => self.board.say(Phase::Waiting, message(why)),
            StartMode::Rejoin(why) => self.board.ask_to_rejoin(message(why)),
            StartMode::Refuse(why) => self.board.say(Phase::Refused, message(why)),
        }
        Ok(None)
    }

    /// What others say of this member, and the list in which they say it.
    async fn hear(&self, asker: Asker) -> (PeerReport, Vec<Member>) {
        let urls = self.endpoints().into_iter();
        let asked: FuturesUnordered<_> = urls.map(|url| self.ask(url, asker)).collect();
        let answers: Vec<Told> = asked.filter_map(async |answer| answer).collect().await;
        let weighed = answers.into_iter().map(|told| (self.weigh(&told, asker), told.members));
        let weight = |heard: PeerReport| match heard {
            PeerReport::Nothing => 0,
            PeerReport::NotMember => 1,
            PeerReport::Awaited => 2,
            PeerReport::Unstarted => 3,
            PeerReport::Started => 4,
        };
        weighed.max_by_key(|(heard, _)| weight(*heard)).unwrap_or((PeerReport::Nothing, Vec::new()))
    }

    fn endpoints(&self) -> Vec<String> {
        let config = &self.settings.config;
        if !config.client_endpoints.is_empty() {
            return config.client_endpoints.clone();
        }
        let others = config.members.iter().filter(|member| member.name != self.settings.own.name);
        others.flat_map(|member| member.client_urls.clone()).collect()
    }

    async fn ask(&self, url: String, asker: Asker) -> Option<Told> {
        let work = async {
            let client = clients::connect(&self.settings, vec![url.clone()], None).await?;
            // A cluster that exists is believed with a quorum behind it. While one is founded there need be none yet, and what a
            // single member remembers is enough to be careful.
            let serves = match asker {
                Asker::Founder => clients::read(&client, QUORUM).await.is_ok(),
                Asker::Newcomer | Asker::Member(_) => clients::read(&client, PATIENCE).await.map(|_| true)?,
            };
            let (cluster, members) = clients::roster(&client, PATIENCE).await?;
            Ok::<_, clients::Error>((cluster, Told { serves, members }))
        };
        match timeout(PATIENCE, work).await {
            // What another cluster says, means nothing for our data.
            Ok(Ok((cluster, _))) if asker.is_of_other_cluster(cluster) => None,
            Ok(Ok((_, told))) => Some(told),
            Ok(Err(error)) => {
                tracing::debug!(url, error = chain(&error), "no list of members");
                None
            }
            Err(_) => None,
        }
    }

    fn weigh(&self, Told { serves, members }: &Told, asker: Asker) -> PeerReport {
        if let Asker::Member(own) = asker
            && members.iter().any(|member| member.id() == own.member)
        {
            return PeerReport::Started;
        }
        let urls = &self.settings.own.peer_urls;
        match members.iter().find(|member| member.peer_urls().iter().any(|url| urls.contains(url))) {
            None => PeerReport::NotMember,
            // Client URLs are told by the member itself, when it runs.
            Some(member) if member.client_urls().is_empty() => match asker {
                Asker::Founder if !serves || !self.are_founders(members) => PeerReport::Awaited,
                Asker::Founder | Asker::Newcomer | Asker::Member(_) => PeerReport::Unstarted,
            },
            // Somebody else runs with our addresses.
            Some(_) if matches!(asker, Asker::Member(_)) => PeerReport::NotMember,
            Some(_) => PeerReport::Started,
        }
    }

    /// Whether founders of this etcd are among these members. Members of another etcd may still run with the same peer URLs and
    /// another token.
    fn are_founders(&self, members: &[Member]) -> bool {
        founding::member_ids(&self.settings.config).any(|id| members.iter().any(|member| member.id() == id))
    }

    fn joining(&self, members: &[Member]) -> Entry {
        let own = &self.settings.own;
        let each = members.iter().flat_map(|member| {
            let name = match member.name() {
                _ if member.peer_urls().iter().any(|url| own.peer_urls.contains(url)) => own.name.clone(),
                // Others that have not started have no name yet; etcd goes by URLs, and only asks for some name.
                "" => format!("{:x}", member.id()),
                name => name.to_owned(),
            };
            member.peer_urls().iter().map(move |url| format!("{name}={url}"))
        });
        Entry { members: each.collect::<Vec<_>>().join(","), state: "existing" }
    }

    /// With all members of the file, as founders.
    pub(super) fn founding(&self) -> Entry {
        Entry::founding(&self.settings)
    }

    async fn restore(&self) -> Option<Ready> {
        let source = self.settings.config.restore.as_ref()?;
        if self.stands_by(source) {
            return self.take_over(source).await;
        }
        self.board.say(Phase::Restoring, format!("from {}", source.store.url));
        let (store, from) = match founding::choose(&self.settings, &source.store, BUMP).await {
            Ok(chosen) => chosen,
            Err(error) => {
                self.board.say(Phase::Waiting, format!("RestoreFailed: {}", chain(&error)));
                return None;
            }
        };
        let options = self.restore_options(from);
        match restore::restore(&store, &options, &|progress| self.show(&progress)).await {
            Ok(restored) => {
                tracing::info!(base = %restored.plan.base, deltas = restored.plan.deltas.len(),
                    revision = restored.revision.0, bumped = restored.bumped.0, "restored");
                self.board.set_restored(restored_status(&restored));
                Some(Ready::Start(self.founding()))
            }
            Err(error) => {
                self.board.say(Phase::Waiting, format!("RestoreFailed: {}", chain(&error)));
                sleep(RESTORE_AGAIN).await;
                None
            }
        }
    }

    /// How volumes of founders are filled.
    pub(super) fn restore_options(&self, from: Selection) -> restore::Options {
        restore::Options {
            data_dir: self.volume.data_dir(),
            etcdutl: self.programs.etcdutl.clone(),
            etcd: self.programs.etcd.clone(),
            from,
            bump_revision: BUMP,
            lease_ttl: LEASE_TTL,
            member: restore::Member {
                name: self.settings.own.name.clone(),
                initial_cluster: Entry::founding(&self.settings).members,
                initial_cluster_token: self.settings.config.cluster_token.clone(),
                peer_urls: self.settings.own.peer_urls.join(","),
            },
            parallel: PARALLEL,
        }
    }

    fn show(&self, progress: &Progress) {
        let message = match progress {
            Progress::Planned(plan) => format!("reading {} and {} deltas", plan.base, plan.deltas.len()),
            Progress::Replaying(revision) => format!("replaying deltas from revision {revision}"),
            Progress::Finishing => "making the data directory".to_owned(),
            Progress::Verified(..) | Progress::Applied(_) => return,
        };
        self.board.say(Phase::Restoring, message);
    }
}

fn restored_status(restored: &Restored) -> RestoredStatus {
    RestoredStatus {
        base: restored.plan.base.to_string(),
        deltas: restored.plan.deltas.len(),
        revision: restored.revision.0,
        bumped_revision: restored.bumped.0,
    }
}
