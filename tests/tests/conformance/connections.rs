//! Connections as a front server keeps them: one for everybody, for long, with many streams.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use repot_tests::access::Credential;
use repot_tests::http::{Api, send};
use repot_tests::run;
use reqwest::redirect::Policy;
use reqwest::{Client, Method, Version};
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, SignatureScheme};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::namespace::{Behind, JSON, TestNamespace, dev_access, text};

fn dev(builder: reqwest::ClientBuilder) -> Result<Api> {
    Api::build(&dev_access()?, builder)
}

#[test]
fn one_connection_carries_many_users() {
    run(async |_| {
        let behind = Behind::value()?;
        let api = behind.directly(behind.front_proxy()?, Client::builder())?;
        let path = TestNamespace::of(api.clone(), "default").all("");
        let asked = ["alice", "bob", "carol", "alice", "bob"].map(|user| {
            let request = api.request(Method::GET, &path).header("X-Remote-User", user);
            async move { anyhow::Ok((user, send(request).await?)) }
        });
        for (user, answer) in try_join_all(asked).await? {
            let message = text(&answer.json()?["message"])?;
            ensure!(answer.status == 403 && message.contains(&format!("\"{user}\"")), "{user}: {answer}");
        }
        let master = api.request(Method::GET, &path).header("X-Remote-User", "root");
        let answer = send(master.header("X-Remote-Group", "system:masters")).await?;
        ensure!(answer.status == 200, "{answer}");
        let nobody = send(api.request(Method::GET, &path)).await?;
        ensure!(nobody.status == 401, "the proxy itself was taken for somebody: {nobody}");
        Ok(())
    });
}

#[test]
fn hosts_and_forwarding_headers_mean_nothing() {
    run(async |_| {
        let behind = Behind::value()?;
        let api = behind.directly(behind.front_proxy()?, Client::builder().http1_only())?;
        let request = api.request(Method::GET, &TestNamespace::of(api.clone(), "default").all(""));
        let request = request
            .header("Host", "10.0.0.17:443")
            .header("X-Forwarded-For", "192.0.2.1")
            .header("X-Forwarded-Host", "elsewhere.example.com")
            .header("X-Forwarded-Proto", "http")
            .header("X-Forwarded-Uri", "/apis/example.com/v1/others");
        let request = request.header("X-Remote-User", "root").header("X-Remote-Group", "system:masters");
        let answer = send(request).await?;
        ensure!(answer.status == 200 && answer.json()?["kind"] == "ShootStateList", "{answer}");
        Ok(())
    });
}

#[test]
fn both_protocols_are_spoken() {
    run(async |_| {
        for (builder, version) in
            [(Client::builder(), Version::HTTP_2), (Client::builder().http1_only(), Version::HTTP_11)]
        {
            let response = dev(builder)?.request(Method::GET, "/livez").send().await?;
            ensure!(response.status() == 200 && response.version() == version, "{:?}", response.version());
        }
        Ok(())
    });
}

#[test]
fn a_thousand_watches_share_a_connection() {
    run(async |_| {
        let place = TestNamespace::of(dev(Client::builder().http2_prior_knowledge())?, "streams");
        let version = place.version().await?;
        let query = format!("&resourceVersion={version}");
        let mut watches = try_join_all((0..1100).map(|_| place.watch(&query, JSON))).await?;
        // All streams are open; one more request passes beside them, and all learn of it.
        place.create("seen-by-all").await?;
        for events in try_join_all(watches.iter_mut().map(super::namespace::Watch::next)).await? {
            ensure!(events["object"]["metadata"]["name"] == "seen-by-all", "{events}");
        }
        Ok(())
    });
}

#[test]
fn pings_are_answered_while_nothing_happens() {
    run(async |_| {
        let often = Client::builder()
            .http2_keep_alive_interval(Duration::from_millis(200))
            .http2_keep_alive_timeout(Duration::from_secs(4))
            .http2_keep_alive_while_idle(true);
        let place = TestNamespace::of(dev(often)?, "pings");
        let version = place.version().await?;
        // Longer than a PING may go without an answer: then the client would end the connection with an error.
        let mut events = place.watch(&format!("&resourceVersion={version}&timeoutSeconds=6"), JSON).await?;
        ensure!(events.rest().await?.is_empty(), "something happened");
        Ok(())
    });
}

#[test]
fn no_path_redirects() {
    run(async |_| {
        let api = dev(Client::builder().redirect(Policy::none()))?;
        let place = TestNamespace::of(api.clone(), "default");
        let (list, item) = (place.all("/"), place.one("a/"));
        let double = list.replace("/namespaces", "//namespaces");
        for path in [
            "/",
            "//",
            "/apis/",
            "/apis//",
            "/apis/core.gardener.cloud/",
            "/apis/core.gardener.cloud/v1alpha1/",
            "/openapi/v2/",
            "/openapi/v3/",
            "/openapi/v3/apis/core.gardener.cloud/v1alpha1?hash=outdated",
            "/healthz/",
            "/version/",
            "/index.html",
            &list,
            &item,
            &double,
        ] {
            let answer = api.get(path).await?;
            ensure!(!(300..400).contains(&answer.status), "{answer}");
            ensure!(answer.headers.get("location").is_none(), "{path} leads elsewhere");
        }
        Ok(())
    });
}

#[test]
fn no_cross_origin_header_is_sent() {
    run(async |_| {
        let place = TestNamespace::new("origins")?;
        for method in [Method::GET, Method::OPTIONS] {
            let request = place.api.request(method, &place.all("")).header("Origin", "https://example.com");
            let answer = send(request.header("Access-Control-Request-Method", "GET")).await?;
            let allowed = answer.headers.keys().find(|name| name.as_str().starts_with("access-control-"));
            ensure!(allowed.is_none(), "{allowed:?} is set");
        }
        Ok(())
    });
}

/// Notes which authorities a server wants certificates of, and has none.
#[derive(Debug, Default)]
struct Hints(Mutex<Option<usize>>);

impl ResolvesClientCert for Hints {
    fn resolve(&self, hints: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        *self.0.lock().expect("one thread") = Some(hints.len());
        None
    }

    fn has_certs(&self) -> bool {
        true
    }
}

async fn raw(hints: Arc<Hints>) -> Result<TlsStream<TcpStream>> {
    let access = dev_access()?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(access.ca_pem.as_bytes())?)?;
    let config = ClientConfig::builder().with_root_certificates(roots).with_client_cert_resolver(hints);
    let address = access.server.strip_prefix("https://").context("a URL")?;
    let stream = TcpStream::connect(address).await?;
    let connector = TlsConnector::from(Arc::new(config));
    Ok(connector.connect(ServerName::try_from("localhost")?, stream).await?)
}

#[test]
fn the_handshake_names_no_authorities() {
    run(async |_| {
        let hints = Arc::new(Hints::default());
        let mut stream = raw(hints.clone()).await?;
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        ensure!(answer.starts_with("HTTP/1.1 200"), "without a certificate: {answer}");
        let named = *hints.0.lock().expect("one thread");
        ensure!(named == Some(0), "a certificate was asked for with {named:?} names");
        Ok(())
    });
}

/// Whether the server has told the client by ENHANCE_YOUR_CALM that it sends too much.
fn is_calm(error: &anyhow::Error) -> bool {
    let told = error.chain().find_map(|cause| cause.downcast_ref::<h2::Error>());
    told.is_some_and(|told| told.is_remote() && told.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM))
}

#[test]
fn headers_are_bounded() {
    run(async |_| {
        let with = |api: &Api, size: usize| {
            let fact = "x".repeat(size);
            (0..30).fold(api.request(Method::GET, "/livez"), |request, n| {
                request.header(format!("X-Remote-Extra-Fact-{n}"), &fact)
            })
        };
        // Facts about a user may be many. This client cuts them into frames of 16 KiB, of which HTTP/2 takes some.
        for (http2, passes) in [(false, 20 << 10), (true, 2 << 10)] {
            let builder = if http2 { Client::builder() } else { Client::builder().http1_only() };
            let api = dev(builder)?;
            let many = send(with(&api, passes)).await?;
            ensure!(many.status == 200, "{many}");
            match send(with(&api, 100 << 10)).await {
                Ok(answer) => ensure!(answer.status == 431, "{answer}"),
                // So many frames of headers end the connection before they are all read.
                Err(error) => ensure!(http2 && is_calm(&error), "{error:?}"),
            }
            ensure!(send(with(&api, 1)).await?.status == 200, "the server is gone");
        }
        Ok(())
    });
}

#[test]
fn a_client_that_never_finishes_its_head_is_let_go() {
    run(async |_| {
        let mut stream = raw(Arc::default()).await?;
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: local").await?;
        let mut answer = Vec::new();
        // However it ends, it ends: with an answer, with nothing, or with an error.
        let ended = timeout(Duration::from_secs(60), stream.read_to_end(&mut answer)).await;
        ended.context("the connection is still open")?.map(drop).or(Ok(()))
    });
}

#[test]
fn a_stranger_is_nobody_on_a_connection_of_its_own() {
    run(async |_| {
        let behind = Behind::value()?;
        let stranger = repot_tests::pki::Ca::new("stranger")?.client("admin", &["system:masters"])?;
        let api = behind.directly(Credential::Certificate(stranger), Client::builder())?;
        let answer = api.get(&TestNamespace::of(api.clone(), "default").all("")).await?;
        ensure!(answer.status == 401 && answer.json()?["reason"] == json!("Unauthorized"), "{answer}");
        Ok(())
    });
}
