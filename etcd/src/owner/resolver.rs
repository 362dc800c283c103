//! Asks servers for a TXT record: by UDP, and by TCP what does not fit into a datagram. The first server that knows is believed.

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
    time::{Instant, sleep_until},
};

use super::{
    freshness::Freshness,
    message::{self, Name, Said},
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
    let mut queue: VecDeque<SocketAddr> = servers.repeat(ROUNDS).into();
    let pace = limit / u32::try_from(queue.len()).unwrap_or(u32::MAX).max(1);
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
                asked.extend(queue.pop_front().map(|server| async move { (server, ask_one(server, name, freshness).await) }));
                next = Instant::now() + pace;
            }
            Some((server, answer)) = asked.next(), if !asked.is_empty() => match answer {
                Ok(values) => return Ok(values),
                Err(Failure::Servers(why)) => {
                    failed.insert(server, why);
                    next = Instant::now();
                }
                Err(own) => return Err(own),
            },
        }
    }
}

async fn ask_one(server: SocketAddr, name: &Name, freshness: &Freshness) -> Result<Vec<String>, Failure> {
    let said = match by_udp(server, name).await? {
        Said::Truncated => by_tcp(server, name).await?,
        said => said,
    };
    let failure = |why: String| Err(Failure::Servers(why));
    match said {
        Said::Values { left, values } => freshness.check(left).map(|()| values).map_err(Failure::Servers),
        Said::Truncated => failure("its answer does not even fit into a stream".to_owned()),
        Said::Nothing(why) => failure(why.to_owned()),
    }
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

async fn by_udp(server: SocketAddr, name: &Name) -> Result<Said, Failure> {
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // A port and an id that nobody can guess: no answer but the server's is taken.
    let socket = UdpSocket::bind(any).await.map_err(Failure::Own)?;
    let id = new_id()?;
    socket.connect(server).await.map_err(|error| theirs(&error))?;
    socket.send(&message::question(id, name)).await.map_err(|error| theirs(&error))?;
    let mut buffer = [0; DATAGRAM];
    loop {
        let length = socket.recv(&mut buffer).await.map_err(|error| theirs(&error))?;
        if let Some(said) = message::answer(&buffer[..length], id, name) {
            return Ok(said);
        }
    }
}

async fn by_tcp(server: SocketAddr, name: &Name) -> Result<Said, Failure> {
    let id = new_id()?;
    let question = message::question(id, name);
    let exchange = async {
        let mut stream = TcpStream::connect(server).await?;
        let length = u16::try_from(question.len()).map_err(io::Error::other)?;
        stream.write_all(&[&length.to_be_bytes(), &question[..]].concat()).await?;
        let length = stream.read_u16().await?;
        let mut bytes = vec![0; usize::from(length)];
        stream.read_exact(&mut bytes).await?;
        Ok(bytes)
    };
    let bytes: Vec<u8> = exchange.await.map_err(|error: io::Error| theirs(&error))?;
    Ok(message::answer(&bytes, id, name).unwrap_or(Said::Nothing("its answer by TCP is another's")))
}
