//! `make rehearse ARGS="live --rtt 180ms"`: a flow on a landscape of this machine, under load, with a report. `repot rehearse` runs it.
//!
//! | file | has |
//! |---|---|
//! | `arguments.rs` | the command line |
//! | `directory.rs` | the directory with everything that is written |
//! | `ground.rs` | the landscape and its Shoot |
//! | `flow.rs` | the flows, one function each |
//! | `follow.rs`, `view.rs` | a flow as it is seen from outside |
//! | `faults.rs`, `injection.rs` | what can go wrong, and how it is brought about |
//! | `proofs.rs` | what is looked at after the flow |
//! | `machine.rs` | how busy this machine was |
//! | `report/` | the report |
//! | `progress.rs` | what a person sees meanwhile |

mod arguments;
mod directory;
mod faults;
mod flow;
mod follow;
mod ground;
mod injection;
mod machine;
mod progress;
mod proofs;
mod report;
mod view;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use jiff::Timestamp;
use repot_console::timeline::{Charset, svg_of, text_of};
use repot_tests::TestEnv;
use repot_tests::landscape::requests::Requests;
use repot_tests::landscape::world::World;
use repot_tests::wait::until;
use tokio::signal::unix::{SignalKind, signal};

use arguments::{Arguments, Flow, Output};
use directory::Directory;
use faults::{Fault, FaultRequest};
use flow::Seen;
use follow::Follower;
use injection::Injection;
use progress::Progress;
use report::{Report, RequestsReport, Step};

/// Something was not as promised.
const NOT_PROVED: u8 = 3;
const USAGE: u8 = 2;
/// A signal has ended it, as shells count.
const INTERRUPTED: u8 = 130;
/// So many clients ask at the same time.
const CLIENTS: u32 = 4;
const TIMELINE_WIDTH: u32 = 100;
/// Clients are answered within this time, before the flow begins.
const DEADLINE: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let fault = match &arguments.fault {
        None => None,
        Some(FaultRequest::List) => {
            print!("{}", faults::list(arguments.flow));
            return ExitCode::SUCCESS;
        }
        Some(FaultRequest::Of { step, kind }) => match Fault::find(arguments.flow, step, kind) {
            Ok(fault) => Some(fault),
            Err(refusal) => {
                // Prints, and ends with exit code 2.
                Arguments::command().error(ErrorKind::ValueValidation, refusal).exit();
            }
        },
    };
    match start(&arguments, fault) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("repot rehearse: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(arguments: &Arguments, fault: Option<Fault>) -> Result<ExitCode> {
    ground::check_machine()?;
    let directory = match Directory::open(&arguments.directory) {
        Ok(directory) => directory,
        Err(error) => {
            eprintln!("repot rehearse: {error:#}");
            return Ok(ExitCode::from(USAGE));
        }
    };
    // Fails only when a provider is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (env, progress) = (directory.env()?, Progress::start());
    let mut code = None;
    let outcome = runtime.block_on(async {
        tokio::select! {
            outcome = run(arguments, fault, (&env, &directory), &progress, &mut code) => outcome,
            outcome = interrupted() => outcome,
        }
    });
    progress.line("everything is ended");
    progress.clear();
    // What was started has ended when its values were dropped; background tasks end with the runtime.
    runtime.shutdown_background();
    directory.finish(env)?;
    outcome?;
    Ok(ExitCode::from(code.unwrap_or(INTERRUPTED)))
}

/// Returns on SIGINT, SIGTERM, and SIGHUP, which comes when a terminal is closed.
async fn interrupted() -> Result<()> {
    let (mut interrupt, mut terminate, mut hang_up) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hang_up.recv() => {}
    }
    Ok(())
}

/// The whole rehearsal; `code` gets the exit code when the report is there.
async fn run(
    arguments: &Arguments,
    fault: Option<Fault>,
    (env, directory): (&TestEnv, &Directory),
    progress: &Progress,
    code: &mut Option<u8>,
) -> Result<()> {
    let world = ground::start(env, directory, arguments.flow, progress).await?;
    if let Some(bytes) = arguments.size {
        progress.line(&format!("{} MB are stored in the etcd of the Shoot", bytes / 1_000_000));
        progress.status("storing");
        world.fill(usize::try_from(bytes >> 20)?).await?;
    }
    let apart = world.landscape.wide.set_apart(arguments.rtt);
    let (seen, report) = rehearse(arguments, fault, &world, progress).await?;
    drop(apart);
    ground::write_kubeconfigs(&world, directory, seen.seed).await?;
    let proved = report.proved;
    progress.clear();
    print(arguments, directory, &seen, &report)?;
    *code = Some(if proved { 0 } else { NOT_PROVED });
    if arguments.keep {
        for line in ground::explain_kept(&world, directory) {
            progress.line(&line);
        }
        ground::act_as_gardenlet(&world).await?;
    }
    Ok(())
}

/// The flow under load.
async fn rehearse(
    arguments: &Arguments,
    fault: Option<Fault>,
    world: &World,
    progress: &Progress,
) -> Result<(Seen, Report)> {
    let before = world.workload().await?;
    let requests = start_load(arguments.requests_per_second, world).await?;
    progress.line(&format!(
        "{} begins, under {} requests a second",
        arguments.flow.name(),
        arguments.requests_per_second
    ));
    let fault_name = fault.as_ref().map(Fault::name);
    let injection = fault.map(|fault| Injection::new(world, fault));
    let mut follower = Follower::new(world, progress, &requests, injection);
    let mut seen = match arguments.flow {
        Flow::Live => flow::live(&mut follower, &before).await?,
        Flow::Classic => flow::classic(&mut follower, &before).await?,
        Flow::Forced => flow::forced(&mut follower, &before).await?,
        Flow::Isolate => flow::isolate(&mut follower).await?,
    };
    let clients = RequestsReport::new(&requests.count(), &requests.failures(), &seen.windows);
    let mut checks = std::mem::take(&mut seen.checks);
    checks.insert(1, clients.proof());
    let report = Report {
        flow: arguments.flow.name(),
        round_trip_millis: arguments.rtt.as_millis(),
        stored_bytes: arguments.size.unwrap_or_default(),
        requests_per_second: arguments.requests_per_second,
        fault: fault_name,
        ended: seen.view.phase.clone(),
        may_end: seen.may_end,
        machine: follower.machine,
        requests: clients,
        windows: seen.windows.clone(),
        api_outage: seen.view.outage().cloned(),
        steps: Step::all(&seen.view),
        proved: checks.iter().all(|check| check.holds),
        checks,
        not_proved: not_proved(arguments),
    };
    Ok((seen, report))
}

/// Starts clients, and waits until they are answered.
async fn start_load(per_second: u32, world: &World) -> Result<Requests> {
    let clients = CLIENTS.min(per_second);
    let apis = (0..clients).map(|_| world.api()).collect::<Result<Vec<_>>>()?;
    let requests = Requests::start_every(Duration::from_secs(1) * clients / per_second, apis);
    until("clients to be answered", DEADLINE, async || {
        let count = requests.count();
        ensure!(count.answered > u64::from(2 * clients), "{}", count.summary());
        Ok(())
    })
    .await?;
    Ok(requests)
}

/// Prints the report, and writes its files.
fn print(arguments: &Arguments, directory: &Directory, seen: &Seen, report: &Report) -> Result<()> {
    let now = Timestamp::now();
    let chart = seen.view.chart(now);
    let text = report.text(&text_of(&chart, TIMELINE_WIDTH, Charset::Unicode, now));
    let json = serde_json::to_string_pretty(report).context("failed to write the report as JSON")? + "\n";
    directory.write("report.txt", &text)?;
    directory.write("report.json", &json)?;
    directory.write("timeline.svg", &svg_of(&chart, now))?;
    print!("{}", if arguments.output == Output::Json { &json } else { &text });
    Ok(())
}

/// What this rehearsal cannot tell.
fn not_proved(arguments: &Arguments) -> Vec<String> {
    let mut lines = vec![
        "networks, load balancers and disks of a cloud: all seeds are on this machine, and relays delay what they say".to_owned(),
        "kubelets: nodes are processes that join the cluster and renew their Leases".to_owned(),
        "caches of names: clients here ask the DNS server for each new connection".to_owned(),
        format!("other loads than {} requests a second, and other sizes", arguments.requests_per_second),
    ];
    if arguments.flow == Flow::Forced {
        lines.push(
            "writes that the source had acknowledged and not stored in its bucket: they are lost".to_owned(),
        );
    }
    if arguments.fault.is_none() {
        lines.push("faults: `--fault list` shows those that can be rehearsed".to_owned());
    }
    lines
}
