//! One question on its way to a webhook: where it is, how it proves itself, how long it has.

use std::{
    collections::VecDeque,
    error::Error as _,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use k8s_openapi::api::{admissionregistration::v1::WebhookClientConfig, core::v1::Service};
use kube::{Api, Client};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::{hook::Hook, review::Printed};

/// The longest answer, in bytes: a patch may bring as much as an object has.
const MAX_ANSWER: usize = 32 << 20;
/// How long an idle connection is kept.
const IDLE: Duration = Duration::from_secs(90);

/// Finds Services by their names. Inside of a cluster its DNS would do; a server outside of it (and a cluster without
/// DNS) needs the address from the Service itself.
#[derive(Clone)]
pub struct Services(Client);

impl Services {
    /// Reads Services through this client; where that gives no address, DNS is asked.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self(client)
    }

    async fn addresses(self, name: String) -> Result<Vec<SocketAddr>, std::io::Error> {
        if let Some((service, namespace)) = service_of(&name) {
            let api: Api<Service> = Api::namespaced(self.0, namespace);
            // Without permission to read Services the cluster's DNS has to know.
            if let Ok(Some(service)) = api.get_opt(service).await {
                match place(&service) {
                    ServiceAddress::Address(address) => return Ok(vec![SocketAddr::new(address, 0)]),
                    ServiceAddress::Elsewhere(host) => return lookup(&host).await,
                    ServiceAddress::Unknown => {}
                }
            }
        }
        lookup(&name).await
    }
}

async fn lookup(host: &str) -> Result<Vec<SocketAddr>, std::io::Error> {
    tokio::net::lookup_host((host, 0)).await.map(Iterator::collect)
}

/// `<service>.<namespace>.svc`.
fn service_of(name: &str) -> Option<(&str, &str)> {
    name.strip_suffix(".svc")?.split_once('.').filter(|(_, namespace)| !namespace.contains('.'))
}

#[derive(Debug, PartialEq, Eq)]
enum ServiceAddress {
    Address(IpAddr),
    Elsewhere(String),
    Unknown,
}

fn place(service: &Service) -> ServiceAddress {
    let Some(spec) = &service.spec else { return ServiceAddress::Unknown };
    if spec.type_.as_deref() == Some("ExternalName") {
        return spec.external_name.clone().map_or(ServiceAddress::Unknown, ServiceAddress::Elsewhere);
    }
    // A headless Service has "None" here: only DNS knows its members.
    let address = spec.cluster_ip.as_deref().and_then(|text| text.parse().ok());
    address.map_or(ServiceAddress::Unknown, ServiceAddress::Address)
}

impl Resolve for Services {
    fn resolve(&self, name: Name) -> Resolving {
        let found = self.clone().addresses(name.as_str().to_owned());
        Box::pin(async move { Ok(Box::new(found.await?.into_iter()) as Addrs) })
    }
}

/// Where a webhook is.
///
/// # Errors
/// A configuration that names neither a Service nor a usable URL.
fn url(config: &WebhookClientConfig) -> Result<String, String> {
    if let Some(service) = &config.service {
        let port = service.port.unwrap_or(443);
        let path = service.path.as_deref().unwrap_or_default().trim_start_matches('/');
        return Ok(format!("https://{}.{}.svc:{port}/{path}", service.name, service.namespace));
    }
    let url = config.url.as_deref().ok_or("the webhook has neither service nor url")?;
    if !url.starts_with("https://") {
        return Err(format!("the url {url:?} is not https"));
    }
    Ok(url.to_owned())
}

fn make_client(config: &WebhookClientConfig, services: &Services) -> Result<reqwest::Client, String> {
    // HTTP/1.1 as kube-apiserver speaks it: one slow question must not hold up the others of a connection.
    let mut builder = reqwest::Client::builder()
        .http1_only()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .user_agent("repot-admission")
        .pool_idle_timeout(IDLE)
        .dns_resolver(Arc::new(services.clone()));
    if let Some(bundle) = config.ca_bundle.as_ref().filter(|bundle| !bundle.0.is_empty()) {
        let authorities = reqwest::Certificate::from_pem_bundle(&bundle.0);
        builder = builder.tls_certs_only(authorities.map_err(|error| format!("caBundle: {error}"))?);
    }
    builder.build().map_err(|error| chain(&error))
}

/// Asks a webhook, and gives the text of its answer. A connection that the webhook had closed is opened anew once: the
/// question changes nothing there, so it can be put twice.
///
/// # Errors
/// Why there is no answer.
pub async fn ask(
    hook: &Hook,
    services: &Services,
    question: &Printed,
    left: Duration,
) -> Result<Bytes, String> {
    let timeout = hook.timeout.min(left);
    let client = hook.client.get_or_init(|| make_client(&hook.client_config, services)).as_ref()?;
    let mut url = reqwest::Url::parse(&url(&hook.client_config)?).map_err(|error| error.to_string())?;
    // Whole seconds, rounded up.
    let seconds = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
    url.query_pairs_mut().append_pair("timeout", &format!("{seconds}s"));
    let asked = async {
        match post(client, &url, question).await {
            Err(error) if error.is_request() && !error.is_connect() => post(client, &url, question).await,
            other => other,
        }
    };
    let response = async {
        let response = asked.await.map_err(|error| chain(&error.without_url()))?;
        let (code, text) = (response.status(), read(response).await?);
        if code.is_success() { Ok(text) } else { Err(format!("the webhook answered {code}")) }
    };
    let failed = |why: String| format!("failed to call webhook: Post {:?}: {why}", url.as_str());
    match tokio::time::timeout(timeout, response).await {
        Ok(result) => result.map_err(failed),
        Err(_) => Err(failed("context deadline exceeded".to_owned())),
    }
}

async fn post(
    client: &reqwest::Client,
    url: &reqwest::Url,
    question: &Printed,
) -> reqwest::Result<reqwest::Response> {
    let body = Pieces { left: question.len() as u64, pieces: question.0.iter().cloned().collect() };
    let mut context = http::HeaderMap::new();
    repot_telemetry::propagation::inject(&mut context);
    let request = client.post(url.clone()).headers(context);
    let request = request.header(http::header::CONTENT_TYPE, "application/json");
    request.header(http::header::ACCEPT, "application/json").body(reqwest::Body::wrap(body)).send().await
}

async fn read(mut response: reqwest::Response) -> Result<Bytes, String> {
    let mut text = BytesMut::new();
    while let Some(piece) = response.chunk().await.map_err(|error| chain(&error.without_url()))? {
        if text.len() + piece.len() > MAX_ANSWER {
            return Err(format!("the answer is longer than {MAX_ANSWER} bytes"));
        }
        text.extend_from_slice(&piece);
    }
    Ok(text.freeze())
}

/// An error with its causes in one line.
fn chain(error: &reqwest::Error) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

/// A body of pieces that are at hand, of known length.
struct Pieces {
    pieces: VecDeque<Bytes>,
    left: u64,
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let piece = self.pieces.pop_front();
        self.left -= piece.as_ref().map_or(0, |piece| piece.len() as u64);
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn finds_a_service_by_name_address_or_alias() {
        assert_eq!(service_of("hook.policy.svc"), Some(("hook", "policy")));
        for other in ["hook.policy.svc.cluster.local", "example.com", "svc", "a.b.c.svc"] {
            assert_eq!(service_of(other), None, "{other}");
        }
        let of = |spec: Value| place(&serde_json::from_value(json!({"spec": spec})).expect("a Service"));
        assert_eq!(of(json!({"clusterIP": "10.0.0.7"})), ServiceAddress::Address([10, 0, 0, 7].into()));
        assert_eq!(of(json!({"clusterIP": "None"})), ServiceAddress::Unknown);
        let alias = of(json!({"type": "ExternalName", "externalName": "localhost"}));
        assert_eq!(alias, ServiceAddress::Elsewhere("localhost".to_owned()));
    }

    #[test]
    fn asks_services_by_name_and_urls_as_they_are() {
        let of = |config: Value| url(&serde_json::from_value(config).expect("a client configuration"));
        let service = json!({"service": {"name": "s", "namespace": "n", "path": "/mutate"}});
        assert_eq!(of(service).as_deref(), Ok("https://s.n.svc:443/mutate"));
        let service = json!({"service": {"name": "s", "namespace": "n", "port": 8443}});
        assert_eq!(of(service).as_deref(), Ok("https://s.n.svc:8443/"));
        assert_eq!(of(json!({"url": "https://h/p?x=1"})).as_deref(), Ok("https://h/p?x=1"));
        assert!(of(json!({"url": "http://h/p"})).is_err() && of(json!({})).is_err());
    }
}
