//! Probes of containers: how one is asked, and when its answers count.
//!
//! Seconds in a probe are seconds, but what is waited for is seen early: until a startup or readiness probe has succeeded it is
//! asked ten times a second. Its failures count once a period all the same, so a slow machine fails no earlier than elsewhere.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Container, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use rustls::ClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;

use super::root::Invocation;
use super::wire::Wire;
use crate::tool;

/// How often a probe is asked that is waited for.
const EAGER: Duration = Duration::from_millis(100);

/// A container that is asked.
pub(super) struct Target<'a> {
    pub wire: &'a Wire,
    pub ip: Ipv4Addr,
    pub container: &'a Container,
    /// Its command line; probes run with the same environment.
    pub invocation: &'a Invocation,
    pub pid: u32,
}

/// Asks for ever, and tells each verdict that the thresholds allow, with the last failure; ends when `judge` gives something.
///
/// `good`: what holds before the first verdict. While it is not good, it is waited for.
pub(super) async fn watch<T>(
    probe: &Probe,
    target: &Target<'_>,
    mut good: bool,
    mut judge: impl FnMut(bool, String) -> Option<T>,
) -> T {
    let mut tally = Tally::new(probe);
    sleep(seconds(probe.initial_delay_seconds, 0)).await;
    loop {
        let asked = timeout(seconds(probe.timeout_seconds, 1), ask(probe, target)).await;
        let outcome = asked.unwrap_or_else(|_| bail!("it did not answer in time"));
        if let Some(verdict) = tally.count(outcome.is_ok(), Instant::now()) {
            good = verdict;
            let why = outcome.err().map(|error| format!("{error:#}")).unwrap_or_default();
            if let Some(end) = judge(verdict, why) {
                return end;
            }
        }
        sleep(if good { seconds(probe.period_seconds, 10) } else { EAGER }).await;
    }
}

/// Counts answers until they make a verdict.
#[derive(Debug)]
struct Tally {
    enough_successes: i32,
    enough_failures: i32,
    period: Duration,
    successes: i32,
    failures: i32,
    counted: Option<Instant>,
}

impl Tally {
    fn new(probe: &Probe) -> Self {
        Self {
            enough_successes: probe.success_threshold.unwrap_or(1),
            enough_failures: probe.failure_threshold.unwrap_or(3),
            period: seconds(probe.period_seconds, 10),
            successes: 0,
            failures: 0,
            counted: None,
        }
    }

    fn count(&mut self, success: bool, now: Instant) -> Option<bool> {
        if success {
            (self.failures, self.counted) = (0, None);
            self.successes += 1;
            return (self.successes >= self.enough_successes).then_some(true);
        }
        self.successes = 0;
        if self.counted.is_none_or(|counted| now >= counted + self.period) {
            self.counted = Some(now);
            self.failures += 1;
        }
        (self.failures >= self.enough_failures).then_some(false)
    }
}

async fn ask(probe: &Probe, target: &Target<'_>) -> Result<()> {
    if let Some(exec) = &probe.exec {
        return run(exec.command.clone().unwrap_or_default(), target.invocation, target.pid).await;
    }
    if let Some(get) = &probe.http_get {
        return http_get(get, target).await;
    }
    let socket = probe.tcp_socket.as_ref().context("only httpGet, tcpSocket and exec are supported")?;
    let host = socket.host.as_deref();
    target.wire.connect(address(host, &socket.port, target)?).await.map(drop).map_err(Into::into)
}

/// Runs a command in the container.
///
/// Errors: when it fails, with what it said.
pub(super) async fn run(argv: Vec<String>, like: &Invocation, pid: u32) -> Result<()> {
    let invocation = Invocation { argv, ..like.clone() };
    tool::run(invocation.beside(pid), b"").await?.text().map(drop)
}

async fn http_get(get: &HTTPGetAction, target: &Target<'_>) -> Result<()> {
    let address = address(get.host.as_deref(), &get.port, target)?;
    let path = get.path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/");
    let mut request =
        format!("GET {path} HTTP/1.1\r\nConnection: close\r\nUser-Agent: kube-probe/testbed\r\n");
    let headers: Vec<_> = get.http_headers.iter().flatten().collect();
    for header in &headers {
        request += &format!("{}: {}\r\n", header.name, header.value);
    }
    if !headers.iter().any(|header| header.name.eq_ignore_ascii_case("host")) {
        request += &format!("Host: {address}\r\n");
    }
    let stream = target.wire.connect(address).await?;
    let status = match get.scheme.as_deref() {
        Some("HTTPS") => {
            let name = ServerName::IpAddress(address.ip().into());
            status(blind_tls().connect(name, stream).await?, &request).await?
        }
        _ => status(stream, &request).await?,
    };
    ensure!((200..400).contains(&status), "{address}{path} answered {status}");
    Ok(())
}

/// The status code of the answer to a request; nothing after its first line is read.
async fn status(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> Result<u16> {
    stream.write_all(format!("{request}\r\n").as_bytes()).await?;
    let mut head = Vec::new();
    while !head.contains(&b'\n') {
        ensure!(stream.read_buf(&mut head).await? > 0, "the connection ended before an answer");
    }
    let line = String::from_utf8_lossy(&head);
    let code = line.split_whitespace().nth(1).and_then(|code| code.parse().ok());
    code.with_context(|| format!("{:?} is no answer of HTTP", line.lines().next().unwrap_or_default()))
}

fn address(host: Option<&str>, port: &IntOrString, target: &Target<'_>) -> Result<SocketAddr> {
    let ip = match host.filter(|host| !host.is_empty()) {
        Some(host) => host.parse().context("the host of a probe must be an address")?,
        None => target.ip,
    };
    let named = |name: &String| {
        let mut ports = target.container.ports.iter().flatten();
        ports.find(|port| port.name.as_ref() == Some(name)).map(|port| port.container_port)
    };
    let port = match port {
        IntOrString::Int(port) => Some(*port),
        IntOrString::String(name) => named(name).or_else(|| name.parse().ok()),
    };
    let port = port.and_then(|port| u16::try_from(port).ok());
    Ok((ip, port.context("the probe names no port of the container")?).into())
}

fn seconds(given: Option<i32>, default: u32) -> Duration {
    // Where Kubernetes counts seconds, zero means that nobody said anything.
    let given = given.and_then(|seconds| u32::try_from(seconds).ok()).filter(|seconds| *seconds > 0);
    Duration::from_secs(given.unwrap_or(default).into())
}

/// TLS that believes every certificate, as the probes of a kubelet do.
fn blind_tls() -> TlsConnector {
    let config = ClientConfig::builder().dangerous().with_custom_certificate_verifier(Arc::new(Blind));
    TlsConnector::from(Arc::new(config.with_no_client_auth()))
}

#[derive(Debug)]
struct Blind;

impl ServerCertVerifier for Blind {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(successes: i32, failures: i32, period: i32) -> Tally {
        Tally::new(&Probe {
            success_threshold: Some(successes),
            failure_threshold: Some(failures),
            period_seconds: Some(period),
            ..Probe::default()
        })
    }

    #[test]
    fn failures_count_once_a_period() {
        let (mut tally, start) = (tally(1, 2, 5), Instant::now());
        let verdicts: Vec<_> =
            [0, 1, 4, 5, 6].map(|second| tally.count(false, start + Duration::from_secs(second))).into();
        assert_eq!(verdicts, [None, None, None, Some(false), Some(false)]);
    }

    #[test]
    fn one_success_undoes_failures_and_the_other_way_round() {
        let (mut tally, start) = (tally(2, 2, 1), Instant::now());
        let answers = [false, true, false, true, true, false, false];
        let verdicts: Vec<_> = (0..)
            .zip(answers)
            .map(|(second, answer)| tally.count(answer, start + Duration::from_secs(second)))
            .collect();
        assert_eq!(verdicts, [None, None, None, None, Some(true), None, Some(false)]);
    }
}
