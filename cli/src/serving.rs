//! Flags about connections, TLS and the end of serving.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use repot_apiserver::{
    listen::Shutdown,
    tls::{MinVersion, NamedFiles, Options, Protocol, ServingFiles},
};

/// How connections are served.
#[derive(Args)]
pub struct ServingFlags {
    /// Certificate and key for clients that ask for certain names, as CERT,KEY or CERT,KEY:NAME,NAME; may be repeated. A name
    /// beats a wildcard; without names those of the certificate count
    #[arg(long, value_name = "CERT,KEY[:NAMES]")]
    tls_sni_cert_key: Vec<NamedFiles>,
    /// Oldest version of TLS: VersionTLS12 or VersionTLS13
    #[arg(long, default_value = "VersionTLS12", value_name = "VERSION")]
    tls_min_version: MinVersion,
    /// Cipher suites of TLS 1.2 [default: all that are good]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    tls_cipher_suites: Vec<String>,

    /// How likely a request over HTTP/2 is the last on its connection, from 0 to 0.02, so that clients spread over servers
    #[arg(long, default_value_t = 0.0, value_name = "CHANCE", value_parser = chance)]
    pub goaway_chance: f64,
    /// Whether answers above 128 KiB are compressed for clients that take gzip
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub response_compression: bool,

    /// Over how long watches end when the server stops
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = duration)]
    pub shutdown_watch_termination_grace_period: Duration,
    /// How long to serve on after a signal to stop, so that nobody routes here any more
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = duration)]
    shutdown_delay_duration: Duration,
    /// Keep the port open while requests are answered to the end, and answer others with 429 and Retry-After
    #[arg(long)]
    shutdown_send_retry_after: bool,
}

impl ServingFlags {
    /// The TLS side of the server, around its main certificate.
    pub fn tls(&self, files: ServingFiles) -> anyhow::Result<Options> {
        let protocol = Protocol::new(self.tls_min_version, self.tls_cipher_suites.clone());
        let protocol = protocol.map_err(|why| anyhow::anyhow!("--tls-cipher-suites: {why}"))?;
        Ok(Options { files, by_name: self.tls_sni_cert_key.clone(), protocol })
    }

    /// How the server stops.
    pub fn shutdown(&self) -> Shutdown {
        Shutdown {
            delay: self.shutdown_delay_duration,
            send_retry_after: self.shutdown_send_retry_after,
            ..Shutdown::default()
        }
    }
}

/// A duration as Go writes it.
pub fn duration(text: &str) -> Result<Duration, String> {
    repot_api::duration::parse(text).ok_or_else(|| "must be a duration such as 1m30s".to_owned())
}

fn chance(text: &str) -> Result<f64, String> {
    let chance = text.parse().ok().filter(|chance| (0.0..=0.02).contains(chance));
    chance.ok_or_else(|| "must be from 0 to 0.02".to_owned())
}

/// What is recorded of requests.
#[derive(Args)]
pub struct AuditFlags {
    /// Policy of audit.k8s.io/v1 [default: metadata of all requests]. Payload is never recorded, whatever it says
    #[arg(long, requires = "audit_log_path", value_name = "FILE")]
    audit_policy_file: Option<PathBuf>,
    /// Where events are written as JSON lines; `-` is standard output [default: nowhere]
    #[arg(long, value_name = "FILE")]
    audit_log_path: Option<PathBuf>,
    /// Days for which full files are kept; 0: for ever
    #[arg(long, default_value_t = 0, value_name = "DAYS")]
    audit_log_maxage: u64,
    /// Full files that are kept; 0: all
    #[arg(long, default_value_t = 0, value_name = "N")]
    audit_log_maxbackup: usize,
    /// Megabytes at which a file is full
    #[arg(long, default_value_t = 100, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..))]
    audit_log_maxsize: u64,
}

impl AuditFlags {
    /// The auditor that they describe.
    pub fn auditor(&self) -> anyhow::Result<repot_apiserver::audit::Auditor> {
        use anyhow::Context;
        use repot_apiserver::audit::{
            Auditor,
            log::{Log, Rotation},
            policy::Policy,
        };
        let Some(path) = &self.audit_log_path else { return Ok(Auditor::off()) };
        let policy = match &self.audit_policy_file {
            None => Policy::default(),
            Some(file) => {
                let text = std::fs::read_to_string(file)
                    .with_context(|| format!("--audit-policy-file: failed to read {}", file.display()))?;
                Policy::parse(&text).with_context(|| format!("--audit-policy-file: {}", file.display()))?
            }
        };
        let rotation = Rotation {
            most_bytes: self.audit_log_maxsize << 20,
            backups: self.audit_log_maxbackup,
            age: Duration::from_secs(self.audit_log_maxage * 86_400),
        };
        let log =
            Log::open(path, rotation).with_context(|| format!("--audit-log-path: {}", path.display()))?;
        Ok(Auditor::new(policy, Some(log)))
    }
}
