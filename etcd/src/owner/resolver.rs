//! Asks servers for records: by UDP, and by TCP what does not fit into a datagram. The first server that knows is believed.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UdpSocket},
    time::{Instant, sleep_until, timeout},
};

use super::{
    freshness::Freshness,
    lookup::{Data, Found, Kind, answer_for, question_for},
    message::{self, DnsAnswer, Name},
};

/// The longest datagram that a server sends to somebody who has not offered to take longer ones is of 512 bytes.
const DATAGRAM: usize = 4096;
/// A datagram may get lost: each server is asked so often, as far as the time goes.
const ROUNDS: usize = 3;

/// Nobody said.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nobody could be asked, and that is not for others to mend.
    Own(io::Error),
    /// What each server did instead.
    Servers(String),
}

/// The values of the record; none where there is none. Where servers are silent this waits for them: the caller gives up after `limit`.
pub(super) async fn ask(
    servers: &[SocketAddr],
    name: &Name,
    freshness: &Freshness,
    limit: Duration,
) -> Result<Vec<String>, Failure> {
    first(servers, limit, |server| async move {
        match exchange(server, &Text(name)).await? {
            DnsAnswer::Values { left, values } => {
                freshness.check(left).map(|()| values).map_err(Failure::Servers)
            }
            DnsAnswer::Truncated => {
                Err(Failure::Servers("its answer does not even fit into a stream".to_owned()))
            }
            DnsAnswer::Nothing(why) => Err(Failure::Servers(why.to_owned())),
        }
    })
    .await
}

/// The records of another kind, from whoever knows first. An error of the kind [`Failure::Servers`] where nobody answers within `limit`.
pub(super) async fn find(
    servers: &[SocketAddr],
    name: &Name,
    kind: Kind,
    limit: Duration,
) -> Result<Vec<Data>, Failure> {
    let found = first(servers, limit, |server| async move {
        match exchange(server, &Other(name, kind)).await? {
            Found::All(all) => Ok(all),
            Found::Truncated => {
                Err(Failure::Servers("its answer does not even fit into a stream".to_owned()))
            }
            Found::Nothing(why) => Err(Failure::Servers(why.to_owned())),
        }
    });
    let silent = |_| Failure::Servers(format!("nobody told the records of {name} within {limit:?}"));
    timeout(limit, found).await.map_err(silent)?
}

/// What the first server says that knows.
async fn first<T, F: Future<Output = Result<T, Failure>>>(
    servers: &[SocketAddr],
    limit: Duration,
    ask_one: impl Fn(SocketAddr) -> F,
) -> Result<T, Failure> {
    let mut queue: VecDeque<SocketAddr> = servers.repeat(ROUNDS).into();
    let pace = limit / u32::try_from(queue.len()).unwrap_or(u32::MAX).max(1);
    let ask_one = &ask_one;
    // A question that was repeated is still waited for: the answer to the first may only be late.
    let mut asked = FuturesUnordered::new();
    let mut failed = BTreeMap::new();
    let mut next = Instant::now();
    loop {
        // Who has given an answer that is none gives the same again.
        queue.retain(|server| !failed.contains_key(server));
        if queue.is_empty() && servers.iter().all(|server| failed.contains_key(server)) {
            let all: Vec<String> = failed.iter().map(|(server, why)| format!("{server}: {why}")).collect();
            return Err(Failure::Servers(all.join(", ")));
        }
        tokio::select! {
            () = sleep_until(next), if !queue.is_empty() => {
                asked.extend(queue.pop_front().map(|server| async move { (server, ask_one(server).await) }));
                next = Instant::now() + pace;
            }
            Some((server, answer)) = asked.next(), if !asked.is_empty() => match answer {
                Ok(found) => return Ok(found),
                Err(Failure::Servers(why)) => {
                    failed.insert(server, why);
                    next = Instant::now();
                }
                Err(own) => return Err(own),
            },
        }
    }
}

/// A question, and how its answer is read.
trait Question {
    type Answer;

    fn write(&self, id: u16) -> Vec<u8>;
    fn read(&self, bytes: &[u8], id: u16) -> Option<Self::Answer>;
    fn is_truncated(answer: &Self::Answer) -> bool;
}

struct Text<'a>(&'a Name);

impl Question for Text<'_> {
    type Answer = DnsAnswer;

    fn write(&self, id: u16) -> Vec<u8> {
        message::question(id, self.0)
    }

    fn read(&self, bytes: &[u8], id: u16) -> Option<DnsAnswer> {
        message::answer(bytes, id, self.0)
    }

    fn is_truncated(answer: &DnsAnswer) -> bool {
        *answer == DnsAnswer::Truncated
    }
}

struct Other<'a>(&'a Name, Kind);

impl Question for Other<'_> {
    type Answer = Found;

    fn write(&self, id: u16) -> Vec<u8> {
        question_for(id, self.0, self.1)
    }

    fn read(&self, bytes: &[u8], id: u16) -> Option<Found> {
        answer_for(bytes, id, self.0, self.1)
    }

    fn is_truncated(answer: &Found) -> bool {
        *answer == Found::Truncated
    }
}

async fn exchange<Q: Question>(server: SocketAddr, question: &Q) -> Result<Q::Answer, Failure> {
    let answer = by_udp(server, question).await?;
    if Q::is_truncated(&answer) { by_tcp(server, question).await } else { Ok(answer) }
}

fn theirs(error: &io::Error) -> Failure {
    Failure::Servers(error.to_string())
}

fn new_id() -> Result<u16, Failure> {
    let mut bytes = [0; 2];
    let failed = |_| Failure::Own(io::Error::other("there are no random numbers"));
    aws_lc_rs::rand::fill(&mut bytes).map_err(failed)?;
    Ok(u16::from_be_bytes(bytes))
}

async fn by_udp<Q: Question>(server: SocketAddr, question: &Q) -> Result<Q::Answer, Failure> {
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // A port and an id that nobody can guess: no answer but the server's is taken.
    let socket = UdpSocket::bind(any).await.map_err(Failure::Own)?;
    let id = new_id()?;
    socket.connect(server).await.map_err(|error| theirs(&error))?;
    socket.send(&question.write(id)).await.map_err(|error| theirs(&error))?;
    let mut buffer = [0; DATAGRAM];
    loop {
        let length = socket.recv(&mut buffer).await.map_err(|error| theirs(&error))?;
        if let Some(answer) = question.read(&buffer[..length], id) {
            return Ok(answer);
        }
    }
}

async fn by_tcp<Q: Question>(server: SocketAddr, question: &Q) -> Result<Q::Answer, Failure> {
    let id = new_id()?;
    let text = question.write(id);
    let exchange = async {
        let mut stream = TcpStream::connect(server).await?;
        let length = u16::try_from(text.len()).map_err(io::Error::other)?;
        stream.write_all(&[&length.to_be_bytes(), &text[..]].concat()).await?;
        let length = stream.read_u16().await?;
        let mut bytes = vec![0; usize::from(length)];
        stream.read_exact(&mut bytes).await?;
        Ok(bytes)
    };
    let bytes: Vec<u8> = exchange.await.map_err(|error: io::Error| theirs(&error))?;
    let foreign = || Failure::Servers("its answer by TCP is another's".to_owned());
    question.read(&bytes, id).ok_or_else(foreign)
}
