//! The gateway beside etcd. It serves as long as the agent does, whatever etcd does: clients are led to other members then.

use std::{net::SocketAddr, path::Path, time::Duration};

use repot_certs::{
    clients::Authorities,
    tls::{Serving, ServingFiles},
};
use repot_etcd_core::agent::config::{Config, Gateway as Wanted, GatewayMember};
use tokio::{
    sync::{Mutex, MutexGuard},
    time::interval,
};
use tokio_util::sync::CancellationToken;

use super::{
    Error, clients,
    settings::{Settings, chain, scheme, url_of},
};
use crate::{
    gateway::{self, Endpoint, Gateway, Handle, Limits, NotDrained, Options, Status},
    link,
};

/// From one look at the own certificate to the next.
const RELOAD: Duration = Duration::from_secs(10);

/// What is wrong with the gateway of a configuration.
pub(super) fn check(config: &Config, wrong: &mut Vec<String>) {
    let Some(wanted) = &config.gateway else { return };
    let ports = [0, config.ports.client, config.ports.peer, config.ports.agent];
    if ports.contains(&wanted.port) {
        wrong
            .push(format!("gateway.port: {} is 0 or one of `ports`; give it a port of its own", wanted.port));
    }
    let members = members(config, wanted);
    if members.is_empty() {
        wrong.push("gateway.members: there are none, and none of `members` has clientUrls".to_owned());
    }
    wrong.extend(faults(config, &members).into_iter().map(|why| format!("gateway.members: {why}")));
    let limits = limits(wanted);
    if limits.message == 0 || limits.message > limits.memory {
        wrong.push(format!(
            "gateway.messageLimit: {} must be at least 1 and at most memoryLimit, which is {}",
            limits.message, limits.memory
        ));
    }
}

/// What is wrong with members to lead clients to.
fn faults(config: &Config, members: &[GatewayMember]) -> Vec<String> {
    let scheme = scheme(config.tls.server.is_some());
    let fault = |member: &GatewayMember| match url_of(&member.url, scheme) {
        _ if member.name.is_empty() => Some(format!("the one at {} has no name", member.url)),
        why => why.map(|why| format!("{}: {why}", member.name)),
    };
    members.iter().filter_map(fault).collect()
}

fn members(config: &Config, wanted: &Wanted) -> Vec<GatewayMember> {
    if !wanted.members.is_empty() {
        return wanted.members.clone();
    }
    let of = |member: &repot_etcd_core::agent::config::Member| {
        let (name, near) = (member.name.clone(), member.pod.is_some());
        let urls = member.client_urls.clone().into_iter();
        urls.map(move |url| GatewayMember { name: name.clone(), url, near }).collect::<Vec<_>>()
    };
    config.members.iter().flat_map(of).collect()
}

fn limits(wanted: &Wanted) -> Limits {
    let bytes =
        |given: Option<u64>, otherwise| given.map_or(otherwise, |n| n.try_into().unwrap_or(usize::MAX));
    let Limits { message, memory, streams, patience } = Limits::default();
    let (message, memory) = (bytes(wanted.message_limit, message), bytes(wanted.memory_limit, memory));
    Limits { message, memory, streams, patience }
}

/// What is asked of a gateway cannot be done.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    /// Members that no client can be led to.
    #[error("{}", .0.join("; "))]
    Bad(Vec<String>),
    /// Nobody would be left.
    #[error("{0} is the only member here; name others first (PUT /gateway/members)")]
    Last(String),
    /// As of the gateway.
    #[error(transparent)]
    Gateway(#[from] gateway::Error),
}

/// A gateway, and the names of the members that it knows by URLs.
pub(super) struct HostedGateway {
    handle: Handle,
    members: Mutex<Vec<GatewayMember>>,
}

impl HostedGateway {
    /// Serves from then on, where the configuration asks for it.
    pub(super) async fn open(settings: &Settings) -> Result<Option<Self>, Error> {
        let config = &settings.config;
        let Some(wanted) = &config.gateway else { return Ok(None) };
        let members = members(config, wanted);
        let (serving, clients) = match &config.tls.server {
            Some(dir) => {
                let (serving, clients) = certificates(dir)?;
                (Some(serving), Some(clients))
            }
            None => (None, None),
        };
        let options = Options {
            listen: SocketAddr::new(settings.address, wanted.port),
            serving,
            clients,
            endpoints: endpoints(&members),
            access: clients::access(settings)?,
            limits: limits(wanted),
        };
        let handle = Gateway::start(options).await?;
        Ok(Some(Self { handle, members: Mutex::new(members) }))
    }

    /// Takes up renewed certificates for members until `stop`; those that it serves with, the gateway follows itself. Then it ends.
    pub(super) async fn run(&self, settings: &Settings, stop: &CancellationToken) {
        let work = async {
            let mut tick = interval(RELOAD);
            let mut last = None;
            loop {
                tick.tick().await;
                match clients::access(settings) {
                    Ok(access) => self.renew(access, &mut last),
                    Err(error) => {
                        tracing::warn!(error = chain(&error), "the gateway keeps the certificate that it has")
                    }
                }
            }
        };
        stop.run_until_cancelled(work).await;
        self.handle.stop().await;
    }

    fn renew(&self, access: link::Options, last: &mut Option<Pem>) {
        let pem = (access.ca.clone(), access.identity.clone());
        if last.as_ref() == Some(&pem) {
            return;
        }
        match self.handle.set_access(&access) {
            Ok(()) => *last = Some(pem),
            Err(error) => {
                tracing::warn!(error = chain(&error), "the gateway keeps the certificate that it has")
            }
        }
    }

    pub(super) async fn hold(&self, longest: Duration) -> Result<Duration, NotDrained> {
        self.handle.hold(longest).await
    }

    /// Whether etcd asks clients for users, as far as the gateway knows.
    pub(super) fn auth_enabled(&self) -> Option<bool> {
        self.handle.auth_enabled()
    }

    pub(super) fn release(&self) {
        self.handle.release();
    }

    /// Leads no client to the member of this name any more, and waits until calls there have ended, for at most so long.
    pub(super) async fn leave(&self, name: &str, patience: Duration) -> Result<(), Refusal> {
        let members = self.members.lock().await;
        let left: Vec<_> = members.iter().filter(|member| member.name != name).cloned().collect();
        if left.is_empty() {
            return Err(Refusal::Last(name.to_owned()));
        }
        self.change(members, left, patience).await
    }

    /// Leads clients to these members.
    pub(super) async fn set(
        &self,
        config: &Config,
        members: Vec<GatewayMember>,
        patience: Duration,
    ) -> Result<(), Refusal> {
        let faults = faults(config, &members);
        if !faults.is_empty() {
            return Err(Refusal::Bad(faults));
        }
        self.change(self.members.lock().await, members, patience).await
    }

    /// One change at a time: what came last is what holds.
    async fn change(
        &self,
        mut held: MutexGuard<'_, Vec<GatewayMember>>,
        members: Vec<GatewayMember>,
        patience: Duration,
    ) -> Result<(), Refusal> {
        let outcome = self.handle.set_endpoints(&endpoints(&members), patience).await;
        if matches!(outcome, Ok(()) | Err(gateway::Error::StillBusy { .. })) {
            if *held != members {
                let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
                tracing::info!(members = names.join(","), "clients of the gateway are led to these members");
            }
            *held = members;
        }
        Ok(outcome?)
    }

    /// Where it listens, the members, and how it stands with each URL.
    pub(super) async fn standing(&self) -> (SocketAddr, Vec<GatewayMember>, Status) {
        let members = self.members.lock().await.clone();
        (self.handle.addr(), members, self.handle.status())
    }
}

/// The authority, and the certificate with its key.
type Pem = (Option<Vec<u8>>, Option<(Vec<u8>, Vec<u8>)>);

fn certificates(dir: &Path) -> Result<(Serving, Authorities), Error> {
    let files = ServingFiles { certificate: dir.join("tls.crt"), key: dir.join("tls.key") };
    Ok((Serving::load(files.into())?, Authorities::load(dir.join("ca.crt"))?))
}

fn endpoints(members: &[GatewayMember]) -> Vec<Endpoint> {
    members.iter().map(|member| Endpoint { url: member.url.clone(), near: member.near }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use repot_etcd_core::agent::config::{ClusterState, Member, Ports};

    fn config(gateway: Wanted) -> Config {
        let member = |name: &str, pod: Option<&str>| Member {
            name: name.to_owned(),
            pod: pod.map(str::to_owned),
            peer_urls: vec![format!("http://{name}:2380")],
            client_urls: vec![format!("http://{name}:2379")],
        };
        Config {
            name: "main".to_owned(),
            namespace: "n".to_owned(),
            volumes: "main".to_owned(),
            cluster_token: "t".to_owned(),
            cluster_state: ClusterState::New,
            members: vec![member("a", Some("main-0")), member("b", None)],
            client_endpoints: Vec::new(),
            data_dir: "/data".into(),
            ports: Ports { client: 1, peer: 2, agent: 3 },
            store: None,
            restore: None,
            snapshots: Default::default(),
            tls: Default::default(),
            etcd_flags: Default::default(),
            owner: None,
            gateway: Some(gateway),
        }
    }

    #[test]
    fn without_members_of_its_own_it_leads_to_all() {
        let wanted = Wanted { port: 4, ..Wanted::default() };
        let config = config(wanted.clone());
        let found: Vec<_> = members(&config, &wanted).into_iter().map(|m| (m.name, m.near)).collect();
        assert_eq!(found, [("a".to_owned(), true), ("b".to_owned(), false)]);
        let mut wrong = Vec::new();
        check(&config, &mut wrong);
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn what_is_wrong_is_said_all_at_once() {
        let one =
            |name: &str, url: &str| GatewayMember { name: name.to_owned(), url: url.to_owned(), near: true };
        let wanted = Wanted {
            port: 1,
            members: vec![one("", "http://x:1"), one("y", "https://y:1"), one("z", "http://z")],
            message_limit: Some(2),
            memory_limit: Some(1),
        };
        let mut wrong = Vec::new();
        check(&config(wanted), &mut wrong);
        let said = wrong.join("; ");
        for part in
            ["one of `ports`", "has no name", "y: \"https", "z: \"http", "at most memoryLimit, which is 1"]
        {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}
