//! Looks at all servers of the zone, each by itself. Servers that answer have to agree; one that is silent is left out, since a zone
//! lives on without one of its servers.

use std::{
    collections::BTreeSet,
    fmt::Debug,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use futures::future::join_all;
use repot_etcd_core::ownership::Answer;
use tokio::time::timeout;

use super::{
    Settings, answered,
    freshness::Freshness,
    message::Name,
    resolver::{Failure, ask},
    servers,
};

impl Settings {
    /// One look at each of the servers, and for people why it taught nothing. Where they do not agree, the record is not known.
    pub async fn look_at_all(&self, freshness: &Freshness) -> (Answer, Option<String>) {
        let limit = self.limit();
        let found = async {
            let servers = servers::all(&self.servers, limit / 4).await?;
            let one = |server| async move {
                let mut values = ask(&[server], &self.name, freshness, limit / 3).await?;
                values.sort_unstable();
                Ok(values)
            };
            agreed(&servers, limit / 3, one).await
        };
        answered(limit, found).await
    }

    /// What each of the servers says, for people: the values of the record, sorted, or why it taught nothing.
    ///
    /// # Errors
    /// Why no server is known.
    pub async fn look_at_each(&self) -> Result<Vec<(SocketAddr, Result<Vec<String>, String>)>, String> {
        let (limit, freshness) = (self.limit(), Freshness::new(self.timing.ttl));
        let servers = servers::all(&self.servers, limit / 4).await.map_err(words)?;
        let one = |server: SocketAddr| {
            let freshness = &freshness;
            async move {
                let asked = async { ask(&[server], &self.name, freshness, limit / 3).await };
                let answer = match timeout(limit / 3, asked).await {
                    Ok(answer) => answer.map_err(words),
                    Err(_) => Err(format!("no answer within {:?}", limit / 3)),
                };
                let sorted = answer.map(|mut values| {
                    values.sort_unstable();
                    values
                });
                (server, sorted)
            }
        };
        Ok(join_all(servers.into_iter().map(one)).await)
    }

    /// The addresses of another name of the same zone, of both families, as its servers answer; within the timeout.
    ///
    /// # Errors
    /// Where no server answers, where servers do not agree, or where the text is no name in DNS.
    pub async fn addresses(&self, name: &str) -> Result<BTreeSet<IpAddr>, String> {
        let name = Name::parse(name).map_err(|error| error.to_string())?;
        let limit = self.limit();
        let found = async {
            let servers = servers::all(&self.servers, limit / 4).await?;
            agreed(&servers, limit / 3, |server| servers::addresses(server, &name, limit / 3)).await
        };
        match timeout(limit, found).await {
            Ok(answer) => answer.map_err(words),
            Err(_) => Err(format!("no answer within {limit:?}")),
        }
    }
}

fn words(failure: Failure) -> String {
    match failure {
        Failure::Own(error) => error.to_string(),
        Failure::Servers(why) => why,
    }
}

/// What all servers say that answer within the limit.
async fn agreed<T: PartialEq + Debug, F: Future<Output = Result<T, Failure>>>(
    servers: &[SocketAddr],
    limit: Duration,
    ask_one: impl Fn(SocketAddr) -> F,
) -> Result<T, Failure> {
    let ask_one = &ask_one;
    let each = servers.iter().map(|server| async move { (server, timeout(limit, ask_one(*server)).await) });
    let (mut said, mut failed) = (None::<(&SocketAddr, T)>, Vec::new());
    for (server, answer) in join_all(each).await {
        match (answer, &said) {
            (Ok(Ok(answer)), None) => said = Some((server, answer)),
            (Ok(Ok(answer)), Some((_, before))) if answer == *before => {}
            (Ok(Ok(answer)), Some((other, before))) => {
                let why = format!("{other} answers with {before:?}, {server} with {answer:?}");
                return Err(Failure::Servers(why));
            }
            (Ok(Err(Failure::Servers(why))), _) => failed.push(format!("{server}: {why}")),
            (Ok(Err(own)), _) => return Err(own),
            (Err(_), _) => failed.push(format!("{server}: no answer within {limit:?}")),
        }
    }
    said.map(|(_, answer)| answer).ok_or_else(|| Failure::Servers(failed.join(", ")))
}

#[cfg(test)]
mod tests {
    use repot_etcd_core::agent::config::Owner;
    use tokio::net::UdpSocket;

    use super::*;

    /// A name server with this TXT record, and with this address for other questions.
    async fn server(text: &'static str, ip: [u8; 4]) -> String {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
        let address = socket.local_addr().expect("an address");
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            while let Ok((length, client)) = socket.recv_from(&mut buffer).await {
                let (mut answer, kind) = (buffer[..length].to_vec(), buffer[length - 3]);
                let data = match kind {
                    16 => [&[u8::try_from(text.len()).expect("short")], text.as_bytes()].concat(),
                    1 => ip.to_vec(),
                    _ => Vec::new(),
                };
                (answer[2], answer[7]) = (0x84, u8::from(!data.is_empty()));
                if !data.is_empty() {
                    let length = u8::try_from(data.len()).expect("short");
                    answer.extend([0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 9, 0, length]);
                    answer.extend(data);
                }
                socket.send_to(&answer, client).await.expect("sent");
            }
        });
        address.to_string()
    }

    /// The address of a server that never answers, for as long as the socket lives.
    async fn silent() -> (UdpSocket, String) {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
        let address = socket.local_addr().expect("an address").to_string();
        (socket, address)
    }

    fn settings(servers: &[&String]) -> Settings {
        let text =
            "{name: owner.a.org, id: seed-a, servers: [], ttl: 60s, interval: 30s, timeout: 4s, grace: 21s}";
        let owner: Owner = serde_saphyr::from_str(text).expect("a file");
        let servers = servers.iter().map(|server| (*server).clone()).collect();
        Settings::new(&Owner { servers, ..owner }, Duration::from_secs(11)).expect("good")
    }

    #[tokio::test]
    async fn servers_that_do_not_agree_teach_nothing_and_a_silent_one_is_left_out() {
        let one = server("seed-a/1", [10, 0, 0, 1]).await;
        let same = server("seed-a/1", [10, 0, 0, 1]).await;
        let other = server("seed-b/2", [10, 0, 0, 2]).await;
        let (_socket, silent) = silent().await;
        let look = async |servers: &[&String]| {
            let settings = settings(servers);
            let (answer, why) = settings.look_at_all(&Freshness::new(settings.timing.ttl)).await;
            (answer, why, settings.addresses("api.a.org").await)
        };
        for servers in [&[&one, &same][..], &[&silent, &one]] {
            let (answer, _, addresses) = look(servers).await;
            assert_eq!(answer, Answer::Record(vec!["seed-a/1".to_owned()]), "{servers:?}");
            assert_eq!(addresses, Ok(BTreeSet::from([IpAddr::from([10, 0, 0, 1])])), "{servers:?}");
        }
        let (answer, why, addresses) = look(&[&one, &other]).await;
        assert_eq!(answer, Answer::Unresolvable);
        assert!(why.as_deref().is_some_and(|why| why.contains("seed-b/2")), "{why:?}");
        assert!(addresses.is_err_and(|why| why.contains("10.0.0.2")));
        let each = settings(&[&one, &other, &silent]).look_at_each().await.expect("servers");
        let said: Vec<_> =
            each.iter().map(|(_, answer)| answer.as_deref().map(|values| values[0].as_str())).collect();
        assert_eq!((said[0], said[1]), (Ok("seed-a/1"), Ok("seed-b/2")));
        assert!(said[2].is_err(), "{said:?}");
        let (answer, _, addresses) = look(&[&silent]).await;
        assert_eq!(answer, Answer::Unresolvable);
        assert!(addresses.is_err());
    }
}
