//! Whom to ask.

use std::{
    collections::BTreeSet,
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use futures::future::{join_all, try_join};

use super::{
    lookup::{Data, Kind},
    message::Name,
    resolver::{Failure, find},
};

const PORT: u16 = 53;
const FILE: &str = "/etc/resolv.conf";

/// Before the name of a zone.
const OF_ZONE: &str = "ns:";
/// Name servers of a zone, and addresses of them, that are asked: a mangled or hostile answer must not cost more.
const MOST: usize = 16;

/// One server, or some of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Servers {
    /// A server at an address.
    At(SocketAddr),
    /// The name servers of a zone itself, so that no cache is in between. They are found by NS.
    OfZone {
        /// The zone.
        zone: Name,
        /// Who knows its name servers; the servers of the machine where it is `None`.
        through: Option<SocketAddr>,
    },
}

impl Servers {
    /// Reads `10.0.0.10:53`, `10.0.0.10`, `ns:example.org` or `ns:example.org@10.0.0.10:53`.
    #[must_use]
    pub(super) fn parse(text: &str) -> Option<Self> {
        let Some(zone) = text.strip_prefix(OF_ZONE) else { return parse(text).map(Self::At) };
        let (zone, through) = match zone.split_once('@') {
            Some((zone, through)) => (zone, Some(parse(through)?)),
            None => (zone, None),
        };
        Some(Self::OfZone { zone: Name::parse(zone).ok()?, through })
    }

    async fn addresses(&self, limit: Duration) -> Result<Vec<SocketAddr>, Failure> {
        match self {
            Self::At(address) => Ok(vec![*address]),
            Self::OfZone { zone, through } => {
                let through = match through {
                    Some(through) => vec![*through],
                    None => of_this_machine().map_err(Failure::Own)?,
                };
                of_zone(zone, &through, limit).await
            }
        }
    }
}

/// The addresses of all.
///
/// # Errors
/// Where no address is found, or servers of the machine cannot be read.
pub(super) async fn all(servers: &[Servers], limit: Duration) -> Result<Vec<SocketAddr>, Failure> {
    let (mut found, mut failed) = (Vec::new(), Vec::new());
    for answer in join_all(servers.iter().map(|one| one.addresses(limit))).await {
        match answer {
            Ok(addresses) => found.extend(addresses),
            Err(Failure::Servers(why)) => failed.push(why),
            Err(own) => return Err(own),
        }
    }
    if found.is_empty() { Err(Failure::Servers(failed.join("; "))) } else { Ok(found) }
}

/// The addresses of a name, of both families, as one server answers.
///
/// # Errors
/// Where it does not answer.
pub(super) async fn addresses(
    server: SocketAddr,
    name: &Name,
    limit: Duration,
) -> Result<BTreeSet<IpAddr>, Failure> {
    let one = [server];
    let ask = |kind| find(&one, name, kind, limit);
    let (four, six) = try_join(ask(Kind::A), ask(Kind::Aaaa)).await?;
    Ok(four.into_iter().chain(six).filter_map(address).collect())
}

/// The addresses of a zone's name servers, within twice the limit. Their names and addresses may come from caches: they change seldom.
async fn of_zone(zone: &Name, through: &[SocketAddr], limit: Duration) -> Result<Vec<SocketAddr>, Failure> {
    let missing = |what: &str| Failure::Servers(format!("{what} of the zone {zone} are not found"));
    let hosts = find(through, zone, Kind::Ns, limit).await?;
    let hosts: Vec<Name> = hosts.into_iter().filter_map(host).take(MOST).collect();
    if hosts.is_empty() {
        return Err(missing("name servers"));
    }
    let asked =
        hosts.iter().flat_map(|host| [Kind::A, Kind::Aaaa].map(|kind| find(through, host, kind, limit)));
    // A host that has no addresses of one family, or whose zone is away, leaves the others.
    let answers = join_all(asked).await.into_iter().filter_map(Result::ok).flatten();
    let addresses: BTreeSet<IpAddr> = answers.filter_map(address).collect();
    if addresses.is_empty() {
        return Err(missing("addresses of name servers"));
    }
    Ok(addresses.into_iter().take(MOST).map(|ip| SocketAddr::new(ip, PORT)).collect())
}

fn host(data: Data) -> Option<Name> {
    if let Data::Host(name) = data { Some(name) } else { None }
}

fn address(data: Data) -> Option<IpAddr> {
    if let Data::Address(ip) = data { Some(ip) } else { None }
}

/// An address with a port, or without one for port 53.
fn parse(text: &str) -> Option<SocketAddr> {
    let plain = |text: &str| text.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, PORT));
    text.parse().ok().or_else(|| plain(text))
}

/// Those of this machine. Read each time: they change, and a file is cheap beside a question.
fn of_this_machine() -> io::Result<Vec<SocketAddr>> {
    let servers = read(&std::fs::read_to_string(FILE)?);
    if servers.is_empty() {
        return Err(io::Error::other(format!("{FILE} names no server")));
    }
    Ok(servers)
}

fn read(text: &str) -> Vec<SocketAddr> {
    let words = text.lines().map(str::split_whitespace);
    words
        .filter_map(|mut words| words.next().filter(|word| *word == "nameserver").and(words.next()))
        .filter_map(parse)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_from_files_and_texts() {
        let text =
            "# nameserver 1.1.1.1\nsearch a.org\nnameserver 10.0.0.10\n nameserver  ::1 # it\nnameserver\n";
        let all: Vec<String> = read(text).iter().map(ToString::to_string).collect();
        assert_eq!(all, ["10.0.0.10:53", "[::1]:53"]);
        assert_eq!(parse("127.0.0.1:5353").map(|at| at.port()), Some(5353));
        assert_eq!(parse("localhost:53"), None);
    }

    #[test]
    fn zones_are_told_from_addresses() {
        let zone =
            |through| Servers::OfZone { zone: Name::parse("own.example.org").expect("a name"), through };
        assert_eq!(Servers::parse("ns:own.example.org"), Some(zone(None)));
        let through = Some("10.0.0.10:53".parse().expect("an address"));
        assert_eq!(Servers::parse("ns:own.example.org@10.0.0.10"), Some(zone(through)));
        assert_eq!(Servers::parse("10.0.0.10"), through.map(Servers::At));
        for bad in ["ns:", "ns:a..b", "ns:a.org@", "ns:a.org@dns.org", "own.example.org", ""] {
            assert_eq!(Servers::parse(bad), None, "{bad}");
        }
    }

    /// Answers NS with two hosts and A of the first with an address, and is silent otherwise.
    async fn resolver() -> SocketAddr {
        let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
        let address = socket.local_addr().expect("an address");
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            while let Ok((length, client)) = socket.recv_from(&mut buffer).await {
                let (question, kind) = (&buffer[..length], buffer[length - 3]);
                let records: Vec<(u8, &[u8])> = match (kind, &question[12..16]) {
                    (2, _) => vec![(2, b"\x03ns1\xc0\x0c"), (2, b"\x03ns2\xc0\x0c")],
                    (1, b"\x03ns1") => vec![(1, &[10, 0, 0, 1])],
                    _ => continue,
                };
                let mut answer = question.to_vec();
                (answer[2], answer[7]) = (0x84, u8::try_from(records.len()).expect("few"));
                for (kind, data) in records {
                    answer.extend([0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 9, 0]);
                    answer.push(u8::try_from(data.len()).expect("short"));
                    answer.extend(data);
                }
                socket.send_to(&answer, client).await.expect("an answer");
            }
        });
        address
    }

    #[tokio::test]
    async fn name_servers_without_addresses_leave_the_others_and_nobody_is_waited_for_beyond_the_limit() {
        let limit = Duration::from_millis(300);
        let zone = |through| Servers::OfZone { zone: Name::parse("own.test").expect("a name"), through };
        let through = Some(resolver().await);
        let found = all(&[zone(through)], limit).await.expect("a server");
        assert_eq!(found, ["10.0.0.1:53".parse().expect("an address")]);
        // Nobody answers there.
        let deaf = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
        let through = Some(deaf.local_addr().expect("an address"));
        let silent = tokio::time::timeout(limit * 20, all(&[zone(through)], limit)).await.expect("an end");
        let Err(Failure::Servers(why)) = silent else { panic!("{silent:?}") };
        assert!(why.contains("own.test"), "{why}");
        let other = Servers::At("10.0.0.2:53".parse().expect("an address"));
        assert_eq!(all(&[zone(through), other], limit).await.expect("a server").len(), 1);
    }
}
