//! Who a member is in its cluster: written beside its data, so that it finds out later whether it was removed meanwhile.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    Agent, clients,
    settings::chain,
    supervisor::{Etcd, Seen},
    volume::Volume,
};

/// Beside the log, so that it goes where the data goes.
const FILE: &str = "member/repot-member.json";
/// How long etcd has to say who it is.
const PATIENCE: Duration = Duration::from_secs(2);
/// From one attempt to learn it to the next.
const LOOK: Duration = Duration::from_secs(1);

/// Ids of a member and its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Of the member; it is never used again once the member was removed.
    pub member: u64,
    /// Of the cluster that the member belongs to.
    pub cluster: u64,
}

/// In hexadecimal, as etcdctl prints them.
#[derive(Serialize, Deserialize)]
struct Form {
    member: String,
    cluster: String,
}

impl Identity {
    /// What is written in a data directory. Nothing, where nothing can be read: then the data is taken as it is.
    pub(super) fn read(data_dir: &Path) -> Option<Self> {
        let form: Form = serde_json::from_slice(&fs::read(data_dir.join(FILE)).ok()?).ok()?;
        let id = |text: &str| u64::from_str_radix(text, 16).ok().filter(|id| *id != 0);
        Some(Self { member: id(&form.member)?, cluster: id(&form.cluster)? })
    }

    /// Writes it down, as a whole or not at all.
    fn write(self, data_dir: &Path) -> io::Result<()> {
        let form = Form { member: format!("{:x}", self.member), cluster: format!("{:x}", self.cluster) };
        let path = data_dir.join(FILE);
        let new = path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(&form)?)?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
    }
}

/// Writes down who the member is, each time etcd has started, until `stop`.
pub(super) async fn follow(agent: &Agent, volume: &Volume, stop: &CancellationToken) {
    let mut seen = agent.supervisor.follow();
    let work = async {
        loop {
            let now = *seen.borrow_and_update();
            tokio::select! {
                () = note(agent, volume, now) => {}
                _ = seen.changed() => continue,
            }
            // It cannot be closed while the agent lives.
            let _ = seen.changed().await;
        }
    };
    stop.run_until_cancelled(work).await;
}

/// Asks until there is an answer.
async fn note(agent: &Agent, volume: &Volume, seen: Seen) {
    if seen.etcd != Etcd::Serves {
        return;
    }
    loop {
        if let Some(found) = ask(agent).await {
            if volume.identity() != Some(found) {
                match found.write(&volume.data_dir()) {
                    Ok(()) => tracing::info!(
                        member = format!("{:x}", found.member),
                        cluster = format!("{:x}", found.cluster),
                        "the member is known"
                    ),
                    Err(error) => {
                        tracing::warn!(error = chain(&error), "who the member is cannot be written down")
                    }
                }
            }
            return;
        }
        sleep(LOOK).await;
    }
}

async fn ask(agent: &Agent) -> Option<Identity> {
    let asked = async {
        let client = agent.client().await?;
        let status =
            client.maintenance_client().status().await.map_err(clients::Error::of("ask who it is"))?;
        let header = status.header();
        let id = header.map(|header| Identity { member: header.member_id(), cluster: header.cluster_id() });
        Ok::<_, clients::Error>(id.filter(|id| id.member != 0 && id.cluster != 0))
    };
    timeout(PATIENCE, asked).await.ok()?.ok()?
}
