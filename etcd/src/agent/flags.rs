//! The command line of etcd. Pure.

use std::{
    ffi::OsString,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
};

use super::settings::{Settings, scheme};

/// Flags that are made here and nowhere else.
const OURS: &[&str] = &[
    "name",
    "data-dir",
    "wal-dir",
    "config-file",
    "listen-client-urls",
    "listen-client-http-urls",
    "listen-peer-urls",
    "advertise-client-urls",
    "initial-advertise-peer-urls",
    "initial-cluster",
    "initial-cluster-state",
    "initial-cluster-token",
    "force-new-cluster",
    "discovery",
    "discovery-srv",
    "discovery-token",
    "cert-file",
    "key-file",
    "trusted-ca-file",
    "client-cert-auth",
    "auto-tls",
    "peer-cert-file",
    "peer-key-file",
    "peer-trusted-ca-file",
    "peer-client-cert-auth",
    "peer-auto-tls",
];

/// Whether a flag may not be among the further ones.
pub(super) fn is_ours(name: &str) -> bool {
    OURS.contains(&name) || name.starts_with('-') || name.is_empty() || name.contains('=')
}

/// How etcd enters its cluster. It is looked at only while there is no log in the data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Value of `--initial-cluster`: `name=url` pairs, separated by commas.
    pub members: String,
    /// Value of `--initial-cluster-state`: `new` or `existing`.
    pub state: &'static str,
}

impl Entry {
    /// With all members of the file, as founders.
    #[must_use]
    pub fn founding(settings: &Settings) -> Self {
        let members = settings.config.members.iter();
        let each = members
            .flat_map(|member| member.peer_urls.iter().map(move |url| format!("{}={url}", member.name)));
        Self { members: each.collect::<Vec<_>>().join(","), state: "new" }
    }
}

/// Where etcd listens for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen(pub Vec<SocketAddr>);

impl Listen {
    /// For everybody: on the Pod's address, and on the loopback interface for the agent and whoever is in the Pod.
    #[must_use]
    pub fn serving(settings: &Settings) -> Self {
        let (address, port) = (settings.address, settings.config.ports.client);
        let mut all = vec![SocketAddr::new(address, port)];
        if !address.is_loopback() && !address.is_unspecified() {
            all.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port));
        }
        Self(all)
    }

    /// For the agent alone.
    #[must_use]
    pub fn private(port: u16) -> Self {
        Self(vec![SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)])
    }

    /// Where the agent reaches it.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        let last = self.0.last().copied().unwrap_or(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0));
        match last.ip().is_unspecified() {
            true => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), last.port()),
            false => last,
        }
    }
}

/// The arguments with which etcd is started, without the program itself.
#[must_use]
pub fn render(settings: &Settings, data_dir: &Path, entry: &Entry, listen: &Listen) -> Vec<OsString> {
    let (config, own) = (&settings.config, &settings.own);
    let mut args: Vec<OsString> = Vec::new();
    let mut flag = |name: &str, value: &str| args.push(format!("--{name}={value}").into());
    let clients: Vec<String> =
        listen.0.iter().map(|at| format!("{}://{at}", scheme(config.tls.server.is_some()))).collect();
    let peer = SocketAddr::new(settings.address, config.ports.peer);
    flag("name", &own.name);
    flag("listen-client-urls", &clients.join(","));
    flag("advertise-client-urls", &own.client_urls.join(","));
    flag("listen-peer-urls", &format!("{}://{peer}", scheme(config.tls.peer.is_some())));
    flag("initial-advertise-peer-urls", &own.peer_urls.join(","));
    flag("initial-cluster", &entry.members);
    flag("initial-cluster-token", &config.cluster_token);
    flag("initial-cluster-state", entry.state);
    for (name, value) in &config.etcd_flags {
        flag(name, value);
    }
    let mut file = |name: String, path: &Path| {
        let mut text = OsString::from(format!("--{name}="));
        text.push(path);
        args.push(text);
    };
    file("data-dir".to_owned(), data_dir);
    for (side, dir) in [("", &config.tls.server), ("peer-", &config.tls.peer)] {
        let Some(dir) = dir else { continue };
        file(format!("{side}cert-file"), &dir.join("tls.crt"));
        file(format!("{side}key-file"), &dir.join("tls.key"));
        file(format!("{side}trusted-ca-file"), &dir.join("ca.crt"));
        file(format!("{side}client-cert-auth"), Path::new("true"));
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(address: &str) -> Listen {
        let text = "
name: main
namespace: ns
volumes: v
clusterToken: t
clusterState: new
members: [{name: m0, pod: p, peerUrls: ['http://a:2380', 'http://b:2380'], clientUrls: ['http://a:2379']}]
dataDir: /d
ports: {client: 2379, peer: 2380, agent: 8080}
etcdFlags: {quota-backend-bytes: '8589934592'}
";
        let config = serde_saphyr::from_str(text).expect("a file");
        let address = (!address.is_empty()).then(|| address.parse().expect("an address"));
        let settings = Settings::new(config, "p", address).expect("good");
        let entry = Entry::founding(&settings);
        assert_eq!(entry.members, "m0=http://a:2380,m0=http://b:2380");
        let listen = Listen::serving(&settings);
        let args = render(&settings, Path::new("/d/new.etcd"), &entry, &listen);
        for wanted in
            ["--quota-backend-bytes=8589934592", "--data-dir=/d/new.etcd", "--initial-cluster-state=new"]
        {
            assert!(args.iter().any(|arg| arg == wanted), "{args:?}");
        }
        // No flag is given twice, and each that is made here is known to be.
        for arg in &args {
            let name = arg
                .to_string_lossy()
                .trim_start_matches('-')
                .split('=')
                .next()
                .unwrap_or_default()
                .to_owned();
            assert_eq!(is_ours(&name), name != "quota-backend-bytes", "{name}");
        }
        listen
    }

    #[test]
    fn listens_on_the_address_of_the_pod_and_on_loopback() {
        for (address, all, local) in [
            ("", vec!["0.0.0.0:2379"], "127.0.0.1:2379"),
            ("10.1.0.4", vec!["10.1.0.4:2379", "127.0.0.1:2379"], "127.0.0.1:2379"),
            ("127.0.0.2", vec!["127.0.0.2:2379"], "127.0.0.2:2379"),
        ] {
            let listen = listen(address);
            assert_eq!(listen.0.iter().map(ToString::to_string).collect::<Vec<_>>(), all);
            assert_eq!(listen.local().to_string(), local);
        }
    }
}
