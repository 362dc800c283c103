//! Replicas of Repot on one etcd, each with an encryption configuration of its own.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::TestEnv;
use repot_tests::access::Access;
use repot_tests::encryption::{config, write_config};
use repot_tests::etcd::EtcdCluster;
use repot_tests::garden::Garden;
use repot_tests::http::Api;
use repot_tests::repot::Repot;
use repot_tests::wait::until;
use serde_json::{Value, json};

use crate::shootstate::etcd_values::Values;
use crate::shootstate::world::{collection, path, small};

pub const DEADLINE: Duration = Duration::from_secs(120);
const RECORDS: &str = "/repot/registry/";
const RELOADS: &str = "apiserver_encryption_config_controller_automatic_reloads_total";

/// One of the servers.
pub struct Replica {
    pub repot: Repot,
    /// Directly, as somebody who may do everything.
    pub api: Api,
    pub file: PathBuf,
}

/// All servers that a test of encryption needs.
pub struct World {
    pub replicas: Vec<Replica>,
    pub values: Values,
    /// Where objects rest, for whoever else opens the store.
    pub storage_flags: Vec<String>,
    pub etcd: EtcdCluster,
    _garden: Garden,
}

impl World {
    /// As many replicas, which begin with the same providers. What takes them a second otherwise takes them `second`.
    pub async fn start(env: &TestEnv, replicas: usize, providers: &[&Value], second: &str) -> Result<Self> {
        Self::start_with(env, replicas, providers, second, &[]).await
    }

    /// As [`World::start`], with further flags for each replica.
    pub async fn start_with(
        env: &TestEnv,
        replicas: usize,
        providers: &[&Value],
        second: &str,
        more: &[String],
    ) -> Result<Self> {
        let mut etcd = EtcdCluster::start(env, 1).await?;
        let garden = Garden::start(env).await?;
        let values = Values::new(&mut etcd)?;
        let storage_flags = vec![format!("--etcd-servers={}", etcd.endpoints().join(","))];
        let mut all = Vec::new();
        for _ in 0..replicas {
            let file = env.make_dir("keys")?.join("encryption.yaml");
            write_config(&file, &config(providers).to_string())?;
            let flags = [
                storage_flags[0].clone(),
                format!("--encryption-provider-config={}", file.display()),
                "--encryption-provider-config-automatic-reload".to_owned(),
                format!("--encryption-second={second}"),
            ];
            let repot = Repot::replica(env, &garden, flags.iter().chain(more)).await?;
            let server = format!("https://127.0.0.1:{}", repot.port()?);
            let api = Api::new(&Access { server, ..garden.admin().clone() })?;
            all.push(Replica { repot, api, file });
        }
        Ok(Self { replicas: all, values, storage_flags, etcd, _garden: garden })
    }

    /// The beginnings of all wrapped data keys at rest: everything up to the name of the key.
    pub async fn wrapped_by(&self) -> Result<BTreeSet<String>> {
        let records = self.values.range(RECORDS).await?;
        ensure!(!records.is_empty(), "nothing is at rest");
        records.iter().map(|(_, record)| prefix(&wrapped(record)?)).collect()
    }

    /// Place and wrapped data key of each object at rest.
    pub async fn wraps(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let place = |key: &str| key.strip_prefix("/repot").unwrap_or_default().to_owned();
        let records = self.values.range(RECORDS).await?;
        records.iter().map(|(key, record)| Ok((place(key), wrapped(record)?))).collect()
    }

    /// Reads every object and all of them, from every replica; what is at rest has to come back.
    pub async fn read_all(&self, names: &[String]) -> Result<()> {
        for replica in &self.replicas {
            for name in names {
                let found = replica.api.get(&path(name)).await?.ok()?;
                ensure!(found["spec"]["extensions"][0]["state"]["name"] == **name, "{found}");
            }
            let list = replica.api.get(&collection("default")).await?.ok()?;
            let items = list["items"].as_array().context("items")?;
            ensure!(items.len() == names.len(), "{} of {} objects are listed", items.len(), names.len());
        }
        Ok(())
    }
}

impl Replica {
    /// Creates an object that carries its own name.
    pub async fn create(&self, name: &str) -> Result<()> {
        self.api.post(&collection("default"), &small(name, &json!({"name": name}))).await?.ok().map(drop)
    }

    /// Writes an object back as it is; whether that made another version of it.
    pub async fn write_back(&self, name: &str) -> Result<bool> {
        let found = self.api.get(&path(name)).await?.ok()?;
        let written = self.api.put(&path(name), &found).await?.ok()?;
        Ok(found["metadata"]["resourceVersion"] != written["metadata"]["resourceVersion"])
    }

    /// Gives it other providers and waits until it works with them.
    pub async fn reconfigure(&self, providers: &[&Value]) -> Result<()> {
        let before = self.reloads("success").await?;
        write_config(&self.file, &config(providers).to_string())?;
        until("the configuration to be read again", DEADLINE, async || {
            ensure!(self.reloads("success").await? > before, "it is not");
            Ok(())
        })
        .await
    }

    /// How often it read its configuration again.
    pub async fn reloads(&self, status: &str) -> Result<f64> {
        let found = self.metric(RELOADS, &[("status", status)]).await?;
        Ok(found.unwrap_or(0.0))
    }

    /// A metric with these labels among others.
    pub async fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Result<Option<f64>> {
        let answer = self.api.get("/metrics").await?;
        ensure!(answer.status == 200, "{answer}");
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let wanted = |line: &&str| {
            line.starts_with(&format!("{name}{{"))
                && labels.iter().all(|(label, value)| line.contains(&format!("{label}=\"{value}\"")))
        };
        let line = text.lines().find(wanted);
        line.map(|line| Ok(line.rsplit(' ').next().unwrap_or_default().parse()?)).transpose()
    }
}

/// The wrapped data key in a record.
fn wrapped(record: &[u8]) -> Result<Vec<u8>> {
    let len = record.get(21..23).context("a record")?;
    let end = 23 + usize::from(u16::from_be_bytes([len[0], len[1]]));
    Ok(record.get(23..end).context("a whole record")?.to_owned())
}

fn prefix(wrapped: &[u8]) -> Result<String> {
    let parts: Vec<_> = wrapped.splitn(6, |byte| *byte == b':').take(5).collect();
    Ok(String::from_utf8(parts.join(&b':'))?)
}
