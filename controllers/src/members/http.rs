//! Gateways that are reached over the HTTP of their agents.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt, join_all};
use repot_etcd_core::agent::{config::GatewayMember, http::ErrorResponse};
use reqwest::{StatusCode, Url};
use tokio::time::Instant;

use super::Gateways;

/// How long calls at a member have to end that clients are to leave.
const LEAVE: Duration = Duration::from_secs(3);
/// How long an agent has for an answer, beyond what it waits for itself. Looks at members may be [`Limits::gap`](super::Limits::gap)
/// apart, and both of these come between two looks.
const ANSWER: Duration = Duration::from_secs(1);
/// An agent that does not answer for so long is taken for gone, and its clients with it: it holds up nothing any more.
const LOST: Duration = Duration::from_secs(300);
/// Less than this is no time to hold writes.
const SHORTEST: Duration = Duration::from_millis(10);

/// A gateway in front of an etcd, reached by its agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayEndpoint {
    /// URL of its agent, such as `https://main-0.main-peer.shoot--p--a.svc:8080`.
    pub agent: String,
    /// Where it reaches the members of all slots; `near` says which are on its site.
    pub members: Vec<GatewayMember>,
}

/// All gateways in front of an etcd. An agent that has no gateway holds up nothing.
pub struct HttpGateways {
    client: reqwest::Client,
    endpoints: Mutex<Endpoints>,
    /// How long an agent that does not answer holds things up.
    patience: Duration,
}

#[derive(Default)]
struct Endpoints {
    all: Vec<GatewayEndpoint>,
    /// Since when agents do not answer, by their URLs.
    silent: BTreeMap<String, Instant>,
    /// Whether nothing is held up by any of them.
    are_ignored: bool,
}

impl HttpGateways {
    /// Gateways at these agents. The client has the certificate that agents ask for.
    #[must_use]
    pub fn new(client: reqwest::Client, endpoints: Vec<GatewayEndpoint>) -> Self {
        let endpoints = Mutex::new(Endpoints { all: endpoints, ..Endpoints::default() });
        Self { client, endpoints, patience: LOST }
    }

    /// There are these gateways from now on; `are_ignored`: what they fail to do holds up nothing.
    pub fn set_endpoints(&self, all: Vec<GatewayEndpoint>, are_ignored: bool) {
        let mut endpoints = self.lock();
        endpoints.silent.retain(|agent, _| all.iter().any(|endpoint| endpoint.agent == *agent));
        (endpoints.all, endpoints.are_ignored) = (all, are_ignored);
    }

    fn lock(&self) -> MutexGuard<'_, Endpoints> {
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a failure holds up what it was about.
    fn weigh(&self, failed: Result<(), String>) -> Result<(), String> {
        let ignored = self.lock().are_ignored;
        match failed {
            Err(error) if ignored => {
                tracing::warn!(error, "a gateway is ignored, as the Etcd says");
                Ok(())
            }
            other => other,
        }
    }

    /// Leads clients to the members of these slots, and to no others, in all gateways.
    ///
    /// # Errors
    /// Which gateway did not do that, and why. The others have.
    pub async fn set_backends(&self, slots: &[String]) -> Result<(), String> {
        let told = self.all().into_iter().map(async |endpoint| {
            let members = endpoint.members.iter().filter(|member| slots.contains(&member.name));
            let members: Vec<&GatewayMember> = members.collect();
            // Nobody waits for calls at a member that is not among them.
            let request =
                self.client.put(format!("{}/gateway/members?for=10ms", endpoint.agent)).json(&members);
            self.send(&endpoint, request.timeout(ANSWER), &[StatusCode::NOT_FOUND, StatusCode::CONFLICT])
                .await
        });
        join_all(told).await.into_iter().collect()
    }

    fn all(&self) -> Vec<GatewayEndpoint> {
        self.lock().all.clone()
    }

    /// Gateways whose agents answer, or answered until a while ago.
    fn endpoints(&self) -> Vec<GatewayEndpoint> {
        let endpoints = self.lock();
        // One that is ignored costs no time, either, once it has been silent.
        let patience = if endpoints.are_ignored { Duration::ZERO } else { self.patience };
        let is_lost = |endpoint: &&GatewayEndpoint| {
            endpoints.silent.get(&endpoint.agent).is_some_and(|since| since.elapsed() >= patience)
        };
        endpoints.all.iter().filter(|endpoint| !is_lost(endpoint)).cloned().collect()
    }

    /// Remembers since when an agent does not answer.
    fn note(&self, endpoint: &GatewayEndpoint, answers: bool) {
        let mut endpoints = self.lock();
        match answers {
            true => drop(endpoints.silent.remove(&endpoint.agent)),
            false => drop(endpoints.silent.entry(endpoint.agent.clone()).or_insert_with(Instant::now)),
        }
    }

    /// An order to all of these at once.
    async fn order(
        &self,
        endpoints: &[&GatewayEndpoint],
        order: &str,
        params: &[(&str, &str)],
        limit: Duration,
    ) -> Result<(), String> {
        let asked = endpoints.iter().map(async |endpoint| {
            let url = Url::parse_with_params(&format!("{}/gateway/{order}", endpoint.agent), params);
            let url = url.map_err(|error| format!("{}: {error}", endpoint.agent))?;
            // Without a gateway nobody comes through there.
            self.send(endpoint, self.client.post(url).timeout(limit), &[StatusCode::NOT_FOUND]).await
        });
        // All of them, whatever one of them answers.
        join_all(asked).await.into_iter().collect()
    }

    /// `fine`: what is no failure, beyond success.
    async fn send(
        &self,
        endpoint: &GatewayEndpoint,
        request: reqwest::RequestBuilder,
        fine: &[StatusCode],
    ) -> Result<(), String> {
        let failed = |error: reqwest::Error| format!("{}: {}", endpoint.agent, chain(&error.without_url()));
        let answer = request.send().await;
        self.note(endpoint, answer.is_ok());
        let answer = answer.map_err(failed)?;
        let status = answer.status();
        if status.is_success() || fine.contains(&status) {
            return Ok(());
        }
        let body = answer.bytes().await.map_err(failed)?;
        let said: ErrorResponse = serde_json::from_slice(&body).unwrap_or_default();
        Err(format!("{}: {} ({status})", endpoint.agent, said.error))
    }

    /// Holds writes at these, for as long as is left.
    async fn hold_at(&self, endpoints: &[&GatewayEndpoint], until: Instant) -> Result<(), String> {
        let left = until.saturating_duration_since(Instant::now());
        if left < SHORTEST {
            return Err("no time is left to hold writes".to_owned());
        }
        self.order(endpoints, "hold", &[("for", &format!("{}ms", left.as_millis()))], left).await
    }
}

impl Gateways for HttpGateways {
    fn hold<'a>(&'a self, leader: &'a str, longest: Duration) -> BoxFuture<'a, Result<Duration, String>> {
        async move {
            // Each begins later than this and holds until then at least, whatever the answers take.
            let until = Instant::now() + longest;
            let endpoints = self.endpoints();
            let is_near = |endpoint: &&GatewayEndpoint| {
                endpoint.members.iter().any(|member| member.name == leader && member.near)
            };
            let (near, far): (Vec<&GatewayEndpoint>, Vec<&GatewayEndpoint>) =
                endpoints.iter().partition(is_near);
            self.weigh(self.hold_at(&far, until).await)?;
            self.weigh(self.hold_at(&near, until).await)?;
            Ok(until.saturating_duration_since(Instant::now()))
        }
        .boxed()
    }

    fn release(&self) -> BoxFuture<'_, ()> {
        async move {
            let endpoints = self.all();
            let asked =
                endpoints.iter().map(async |endpoint| self.order(&[endpoint], "release", &[], ANSWER).await);
            for error in join_all(asked).await.into_iter().filter_map(Result::err) {
                tracing::warn!(error, "writes go on there when the time is over");
            }
        }
        .boxed()
    }

    fn leave(&self, slot: &str) -> BoxFuture<'_, Result<(), String>> {
        let slot = slot.to_owned();
        async move {
            let endpoints = self.endpoints();
            let endpoints: Vec<&GatewayEndpoint> = endpoints.iter().collect();
            let patience = format!("{}s", LEAVE.as_secs());
            let params = [("member", slot.as_str()), ("for", &patience)];
            self.weigh(self.order(&endpoints, "leave", &params, LEAVE + ANSWER).await)
        }
        .boxed()
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use axum::{Router, routing::any};
    use tokio::net::TcpListener;

    use super::*;

    /// An agent that answers every order like this; its URL.
    async fn agent(status: StatusCode) -> String {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let router = Router::new().fallback(any(async move || (status, r#"{"error": "calls do not end"}"#)));
        tokio::spawn(async move { axum::serve(listener, router).await });
        url
    }

    /// A port at which nobody listens.
    async fn nobody() -> String {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        format!("http://{}", listener.local_addr().expect("an address"))
    }

    fn endpoints(agents: &[&String]) -> Vec<GatewayEndpoint> {
        agents.iter().map(|agent| GatewayEndpoint { agent: (*agent).clone(), members: Vec::new() }).collect()
    }

    #[tokio::test]
    async fn an_agent_that_does_not_answer_holds_things_up_for_a_while_only() {
        let (well, silent) = (agent(StatusCode::OK).await, nobody().await);
        let mut gateways = HttpGateways::new(reqwest::Client::new(), endpoints(&[&well, &silent]));
        let error = gateways.leave("main-0").await.expect_err("it does not answer");
        assert!(error.contains(&silent), "{error}");
        assert!(gateways.hold("main-0", Duration::from_secs(1)).await.is_err());
        gateways.patience = Duration::ZERO;
        gateways.leave("main-0").await.expect("the other one answers");
        assert!(gateways.hold("main-0", Duration::from_secs(1)).await.is_ok());
        // It is told of members all the same, and holds things up again once it has answered.
        let told = gateways.set_backends(&["main-0".to_owned()]).await;
        assert!(told.is_err_and(|error| error.contains(&silent)));
    }

    #[tokio::test]
    async fn an_agent_that_refuses_holds_things_up_until_gateways_are_ignored() {
        let refuses = agent(StatusCode::CONFLICT).await;
        let mut gateways = HttpGateways::new(reqwest::Client::new(), Vec::new());
        gateways.patience = Duration::ZERO;
        gateways.set_endpoints(endpoints(&[&refuses]), false);
        for _ in 0..2 {
            let error = gateways.leave("main-0").await.expect_err("it refuses");
            assert!(error.contains("calls do not end"), "{error}");
        }
        gateways.set_endpoints(endpoints(&[&refuses]), true);
        gateways.leave("main-0").await.expect("it is ignored");
        assert!(gateways.hold("main-0", Duration::from_secs(1)).await.is_ok());
    }
}
