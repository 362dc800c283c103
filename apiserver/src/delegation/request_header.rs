//! Whom the front proxy is, read from the ConfigMap that kube-apiserver publishes and followed while the server runs.

use std::{collections::BTreeMap, sync::Arc};

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    runtime::{WatchStreamExt, watcher},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::filters::{
    authentication::{Authenticator, FrontProxy},
    client_certificate::Roots,
};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

/// Follows the ConfigMap until `stop` and tells the authenticator. The receiver turns true once it was read: until then
/// the server is not ready, and nobody is believed. A ConfigMap that is gone or broken changes nothing.
pub fn follow_request_header(
    client: Client,
    authenticator: Arc<Authenticator>,
    stop: CancellationToken,
) -> watch::Receiver<bool> {
    let (loaded, receiver) = watch::channel(false);
    let api: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    let config = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
    tokio::spawn(async move {
        let mut events = Box::pin(watcher(api, config).default_backoff());
        while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
            match event {
                Ok(watcher::Event::Apply(map) | watcher::Event::InitApply(map)) => {
                    if adopt(&authenticator, map.data.unwrap_or_default()) {
                        loaded.send_replace(true);
                    }
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "watch of {NAMESPACE}/{NAME} failed, trying again"),
            }
        }
    });
    receiver
}

fn adopt(authenticator: &Authenticator, data: BTreeMap<String, String>) -> bool {
    match parse(&data) {
        Ok((front_proxy, client)) => {
            authenticator.set_trust(front_proxy, client);
            tracing::info!("authentication configuration of {NAMESPACE}/{NAME} adopted");
            true
        }
        Err(why) => {
            tracing::error!(why, "{NAMESPACE}/{NAME} is unusable, keeping what was known before");
            false
        }
    }
}

fn parse(data: &BTreeMap<String, String>) -> Result<(Option<FrontProxy>, Option<Roots>), String> {
    let roots = |key: &str| match data.get(key).filter(|pem| !pem.is_empty()) {
        Some(pem) => Roots::from_pem(pem.as_bytes()).map(Some).map_err(|e| format!("{key}: {e}")),
        None => Ok(None),
    };
    let names = |key: &str| match data.get(key).filter(|text| !text.is_empty()) {
        Some(text) => serde_json::from_str::<Vec<String>>(text).map_err(|e| format!("{key}: {e}")),
        None => Ok(Vec::new()),
    };
    let client = roots("client-ca-file")?;
    let front_proxy = match roots("requestheader-client-ca-file")? {
        None => None,
        Some(roots) => Some(FrontProxy {
            roots,
            allowed_names: names("requestheader-allowed-names")?,
            username_headers: names("requestheader-username-headers")?,
            uid_headers: names("requestheader-uid-headers")?,
            group_headers: names("requestheader-group-headers")?,
            extra_prefixes: names("requestheader-extra-headers-prefix")?,
        }),
    };
    if client.is_none() && front_proxy.is_none() {
        return Err("it names no certificate authority".to_owned());
    }
    Ok((front_proxy, client))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_kube_apiserver_publishes() {
        let ca = repot_certs::Authority::generate("ca", time::OffsetDateTime::now_utc()).expect("made");
        let mut data = BTreeMap::from([
            ("requestheader-client-ca-file".to_owned(), ca.certificate_pem().to_owned()),
            ("requestheader-allowed-names".to_owned(), r#"["front-proxy-client"]"#.to_owned()),
            ("requestheader-username-headers".to_owned(), r#"["X-Remote-User"]"#.to_owned()),
        ]);
        let (front_proxy, client) = parse(&data).expect("usable");
        let front_proxy = front_proxy.expect("a front proxy");
        assert_eq!(front_proxy.allowed_names, ["front-proxy-client"]);
        assert!(front_proxy.uid_headers.is_empty() && client.is_none());
        data.insert("client-ca-file".to_owned(), "nonsense".to_owned());
        assert!(parse(&data).is_err());
        assert!(parse(&BTreeMap::new()).is_err());
    }
}
