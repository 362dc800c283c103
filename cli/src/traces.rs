//! `--tracing-config-file`: traces of requests, sent to a collector.

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use clap::Args;
use repot_telemetry::{Exporting, RequestSampler, TraceLayer, Tracing, config::TracingConfiguration};

use crate::store;

/// How long a server that stops waits for its collector.
const FLUSH_LIMIT: Duration = Duration::from_secs(3);

/// Flags that say what is traced.
#[derive(Args)]
pub struct TracingFlags {
    /// TracingConfiguration (apiserver.config.k8s.io/v1) with the collector and the sampling rate, as of kube-apiserver
    /// [default: nothing is traced]
    #[arg(long, value_name = "FILE")]
    tracing_config_file: Option<PathBuf>,
}

/// Traces of a process, before its runtime has started.
#[derive(Default)]
pub struct Traces(Option<Tracing>);

/// Traces while they are sent.
pub struct Running(Option<Exporting>);

impl TracingFlags {
    /// Reads the configuration, if there is one. The layer has to become part of the process' subscriber. `service` is what the
    /// process is called in traces.
    pub fn read(&self, service: &'static str) -> anyhow::Result<(Traces, Option<TraceLayer>)> {
        let Some(path) = &self.tracing_config_file else { return Ok((Traces::default(), None)) };
        let config = TracingConfiguration::read(path);
        let config = config.with_context(|| format!("--tracing-config-file {}", path.display()))?;
        let (tracing, layer) = Tracing::new(config, service, store::server());
        Ok((Traces(Some(tracing)), Some(layer)))
    }
}

impl Traces {
    /// Starts to send traces. Must be called in a runtime.
    pub fn start(self) -> anyhow::Result<Running> {
        Ok(Running(self.0.map(Tracing::start).transpose().context("--tracing-config-file")?))
    }
}

impl Running {
    /// Decides which requests are traced.
    pub fn sampler(&self) -> RequestSampler {
        self.0.as_ref().map_or_else(RequestSampler::off, Exporting::sampler)
    }

    /// Sends what waits, and ends.
    pub async fn end(self) {
        if let Some(exporting) = self.0 {
            exporting.end(FLUSH_LIMIT).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_valid_is_told_with_its_flag() {
        let file = std::env::temp_dir().join(format!("repot-tracing-{}.yaml", std::process::id()));
        std::fs::write(&file, "kind: TracingConfiguration").expect("a file");
        let flags = TracingFlags { tracing_config_file: Some(file.clone()) };
        let Err(refused) = flags.read("test") else { panic!("it is taken") };
        std::fs::remove_file(&file).expect("a file");
        let expected = format!("--tracing-config-file {}: apiVersion: is missing", file.display());
        assert_eq!(format!("{refused:#}"), expected);
        assert!(
            TracingFlags { tracing_config_file: None }.read("test").expect("nothing to read").1.is_none()
        );
    }
}
