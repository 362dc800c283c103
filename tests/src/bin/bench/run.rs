//! Measuring a cell: its sides take turns, so that what happens to the machine happens to all of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::body::Body;
use crate::cells::{self, Cell, Form, Kind, Operation, READ, READ_OBJECTS, WRITTEN};
use crate::load::{FOREVER, Limit, Line, Round, Shots};
use crate::proc;
use crate::servers::{Servers, Side};

/// The load generator itself, among the programs.
pub const LOADER: &str = "load generator";

/// Everything measured of one side of a cell.
#[derive(Debug)]
pub struct Measured {
    /// The server that was measured.
    pub side: Side,
    /// Its rounds, in the order they ran.
    pub rounds: Vec<Round>,
    /// CPU seconds by program while they ran.
    pub cpu: BTreeMap<&'static str, f64>,
    /// CPU seconds of the whole machine while they ran.
    pub machine: proc::MachineCpu,
}

/// Numbers of objects, each given once.
static NUMBERS: AtomicU64 = AtomicU64::new(1_000_000);

/// Runs all rounds of a cell. `resident`: how long the resident objects are, in bytes.
///
/// Errors: when a side's requests cannot be made; requests that fail are counted, not errors.
pub async fn measure(servers: &mut Servers, cell: &Cell, resident: usize) -> Result<Vec<Measured>> {
    let mut measured = Vec::new();
    let listed = listed_bytes(servers, cell, resident).await?;
    for &side in &cell.sides {
        let shots = cell.shots(side, listed)?;
        measured.push((Measured::new(side), shots));
    }
    if cell.requests > 1 && cell.arrivals.is_none() {
        for (measured, shots) in &measured {
            let warm = Limit { time: cell.time / 4, ..cell.limit() };
            load(servers.line(measured.side), shots, warm, servers, cell, measured.side).await;
        }
    }
    for round in 0..cell.rounds {
        // Another one begins each time: the first after a pause has colder caches.
        let count = measured.len();
        for turn in 0..count {
            let (measured, shots) = &mut measured[(round + turn) % count];
            measured.round(servers, cell, shots).await;
        }
    }
    Ok(measured.into_iter().map(|(measured, _)| measured).collect())
}

/// How long the answer to a LIST is, in bytes: all objects as they are, or what Repot answers of them.
async fn listed_bytes(servers: &Servers, cell: &Cell, resident: usize) -> Result<usize> {
    let Operation::List(Form::Metadata | Form::Table) = cell.operation else { return Ok(resident) };
    let one = Limit { connections: 1, time: Duration::ZERO, requests: 1 };
    let round = servers.line(Side::Direct).load(&cell.shots(Side::Direct, 0)?, 0, one).await;
    match round.failures.first() {
        Some(failure) => bail!("failed to list: {failure}"),
        None => Ok(usize::try_from(round.received)?),
    }
}

impl Measured {
    fn new(side: Side) -> Self {
        Self { side, rounds: Vec::new(), cpu: BTreeMap::new(), machine: proc::MachineCpu::default() }
    }

    async fn round(&mut self, servers: &mut Servers, cell: &Cell, shots: &Shots) {
        let (cpu, machine) = (programs_cpu(servers), proc::machine_cpu());
        let round = match cell.arrivals {
            Some(rate) => offer(servers.line(self.side), shots, rate, cell.time).await,
            None => fire(servers.line(self.side), shots, cell.limit()).await,
        };
        for (program, used) in programs_cpu(servers) {
            *self.cpu.entry(program).or_default() += used - cpu.get(program).copied().unwrap_or(used);
        }
        let now = proc::machine_cpu();
        self.machine.busy += now.busy - machine.busy;
        self.machine.total += now.total - machine.total;
        clean_up(servers, cell, self.side, &round).await;
        self.rounds.push(round);
    }
}

async fn load(line: &Line, shots: &Shots, limit: Limit, servers: &Servers, cell: &Cell, side: Side) {
    let round = fire(line, shots, limit).await;
    clean_up(servers, cell, side, &round).await;
}

async fn offer(line: &Line, shots: &Shots, rate: f64, time: Duration) -> Round {
    let round = line.offer(shots, NUMBERS.load(Ordering::Relaxed), rate, time).await;
    NUMBERS.store(round.sequence.1, Ordering::Relaxed);
    round
}

async fn fire(line: &Line, shots: &Shots, limit: Limit) -> Round {
    let round = line.load(shots, NUMBERS.load(Ordering::Relaxed), limit).await;
    NUMBERS.store(round.sequence.1, Ordering::Relaxed);
    round
}

/// Deletes what a round created; not measured. What failed to be created is missing, so failures mean nothing here.
async fn clean_up(servers: &Servers, cell: &Cell, side: Side, round: &Round) {
    if !matches!(cell.operation, Operation::Create(_) | Operation::Mix(_)) || side == Side::Null {
        return;
    }
    let owner = if side == Side::Aggregated { Side::Direct } else { side };
    let (from, to) = round.sequence;
    let requests = ((to - from) as usize).div_ceil(cell.connections);
    let limit = Limit { connections: cell.connections, time: FOREVER, requests };
    servers.line(owner).load(&cells::delete_from(owner.collection(WRITTEN)), from, limit).await;
}

fn programs_cpu(servers: &mut Servers) -> BTreeMap<&'static str, f64> {
    let own = [(LOADER, std::process::id())];
    let all = servers.pids().into_iter().chain(own);
    all.map(|(program, pid)| (program, proc::cpu_seconds(pid))).collect()
}

/// Creates the objects that are read one by one.
pub async fn prepare_reads(servers: &Servers) -> Result<()> {
    let limit = Limit { connections: 1, time: FOREVER, requests: READ_OBJECTS as usize };
    for kind in Kind::COMMON.into_iter().chain(Kind::LARGE).chain(Kind::SMALL) {
        for side in servers.keepers().into_iter().chain([Side::ConfigMap]) {
            let taken = match side {
                Side::Crd => !Kind::LARGE.contains(&kind),
                Side::ConfigMap => kind == Kind::COMMON[2],
                _ => true,
            };
            if !taken {
                continue;
            }
            let body = Body::generate(side, READ, kind.bytes, kind.payload, 11)?;
            let shots = cells::create_in(side.collection(READ), body);
            let round = servers.line(side).load(&shots, kind.first_number(), limit).await;
            if let Some(failure) = round.failures.first() {
                bail!("failed to create {} at {}: {failure}", kind.name(), side.name());
            }
        }
    }
    Ok(())
}

/// What a CRD answers to an object of 10 MB.
///
/// Errors: when it takes the object after all.
pub async fn observe_refusal(servers: &Servers) -> Result<String> {
    let kind = Kind::LARGE[0];
    let body = Body::generate(Side::Crd, WRITTEN, kind.bytes, kind.payload, 7)?;
    let shots = cells::create_in(Side::Crd.collection(WRITTEN), body);
    let limit = Limit { connections: 1, time: Duration::ZERO, requests: 1 };
    let round = servers.line(Side::Crd).load(&shots, 0, limit).await;
    round.failures.into_iter().next().context("the CRD took an object of 10 MB")
}
