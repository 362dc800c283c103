//! HTTP/2 connections as a front server keeps them: one for everybody, for as long as it can.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use repot_tests::access::{Access, Credential};
use repot_tests::http::Api;
use repot_tests::run;
use repot_tests::wait::until;
use reqwest::{Client, Method};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::shootstate::world::{TWELVE_MIB, World, collection, large, path, small};

type Body = String;

/// One connection, and the task that ends with it.
pub struct Connection {
    pub sender: SendRequest<Body>,
    pub end: JoinHandle<hyper::Result<()>>,
    authority: String,
}

impl Connection {
    /// Dials, and pings the server each second.
    pub async fn dial(access: &Access) -> Result<Self> {
        let authority = authority_of(access)?;
        let tls = dial_tls(access, &["h2", "http/1.1"]).await?;
        ensure!(tls.get_ref().1.alpn_protocol() == Some(b"h2"), "HTTP/2 was not agreed on");
        let (sender, connection) = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(Duration::from_secs(1))
            .keep_alive_timeout(Duration::from_secs(5))
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(tls))
            .await?;
        Ok(Self { sender, end: tokio::spawn(connection), authority })
    }

    pub async fn get(&mut self, path: &str) -> Result<hyper::Response<Incoming>> {
        self.sender.ready().await?;
        Ok(self.sender.send_request(self.request(path)?).await?)
    }

    fn request(&self, path: &str) -> Result<hyper::Request<Body>> {
        let uri = format!("https://{}{path}", self.authority);
        Ok(hyper::Request::builder().uri(uri).body(Body::new())?)
    }
}

pub fn authority_of(access: &Access) -> Result<String> {
    Ok(access.server.strip_prefix("https://").context("a URL")?.to_owned())
}

/// A connection over which nothing was said yet, for one of these protocols.
pub async fn dial_tls(access: &Access, protocols: &[&str]) -> Result<TlsStream<TcpStream>> {
    let tcp = TcpStream::connect(authority_of(access)?.replace("localhost", "127.0.0.1")).await?;
    start_tls(access, protocols, tcp).await
}

/// The same on a TCP connection that is there.
pub async fn start_tls(access: &Access, protocols: &[&str], tcp: TcpStream) -> Result<TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(access.ca_pem.as_bytes())?)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let mut config = match &access.credential {
        Credential::Certificate(leaf) => {
            let chain = vec![CertificateDer::from_pem_slice(leaf.cert_pem.as_bytes())?];
            config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(leaf.key_pem.as_bytes())?)?
        }
        Credential::Anonymous => config.with_no_client_auth(),
        Credential::Token(_) => bail!("a token is shown with each request"),
    };
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let authority = authority_of(access)?;
    let name = authority.split(':').next().unwrap_or_default().to_owned();
    Ok(TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(name)?, tcp).await?)
}

pub fn dev_access(world: &World) -> Result<Access> {
    Access::read(world.kubectl.kubeconfig())
}

pub async fn gauge(api: &Api, line: &str) -> Result<f64> {
    let metrics = api.get("/metrics").await?;
    let text = String::from_utf8(metrics.body.to_vec())?;
    let found = text
        .lines()
        .filter(|l| l.starts_with(line))
        .filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok());
    Ok(found.sum())
}

#[test]
fn a_thousand_watches_live_on_one_connection_beside_requests() {
    run(async |env| {
        let world = World::dev(env).await?;
        let mut connection = Connection::dial(&dev_access(&world)?).await?;
        let watch = format!("{}?watch=1", collection("default"));
        let mut watches = Vec::new();
        for _ in 0..1000 {
            let response = connection.get(&watch).await?;
            ensure!(
                response.status() == 200 && !response.headers().contains_key("content-length"),
                "{response:?}"
            );
            watches.push(response);
        }
        ensure!(connection.get(&collection("default")).await?.status() == 200, "no room for a list");
        ensure!(
            gauge(&world.api, "apiserver_longrunning_requests{").await? >= 1000.0,
            "watches are not counted"
        );
        drop(watches);
        until("the watches to be gone", Duration::from_secs(30), async || {
            let left = gauge(&world.api, "apiserver_longrunning_requests{").await?;
            ensure!(left == 0.0, "{left} are left");
            Ok(())
        })
        .await?;
        ensure!(!connection.end.is_finished(), "the connection was lost");
        Ok(())
    });
}

#[test]
fn streams_that_are_opened_and_reset_cost_nobody_else_anything() {
    run(async |env| {
        let world = World::dev(env).await?;
        let mut connection = Connection::dial(&dev_access(&world)?).await?;
        for _ in 0..5000 {
            // It may be ended for that, which is as well.
            if connection.sender.ready().await.is_err() {
                break;
            }
            let request = connection.request(&collection("default"))?;
            drop(connection.sender.send_request(request));
        }
        ensure!(world.api.get(&collection("default")).await?.status == 200, "others are not served");
        until("the requests to be gone", Duration::from_secs(30), async || {
            // The question itself is one.
            let left = gauge(&world.api, "apiserver_current_inflight_requests{").await?;
            ensure!(left <= 1.0, "{left} are left");
            Ok(())
        })
        .await
    });
}

#[test]
fn an_answer_that_is_not_taken_in_time_is_cut_off_and_gives_its_place_back() {
    run(async |env| {
        let mut world = World::garden_with(env, vec!["--request-timeout=3s".into()]).await?;
        world.create(&large("large", TWELVE_MIB)).await?;
        let mut connection = Connection::dial(&world.as_master()?).await?;
        let response = connection.get(&path("large")).await?;
        ensure!(response.status() == 200, "{response:?}");
        let api = Api::new(&world.as_master()?)?;
        until("the answer to be given up", Duration::from_secs(30), async || {
            let aborted = gauge(&api, "apiserver_request_aborts_total{").await?;
            ensure!(aborted == 1.0, "{aborted} were given up");
            Ok(())
        })
        .await?;
        let mut body = reqwest::Body::wrap(response.into_body());
        let mut cut = false;
        while let Some(frame) =
            std::future::poll_fn(|cx| hyper::body::Body::poll_frame(std::pin::Pin::new(&mut body), cx)).await
        {
            cut |= frame.is_err();
            if cut {
                break;
            }
        }
        ensure!(cut, "an answer that was cut off looked whole");
        Ok(())
    });
}

/// What kube-apiserver lets a client send on a stream before it reads any of it.
const WINDOW: usize = 256 << 10;

#[test]
fn a_body_of_a_quarter_of_a_megabyte_needs_no_window_update() {
    run(async |env| {
        let world = World::dev(env).await?;
        let tls = dial_tls(&dev_access(&world)?, &["h2"]).await?;
        let (sender, connection) = h2::client::handshake(tls).await?;
        let end = tokio::spawn(connection);
        // When this is answered, the client knows the server's settings.
        let Asked::Answered(mut sender) = create(sender, "first").await? else {
            bail!("the connection ended")
        };
        let request = http::Request::post(format!("https://localhost{}", collection("default")));
        let (_, mut body) = sender.send_request(request.body(())?, false)?;
        body.reserve_capacity(1 << 30);
        let assigned = async {
            while body.capacity() < WINDOW {
                std::future::poll_fn(|cx| body.poll_capacity(cx)).await.context("the stream ended")??;
            }
            anyhow::Ok(body.capacity())
        };
        let assigned = tokio::time::timeout(Duration::from_secs(10), assigned).await;
        assigned.context("the window is smaller")??;
        end.abort();
        Ok(())
    });
}

/// What became of a request on a connection that may be told to end.
enum Asked {
    /// It was answered, and the next one may be asked.
    Answered(h2::client::SendRequest<bytes::Bytes>),
    /// The connection was told to end before the request was made.
    Ended(h2::Error),
    /// The request crossed with the GOAWAY that excludes it: the server says that it has not touched it (RFC 9113, 6.8).
    Excluded(h2::Error),
}

/// Creates a state with this name.
async fn create(sender: h2::client::SendRequest<bytes::Bytes>, name: &str) -> Result<Asked> {
    let mut sender = match sender.ready().await {
        Ok(sender) => sender,
        Err(error) => return Ok(Asked::Ended(error)),
    };
    let uri = format!("https://localhost{}", collection("default"));
    let request = http::Request::post(uri).header("content-type", "application/json").body(())?;
    let (response, mut body) = match sender.send_request(request, false) {
        Ok(streams) => streams,
        Err(error) => return Ok(Asked::Ended(error)),
    };
    // What becomes of the request, the response says.
    let _ = body.send_data(small(name, &json!({})).to_string().into(), true);
    let response = match response.await {
        Ok(response) => response,
        Err(error) if error.is_go_away() => return Ok(Asked::Excluded(error)),
        Err(error) => return Err(error).context("a request was lost"),
    };
    ensure!(response.status() == 201, "{response:?}");
    let mut body = response.into_body();
    while let Some(data) = body.data().await {
        let data = data.context("an answer was cut short")?;
        body.flow_control().release_capacity(data.len())?;
    }
    Ok(Asked::Answered(sender))
}

#[test]
fn now_and_then_a_client_is_sent_to_another_connection() {
    run(async |env| {
        let mut world = World::garden_with(env, vec!["--goaway-chance=0.02".into()]).await?;
        let (mut sender, connection) =
            h2::client::handshake(dial_tls(&world.as_master()?, &["h2"]).await?).await?;
        let end = tokio::spawn(connection);
        let mut answered = 0;
        let told = loop {
            match create(sender, &format!("s{answered}")).await? {
                Asked::Answered(again) => sender = again,
                Asked::Ended(told) | Asked::Excluded(told) => break told,
            }
            answered += 1;
            ensure!(answered < 5000, "nobody was sent away");
        };
        let friendly = told.is_go_away() && told.is_remote() && told.reason() == Some(h2::Reason::NO_ERROR);
        ensure!(friendly, "after {answered} answers the connection ended otherwise: {told:?}");
        end.await?.context("the connection was not ended in good order")?;
        let (cert, http1) = (world.as_master()?, Client::builder().http1_only());
        let api = Api::build(&cert, http1)?;
        ensure!(api.request(Method::GET, "/livez").send().await?.status() == 200, "HTTP/1.1 does not work");
        // All that was answered is there, and a request that was not is not half done.
        let list = api.get(&collection("default")).await?.ok()?;
        let there = list["items"].as_array().context("items")?.len();
        ensure!(there == answered, "{there} states are there after {answered} answers");
        Ok(())
    });
}
