//! Answers that come before the question is over.

use std::future::poll_fn;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use repot_tests::run;
use repot_tests::wait::until;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::connections::{dev_access, dial_tls};
use crate::shootstate::world::{World, collection};

const BODY: usize = 400_000;
/// Longer than an object may be.
const TOO_LONG: usize = 17_500_000;

#[test]
fn a_client_that_is_still_sending_hears_why_it_is_refused() {
    run(async |env| {
        let world = World::dev(env).await?;
        let access = dev_access(&world)?;
        for (line, code) in [
            ("Content-Type: text/plain", "415"),
            ("Content-Type: application/json\r\nAccept: image/png", "406"),
            ("Content-Type: application/json\r\nBad Header: x", "400"),
        ] {
            let mut tls = dial_tls(&access, &["http/1.1"]).await?;
            let path = collection("default");
            let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {BODY}\r\n{line}\r\n\r\n");
            tls.write_all(head.as_bytes()).await?;
            let mut answer = vec![0; 12];
            tls.read_exact(&mut answer).await?;
            // The server has said its word, and the client has not listened yet.
            send_on(&mut tls).await.with_context(|| format!("{line}: the connection was cut"))?;
            tls.read_to_end(&mut answer).await.with_context(|| format!("{line}: no good end"))?;
            let text = String::from_utf8_lossy(&answer);
            ensure!(text.starts_with(&format!("HTTP/1.1 {code}")), "{line}: {text}");
        }
        Ok(())
    });
}

async fn send_on(tls: &mut (impl AsyncWriteExt + Unpin)) -> Result<()> {
    for _ in 0..BODY / 1000 {
        tls.write_all(&[b' '; 1000]).await?;
        tls.flush().await?;
    }
    Ok(())
}

/// What one stream of a connection may send before the server opens its window again.
const WINDOW: usize = 512 << 10;
/// Bodies of one connection that are read on at a time (`certs/src/unread.rs`).
const READ_ON: usize = 32;

#[test]
fn a_client_that_sends_on_and_on_is_not_read_for_ever() {
    run(async |env| {
        let world = World::dev(env).await?;
        let tls = dial_tls(&dev_access(&world)?, &["h2"]).await?;
        let (send, connection) = h2::client::handshake(tls).await?;
        let end = tokio::spawn(connection);
        let mut streams = Vec::new();
        let mut send = send.ready().await?;
        // Each answer is there, although no body comes to its end.
        for _ in 0..2 * READ_ON {
            let request = http::Request::post(format!("https://localhost{}", collection("default")));
            let request = request.header("content-type", "text/plain").body(())?;
            let (response, body) = send.send_request(request, false)?;
            let response = response.await?;
            ensure!(response.status() == 415, "{response:?}");
            streams.push((response.into_body(), body));
            send = send.ready().await?;
        }
        // Those above the limit of the connection were reset without an error; the others are open.
        for (answer, _) in &mut streams {
            while let Some(data) = answer.data().await {
                let data = data?;
                answer.flow_control().release_capacity(data.len())?;
            }
        }
        let streams = parking_lot::Mutex::new(streams);
        until("the streams above the limit to be reset", Duration::from_secs(20), async || {
            let reset = streams.lock().iter_mut().filter_map(|(_, body)| reset(body)).collect::<Vec<_>>();
            ensure!(reset.len() == READ_ON, "{} of {} streams are reset", reset.len(), 2 * READ_ON);
            ensure!(reset.iter().all(|reason| *reason == Some(h2::Reason::NO_ERROR)), "{reset:?}");
            Ok(())
        })
        .await?;
        let mut streams = streams.into_inner();
        // One that sends far more than any object is reset, too, when it has sent enough.
        let (sent, reason) = send_until_reset(&mut streams[0].1).await?;
        ensure!(reason == h2::Reason::NO_ERROR, "reset with {reason}");
        ensure!(sent > TOO_LONG + WINDOW, "only {sent} bytes were taken in");
        end.abort();
        Ok(())
    });
}

/// Why a stream was reset, if it was; `None` inside: the connection is gone.
fn reset(body: &mut h2::SendStream<Bytes>) -> Option<Option<h2::Reason>> {
    match body.poll_reset(&mut TaskContext::from_waker(Waker::noop())) {
        Poll::Ready(reason) => Some(reason.ok()),
        Poll::Pending => None,
    }
}

/// How many bytes a server takes in, and why it resets the stream then.
async fn send_until_reset(body: &mut h2::SendStream<Bytes>) -> Result<(usize, h2::Reason)> {
    let (mut sent, chunk) = (0, Bytes::from(vec![b' '; 64 << 10]));
    while sent < 256 << 20 {
        body.reserve_capacity(chunk.len());
        let reset = poll_fn(|cx| match (body.poll_reset(cx), body.capacity()) {
            (Poll::Ready(reason), _) => Poll::Ready(Some(reason)),
            (Poll::Pending, 0) => body.poll_capacity(cx).map(|_| None),
            (Poll::Pending, _) => Poll::Ready(None),
        });
        if let Some(reason) = reset.await {
            return Ok((sent, reason?));
        }
        let room = body.capacity().min(chunk.len());
        if room > 0 {
            body.send_data(chunk.slice(..room), false)?;
            sent += room;
        }
    }
    anyhow::bail!("{sent} bytes were taken in")
}
