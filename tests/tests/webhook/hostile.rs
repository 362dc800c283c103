//! Clients that want to keep others from the webhooks: with many connections, without taking answers, with bodies that do not come.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hyper::client::conn::http2::Builder;
use hyper_util::rt::{TokioExecutor, TokioIo};
use repot_tests::access::{Access, Credential};
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::serving::Own;
use crate::http::connections::{authority_of, dial_tls};

const CONNECTIONS: usize = 1000;
/// Connections of one address, and what else the server has open.
const MOST_OPEN: usize = 128 + 60;
const DEADLINE: Duration = Duration::from_secs(120);

fn anonymous(own: &Own) -> Access {
    Access {
        server: own.repot.url().to_owned(),
        ca_pem: own.garden.pki().serving.pem(),
        credential: Credential::Anonymous,
    }
}

/// A change that waits for the webhooks, and fails where they do not answer.
async fn is_judged(own: &Own, value: &str) -> Result<()> {
    let marker =
        json!({"metadata": {"annotations": {"migration.gardener.cloud/allow-distant-regions": value}}});
    let answer = own.patch("one", &marker).await?;
    ensure!(answer.status == 200, "{answer}");
    let bad = json!({"metadata": {"annotations": {"shoot.gardener.cloud/isolated-zone": "No Zone"}}});
    let refused = own.patch("one?dryRun=All", &bad).await?;
    ensure!(refused.status == 403, "{refused}");
    Ok(())
}

fn open_files(own: &mut Own) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{}/fd", own.repot.process().pid()))?.count())
}

#[test]
fn a_thousand_connections_make_room_for_a_review() {
    run(async |env| {
        let mut own = Own::start(env, |_| ()).await?;
        is_judged(&own, "true").await?;
        let mut silent: Vec<TlsStream<TcpStream>> = Vec::new();
        for at in 0..CONNECTIONS {
            // The server may end one before its handshake is done.
            silent.extend(dial_tls(&anonymous(&own), &[if at % 2 == 0 { "h2" } else { "http/1.1" }]).await);
            if at % 100 == 99 {
                is_judged(&own, if at % 200 == 99 { "false" } else { "true" }).await?;
            }
        }
        ensure!(silent.len() > CONNECTIONS / 2, "{} connections only", silent.len());
        until("connections to be ended", DEADLINE, async || {
            let open = open_files(&mut own)?;
            ensure!(open < MOST_OPEN, "{open} files are open");
            Ok(())
        })
        .await?;
        is_judged(&own, "true").await
    });
}

#[test]
fn a_client_that_takes_no_answers_is_ended_and_holds_up_nobody() {
    run(async |env| {
        let own = Own::start(env, |_| ()).await?;
        let access = anonymous(&own);
        let tls = dial_tls(&access, &["h2"]).await?;
        let mut builder = Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(0);
        let (sender, connection) = builder.handshake::<_, String>(TokioIo::new(tls)).await?;
        let connection = tokio::spawn(connection);
        let authority = authority_of(&access)?;
        let mut heads = Vec::new();
        for _ in 0..200 {
            let mut sender = sender.clone();
            sender.ready().await?;
            let uri = format!("https://{authority}/metrics");
            let request = hyper::Request::builder().uri(uri).body(String::new())?;
            heads.push(sender.send_request(request).await.context("no head")?);
        }
        is_judged(&own, "true").await?;
        // Their bodies do not come, and the connection ends all the same.
        let ended = tokio::time::timeout(DEADLINE, connection).await;
        ensure!(ended.is_ok(), "the connection goes on");
        drop(heads);
        is_judged(&own, "false").await
    });
}

#[test]
fn bodies_that_are_announced_and_do_not_come_keep_no_memory_from_others() {
    run(async |env| {
        let own = Own::start(env, |_| ()).await?;
        let access = anonymous(&own);
        let mut slow = Vec::new();
        // Together more than all bodies may have at once.
        for _ in 0..32 {
            let mut tls = dial_tls(&access, &["http/1.1"]).await?;
            let head = "POST /validate-markers?timeout=30s HTTP/1.1\r\nHost: x\r\n\
                        Content-Type: application/json\r\nContent-Length: 33554432\r\n\r\n{";
            tls.write_all(head.as_bytes()).await?;
            tls.flush().await?;
            slow.push(tls);
        }
        is_judged(&own, "true").await?;
        is_judged(&own, "false").await?;
        drop(slow);
        Ok(())
    });
}
