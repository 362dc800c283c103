//! Whether another server serves ShootStates in the group in which this one would. Two stores behind one resource name would
//! fool garbage collection, namespace deletion and backups, which look at one version of it.

use std::time::Duration;

use kube::Client;
use repot_api::names::{MIGRATION_GROUP, V1ALPHA1};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Why this server may not serve beside another one; nothing: it may.
pub type GroupConflict = watch::Receiver<Option<String>>;

/// How often discovery is looked at once it is known that nobody else is there, and while it is not.
const CALM: Duration = Duration::from_secs(60);
const TENSE: Duration = Duration::from_secs(2);
const DEADLINE: Duration = Duration::from_secs(10);

/// Looks in the cluster's discovery until `stop`. The receiver holds why this server may not serve, and nothing once it may.
/// What was known stands while discovery does not answer.
pub fn follow_group_conflict(
    client: Client,
    group: String,
    resource: &'static str,
    stop: CancellationToken,
) -> GroupConflict {
    let unknown = format!("it is not known yet whether another server serves {resource} in {group}");
    let (sender, receiver) = watch::channel(Some(unknown));
    tokio::spawn(async move {
        loop {
            match tokio::time::timeout(DEADLINE, look(&client, &group, resource)).await {
                Ok(Ok(versions)) => tell(&sender, judge(&group, resource, &versions)),
                Ok(Err(error)) => tracing::warn!(%error, group, "discovery could not be read, trying again"),
                Err(_) => tracing::warn!(group, "discovery did not answer in time, trying again"),
            }
            let pause = if sender.borrow().is_some() { TENSE } else { CALM };
            if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                return;
            }
        }
    });
    receiver
}

/// The versions of the group, other than our own, in which the resource is served.
async fn look(client: &Client, group: &str, resource: &str) -> kube::Result<Vec<String>> {
    let groups = client.list_api_groups().await?.groups;
    let mut found = Vec::new();
    for version in groups.into_iter().filter(|g| g.name == group).flat_map(|g| g.versions) {
        // Our own version is that of our own APIService.
        if version.version == V1ALPHA1 {
            continue;
        }
        let list = client.list_api_group_resources(&version.group_version).await?;
        if list.resources.iter().any(|served| served.name == resource) {
            found.push(version.version);
        }
    }
    Ok(found)
}

fn judge(group: &str, resource: &str, versions: &[String]) -> Option<String> {
    let versions = match versions {
        [] => return None,
        some => some.join(", "),
    };
    Some(format!(
        "another server serves {resource} in {group} ({versions}); run with --shootstate-group {MIGRATION_GROUP}, and \
         register that group in place of {group}"
    ))
}

fn tell(sender: &watch::Sender<Option<String>>, now: Option<String>) {
    if *sender.borrow() == now {
        return;
    }
    match &now {
        Some(why) => tracing::error!(why, "not ready"),
        None => tracing::info!("no other server serves ShootStates in our group"),
    }
    sender.send_replace(now);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_what_to_do_about_another_server() {
        assert_eq!(judge("core.gardener.cloud", "shootstates", &[]), None);
        let why = judge("core.gardener.cloud", "shootstates", &["v1beta1".to_owned()]).expect("a reason");
        assert!(why.contains("(v1beta1)") && why.contains("--shootstate-group migration.gardener.cloud"));
    }
}
