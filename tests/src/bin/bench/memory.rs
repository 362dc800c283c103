//! Resident memory: idle, with the resident objects, and while they are listed.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use repot_tests::states::Payload;
use serde_json::{Value, json};

use crate::body::Body;
use crate::cells::{self, RESIDENT};
use crate::load::{FOREVER, Limit, Shots};
use crate::proc;
use crate::servers::{Servers, Side};

/// How long a server may give memory back before "now" is read: part of what is measured, not a wait for a condition.
const SETTLE: Duration = Duration::from_secs(5);

/// What was measured, ready for both outputs.
#[derive(Default)]
pub struct Report {
    /// A row for each program and moment: `program`, `moment`, `nowMiB`, `peakMiB`, and `seconds` of what happened.
    pub rows: Vec<Value>,
    /// Bytes of the resident objects as JSON.
    pub resident_bytes: usize,
    /// Bytes on disk after they were loaded, by program.
    pub disk: Vec<(&'static str, u64)>,
}

/// Loads the resident objects into Repot, with each of its backends, and into the CRD, and lists them.
pub async fn measure(servers: &mut Servers, objects: usize, bytes: usize) -> Result<Report> {
    let mut report = Report::default();
    report.observe(servers, Side::Crd, "idle, empty", 0.0)?;
    report.observe(servers, Side::Direct, "idle, empty", 0.0)?;
    report.observe(servers, Side::SameEtcd, "idle, empty", 0.0)?;
    let bodies = (0..objects)
        .map(|at| Body::generate(Side::Direct, RESIDENT, bytes, Payload::Realistic, at as u64))
        .collect::<Result<Vec<_>>>()?;
    report.resident_bytes = bodies.iter().map(Body::len).sum();
    let bodies = Arc::new(bodies);
    for side in servers.keepers() {
        let load = load_shots(side, bodies.clone());
        let limit = Limit { connections: 8, time: FOREVER, requests: objects.div_ceil(8) };
        report.during(servers, side, "peak while they are created, c=8", &load, limit).await?;
        tokio::time::sleep(SETTLE).await;
        report.observe(servers, side, "idle, with them", 0.0)?;
        let list: Shots = cells::lists_at_once(1, 1).shots(side, 0)?;
        for (moment, connections) in [("peak during a full LIST", 1), ("peak during 5 full LISTs at once", 5)]
        {
            let limit = Limit { connections, time: Duration::ZERO, requests: 1 };
            report.during(servers, side, moment, &list, limit).await?;
        }
        tokio::time::sleep(SETTLE).await;
        report.observe(servers, side, "idle, after the LISTs", 0.0)?;
    }
    report.disk = servers.data_dirs().map(|(program, dir)| (program, proc::disk_bytes(dir))).to_vec();
    Ok(report)
}

/// Creates each body once; numbers beyond the last create nothing but are harmless reads.
fn load_shots(side: Side, bodies: Arc<Vec<Body>>) -> Shots {
    let collection = side.collection(RESIDENT);
    let read = cells::create_in(collection.clone(), bodies[0].clone());
    let api_version = side.api_version();
    Arc::new(move |number| {
        let mut shot = read(number);
        match bodies.get(number as usize) {
            Some(body) => shot.body = Some(body.with_api_version(&api_version, number)),
            None => {
                let path = format!("{collection}?limit=1");
                shot = crate::load::Shot { method: reqwest::Method::GET, path, body: None, ..shot };
            }
        }
        shot
    })
}

impl Report {
    /// Reads the memory of the programs of a side.
    fn observe(&mut self, servers: &mut Servers, side: Side, moment: &str, seconds: f64) -> Result<()> {
        for (program, pid) in servers.pids() {
            if Servers::programs(side).contains(&program) {
                let memory = proc::memory(pid)?;
                self.rows.push(json!({
                    "program": program, "moment": moment, "seconds": seconds,
                    "nowMiB": memory.now.round(), "peakMiB": memory.peak.round(),
                }));
            }
        }
        Ok(())
    }

    /// Loads a side and reads the peak of its programs in that time.
    async fn during(
        &mut self,
        servers: &mut Servers,
        side: Side,
        moment: &str,
        shots: &Shots,
        limit: Limit,
    ) -> Result<()> {
        for (_, pid) in servers.pids() {
            proc::forget_peak(pid)?;
        }
        let round = servers.line(side).load(shots, 0, limit).await;
        if let Some(failure) = round.failures.first() {
            bail!("{} of {} failed: {failure}", moment, side.name());
        }
        self.observe(servers, side, moment, round.seconds)
    }
}
