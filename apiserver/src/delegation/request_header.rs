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

/// How long a watch lasts until the next one begins.
const RECHECK_SECONDS: u32 = 50;

/// Whom to believe, as far as it is known.
#[derive(Clone, Debug, Default)]
pub struct FrontProxyTrust {
    /// Which front proxy is trusted to name users; `None` until it is known.
    pub front_proxy: Option<FrontProxy>,
    /// Authorities of client certificates.
    pub client: Option<Roots>,
}

/// Follows the ConfigMap until `stop` and tells the authenticator. What `given` (by flags) says stands; the ConfigMap says
/// the rest. The receiver turns true once a front proxy is known: until then the server is not ready. What is gone from the
/// ConfigMap or broken in it changes nothing.
pub fn follow_request_header(
    client: Client,
    authenticator: Arc<Authenticator>,
    given: FrontProxyTrust,
    stop: CancellationToken,
) -> watch::Receiver<bool> {
    let (loaded, receiver) = watch::channel(given.front_proxy.is_some());
    authenticator.set_trust(given.front_proxy.clone(), given.client.clone());
    let api: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    // Each watch is short, so that a lost event costs a minute and not more.
    let config = watcher::Config::default().fields(&format!("metadata.name={NAME}")).timeout(RECHECK_SECONDS);
    tokio::spawn(async move {
        let mut known = given.clone();
        let mut events = Box::pin(watcher(api, config).default_backoff());
        while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
            match event {
                Ok(watcher::Event::Apply(map) | watcher::Event::InitApply(map)) => {
                    known.adopt(&given, &map.data.unwrap_or_default());
                    loaded.send_replace(known.front_proxy.is_some());
                    authenticator.set_trust(known.front_proxy.clone(), known.client.clone());
                    tracing::info!("authentication configuration of {NAMESPACE}/{NAME} adopted");
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "watch of {NAMESPACE}/{NAME} failed, trying again"),
            }
        }
    });
    receiver
}

impl FrontProxyTrust {
    /// Takes over what the ConfigMap says where no flag did. Each part by itself: an empty or broken one leaves what was known.
    fn adopt(&mut self, given: &FrontProxyTrust, data: &BTreeMap<String, String>) {
        let keep = |part: &str, why: String| {
            tracing::error!(why, "{part} of {NAMESPACE}/{NAME} is unusable, keeping the old one")
        };
        if given.client.is_none() {
            match roots(data, "client-ca-file") {
                Ok(Some(roots)) => self.client = Some(roots),
                Ok(None) => {}
                Err(why) => keep("client-ca-file", why),
            }
        }
        if given.front_proxy.is_none() {
            match front_proxy(data) {
                Ok(Some(proxy)) => self.front_proxy = Some(proxy),
                Ok(None) => {}
                Err(why) => keep("requestheader", why),
            }
        }
    }
}

fn roots(data: &BTreeMap<String, String>, key: &str) -> Result<Option<Roots>, String> {
    match data.get(key).filter(|pem| !pem.is_empty()) {
        Some(pem) => Roots::from_pem(pem.as_bytes()).map(Some).map_err(|e| format!("{key}: {e}")),
        None => Ok(None),
    }
}

fn front_proxy(data: &BTreeMap<String, String>) -> Result<Option<FrontProxy>, String> {
    let names = |key: &str| match data.get(key).filter(|text| !text.is_empty()) {
        Some(text) => serde_json::from_str::<Vec<String>>(text).map_err(|e| format!("{key}: {e}")),
        None => Ok(Vec::new()),
    };
    let Some(roots) = roots(data, "requestheader-client-ca-file")? else { return Ok(None) };
    Ok(Some(FrontProxy {
        roots,
        allowed_names: names("requestheader-allowed-names")?,
        username_headers: names("requestheader-username-headers")?,
        uid_headers: names("requestheader-uid-headers")?,
        group_headers: names("requestheader-group-headers")?,
        extra_prefixes: names("requestheader-extra-headers-prefix")?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_kube_apiserver_publishes_and_keeps_what_is_good() {
        let ca = repot_certs::Authority::generate("ca", time::OffsetDateTime::now_utc()).expect("made");
        let mut data = BTreeMap::from([
            ("requestheader-client-ca-file".to_owned(), ca.certificate_pem().to_owned()),
            ("requestheader-allowed-names".to_owned(), r#"["front-proxy-client"]"#.to_owned()),
            ("requestheader-username-headers".to_owned(), r#"["X-Remote-User"]"#.to_owned()),
        ]);
        let mut known = FrontProxyTrust::default();
        known.adopt(&FrontProxyTrust::default(), &data);
        let proxy = known.front_proxy.clone().expect("a front proxy");
        assert_eq!(proxy.allowed_names, ["front-proxy-client"]);
        assert!(proxy.uid_headers.is_empty() && known.client.is_none());

        data.insert("client-ca-file".to_owned(), ca.certificate_pem().to_owned());
        data.insert("requestheader-client-ca-file".to_owned(), String::new());
        known.adopt(&FrontProxyTrust::default(), &data);
        assert!(
            known.front_proxy.is_some() && known.client.is_some(),
            "an emptied key dropped what was known"
        );
        data.insert("client-ca-file".to_owned(), "nonsense".to_owned());
        data.insert("requestheader-allowed-names".to_owned(), "nonsense".to_owned());
        known.adopt(&FrontProxyTrust::default(), &data);
        assert!(known.front_proxy.is_some() && known.client.is_some(), "a broken key dropped what was known");
    }
}
