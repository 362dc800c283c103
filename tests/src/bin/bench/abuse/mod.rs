//! One user's requests while others attack: connections without credentials that read nothing, and requests that cost far more
//! than their bytes. The latency of the user is compared with that of the same user before the attack, in the same run.

mod attacks;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use repot_tests::TestEnv;
use repot_tests::access::Access;
use repot_tests::garden::Garden;
use repot_tests::repot::{Repot, write_encryption_config};
use repot_tests::states::Payload;
use repot_tests::wait::until;
use serde_json::{Value, json};

use self::attacks::{Attack, Running};
use crate::body::Body;
use crate::load::{Line, Round, Shot, Shots};
use crate::proc;
use crate::servers::{Side, access};
use crate::storage::Report;

const NAMESPACE: &str = "default";
/// The object that the attacked user reads, in bytes.
const OBJECT_BYTES: usize = 10_000;
const CONNECTIONS: usize = 4;
const DEADLINE: Duration = Duration::from_secs(60);
/// The user's p99 under an attack may be so many times that without one.
const MOST_SLOWER: f64 = 3.0;
/// What may be resident: `--max-inflight-bytes` by default, and what is documented beside it.
const MOST_MIB: f64 = 256.0 + 128.0;

/// Options of this part alone.
#[derive(Args, Clone, Debug)]
pub struct Flags {
    /// Seconds of each attack
    #[arg(long, default_value_t = 20, value_name = "N")]
    seconds: u64,
    /// GETs a second of the attacked user
    #[arg(long, default_value_t = 50.0, value_name = "N")]
    rate: f64,
}

/// Repot behind a kube-apiserver, a user who works, and one who attacks. Both have the same permissions.
struct Attacked {
    _garden: Garden,
    repot: Repot,
    user: Line,
    attacker: Access,
}

/// Measures without an attack, under each attack alone, and under all of them.
///
/// Errors: when a program is missing, or an attack does not take place.
pub async fn bench(env: &TestEnv, flags: &Flags, only: Option<&str>) -> Result<Report> {
    let mut attacked = Attacked::start(env).await?;
    let mut report = Report { setting: proc::describe_machine(env.path())?, rows: Vec::new() };
    report.setting["asked"] = format!("{flags:?}").into();
    let quiet = attacked.measure(flags, &[]).await?;
    report.add("attacks", "none", "Repot, direct", quiet.clone());
    let alone = Attack::ALL.iter().map(|attack| (attack.name(), vec![*attack]));
    for (name, attacks) in alone.chain([("all at once", Attack::ALL.to_vec())]) {
        if only.is_some_and(|only| !name.contains(only)) {
            continue;
        }
        let mut readings = attacked.measure(flags, &attacks).await?;
        for percentile in ["p50Millis", "p99Millis"] {
            let (now, before) = (readings[percentile].as_f64(), quiet[percentile].as_f64());
            readings[format!("{percentile} beside none")] =
                now.zip(before).map(|(now, before)| now / before).into();
        }
        report.add("attacks", name, "Repot, direct", readings);
    }
    report.setting["loadAfter"] = proc::load().into();
    Ok(report)
}

/// What in these rows is beyond what is promised: requests of the user that failed, their latency, and memory.
pub fn broken_promises(report: &Report) -> Vec<String> {
    let mut broken = Vec::new();
    for row in &report.rows {
        let what = row["what"].as_str().unwrap_or_default();
        let mut expect = |reading: &str, most: f64| {
            // One that was not measured proves nothing.
            let value = row[reading].as_f64().unwrap_or(f64::INFINITY);
            if value > most {
                broken.push(format!("{what}: {reading} is {value:.2}, and may be {most}"));
            }
        };
        expect("failed", 0.0);
        expect("peakMiB", MOST_MIB);
        if what != "none" {
            expect("p99Millis beside none", MOST_SLOWER);
        }
    }
    broken
}

impl Attacked {
    async fn start(env: &TestEnv) -> Result<Self> {
        let garden = Garden::start(env).await?;
        let keys = write_encryption_config(env.path())?;
        let flags = [
            format!("--encryption-provider-config={}", keys.display()),
            format!("--storage=embedded:{}", env.make_dir("store")?.display()),
        ];
        let repot = Repot::behind(env, &garden, &[("core.gardener.cloud", "v1alpha1")], flags).await?;
        garden.apply(&permissions()).await?;
        let as_user = |name: &str| {
            let credential = garden.user(name, &["workers"])?.credential;
            anyhow::Ok(access(&garden, &repot).with(credential))
        };
        let (user, attacker) = (Line::new(&as_user("user")?, CONNECTIONS)?, as_user("attacker")?);
        let body = Body::generate(Side::Direct, NAMESPACE, OBJECT_BYTES, Payload::Realistic, 1)?;
        let collection = Side::Direct.collection(NAMESPACE);
        until("the user to create an object", DEADLINE, async || {
            let create = crate::cells::create_in(collection.clone(), body.clone())(1);
            crate::load::fire(user.api(), create).await.map(drop)
        })
        .await?;
        attacks::prepare(&attacker).await?;
        Ok(Self { _garden: garden, repot, user, attacker })
    }

    /// GETs of the user at a constant rate, while these attacks go on.
    async fn measure(&mut self, flags: &Flags, attacks: &[Attack]) -> Result<Value> {
        let pid = self.repot.process().pid();
        proc::forget_peak(pid)?;
        let running = Running::start(&self.attacker, attacks).await?;
        let (path, began, cpu) = (self.object().await?, Instant::now(), proc::cpu_seconds(pid));
        let shots: Shots = std::sync::Arc::new(move |_| Shot {
            method: reqwest::Method::GET,
            path: path.clone(),
            accept: "application/json",
            body: None,
        });
        let round = self.user.offer(&shots, 0, flags.rate, Duration::from_secs(flags.seconds)).await;
        let cpu = (proc::cpu_seconds(pid) - cpu) / began.elapsed().as_secs_f64();
        let attacked = running.stop().await;
        Ok(readings(&round, cpu, proc::memory(pid)?, &attacked))
    }

    /// The path of the object that the user created.
    async fn object(&self) -> Result<String> {
        let collection = Side::Direct.collection(NAMESPACE);
        let list = self.user.api().get(&format!("{collection}?labelSelector=!attack")).await?.json()?;
        let name = list["items"][0]["metadata"]["name"].as_str().context("the user's object is gone")?;
        Ok(format!("{collection}/{name}"))
    }
}

fn readings(round: &Round, cores: f64, memory: proc::Memory, attacked: &Value) -> Value {
    let mut millis = round.millis.clone();
    millis.sort_by(f64::total_cmp);
    json!({
        "answered": millis.len(), "failed": round.failures.len(), "firstFailure": round.failures.first(),
        "p50Millis": proc::percentile(&millis, 50.0), "p99Millis": proc::percentile(&millis, 99.0),
        "cores": cores, "peakMiB": memory.peak.round(), "attack": attacked,
    })
}

/// What users of both sorts may do.
fn permissions() -> [Value; 2] {
    let rule = json!({ "apiGroups": ["core.gardener.cloud"], "resources": ["shootstates"], "verbs": ["*"] });
    let rbac = "rbac.authorization.k8s.io";
    [
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": { "name": "workers" },
            "rules": [rule],
        }),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": "workers" },
            "roleRef": { "apiGroup": rbac, "kind": "ClusterRole", "name": "workers" },
            "subjects": [{ "apiGroup": rbac, "kind": "Group", "name": "workers" }],
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reading_beyond_its_limit_is_told() {
        let rows = vec![
            json!({"what": "none", "failed": 0, "peakMiB": 384.0}),
            json!({"what": "a", "failed": 0, "peakMiB": 384.0, "p99Millis beside none": 3.0}),
            json!({"what": "b", "failed": 1, "peakMiB": 385.0, "p99Millis beside none": 3.1}),
            json!({"what": "c", "failed": 0, "peakMiB": 1.0, "p99Millis beside none": null}),
        ];
        let broken = broken_promises(&Report { setting: Value::Null, rows });
        let of: Vec<_> = broken.iter().filter_map(|line| line.split(':').next()).collect();
        assert_eq!(of, ["b", "b", "b", "c"], "{broken:?}");
    }
}
