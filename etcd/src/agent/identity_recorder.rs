//! Records the [identity](super::identity) of the member whenever its etcd has started.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    Agent, clients,
    identity::Identity,
    settings::chain,
    supervisor::{Etcd, Seen},
    volume::Volume,
};

/// How long etcd has to say who it is.
const PATIENCE: Duration = Duration::from_secs(2);
/// From one attempt to learn it to the next.
const LOOK: Duration = Duration::from_secs(1);

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
