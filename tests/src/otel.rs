//! A collector of traces: the program of `tests/go/otel`, which has the OTLP receiver of the OpenTelemetry Collector in it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::clientgo::ClientGo;
use crate::test_env::TestEnv;
use crate::{binaries, port};

/// A running collector. It ends when this is dropped.
pub struct Collector {
    program: ClientGo,
    endpoint: String,
}

/// One span that a collector has received.
#[derive(Clone, Debug, Deserialize)]
pub struct Span {
    /// Attribute `service.name` of the process that made it.
    pub service: String,
    /// All attributes of that process.
    pub resource: BTreeMap<String, Value>,
    /// Name of the span.
    pub name: String,
    /// `Server`, `Client` or `Internal`.
    pub kind: String,
    /// Hexadecimal ID of its trace.
    pub trace: String,
    /// Its own hexadecimal ID.
    pub id: String,
    /// ID of its parent; empty where it is the first of its trace.
    pub parent: String,
    /// `Unset`, `Ok` or `Error`.
    pub status: String,
    /// When it began, in nanoseconds since 1970.
    pub start: u64,
    /// When it ended, in nanoseconds since 1970.
    pub end: u64,
    /// How many events it has.
    pub events: u64,
    /// Attributes of the span.
    pub attributes: BTreeMap<String, Value>,
}

impl Collector {
    /// Starts a collector on a free port of 127.0.0.1.
    pub async fn start(env: &TestEnv) -> Result<Self> {
        let endpoint = format!("127.0.0.1:{}", port::reserve()?);
        let mut command = Command::new(binaries::find("otel")?);
        command.arg(format!("--endpoint={endpoint}"));
        let log = env.make_dir("collector")?.join("otel.log");
        let mut program = ClientGo::speak_with("otel", command, &log)?;
        program.answer().await?;
        Ok(Self { program, endpoint })
    }

    /// A TracingConfiguration file that names it.
    pub fn config(&self, env: &TestEnv, rate_per_million: u32) -> Result<PathBuf> {
        write_config(&env.make_dir("tracing")?, &self.endpoint, rate_per_million)
    }

    /// All spans that it has received so far.
    pub async fn spans(&mut self) -> Result<Vec<Span>> {
        let answer = self.program.ask("spans").await?;
        serde_json::from_value(answer["spans"].clone()).context("spans of another form")
    }

    /// Whether a word stands anywhere in what it has received.
    pub async fn contains(&mut self, word: &str) -> Result<bool> {
        let answer = self.program.ask(&format!("contains {word}")).await?;
        answer["contains"].as_bool().context("contains")
    }
}

/// Writes a TracingConfiguration into a directory.
pub fn write_config(dir: &Path, endpoint: &str, rate_per_million: u32) -> Result<PathBuf> {
    let config = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "TracingConfiguration",
        "endpoint": endpoint, "samplingRatePerMillion": rate_per_million,
    });
    let path = dir.join("tracing.yaml");
    std::fs::write(&path, config.to_string())?;
    Ok(path)
}
