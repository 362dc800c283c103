//! A client whose kubeconfig may change while it is used: tokens are replaced every hour, certificates and authorities now
//! and then. What is being answered is answered to the end by the client that asked.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use kube::{Client, client::Body, config::Kubeconfig};

use super::Error;

/// How often the files are looked at.
const INTERVAL: Duration = Duration::from_secs(30);

/// Where a Pod finds whom to trust.
const POD_AUTHORITY: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// A client that follows the files it is made from for as long as the process runs.
pub(super) async fn client(kubeconfig: Option<&Path>, retry: bool) -> Result<Client, Error> {
    let first = make(kubeconfig, retry).await?;
    let namespace = first.default_namespace().to_owned();
    let current = Arc::new(ArcSwap::from_pointee(first));
    tokio::spawn(follow(kubeconfig.map(Path::to_owned), retry, Arc::downgrade(&current)));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let client = current.load_full();
        async move { client.send(request).await }
    });
    Ok(Client::new(service, namespace))
}

async fn make(kubeconfig: Option<&Path>, retry: bool) -> Result<Client, Error> {
    let mut config = match kubeconfig {
        // The token of a Pod is read again by the client itself.
        None => kube::Config::incluster().map_err(Error::InCluster)?,
        Some(path) => {
            let failed = |source| Error::Kubeconfig { path: path.to_owned(), source };
            let file = Kubeconfig::read_from(path).map_err(failed)?;
            kube::Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default())
                .await
                .map_err(failed)?
        }
    };
    config.default_retry = retry;
    Client::try_from(config).map_err(Error::Client)
}

async fn follow(kubeconfig: Option<PathBuf>, retry: bool, current: std::sync::Weak<ArcSwap<Client>>) {
    let mut seen = contents(kubeconfig.as_deref()).await;
    loop {
        tokio::time::sleep(INTERVAL).await;
        // Nobody uses the client any more.
        let Some(current) = current.upgrade() else { return };
        let now = contents(kubeconfig.as_deref()).await;
        if now == seen {
            continue;
        }
        match make(kubeconfig.as_deref(), retry).await {
            Ok(client) => {
                current.store(Arc::new(client));
                seen = now;
                tracing::info!(?kubeconfig, "client for the kube-apiserver made anew");
            }
            Err(error) => {
                tracing::warn!(?kubeconfig, %error, "new kubeconfig is unusable, keeping the old one")
            }
        }
    }
}

/// What the files say, hashed: the file itself and those it names.
async fn contents(kubeconfig: Option<&Path>) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for path in kubeconfig.map_or_else(|| vec![POD_AUTHORITY.into()], files) {
        let content = tokio::fs::read(&path).await.unwrap_or_default();
        hasher.update(&(content.len() as u64).to_le_bytes()).update(&content);
    }
    hasher.finalize()
}

/// A kubeconfig and the files that it names.
fn files(kubeconfig: &Path) -> Vec<PathBuf> {
    let mut files = vec![kubeconfig.to_owned()];
    // Paths in it are relative to its directory; reading it makes them absolute.
    let Ok(file) = Kubeconfig::read_from(kubeconfig) else { return files };
    let clusters = file.clusters.into_iter().filter_map(|named| named.cluster?.certificate_authority);
    files.extend(clusters.map(PathBuf::from));
    let users = file.auth_infos.into_iter().filter_map(|named| named.auth_info);
    let named = users.flat_map(|user| [user.client_certificate, user.client_key, user.token_file]);
    files.extend(named.flatten().map(PathBuf::from));
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sees_changes_of_the_kubeconfig_and_of_the_files_it_names() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("written");
        let config = |server: &str| {
            format!(
                "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
                 clusters: [{{name: c, cluster: {{server: '{server}', certificate-authority: ca.crt}}}}], \
                 users: [{{name: u, user: {{tokenFile: token}}}}]}}"
            )
        };
        write("kubeconfig", &config("https://a"));
        write("ca.crt", "one");
        write("token", "one");
        let path = dir.path().join("kubeconfig");
        let mut seen = vec![contents(Some(&path)).await];
        assert_eq!(contents(Some(&path)).await, seen[0]);
        for (name, text) in [("ca.crt", "two"), ("token", "two"), ("kubeconfig", &config("https://b"))] {
            write(name, text);
            let now = contents(Some(&path)).await;
            assert!(!seen.contains(&now), "a change of {name} was not seen");
            seen.push(now);
        }
    }
}
