//! Flags about connections, TLS and the end of serving.

use std::time::Duration;

use clap::Args;
use repot_apiserver::{
    compress::Compression,
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
    /// When answers above 128 KiB are compressed for clients that take gzip: auto, always or never. auto: where a request came
    /// from an address outside of private networks, by X-Forwarded-For and the connection. A load balancer that hides the
    /// addresses of clients needs always
    #[arg(long, default_value_t, value_name = "WHEN")]
    pub response_compression: Compression,

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
    repot_apimachinery::duration::parse(text).ok_or_else(|| "must be a duration such as 1m30s".to_owned())
}

fn chance(text: &str) -> Result<f64, String> {
    let chance = text.parse().ok().filter(|chance| (0.0..=0.02).contains(chance));
    chance.ok_or_else(|| "must be from 0 to 0.02".to_owned())
}
