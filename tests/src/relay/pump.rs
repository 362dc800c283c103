//! Moves the bytes of one relayed connection, as fast and as late as the link says.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::{Direction, Link, LinkState};

/// Bytes that are read at once.
const CHUNK_BYTES: usize = 32 << 10;
/// Chunks that may be on the wire at once, in each direction: with 64 of them a round trip of 100 ms still carries 20 MB/s.
const CHUNKS_IN_FLIGHT: usize = 64;

/// A piece of the stream, and when it left.
type Chunk = (Instant, Bytes);

/// Relays both directions; ends when both have ended, when one breaks, or when the link is cut.
pub async fn run(client: TcpStream, target: TcpStream, mut link: watch::Receiver<Link>) {
    let _ = client.set_nodelay(true);
    let _ = target.set_nodelay(true);
    let ((client_read, client_write), (target_read, target_write)) =
        (client.into_split(), target.into_split());
    let there = relay(client_read, target_write, link.clone(), Direction::ToTarget);
    let back = relay(target_read, client_write, link.clone(), Direction::ToClient);
    tokio::select! {
        _ = async { tokio::try_join!(there, back) } => {}
        _ = link.wait_for(|link| link.state == LinkState::Cut) => {}
    }
}

/// Relays one direction to its end: what was read before the end is still delivered, then the writing side is closed.
async fn relay(
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    link: watch::Receiver<Link>,
    direction: Direction,
) -> io::Result<()> {
    let (sender, receiver) = mpsc::channel(CHUNKS_IN_FLIGHT);
    tokio::try_join!(read(from, sender), write(to, receiver, link, direction)).map(drop)
}

async fn read(mut from: OwnedReadHalf, wire: mpsc::Sender<Chunk>) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let count = from.read(&mut buffer).await?;
        let chunk = Bytes::copy_from_slice(&buffer[..count]);
        if count == 0 || wire.send((Instant::now(), chunk)).await.is_err() {
            return Ok(());
        }
    }
}

async fn write(
    mut to: OwnedWriteHalf,
    mut wire: mpsc::Receiver<Chunk>,
    mut link: watch::Receiver<Link>,
    direction: Direction,
) -> io::Result<()> {
    while let Some((left, chunk)) = wire.recv().await {
        let delay = link.borrow().delay(direction);
        if !delay.is_zero() {
            sleep_until(left + delay).await;
        }
        // An error here means that the relay itself is gone, and this task with it.
        let _ = link.wait_for(|link| link.state != LinkState::Stalled).await;
        let throttle = link.borrow().throttle(direction);
        to.write_all(&chunk).await?;
        if let Some(bytes_per_second) = throttle {
            sleep(Duration::from_secs_f64(chunk.len() as f64 / f64::from(bytes_per_second.max(1)))).await;
        }
    }
    // The end of the stream travels as late as its bytes did, which have all arrived by now.
    let _ = link.wait_for(|link| link.state != LinkState::Stalled).await;
    to.shutdown().await
}
