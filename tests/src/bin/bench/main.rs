//! Repot side by side with a CRD: `make bench`, or `make bench BENCH="--quick --output json"`; its webhooks side by side with a
//! ValidatingAdmissionPolicy: `make bench BENCH=admission`; snapshots side by side with the tools of etcd and with
//! etcd-backup-restore: `make bench BENCH="snapshots --size 200MB"`; many objects and watchers: `make bench BENCH=scale`; what
//! rests, keys, overload and `kill -9`: `make bench BENCH=storage`; one user's requests while others attack:
//! `make bench BENCH=abuse`; an etcd behind the proxy of its guard: `make bench BENCH=client-proxy`; a
//! kube-apiserver behind the watchdog proxy: `make bench BENCH=watchdog`; ShootStates that are kept up to date beside a controller that
//! rewrites whole objects: `make bench BENCH=shootstate`; live moves beside classic ones: `make bench BENCH=live`.
//!
//! One run starts a real kube-apiserver with an etcd that syncs to disk, Repot with its embedded store (also with full
//! durability), the null server and a CRD of the same schema, and lets the same load generator ask all of them in turns.

mod abuse;
mod admission;
mod body;
mod cells;
mod client_proxy;
mod live;
mod load;
mod memory;
mod proc;
mod recorded;
mod report;
mod run;
mod scale;
mod servers;
mod shootstate;
mod snapshots;
mod storage;
mod watchdog;

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand, ValueEnum};
use repot_tests::states::MachineState;
use repot_tests::{TestEnv, binaries, tool};
use serde_json::{Value, json};

use cells::{Cell, READ, RESIDENT, Scale, WRITTEN};
use servers::Servers;

/// Bytes of a resident object.
const RESIDENT_BYTES: usize = 400_000;

/// Measure Repot, directly and behind kube-apiserver, beside a CRD of the same schema and a server that does nothing.
#[derive(Parser)]
struct Flags {
    /// Fewer and shorter rounds, fewer resident objects
    #[arg(long, global = true)]
    quick: bool,
    /// Form of the report on standard output
    #[arg(long, global = true, value_enum, default_value_t = Output::Markdown)]
    output: Output,
    /// Only cells whose name contains this, such as "POST 1 MB"
    #[arg(long, global = true, value_name = "TEXT")]
    only: Option<String>,
    /// Rounds of each cell [default: 5, quick: 3]
    #[arg(long, global = true, value_name = "N")]
    rounds: Option<usize>,
    /// Milliseconds of a round of one side [default: 1200, quick: 400]
    #[arg(long, global = true, value_name = "N")]
    millis: Option<u64>,
    /// Connections of the cells that are not about one client
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    connections: u16,
    /// Resident objects of 400 KB that are listed [default: 300, quick: 100]
    #[arg(long, value_name = "N")]
    objects: Option<usize>,
    /// Form of the machine state in realistic objects: gzip as gardenlet has it, or plain JSON, which costs a CRD more
    #[arg(long, value_enum, default_value_t = Machines::Gzip)]
    machine_state: Machines,
    /// Measure another program `repot` in the same run, such as that of an earlier commit; the report tells where it is faster
    #[arg(long, value_name = "FILE")]
    beside: Option<PathBuf>,
    /// Keep this run as the record that later runs are compared with; the first run is kept in any case
    #[arg(long, global = true)]
    record: bool,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Markdown,
    Json,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Machines {
    Gzip,
    Plain,
}

#[derive(Subcommand)]
enum Role {
    /// Measure one user's requests while others attack
    Abuse(abuse::Flags),
    /// Measure the webhook beside a ValidatingAdmissionPolicy and beside a server that only reads the body
    Admission,
    /// Measure an etcd behind the proxy of its guard beside the same etcd asked directly
    ClientProxy,
    /// Measure live moves of a whole control plane beside classic ones; as root, since Pods get network namespaces
    Live(live::Flags),
    /// Measure snapshots beside etcdctl, etcdutl, cp and, where `tests/go/build etcdbrctl` built it, etcd-backup-restore
    Snapshots(snapshots::Flags),
    /// Measure many objects and many watchers, with chunks in an object store
    Scale(scale::Flags),
    /// Measure ShootStates that are kept up to date beside a controller that rewrites whole objects
    Shootstate(shootstate::Flags),
    /// Measure what rests, keys, watches, overload and `kill -9`, beside a CRD
    Storage(storage::Flags),
    /// Measure a kube-apiserver behind the watchdog proxy beside the same one asked directly
    Watchdog,
    /// Serve as the null server; the benchmark starts itself so
    #[command(hide = true)]
    NullServer { cert: PathBuf, key: PathBuf },
    /// Keep ShootStates up to date by rewriting them; the benchmark starts itself so
    #[command(hide = true)]
    WholeObjects { seed: PathBuf, garden: PathBuf, told: PathBuf },
}

impl Role {
    /// The name of the record of its runs.
    fn name(&self) -> &'static str {
        match self {
            Self::Abuse(_) => "abuse",
            Self::Admission => "admission",
            Self::ClientProxy => "client-proxy",
            Self::Live(_) => "live",
            Self::Snapshots(_) => "snapshots",
            Self::Scale(_) => "scale",
            Self::Shootstate(_) => "shootstate",
            Self::Storage(_) => "storage",
            Self::Watchdog => "watchdog",
            Self::NullServer { .. } | Self::WholeObjects { .. } => "none",
        }
    }
}

fn main() -> Result<()> {
    let flags = Flags::parse();
    // Fails only when it is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if let Some(Role::NullServer { cert, key }) = &flags.role {
        return runtime.block_on(servers::serve_null(cert, key));
    }
    if let Some(Role::WholeObjects { seed, garden, told }) = &flags.role {
        return runtime.block_on(shootstate::whole::run(seed, garden, told));
    }
    // It would be passed over silently.
    anyhow::ensure!(
        flags.beside.is_none() || flags.role.is_none(),
        "--beside measures requests alone: leave the subcommand out"
    );
    body::choose_machine_state(match flags.machine_state {
        Machines::Gzip => MachineState::Gzip,
        Machines::Plain => MachineState::Plain,
    });
    let repot = choose_program()?;
    let env = TestEnv::new("bench")?;
    let mut broken = Vec::new();
    let (markdown, json) = match flags.role {
        Some(Role::Abuse(ref own)) => {
            let report = runtime.block_on(abuse::bench(&env, own, flags.only.as_deref()))?;
            broken = abuse::broken_promises(&report);
            (report.to_markdown(), report.to_json())
        }
        Some(Role::Admission) => {
            let report =
                runtime.block_on(admission::bench(&env, flags.admission_scale(), flags.only.as_deref()))?;
            (report.to_markdown(), report.to_json())
        }
        Some(Role::Snapshots(ref own)) => {
            let (rounds, only) = (flags.scale().rounds, flags.only.as_deref());
            let report = runtime.block_on(snapshots::bench(&env, own.clone(), &repot, rounds, only))?;
            (report.to_markdown(), report.to_json())
        }
        Some(Role::Live(ref own)) => {
            let report = runtime.block_on(live::bench(&env, own))?;
            (report.to_markdown(), report.to_json())
        }
        Some(Role::ClientProxy) => {
            let (scale, only) = (flags.scale(), flags.only.as_deref());
            let report =
                runtime.block_on(client_proxy::bench(&env, &repot, scale.rounds, scale.time, only))?;
            (report.to_markdown(), report.to_json())
        }
        Some(Role::Watchdog) => {
            let (scale, only) = (flags.scale(), flags.only.as_deref());
            let report = runtime.block_on(watchdog::bench(&env, &repot, scale.rounds, scale.time, only))?;
            (report.to_markdown(), report.to_json())
        }
        Some(Role::Scale(ref own)) => {
            let report = runtime.block_on(scale::bench(&env, own))?;
            (report.to_markdown(), report.to_json())
        }
        Some(Role::Shootstate(ref own)) => {
            let report = runtime.block_on(shootstate::bench(&env, own, &repot))?;
            (report.to_markdown(), report.to_json())
        }
        Some(Role::Storage(ref own)) => {
            let (rounds, only) = (flags.scale().rounds, flags.only.as_deref());
            let report = runtime.block_on(storage::bench(&env, own, rounds, only))?;
            (report.to_markdown(), report.to_json())
        }
        _ => {
            let report = runtime.block_on(bench(&env, &flags, &repot))?;
            (report.to_markdown(), report.to_json())
        }
    };
    match flags.output {
        Output::Markdown => println!("{markdown}"),
        Output::Json => println!("{}", serde_json::to_string_pretty(&json)?),
    }
    anyhow::ensure!(broken.is_empty(), "beyond what is promised: {}", broken.join("; "));
    // Last: what was measured is printed already, whatever is wrong with the record.
    let record = recorded::path(&repot, flags.role.as_ref().map_or("requests", Role::name))?;
    eprintln!("{}", recorded::compare(&record, &json, flags.record)?);
    Ok(())
}

/// The Repot under test: `$REPOT_BIN`, else the one beside this program. The testbed looks at the variable only, so this
/// program starts itself again with it.
fn choose_program() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("REPOT_BIN") {
        return Ok(path.into());
    }
    let own = std::env::current_exe()?;
    let repot = own.with_file_name("repot");
    anyhow::ensure!(repot.is_file(), "{} is missing: `cargo build --release -p repot`", repot.display());
    Err(Command::new(own).args(std::env::args_os().skip(1)).env("REPOT_BIN", repot).exec().into())
}

async fn bench(env: &TestEnv, flags: &Flags, repot: &PathBuf) -> Result<report::Report> {
    let start = Instant::now();
    let scale = flags.scale();
    let objects = flags.objects.unwrap_or(if flags.quick { 100 } else { 300 });
    let mut setting = proc::describe_machine(env.path())?;
    let connections = scale.connections.max(64);
    let namespaces = [RESIDENT, READ, WRITTEN];
    let mut servers = Servers::start_beside(env, &namespaces, connections, flags.beside.as_deref()).await?;
    say(start, "servers are up");
    let memory = memory::measure(&mut servers, objects, RESIDENT_BYTES).await?;
    let resident = memory.resident_bytes;
    say(start, "memory is measured");
    run::prepare_reads(&servers).await?;
    let mut rows = Vec::new();
    for cell in flags.cells(scale) {
        let own = report::rows(&cell, &run::measure(&mut servers, &cell, resident).await?);
        say(start, &cell.name());
        // Half of what the slowest can do, which nobody has to queue for.
        let rate = cell.arrives().then(|| report::rate(&own, servers::Side::Crd)).flatten();
        rows.extend(own);
        if let Some(rate) = rate {
            let cell = cell.at(rate / 2.0);
            rows.extend(report::rows(&cell, &run::measure(&mut servers, &cell, resident).await?));
            say(start, &cell.name());
        }
    }
    let refusal = Some(run::observe_refusal(&servers).await?);
    say_unless_stopped(servers.stop().await);
    for (name, value) in [
        ("loadAfter", proc::load().into()),
        ("versions", versions(repot).await?),
        ("machineState", format!("{:?}", flags.machine_state).to_lowercase().into()),
        ("rounds", scale.rounds.into()),
        ("millisecondsOfARound", (scale.time.as_millis() as u64).into()),
        ("residentObjects", format!("{objects} of {RESIDENT_BYTES} bytes").into()),
        ("secondsInAll", start.elapsed().as_secs().into()),
    ] {
        setting[name] = value;
    }
    Ok(report::Report { setting, memory: Some(memory), rows, refusal })
}

/// No reason to lose what was measured.
fn say_unless_stopped(outcome: Result<()>) {
    if let Err(error) = outcome {
        eprintln!("Repot did not stop as asked: {error:#}");
    }
}

impl Flags {
    fn scale(&self) -> Scale {
        let (rounds, millis) = if self.quick { (3, 400) } else { (5, 1200) };
        Scale {
            connections: self.connections.into(),
            time: Duration::from_millis(self.millis.unwrap_or(millis)),
            rounds: self.rounds.unwrap_or(rounds).max(1),
        }
    }

    fn admission_scale(&self) -> admission::Scale {
        let Scale { rounds, time, .. } = self.scale();
        admission::Scale { rounds, time }
    }

    fn cells(&self, scale: Scale) -> Vec<Cell> {
        let mut cells = cells::all(scale);
        cells.push(cells::lists_at_once(5, if self.quick { 1 } else { 3 }));
        if let Some(text) = &self.only {
            cells.retain(|cell| cell.name().contains(text.as_str()));
        }
        if self.beside.is_some() {
            cells = cells.into_iter().map(Cell::beside_earlier).collect();
        }
        cells
    }
}

fn say(start: Instant, what: &str) {
    eprintln!("{:6.1} s  {what}", start.elapsed().as_secs_f64());
}

async fn versions(repot: &PathBuf) -> Result<Value> {
    let mut versions = Vec::new();
    for program in [repot, &binaries::find("kube-apiserver")?, &binaries::find("etcd")?] {
        let mut command = tokio::process::Command::new(program);
        command.arg("--version");
        let text = tool::run(command, b"").await?.text()?;
        versions.push(text.lines().next().context("a program tells no version")?.to_owned());
    }
    Ok(json!(versions.join(", ")))
}
