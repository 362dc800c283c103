use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_client::Client;
use parking_lot::Mutex;
use repot_etcd::link;
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::tls::{Authorities, with_tls};
use super::world::{DEADLINE, TestNamespace, spec};

/// Writes through a gateway, and never again what has failed.
struct Writer {
    written: Arc<AtomicU64>,
    failures: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Writer {
    async fn start(mut client: Client) -> Result<Self> {
        let (written, failures) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (count, failed) = (written.clone(), failures.clone());
        let task = tokio::spawn(async move {
            loop {
                let next = count.fetch_add(1, Ordering::Relaxed);
                let put = client.put(format!("n/{next:08}"), "x", None);
                match timeout(Duration::from_secs(30), put).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => failed.lock().push(format!("n/{next}: {error}")),
                    Err(_) => failed.lock().push(format!("n/{next}: no answer in time")),
                }
            }
        });
        Ok(Self { written, failures, task })
    }

    async fn goes_on(&self) -> Result<()> {
        let before = self.written.load(Ordering::Relaxed);
        until("further writes", DEADLINE, async || {
            ensure!(self.written.load(Ordering::Relaxed) > before + 50, "none came");
            Ok(())
        })
        .await
    }
}

pub fn of<'a>(etcd: &'a Value, field: &str, value: &str) -> Result<&'a Value> {
    let members = etcd["status"]["members"].as_array().context("no members")?;
    members.iter().find(|member| member[field] == value).with_context(|| format!("{value}: {members:?}"))
}

/// Makes a member the leader.
pub async fn make_leader(place: &TestNamespace, member: &str) -> Result<()> {
    let etcd = place.until("a leader", |status| status["members"].to_string().contains("Leader")).await?;
    let leader = of(&etcd, "role", "Leader")?["name"].as_str().context("a leader")?.to_owned();
    if leader == member {
        return Ok(());
    }
    let id = of(&etcd, "name", member)?["id"].as_str().context("an id")?.to_owned();
    let at = leader.trim_start_matches("main-").parse()?;
    place.member(at).await?.ctl(&["move-leader", &id]).await.map(drop)
}

/// Three members with gateways and certificates.
pub fn with_gateways() -> Value {
    let mut wanted = with_tls(spec(3), false);
    wanted["etcd"]["gateway"] = json!({});
    wanted
}

#[test]
fn no_write_fails_behind_a_gateway_while_the_leader_and_its_members_leave() {
    run(async |env| {
        let authorities = Authorities::make(env)?;
        let place = authorities.place("operator-gateway").await?;
        place.apply(with_gateways()).await?;
        place.until_members(3, "main").await?;
        make_leader(&place, "main-2").await?;
        let host = format!("main-0.main-peer.{}.svc", place.pods.namespace);
        let port = place.pods.world.runner.publish(&host, 2381).await?;
        let writer = Writer::start(link::connect(&authorities.access(port)).await?).await?;
        writer.goes_on().await?;
        place.pods.kubectl(&["scale", "etcd/main", "--replicas=1"]).await?;
        place.until_members(1, "main").await?;
        writer.goes_on().await?;
        place.pods.kubectl(&["scale", "etcd/main", "--replicas=3"]).await?;
        place.until_members(3, "main").await?;
        writer.goes_on().await?;
        writer.task.abort();
        ensure!(writer.failures.lock().is_empty(), "{:?}", writer.failures.lock());

        let agent = place.pods.world.runner.publish(&host, 8080).await?;
        let client = authorities.http()?;
        until("the gateway to know of all members", DEADLINE, async || {
            let answer = client.get(format!("https://localhost:{agent}/gateway")).send().await?;
            let standing: Value = answer.error_for_status()?.json().await?;
            let members = standing["members"].as_array().context("no members")?;
            let names: Vec<_> = members.iter().filter_map(|member| member["name"].as_str()).collect();
            ensure!(names == ["main-0", "main-1", "main-2"], "{standing}");
            Ok(())
        })
        .await
    });
}
