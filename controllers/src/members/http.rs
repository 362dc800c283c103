//! Gateways that are reached over the HTTP of their agents.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt, join_all, try_join_all};
use repot_etcd::agent::config::GatewayMember;
use reqwest::{StatusCode, Url};
use serde::Deserialize;
use tokio::time::Instant;

use super::Gateways;

/// How long calls at a member have to end that clients are to leave.
const LEAVE: Duration = Duration::from_secs(3);
/// How long an agent has for an answer, beyond what it waits for itself. Looks at members may be [`Limits::gap`](super::Limits::gap)
/// apart, and both of these come between two looks.
const ANSWER: Duration = Duration::from_secs(1);
/// Less than this is no time to hold writes.
const SHORTEST: Duration = Duration::from_millis(10);

/// A gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Door {
    /// URL of its agent, such as `https://main-0.main-peer.shoot--p--a.svc:8080`.
    pub agent: String,
    /// Where it reaches the members of all seats; `near` says which are on its site.
    pub members: Vec<GatewayMember>,
}

/// All gateways in front of an etcd. An agent that has no gateway holds up nothing.
pub struct HttpGateways {
    client: reqwest::Client,
    doors: Mutex<Vec<Door>>,
}

/// Why an agent does not do something.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Refusal {
    error: String,
}

impl HttpGateways {
    /// Gateways at these agents. The client has the certificate that agents ask for.
    #[must_use]
    pub fn new(client: reqwest::Client, doors: Vec<Door>) -> Self {
        Self { client, doors: Mutex::new(doors) }
    }

    /// There are these gateways from now on.
    pub fn set_doors(&self, doors: Vec<Door>) {
        *self.doors.lock().unwrap_or_else(PoisonError::into_inner) = doors;
    }

    /// Leads clients to the members of these seats, and to no others, in all gateways.
    ///
    /// # Errors
    /// Which gateway did not do that, and why. The others have.
    pub async fn lead_to(&self, seats: &[String]) -> Result<(), String> {
        let told = self.doors().into_iter().map(async |door| {
            let members = door.members.iter().filter(|member| seats.contains(&member.name));
            let members: Vec<&GatewayMember> = members.collect();
            // Nobody waits for calls at a member that is not among them.
            let request = self.client.put(format!("{}/gateway/members?for=10ms", door.agent)).json(&members);
            self.send(&door, request.timeout(ANSWER), &[StatusCode::NOT_FOUND, StatusCode::CONFLICT]).await
        });
        join_all(told).await.into_iter().collect()
    }

    fn doors(&self) -> Vec<Door> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// An order to all of these at once.
    async fn order(
        &self,
        doors: &[&Door],
        order: &str,
        params: &[(&str, &str)],
        limit: Duration,
    ) -> Result<(), String> {
        let asked = doors.iter().map(async |door| {
            let url = Url::parse_with_params(&format!("{}/gateway/{order}", door.agent), params);
            let url = url.map_err(|error| format!("{}: {error}", door.agent))?;
            // Without a gateway nobody comes through there.
            self.send(door, self.client.post(url).timeout(limit), &[StatusCode::NOT_FOUND]).await
        });
        try_join_all(asked).await.map(drop)
    }

    /// `fine`: what is no failure, beyond success.
    async fn send(
        &self,
        door: &Door,
        request: reqwest::RequestBuilder,
        fine: &[StatusCode],
    ) -> Result<(), String> {
        let failed = |error: reqwest::Error| format!("{}: {}", door.agent, chain(&error.without_url()));
        let answer = request.send().await.map_err(failed)?;
        let status = answer.status();
        if status.is_success() || fine.contains(&status) {
            return Ok(());
        }
        let body = answer.bytes().await.map_err(failed)?;
        let said: Refusal = serde_json::from_slice(&body).unwrap_or_default();
        Err(format!("{}: {} ({status})", door.agent, said.error))
    }

    /// Holds writes at these, for as long as is left.
    async fn hold_at(&self, doors: &[&Door], until: Instant) -> Result<(), String> {
        let left = until.saturating_duration_since(Instant::now());
        if left < SHORTEST {
            return Err("no time is left to hold writes".to_owned());
        }
        self.order(doors, "hold", &[("for", &format!("{}ms", left.as_millis()))], left).await
    }
}

impl Gateways for HttpGateways {
    fn hold<'a>(&'a self, leader: &'a str, longest: Duration) -> BoxFuture<'a, Result<Duration, String>> {
        async move {
            // Each begins later than this and holds until then at least, whatever the answers take.
            let until = Instant::now() + longest;
            let doors = self.doors();
            let is_near =
                |door: &&Door| door.members.iter().any(|member| member.name == leader && member.near);
            let (near, far): (Vec<&Door>, Vec<&Door>) = doors.iter().partition(is_near);
            self.hold_at(&far, until).await?;
            self.hold_at(&near, until).await?;
            Ok(until.saturating_duration_since(Instant::now()))
        }
        .boxed()
    }

    fn release(&self) -> BoxFuture<'_, ()> {
        async move {
            let doors = self.doors();
            let asked = doors.iter().map(async |door| self.order(&[door], "release", &[], ANSWER).await);
            for error in join_all(asked).await.into_iter().filter_map(Result::err) {
                tracing::warn!(error, "writes go on there when the time is over");
            }
        }
        .boxed()
    }

    fn leave(&self, seat: &str) -> BoxFuture<'_, Result<(), String>> {
        let seat = seat.to_owned();
        async move {
            let doors = self.doors();
            let doors: Vec<&Door> = doors.iter().collect();
            let patience = format!("{}s", LEAVE.as_secs());
            self.order(&doors, "leave", &[("member", &seat), ("for", &patience)], LEAVE + ANSWER).await
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
