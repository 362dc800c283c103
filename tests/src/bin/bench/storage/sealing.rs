//! What wrapping keys costs a write (P11): the same server with each provider, in turns.
//!
//! Payload is always sealed. `identity` leaves an object's data key bare, so it is the floor of what providers add.

use std::time::Duration;

use anyhow::{Context, Result};
use repot_tests::TestEnv;
use repot_tests::encryption::{Plugin, config, provider, write_config};
use repot_tests::repot::Repot;
use repot_tests::states::Payload;
use serde_json::{Value, json};

use super::{Report, WRITTEN};
use crate::body::Body;
use crate::cells;
use crate::load::{FOREVER, Limit, Line};
use crate::proc;
use crate::servers::{self, Servers, Side};

const TIME: Duration = Duration::from_millis(700);
const CASES: [(usize, usize); 6] =
    [(9_000, 1), (9_000, 8), (100_000, 1), (100_000, 8), (1_000_000, 1), (1_000_000, 8)];

struct Contestant {
    name: &'static str,
    line: Line,
    _repot: Repot,
}

/// POST of each size by one and by eight.
pub async fn measure(env: &TestEnv, servers: &mut Servers, rounds: usize, report: &mut Report) -> Result<()> {
    let mut plugin = Plugin::start(env).await?;
    let providers = [
        ("identity", json!({ "identity": {} })),
        ("aesgcm", provider("aesgcm", "key")?),
        ("secretbox", provider("secretbox", "key")?),
        ("kms v2", plugin.provider("main")),
    ];
    let mut contestants = Vec::new();
    for (name, provider) in &providers {
        contestants.push(Contestant::start(env, servers, name, provider).await?);
    }
    let (mut writes, mut first) = (0, 40_000_000);
    plugin.ask("calls").await?;
    for (bytes, connections) in CASES {
        let mut rates = vec![Vec::new(); contestants.len()];
        let mut millis = vec![Vec::new(); contestants.len()];
        for round in 0..rounds {
            for turn in 0..contestants.len() {
                let at = (round + turn) % contestants.len();
                let done = contestants[at].write(bytes, connections, &mut first).await?;
                writes += if at == 3 { done.millis.len() } else { 0 };
                rates[at].push(done.rate());
                millis[at].extend(done.millis);
            }
        }
        let floor = median(&mut millis[0].clone());
        for ((contestant, mut millis), mut rates) in contestants.iter().zip(millis).zip(rates) {
            let p50 = median(&mut millis);
            let readings = json!({
                "n": millis.len(), "p50Millis": p50, "p50OfIdentity": p50 / floor,
                "p99Millis": proc::percentile(&millis, 99.0), "objectsASecond": median(&mut rates),
            });
            report.add("P11", &format!("POST of {bytes} bytes, c={connections}"), contestant.name, readings);
        }
    }
    let calls = plugin.ask("calls").await?;
    report.add(
        "P11",
        &format!("calls of the service during {writes} writes"),
        "kms v2",
        json!({ "calls": calls }),
    );
    Ok(())
}

impl Contestant {
    async fn start(
        env: &TestEnv,
        servers: &mut Servers,
        name: &'static str,
        provider: &Value,
    ) -> Result<Self> {
        let dir = env.make_dir("sealing")?;
        let keys = dir.join("encryption.yaml");
        write_config(&keys, &config(&[provider]).to_string())?;
        let flags = [
            format!("--encryption-provider-config={}", keys.display()),
            format!("--storage=embedded:{}", dir.join("store").display()),
        ];
        let garden = servers.garden();
        let repot = Repot::replica(env, garden, flags).await?;
        let line = Line::new(&servers::access(garden, &repot), 8)?;
        Ok(Self { name, line, _repot: repot })
    }

    /// A round, whose objects are gone after it.
    async fn write(&self, bytes: usize, connections: usize, first: &mut u64) -> Result<crate::load::Round> {
        let collection = Side::Direct.collection(WRITTEN);
        let body = Body::generate(Side::Direct, WRITTEN, bytes, Payload::Realistic, 13)?;
        let limit = Limit { connections, time: TIME, requests: usize::MAX };
        let round = self.line.load(&cells::create_in(collection.clone(), body), *first, limit).await;
        if let Some(failure) = round.failures.first() {
            return Err(anyhow::anyhow!("{failure}")).with_context(|| self.name);
        }
        let count = (round.sequence.1 - round.sequence.0) as usize;
        let limit = Limit { connections, time: FOREVER, requests: count.div_ceil(connections) };
        self.line.load(&cells::delete_from(collection), *first, limit).await;
        *first = round.sequence.1 + connections as u64;
        Ok(round)
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    proc::percentile(values, 50.0)
}
