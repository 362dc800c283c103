//! Idle connections over HTTP/1.1. A client in Go keeps one for 90 seconds and does not repeat a POST whose connection ends while it is
//! sent, so a server that ends connections earlier makes requests fail.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::{try_join, try_join_all};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use repot_tests::access::{Access, Credential};
use repot_tests::repot::Dev;
use repot_tests::run;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::client::TlsStream;

use super::connections::{authority_of, dial_tls};
use crate::webhook::questions::review;
use crate::webhook::world::{self, mk_shoot};

/// Longer than clients in Go keep an idle connection.
const IDLE: Duration = Duration::from_secs(95);
/// The limit on the head of a request is 32 s.
const LATE: Duration = Duration::from_secs(60);

/// A server, and a request that succeeds there.
struct Target {
    access: Access,
    method: Method,
    path: &'static str,
    body: String,
}

impl Target {
    async fn connect(&self) -> Result<SendRequest<String>> {
        let tls = dial_tls(&self.access, &["http/1.1"]).await?;
        let (sender, connection) = handshake(TokioIo::new(tls)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn ask(&self, sender: &mut SendRequest<String>) -> Result<()> {
        let request = Request::builder()
            .method(self.method.clone())
            .uri(self.path)
            .header("Host", authority_of(&self.access)?)
            .header("Content-Type", "application/json")
            .body(self.body.clone())?;
        let response = sender.send_request(request).await?;
        ensure!(response.status() == 200, "{}", response.status());
        Ok(())
    }

    async fn keeps_idle_connections(&self) -> Result<()> {
        let (mut used, mut unused) = try_join(self.connect(), self.connect()).await?;
        self.ask(&mut used).await?;
        sleep(IDLE).await;
        self.ask(&mut used).await.context("on a connection that was used before")?;
        self.ask(&mut unused).await.context("on a connection that was not used before")
    }

    async fn ends_slow_heads(&self) -> Result<()> {
        let begun = b"GET /version HTTP/1.1\r\nHost: x\r\n";
        let mut tls = dial_tls(&self.access, &["http/1.1"]).await?;
        tls.write_all(begun).await?;
        tls.flush().await?;
        let (mut reader, mut writer) = tokio::io::split::<TlsStream<_>>(tls);
        let began = Instant::now();
        let trickle = async {
            while writer.write_all(b"X: y\r\n").await.is_ok() && writer.flush().await.is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
            std::future::pending::<()>().await;
        };
        let mut answer = Vec::new();
        let ended = timeout(LATE, reader.read_to_end(&mut answer));
        tokio::select! {
            () = trickle => {}
            // Without the last words of TLS, reading fails.
            ended = ended => drop(ended.context("the head goes on")?),
        }
        ensure!(!answer.starts_with(b"HTTP/1.1 2"), "{}", String::from_utf8_lossy(&answer));
        ensure!(began.elapsed() > Duration::from_secs(10), "ended after {:?}", began.elapsed());
        Ok(())
    }

    async fn is_patient_and_not_too_patient(&self) -> Result<()> {
        try_join(self.keeps_idle_connections(), self.ends_slow_heads())
            .await
            .map(drop)
            .with_context(|| self.path)
    }
}

#[test]
fn idle_connections_outlive_those_of_clients_in_go_and_slow_heads_end() {
    run(async |env| {
        let dev = Dev::start(env, [""; 0]).await?;
        let api_server = Target {
            access: Access::read(dev.kubeconfig())?,
            method: Method::GET,
            path: "/version",
            body: String::new(),
        };
        let world = world::shared()?;
        let shoot = mk_shoot("direct", "one", "a");
        let webhook = Target {
            access: Access {
                server: world.url.clone(),
                ca_pem: world.garden.pki().serving.pem(),
                credential: Credential::Anonymous,
            },
            method: Method::POST,
            path: "/validate-markers?timeout=10s",
            body: json!(review(shoot.clone(), shoot)).to_string(),
        };
        let targets = [api_server, webhook];
        try_join_all(targets.iter().map(Target::is_patient_and_not_too_patient)).await.map(drop)
    });
}
