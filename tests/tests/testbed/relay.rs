use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use repot_tests::relay::Relay;
use repot_tests::{port, run};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// On one machine an answer that comes at all comes within this time.
const SOON: Duration = Duration::from_secs(10);

/// A server that answers every byte by its own name of one byte, and then the byte.
async fn start_echo(name: u8) -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port::reserve()?)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                while let Ok(byte) = stream.read_u8().await {
                    if stream.write_all(&[name, byte]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    Ok(address)
}

async fn ask(stream: &mut TcpStream, byte: u8) -> Result<u8> {
    stream.write_u8(byte).await?;
    let mut answer = [0; 2];
    timeout(SOON, stream.read_exact(&mut answer)).await??;
    ensure!(answer[1] == byte, "asked {byte}, answered {answer:?}");
    Ok(answer[0])
}

#[test]
fn connections_take_turns_and_leave_out_the_dead() {
    run(async |_| {
        let dead = SocketAddr::from((Ipv4Addr::LOCALHOST, port::reserve()?));
        let (a, b) = (start_echo(b'a').await?, start_echo(b'b').await?);
        let relay = Relay::start(&[a, b]).await?;
        let mut names = Vec::new();
        for _ in 0..4 {
            names.push(ask(&mut TcpStream::connect(relay.address()).await?, 1).await?);
        }
        ensure!(names == b"abab", "{names:?}");
        relay.set_targets(&[dead, b]);
        for _ in 0..4 {
            ensure!(
                ask(&mut TcpStream::connect(relay.address()).await?, 1).await? == b'b',
                "the dead one answered"
            );
        }
        Ok(())
    });
}

#[test]
fn stalled_link_holds_bytes_and_a_cut_one_closes() {
    run(async |_| {
        let relay = Relay::start(&[start_echo(b'a').await?]).await?;
        let mut stream = TcpStream::connect(relay.address()).await?;
        ask(&mut stream, 1).await?;

        relay.stall();
        stream.write_u8(2).await?;
        let mut answer = [0; 2];
        // Silence has no event to wait for; bytes that pass in spite of the stall come within a millisecond.
        ensure!(
            timeout(Duration::from_millis(200), stream.read_exact(&mut answer)).await.is_err(),
            "a byte passed"
        );
        relay.heal();
        timeout(SOON, stream.read_exact(&mut answer)).await??;
        ensure!(answer == [b'a', 2], "{answer:?}");

        relay.cut();
        ensure!(timeout(SOON, stream.read_u8()).await?.is_err(), "a byte passed the cut");
        if ask(&mut TcpStream::connect(relay.address()).await?, 3).await.is_ok() {
            bail!("a new connection passed");
        }
        Ok(())
    });
}

#[test]
fn delay_and_throttle_take_their_time() {
    run(async |_| {
        let relay = Relay::start(&[start_echo(b'a').await?]).await?;
        let mut stream = TcpStream::connect(relay.address()).await?;
        relay.set_round_trip(Duration::from_millis(100));
        let start = Instant::now();
        ask(&mut stream, 1).await?;
        ensure!(start.elapsed() >= Duration::from_millis(100), "a round trip took {:?}", start.elapsed());

        relay.change(|link| {
            *link = Default::default();
            link.throttle_to_client = Some(100_000);
        });
        let start = Instant::now();
        // Answers to 10 000 bytes have 20 000: a fifth of a second, less the last chunk, whose time counts for the next.
        let (mut read, mut write) = stream.split();
        let mut answers = vec![0; 20_000];
        tokio::try_join!(write.write_all(&[7; 10_000]), read.read_exact(&mut answers))?;
        ensure!(
            start.elapsed() >= Duration::from_millis(100),
            "20 kB at 100 kB/s took {:?}",
            start.elapsed()
        );
        Ok(())
    });
}
