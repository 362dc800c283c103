//! A real Prometheus that scrapes servers of a test, with the rules that are shipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::process::{Process, Spec};
use repot_tests::test_env::TestEnv;
use repot_tests::{binaries, port};
use reqwest::Url;
use serde_json::{Value, json};

const START_DEADLINE: Duration = Duration::from_secs(60);
/// How often it scrapes and evaluates rules. Panels show rates over several scrapes.
const INTERVAL: &str = "1s";
/// What Grafana puts for `$__rate_interval`: four scrapes at least.
const RATE_INTERVAL: &str = "10s";

/// What one job scrapes, with the labels that a ServiceMonitor or PodMonitor would give its targets.
pub struct Job {
    pub name: &'static str,
    pub namespace: String,
    /// The Pod of each target, and its port on 127.0.0.1.
    pub targets: Vec<(String, u16)>,
    /// How it is reached by HTTPS; `None`: HTTP.
    pub tls: Option<Tls>,
}

/// How Prometheus reaches a server by HTTPS.
pub struct Tls {
    pub ca_pem: String,
    /// The name in the certificate of the server.
    pub server_name: String,
    /// The token that Prometheus shows; empty: none.
    pub token: String,
}

/// A running Prometheus. It ends when this is dropped.
pub struct Prometheus {
    _process: Process,
    url: String,
}

impl Prometheus {
    /// Starts one, and waits until it is ready.
    pub async fn start(env: &TestEnv, jobs: &[Job]) -> Result<Self> {
        let dir = env.make_dir("prometheus")?;
        let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/alerts/seed.rules.yaml");
        let jobs = jobs.iter().map(|job| job.render(&dir)).collect::<Result<Vec<_>>>()?;
        let config = json!({
            "global": {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL, "evaluation_interval": INTERVAL},
            "rule_files": [rules.canonicalize()?], "scrape_configs": jobs,
        });
        let file = dir.join("prometheus.yaml");
        fs::write(&file, config.to_string())?;
        let address = format!("127.0.0.1:{}", port::reserve()?);
        let spec = Spec::new("prometheus", binaries::find("prometheus")?)
            .flag("config.file", &file)
            .flag("storage.tsdb.path", dir.join("data"))
            .flag("web.listen-address", &address);
        let url = format!("http://{address}");
        let mut process = Process::start(env, spec)?;
        let probe = async || {
            let status = reqwest::get(format!("{url}/-/ready")).await?.status();
            ensure!(status.is_success(), "it answers {status}");
            Ok(())
        };
        process.ready(START_DEADLINE, probe).await?;
        Ok(Self { _process: process, url })
    }

    /// Address at which it answers.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The series of an expression over the last minutes, each with its finite values.
    pub async fn range(&self, expr: &str) -> Result<Vec<Vec<f64>>> {
        let now = jiff::Timestamp::now().as_second();
        let (start, end) = ((now - 300).to_string(), now.to_string());
        let query = [("query", expr), ("start", &start), ("end", &end), ("step", "1")];
        let data = self.get("query_range", &query).await?;
        let series = data["result"].as_array().context("no result")?;
        Ok(series.iter().map(finite).collect())
    }

    /// All rules, as Prometheus has evaluated them.
    pub async fn rules(&self) -> Result<Vec<Value>> {
        let data = self.get("rules", &[]).await?;
        let groups = data["groups"].as_array().context("no groups")?;
        Ok(groups.iter().flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default()).collect())
    }

    /// Targets with the error of their last scrape; empty where it succeeded.
    pub async fn targets(&self) -> Result<Vec<(String, String)>> {
        let data = self.get("targets", &[("state", "active")]).await?;
        let targets = data["activeTargets"].as_array().context("no targets")?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let error = |target: &Value| match target["health"].as_str() {
            Some("up") => String::new(),
            _ => format!("{}: {}", target["health"], target["lastError"]),
        };
        Ok(targets.iter().map(|target| (text(&target["scrapeUrl"]), error(target))).collect())
    }

    async fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value> {
        let url = Url::parse_with_params(&format!("{}/api/v1/{path}", self.url), query)?;
        let answer: Value = reqwest::get(url).await?.json().await?;
        ensure!(answer["status"] == "success", "{path} of {query:?}: {answer}");
        Ok(answer["data"].clone())
    }
}

fn finite(series: &Value) -> Vec<f64> {
    let values = series["values"].as_array().into_iter().flatten();
    let numbers = values.filter_map(|pair| pair[1].as_str()?.parse::<f64>().ok());
    numbers.filter(|number| number.is_finite()).collect()
}

impl Job {
    fn render(&self, dir: &Path) -> Result<Value> {
        let targets = self.targets.iter().map(|(pod, port)| {
            let labels = json!({"namespace": self.namespace, "pod": pod});
            json!({"targets": [format!("127.0.0.1:{port}")], "labels": labels})
        });
        let mut job = json!({"job_name": self.name, "static_configs": targets.collect::<Vec<_>>()});
        if let Some(tls) = &self.tls {
            job["scheme"] = "https".into();
            let ca: PathBuf = dir.join(format!("{}-ca.crt", self.name));
            fs::write(&ca, &tls.ca_pem)?;
            job["tls_config"] = json!({"ca_file": ca, "server_name": tls.server_name});
            if !tls.token.is_empty() {
                job["authorization"] = json!({"credentials": tls.token});
            }
        }
        Ok(job)
    }
}

/// An expression of a dashboard as Grafana sends it, for all namespaces.
pub fn without_variables(expr: &str) -> String {
    expr.replace("$__rate_interval", RATE_INTERVAL).replace("$namespace", ".*")
}
