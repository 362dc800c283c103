//! Checks the file of an agent for one member. All that is wrong with it is said at once, and nothing is started then.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use repot_apimachinery::{duration, schedule::Schedule};
use repot_etcd_core::{
    agent::config::Config,
    snapshot::{Compression, decide::Retention},
};

use super::{
    flags, gateway,
    settings::{Error, Settings, Snapshots, chain, open, scheme, url_of},
    supervisor::STOP,
};
use crate::owner;

const FULL_SCHEDULE: &str = "@hourly";
const DELTA_PERIOD: Duration = Duration::from_secs(20);
const DELTA_MEMORY_LIMIT: u64 = 10 << 20;
const LIMIT: u32 = 7;
const CLOSED_RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);

impl Settings {
    /// What the file means for the member whose Pod has this name, and this address where it is known.
    ///
    /// # Errors
    /// [`Error::Content`].
    pub fn new(config: Config, pod: &str, address: Option<IpAddr>) -> Result<Self, Error> {
        let mut wrong = Vec::new();
        names(&config, &mut wrong);
        members(&config, &mut wrong);
        places(&config, &mut wrong);
        gateway::check(&config, &mut wrong);
        wrong.extend(config.etcd_flags.keys().filter(|name| flags::is_ours(name)).map(|name| {
            format!("etcdFlags: {name} is set by the agent; change what it is made of, or leave it out")
        }));
        let snapshots = snapshots(&config, &mut wrong);
        let final_wait = final_wait(&config, &mut wrong);
        let owner = config.owner.as_ref().map(|owner| owner::Settings::new(owner, STOP));
        let owner = owner.transpose().unwrap_or_else(|all| {
            wrong.extend(all.iter().map(|one| format!("owner.{one}")));
            None
        });
        let own = config.members.iter().find(|member| member.pod.as_deref() == Some(pod)).cloned();
        match &own {
            None => wrong.push(no_member(&config, pod)),
            Some(own) if own.client_urls.is_empty() => {
                wrong.push(format!("members: {} has no clientUrls, and is one of this etcd", own.name));
            }
            Some(_) => {}
        }
        match (own, snapshots) {
            (Some(own), Some(snapshots)) if wrong.is_empty() => {
                let address = address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
                Ok(Self { config, own, address, snapshots, owner, final_wait })
            }
            _ => Err(Error::Content(wrong)),
        }
    }
}

fn final_wait(config: &Config, wrong: &mut Vec<String>) -> Duration {
    let Some(text) = config.restore.as_ref().and_then(|restore| restore.final_wait.as_deref()) else {
        return Duration::ZERO;
    };
    duration::parse(text).unwrap_or_else(|| {
        wrong.push(format!("restore.finalWait: {text:?} is no duration such as 10m"));
        Duration::ZERO
    })
}

fn no_member(config: &Config, pod: &str) -> String {
    let pods: Vec<&str> = config.members.iter().filter_map(|member| member.pod.as_deref()).collect();
    format!("members: none has the pod {pod:?} (POD_NAME); there are {}", pods.join(", "))
}

fn names(config: &Config, wrong: &mut Vec<String>) {
    let all = [
        ("name", &config.name),
        ("namespace", &config.namespace),
        ("volumes", &config.volumes),
        ("clusterToken", &config.cluster_token),
    ];
    wrong
        .extend(all.iter().filter(|(_, value)| value.is_empty()).map(|(name, _)| format!("{name} is empty")));
    if !config.data_dir.is_absolute() {
        wrong.push(format!("dataDir: {} is not absolute", config.data_dir.display()));
    }
}

fn members(config: &Config, wrong: &mut Vec<String>) {
    let schemes = (scheme(config.tls.peer.is_some()), scheme(config.tls.server.is_some()));
    let (mut names, mut pods, mut peers) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for member in &config.members {
        let name = &member.name;
        if name.is_empty() || name.contains(['=', ',']) || !names.insert(name) {
            wrong.push(format!("members: {name:?} is empty, has a \"=\" or \",\" in it, or is there twice"));
        }
        if member.pod.as_ref().is_some_and(|pod| !pods.insert(pod)) {
            wrong.push(format!("members: {name} has the pod of another member"));
        }
        if member.peer_urls.is_empty() {
            wrong.push(format!("members: {name} has no peerUrls"));
        }
        for url in &member.peer_urls {
            if !peers.insert(url) {
                wrong.push(format!("members: the peer URL {url} is there twice"));
            }
            wrong.extend(url_of(url, schemes.0).map(|why| format!("members: {name}: peerUrls: {why}")));
        }
        for url in &member.client_urls {
            wrong.extend(url_of(url, schemes.1).map(|why| format!("members: {name}: clientUrls: {why}")));
        }
    }
    for url in &config.client_endpoints {
        wrong.extend(url_of(url, schemes.1).map(|why| format!("clientEndpoints: {why}")));
    }
}

fn places(config: &Config, wrong: &mut Vec<String>) {
    let ports = [config.ports.client, config.ports.peer, config.ports.agent];
    if ports.contains(&0) || ports.iter().collect::<BTreeSet<_>>().len() < ports.len() {
        wrong.push("ports: client, peer and agent must be three different ports, none of them 0".to_owned());
    }
    if config.tls.server.is_some() && config.tls.client.is_none() {
        wrong.push(
            "tls: with `server`, clients have to show certificates: set `client`, the agent's own".to_owned(),
        );
    }
    let directories =
        [("server", &config.tls.server), ("client", &config.tls.client), ("peer", &config.tls.peer)];
    for (name, dir) in directories.iter().filter_map(|(name, dir)| Some((name, dir.as_ref()?))) {
        for file in ["ca.crt", "tls.crt", "tls.key"].iter().filter(|file| !dir.join(file).is_file()) {
            wrong.push(format!("tls: {name}: there is no file {}", dir.join(file).display()));
        }
    }
    if config.restore.as_ref().is_some_and(|restore| restore.standby) && config.members.len() != 1 {
        wrong.push("restore.standby: its member has to be the only one in `members`".to_owned());
    }
    let stores =
        [("store", config.store.as_ref()), ("restore.store", config.restore.as_ref().map(|r| &r.store))];
    for (name, store) in stores.iter().filter_map(|(name, store)| Some((name, (*store)?))) {
        if let Err(error) = open(store) {
            wrong.push(format!("{name}: {}", chain(&error)));
        }
    }
}

fn snapshots(config: &Config, wrong: &mut Vec<String>) -> Option<Snapshots> {
    let given = &config.snapshots;
    let full = Schedule::parse(given.full_schedule.as_deref().unwrap_or(FULL_SCHEDULE))
        .map_err(|why| wrong.push(format!("snapshots.fullSchedule: {why}")));
    let mut time = |field: &str, text: Option<&str>, otherwise: Duration| {
        let time = text.map_or(Some(otherwise), duration::parse);
        if time.is_none() {
            wrong.push(format!(
                "snapshots.{field}: {:?} is no duration such as 20s",
                text.unwrap_or_default()
            ));
        }
        time.filter(|time| !time.is_zero())
    };
    let delta = time("deltaPeriod", given.delta_period.as_deref(), DELTA_PERIOD);
    let closed_retention = time("closedRetention", given.closed_retention.as_deref(), CLOSED_RETENTION);
    let retention = match (given.retention.as_deref(), given.limit) {
        (None, None) => Some(Retention::All),
        (Some("Exponential"), None) => Some(Retention::Exponential),
        (Some("LimitBased"), limit) if limit != Some(0) => {
            Some(Retention::LimitBased(limit.unwrap_or(LIMIT)))
        }
        _ => None,
    };
    if retention.is_none() {
        wrong.push(
            "snapshots.retention must be Exponential, or LimitBased with a limit of at least 1; without it there is no limit"
                .to_owned(),
        );
    }
    let compression = match given.compression.as_deref() {
        None | Some("gzip") => Some(Compression::Gzip),
        Some("zlib") => Some(Compression::Zlib),
        Some("none") => Some(Compression::None),
        Some(other) => {
            let note = if other == "lzw" { " (lzw is only read)" } else { "" };
            wrong.push(format!("snapshots.compression: {other:?} is none of gzip, zlib and none{note}"));
            None
        }
    };
    let memory = given.delta_memory_limit.unwrap_or(DELTA_MEMORY_LIMIT);
    Some(Snapshots {
        full: full.ok()?,
        delta,
        memory,
        retention: retention?,
        closed_retention,
        compression: compression?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
name: main
namespace: shoot--p--a
volumes: main-etcd
clusterToken: uid/main-etcd
clusterState: new
members:
- {name: m0, pod: main-0, peerUrls: ['http://10.0.0.1:2380'], clientUrls: ['http://10.0.0.1:2379']}
- {name: m1, pod: main-1, peerUrls: ['http://10.0.0.2:2380'], clientUrls: ['http://10.0.0.2:2379']}
dataDir: /var/etcd/data
ports: {client: 2379, peer: 2380, agent: 8080}
";

    fn settings(text: &str) -> Result<Settings, String> {
        let config: Config = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        Settings::new(config, "main-1", None).map_err(|error| error.to_string())
    }

    #[test]
    fn the_member_is_the_one_with_the_pod() {
        let settings = settings(GOOD).expect("good");
        assert_eq!(settings.own.name, "m1");
        assert_eq!(settings.snapshots.delta, Some(DELTA_PERIOD));
        assert_eq!(settings.snapshots.retention, Retention::All);
        assert_eq!(settings.snapshots.closed_retention, Some(CLOSED_RETENTION));
    }

    #[test]
    fn what_is_wrong_is_said_all_at_once() {
        for (from, to, says) in [
            ("name: main\n", "name: main\nnmae: x\n", "nmae"),
            ("pod: main-1", "pod: main-2", "there are main-0, main-2"),
            ("name: m1", "name: m0", "there twice"),
            ("http://10.0.0.2:2380", "http://10.0.0.1:2380", "there twice"),
            ("http://10.0.0.2:2380", "https://10.0.0.2:2380", "must begin with http://"),
            ("http://10.0.0.2:2379", "http://10.0.0.2:2379/x", "nothing else"),
            ("dataDir: /var", "dataDir: var", "not absolute"),
            ("agent: 8080", "agent: 2379", "three different ports"),
            ("clusterState: new", "clusterState: old", "old"),
            ("volumes: main-etcd", "volumes: ''", "volumes is empty"),
        ] {
            let error = settings(&GOOD.replacen(from, to, 1)).expect_err(to);
            assert!(error.contains(says), "{to}: {error}");
        }
        for (more, says) in [
            ("etcdFlags: {data-dir: /x}", "data-dir is set by the agent"),
            ("tls: {server: /nowhere}", "the agent's own"),
            ("tls: {server: /nowhere}", "no file /nowhere/ca.crt"),
            ("store: {url: 'ftp://x'}", "begins with none"),
            (
                "owner: {name: a.org, id: '', servers: ['ns:a.org'], ttl: 1s, interval: 1s, timeout: 1s, grace: 9s}",
                "owner.id is empty",
            ),
            ("snapshots: {fullSchedule: hourly}", "fullSchedule"),
            ("snapshots: {deltaPeriod: '20'}", "no duration"),
            ("snapshots: {closedRetention: week}", "closedRetention"),
            ("snapshots: {compression: lzw}", "only read"),
            ("snapshots: {retention: LimitBased, limit: 0}", "at least 1"),
        ] {
            let error = settings(&format!("{GOOD}{more}\n")).expect_err(more);
            assert!(error.contains(says), "{more}: {error}");
        }
        let error =
            settings(&GOOD.replace("name: main", "name: ''").replace("/var", "var")).expect_err("two");
        assert!(error.contains("name is empty") && error.contains("not absolute"), "{error}");
    }
}
