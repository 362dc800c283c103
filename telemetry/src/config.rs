//! `TracingConfiguration` of `apiserver.config.k8s.io`, read as kube-apiserver reads it: an unknown field is an error.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

const GROUP: &str = "apiserver.config.k8s.io";
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];
const KIND: &str = "TracingConfiguration";
const FIELDS: &str = "apiVersion, kind, endpoint, samplingRatePerMillion";
/// All requests.
const MILLION: u32 = 1_000_000;
/// The port of OTLP over gRPC.
const DEFAULT_HOST: &str = "localhost";
const DEFAULT_PORT: u16 = 4317;
const ENDPOINT_FORMS: &str = "must be HOST:PORT, dns:///HOST:PORT or unix:///PATH";

/// Where spans are sent, and of which requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracingConfiguration {
    /// Collector to which spans are sent: OTLP over gRPC, without TLS.
    pub endpoint: Endpoint,
    /// How many of a million requests are traced whose client does not decide it.
    pub sampling_rate_per_million: u32,
}

/// Address of a collector of spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Host name or IP address, and a port.
    Tcp {
        /// Host name or IP address, the latter in brackets where it has colons.
        host: String,
        /// TCP port of the collector.
        port: u16,
    },
    /// Path of a unix socket.
    Unix(PathBuf),
}

/// Why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("failed to read {path}: {what}")]
    File {
        /// Path of the file.
        path: String,
        /// Error of the system.
        what: String,
    },
    /// A field is not valid.
    #[error("{at}: {what}")]
    Field {
        /// The field, or `file`.
        at: &'static str,
        /// What is wrong, and what is allowed.
        what: String,
    },
}

impl TracingConfiguration {
    /// Reads a file in YAML or JSON.
    ///
    /// # Errors
    /// [`Error::File`], and those of [`TracingConfiguration::parse`].
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path);
        let text =
            text.map_err(|error| Error::File { path: path.display().to_string(), what: error.to_string() })?;
        Self::parse(&text)
    }

    /// The same from text.
    ///
    /// # Errors
    /// [`Error::Field`] names the field and what is allowed.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut fields = fields(text)?;
        let version = required(&mut fields, "apiVersion")?;
        if version
            .strip_prefix(GROUP)
            .and_then(|rest| rest.strip_prefix('/'))
            .is_none_or(|v| !VERSIONS.contains(&v))
        {
            let known = VERSIONS.map(|version| format!("{GROUP}/{version}")).join(", ");
            return Err(error("apiVersion", format!("must be one of {known}, got {version:?}")));
        }
        let kind = required(&mut fields, "kind")?;
        if kind != KIND {
            return Err(error("kind", format!("must be {KIND}, got {kind:?}")));
        }
        let endpoint = match text_of("endpoint", fields.remove("endpoint"))? {
            Some(text) => endpoint(&text)?,
            None => Endpoint::Tcp { host: DEFAULT_HOST.to_owned(), port: DEFAULT_PORT },
        };
        let sampling_rate_per_million = rate(fields.remove("samplingRatePerMillion"))?;
        match fields.keys().next() {
            Some(name) => Err(error("file", format!("unknown field {name:?}; known: {FIELDS}"))),
            None => Ok(Self { endpoint, sampling_rate_per_million }),
        }
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

fn error(at: &'static str, what: impl Into<String>) -> Error {
    Error::Field { at, what: what.into() }
}

fn fields(text: &str) -> Result<Map<String, Value>, Error> {
    if text.trim().is_empty() {
        return Err(error("file", format!("is empty; write a {KIND} of {GROUP}/v1")));
    }
    let options = serde_saphyr::options! { with_snippet: false };
    let read = serde_saphyr::from_str_with_options::<Value>(text, options);
    match read.map_err(|what| error("file", format!("is not valid YAML or JSON: {what}")))? {
        Value::Object(fields) => Ok(fields),
        _ => Err(error("file", format!("must be a map with the fields {FIELDS}"))),
    }
}

fn required(fields: &mut Map<String, Value>, name: &'static str) -> Result<String, Error> {
    text_of(name, fields.remove(name))?.ok_or_else(|| error(name, "is missing"))
}

fn text_of(name: &'static str, value: Option<Value>) -> Result<Option<String>, Error> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(error(name, format!("must be a string, got {other}"))),
    }
}

fn rate(value: Option<Value>) -> Result<u32, Error> {
    let value = match value {
        None | Some(Value::Null) => return Ok(0),
        Some(value) => value,
    };
    let rate = value.as_u64().and_then(|rate| u32::try_from(rate).ok()).filter(|rate| *rate <= MILLION);
    let wrong = || format!("must be a whole number from 0 to {MILLION}, got {value}");
    rate.ok_or_else(|| error("samplingRatePerMillion", wrong()))
}

/// The forms that kube-apiserver accepts, but for `unix-abstract`.
fn endpoint(text: &str) -> Result<Endpoint, Error> {
    let wrong = || error("endpoint", format!("{ENDPOINT_FORMS}, got {text:?}"));
    if let Some(path) = text.strip_prefix("unix://") {
        return if path.starts_with('/') { Ok(Endpoint::Unix(path.into())) } else { Err(wrong()) };
    }
    if text.starts_with("http://") || text.starts_with("https://") {
        return Err(error(
            "endpoint",
            format!("{ENDPOINT_FORMS}: spans are sent by gRPC without TLS; got {text:?}"),
        ));
    }
    let authority = text.strip_prefix("dns:///").unwrap_or(text);
    let (host, port) = authority.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
    let bare = match host.strip_prefix('[') {
        Some(address) => address.strip_suffix(']').filter(|a| a.parse::<std::net::Ipv6Addr>().is_ok()),
        None => {
            Some(host).filter(|host| host.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c)))
        }
    };
    if bare.is_none_or(str::is_empty) {
        return Err(wrong());
    }
    Ok(Endpoint::Tcp { host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fields: &str) -> Result<TracingConfiguration, String> {
        let text = format!("apiVersion: {GROUP}/v1\nkind: {KIND}\n{fields}");
        TracingConfiguration::parse(&text).map_err(|error| error.to_string())
    }

    fn tcp(host: &str, port: u16) -> Endpoint {
        Endpoint::Tcp { host: host.into(), port }
    }

    #[test]
    fn defaults_are_those_of_kube_apiserver() {
        let expected =
            TracingConfiguration { endpoint: tcp("localhost", 4317), sampling_rate_per_million: 0 };
        for fields in ["", "endpoint:\nsamplingRatePerMillion: null\n"] {
            assert_eq!(of(fields), Ok(expected.clone()), "{fields}");
        }
        for version in VERSIONS {
            let text = format!(r#"{{"apiVersion": "{GROUP}/{version}", "kind": "{KIND}"}}"#);
            assert_eq!(TracingConfiguration::parse(&text), Ok(expected.clone()), "{version}");
        }
    }

    #[test]
    fn reads_endpoints_and_rates() {
        for (text, expected) in [
            ("10.0.0.1:4317", tcp("10.0.0.1", 4317)),
            ("collector.monitoring.svc:55680", tcp("collector.monitoring.svc", 55680)),
            ("dns:///collector:1", tcp("collector", 1)),
            ("'[::1]:4317'", tcp("[::1]", 4317)),
            ("unix:///run/otel.sock", Endpoint::Unix("/run/otel.sock".into())),
        ] {
            let read = of(&format!("endpoint: {text}")).map(|config| config.endpoint);
            assert_eq!(read, Ok(expected), "{text}");
        }
        for rate in [0, 1, 1_000_000] {
            let read = of(&format!("samplingRatePerMillion: {rate}"));
            assert_eq!(read.map(|config| config.sampling_rate_per_million), Ok(rate));
        }
    }

    #[test]
    fn an_error_names_the_field_and_what_is_allowed() {
        for (fields, expected) in [
            (
                "samplingRatePerMillion: 1000001",
                "samplingRatePerMillion: must be a whole number from 0 to 1000000, got 1000001",
            ),
            (
                "samplingRatePerMillion: -1",
                "samplingRatePerMillion: must be a whole number from 0 to 1000000, got -1",
            ),
            (
                "samplingRatePerMillion: 0.5",
                "samplingRatePerMillion: must be a whole number from 0 to 1000000, got 0.5",
            ),
            (
                "samplingRatePerMillion: many",
                "samplingRatePerMillion: must be a whole number from 0 to 1000000, got \"many\"",
            ),
            ("endpoint: 4317", "endpoint: must be a string, got 4317"),
            (
                "endpoint: collector",
                "endpoint: must be HOST:PORT, dns:///HOST:PORT or unix:///PATH, got \"collector\"",
            ),
            (
                "endpoint: 'collector:0'",
                "endpoint: must be HOST:PORT, dns:///HOST:PORT or unix:///PATH, got \"collector:0\"",
            ),
            (
                "endpoint: dns://8.8.8.8/collector:1",
                "endpoint: must be HOST:PORT, dns:///HOST:PORT or unix:///PATH, got \"dns://8.8.8.8/collector:1\"",
            ),
            (
                "endpoint: unix-abstract:otel",
                "endpoint: must be HOST:PORT, dns:///HOST:PORT or unix:///PATH, got \"unix-abstract:otel\"",
            ),
            (
                "samplingRate: 1",
                "file: unknown field \"samplingRate\"; known: apiVersion, kind, endpoint, samplingRatePerMillion",
            ),
        ] {
            assert_eq!(of(fields), Err(expected.to_owned()));
        }
        let refused = of("endpoint: https://collector:4317").expect_err("TLS");
        assert!(refused.contains("without TLS"), "{refused}");
        let twice = of("endpoint: a:1\nendpoint: b:1").expect_err("two of one name");
        assert!(twice.starts_with("file: is not valid YAML or JSON"), "{twice}");
    }

    #[test]
    fn another_kind_of_file_is_refused() {
        let parse = |text: &str| TracingConfiguration::parse(text).expect_err("not valid").to_string();
        let version = parse("apiVersion: v1\nkind: ConfigMap");
        assert!(version.starts_with("apiVersion: must be one of apiserver.config.k8s.io/v1, "), "{version}");
        let kind = parse("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration");
        assert_eq!(kind, "kind: must be TracingConfiguration, got \"EncryptionConfiguration\"");
        assert_eq!(parse("kind: TracingConfiguration"), "apiVersion: is missing");
        assert!(parse(" \n").starts_with("file: is empty"));
        assert!(parse("- a").starts_with("file: must be a map"));
        let path = Path::new("/nonexistent/tracing.yaml");
        let missing = TracingConfiguration::read(path).expect_err("no file").to_string();
        assert!(missing.starts_with("failed to read /nonexistent/tracing.yaml: "), "{missing}");
    }
}
