//! Live moves of a whole control plane, by size of its etcd and distance of the seeds, beside classic moves of the same control plane, and
//! beside an etcd alone whose members are replaced by etcdctl.
//!
//! The landscape of the tests: a garden, two seeds, three members of etcd and two kube-apiservers on either side. A client writes through
//! the DNS name of the API all the time.

mod moves;
mod phases;
mod probe;
mod script;

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use repot_tests::TestEnv;
use repot_tests::landscape::{ControlPlaneOptions, Landscape, LandscapeOptions, ShootName};

use crate::proc;
use crate::storage::Report;
use moves::{Mode, Mover};

/// Options of this part alone.
#[derive(Args, Clone, Debug)]
pub struct Flags {
    /// MiB in the etcd of the control plane, one after the other, each more than the one before
    #[arg(long, value_delimiter = ',', default_value = "20,200", value_name = "MIB")]
    mib: Vec<usize>,
    /// Round trips between the seeds of live moves, in milliseconds
    #[arg(long, value_delimiter = ',', default_value = "0,30", value_name = "MILLIS")]
    round_trips: Vec<u64>,
}

/// Measures each move once: live ones by distance, and then a classic one and a script.
///
/// Errors: when a program is missing, or a move does not succeed.
pub async fn bench(env: &TestEnv, flags: &Flags) -> Result<Report> {
    let start = Instant::now();
    let mut report = Report { setting: proc::describe_machine(env.path())?, rows: Vec::new() };
    report.setting["asked"] = format!("{flags:?}").into();
    let landscape = Landscape::start(env, LandscapeOptions::default()).await?;
    let options = ControlPlaneOptions {
        etcd_members: 3,
        api_servers: 2,
        pools: vec![("worker-a".to_owned(), 1)],
        ..ControlPlaneOptions::default()
    };
    let name = ShootName::new("dev", "measured");
    let shoot = landscape.create_shoot(env, name, moves::SEEDS[0], options).await?;
    crate::say(start, "the control plane serves");
    let mut mover = Mover::new(&landscape, &shoot.control_plane)?;
    for mib in &flags.mib {
        mover.fill(*mib).await?;
        crate::say(start, "the etcd is filled");
        for millis in &flags.round_trips {
            let round_trip = Duration::from_millis(*millis);
            let apart = landscape.wide.set_apart(round_trip);
            let measured = mover.measure(Mode::Live).await?;
            drop(apart);
            measured.report(&mut report, &format!("{mib} MiB, {millis} ms apart"));
        }
        mover.measure(Mode::Classic).await?.report(&mut report, &format!("{mib} MiB"));
        script::bench(env, *mib, &mut report).await?;
    }
    report.setting["loadAfter"] = proc::load().into();
    report.setting["secondsInAll"] = start.elapsed().as_secs().into();
    landscape.stop_shoot(&shoot.control_plane.shoot, mover.seed()).await?;
    Ok(report)
}
