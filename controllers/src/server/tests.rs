use std::{io, net::SocketAddr};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::tcp::OwnedReadHalf,
    time::{Instant, timeout},
};
use tokio_util::sync::DropGuard;

use super::*;
use crate::metrics::ReconcileResult;

/// How long any answer may take.
const SOON: Duration = Duration::from_secs(1);
/// What a test waits for at most.
const DEADLINE: Duration = Duration::from_secs(20);

struct TestServer {
    address: SocketAddr,
    readiness: Readiness,
    metrics: Metrics,
    _stop: DropGuard,
}

impl TestServer {
    async fn start(limits: Limits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (readiness, metrics) = (Readiness::not_ready("starting"), Metrics::new().expect("metrics"));
        let stop = CancellationToken::new();
        tokio::spawn(serve_within(limits, listener, readiness.clone(), metrics.clone(), stop.clone()));
        Self { address, readiness, metrics, _stop: stop.drop_guard() }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("a connection")
    }

    /// Gives the status code and the body.
    async fn get(&self, path: &str) -> (u16, String) {
        let mut stream = self.connect().await;
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut response = String::new();
        let read = timeout(SOON, stream.read_to_string(&mut response)).await;
        read.expect("an answer in time").expect("an answer");
        let (head, body) = response.split_once("\r\n\r\n").expect("a head");
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status code");
        (code, body.to_owned())
    }
}

fn text(text: &str) -> String {
    text.to_owned()
}

/// Reads until the server closes the connection or resets it, and gives what it answered before.
async fn until_closed(reader: &mut OwnedReadHalf) -> Vec<u8> {
    let (mut all, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        match reader.read(&mut chunk).await {
            Ok(0) | Err(_) => return all,
            Ok(count) => all.extend_from_slice(&chunk[..count]),
        }
    }
}

#[tokio::test]
async fn readiness_says_why_and_health_depends_on_nothing() {
    let server = TestServer::start(LIMITS).await;
    assert_eq!(server.get("/readyz").await, (503, text("not ready: starting\n")));
    for path in ["/healthz", "/livez"] {
        assert_eq!(server.get(path).await, (200, text("ok\n")), "{path}");
    }
    server.readiness.set_ready();
    assert_eq!(server.get("/readyz").await, (200, text("ok\n")));
    server.readiness.set_not_ready("stopping");
    assert_eq!(server.get("/readyz").await, (503, text("not ready: stopping\n")));
    assert_eq!(server.get("/healthz/..").await, (404, text("not found\n")));
}

#[tokio::test]
async fn metrics_show_reconciles_and_the_leader() {
    let server = TestServer::start(LIMITS).await;
    server.metrics.start_reconcile("etcd").end(ReconcileResult::Conflict);
    server.metrics.leader("repot-controllers").set(1);
    let (code, body) = server.get("/metrics").await;
    assert_eq!(code, 200);
    for line in [
        r#"repot_controller_reconciles_total{controller="etcd",result="conflict"} 1"#,
        r#"repot_controller_reconcile_duration_seconds_count{controller="etcd"} 1"#,
        r#"repot_controller_active_reconciles{controller="etcd"} 0"#,
        r#"repot_leader{name="repot-controllers"} 1"#,
    ] {
        assert!(body.lines().any(|found| found == line), "{line} is not in\n{body}");
    }
}

#[tokio::test]
async fn probe_is_answered_beside_a_thousand_silent_connections_of_which_few_stay() {
    let server = TestServer::start(LIMITS).await;
    let mut silent = Vec::new();
    for _ in 0..1000 {
        silent.push(server.connect().await);
    }
    assert_eq!(server.get("/healthz").await, (200, text("ok\n")));
    let mut open = 0;
    let deadline = Instant::now() + DEADLINE;
    // The newest are those that stay: the others are closed at once, long before they were idle for too long.
    let last = silent.split_off(silent.len() - LIMITS.of_address);
    for stream in silent {
        let closed = tokio::time::timeout_at(deadline, until_closed(&mut stream.into_split().0)).await;
        closed.expect("a connection beyond the limit is closed");
    }
    for stream in last {
        match stream.try_read(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => open += 1,
            _ => {}
        }
    }
    assert!((1..=LIMITS.of_address).contains(&open), "{open} connections are open");
}

#[tokio::test]
async fn head_that_never_ends_is_cut_off_though_bytes_arrive() {
    let idle = Duration::from_millis(300);
    let server = TestServer::start(Limits { idle, failed: idle, ..LIMITS }).await;
    let (mut reader, mut writer) = server.connect().await.into_split();
    writer.write_all(b"GET /healthz HTTP/1.1\r\nX-Slow: ").await.expect("sent");
    let trickle = tokio::spawn(async move {
        while writer.write_all(b"a").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let start = Instant::now();
    let answer = timeout(DEADLINE, until_closed(&mut reader)).await.expect("the connection is closed");
    assert!(start.elapsed() < DEADLINE / 4, "{:?}", start.elapsed());
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    trickle.abort();
}

#[tokio::test]
async fn huge_head_is_refused_before_it_ends() {
    let server = TestServer::start(LIMITS).await;
    let (mut reader, mut writer) = server.connect().await.into_split();
    // No empty line follows, so a server without a limit waits for the end of the head.
    let head = format!("GET /healthz HTTP/1.1\r\nX-Large: {}", "a".repeat(1 << 20));
    let start = Instant::now();
    let sent = tokio::spawn(async move { writer.write_all(head.as_bytes()).await.map(|()| writer) });
    let answer = timeout(DEADLINE, until_closed(&mut reader)).await.expect("the connection is closed");
    assert!(start.elapsed() < LIMITS.idle / 2, "{:?}", start.elapsed());
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    drop(sent.await.expect("no panic"));
}
