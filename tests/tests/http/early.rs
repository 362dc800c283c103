//! Answers that come before the question is over.

use anyhow::{Context, Result, ensure};
use repot_tests::run;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::connections::{dev_access, dial_tls};
use crate::shootstate::world::{World, collection};

const BODY: usize = 400_000;

#[test]
fn a_client_that_is_still_sending_hears_why_it_is_refused() {
    run(async |bed| {
        let world = World::dev(bed).await?;
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
