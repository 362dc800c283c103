//! The flows, one function each: what a person does, what is waited for, and what is looked at afterwards.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use repot_tests::landscape::isolations::{self, ZONE};
use repot_tests::landscape::requests::{Requests, Written};
use repot_tests::landscape::world::{SEEDS, Workload, World};
use repot_tests::landscape::{forced, story};
use repot_tests::wait::until;
use serde_json::{Value, json};

use crate::faults::Kind;
use crate::follow::{Follower, Object};
use crate::injection::{resume_seed, stop_seed};
use crate::proofs::{self, Loss};
use crate::report::{Proof, Window};
use crate::view::View;

const NAME: &str = "move";
/// How long a step may take that is kept from being reached.
const SHORT_STEP_TIMEOUT: &str = "90s";
/// What remains is removed, and clients are answered, within this time.
const DEADLINE: Duration = Duration::from_secs(600);
const SUCCEEDED: &[&str] = &["Succeeded"];
/// A person may call off what does not go on.
const ROLLED_BACK: &[&str] = &["RolledBack", "Cancelled"];
const EITHER: &[&str] = &["Succeeded", "RolledBack", "Cancelled"];
const FAILBACK_DONE: &[&str] = &["Failback Done"];

/// What was seen of a flow.
pub struct Seen {
    /// The flow at its end.
    pub view: View,
    /// How it may end.
    pub may_end: &'static [&'static str],
    /// Times at which requests may fail.
    pub windows: Vec<Window>,
    /// What was looked at.
    pub checks: Vec<Proof>,
    /// The seed that has the control plane.
    pub seed: &'static str,
}

/// Where clients can reach the API at some seed all the time, and where one stops before the other one starts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outage {
    Never,
    Recorded,
}

/// A control plane moves while both seeds serve.
pub async fn live(follower: &mut Follower<'_>, before: &Workload) -> Result<Seen> {
    story::create_in_mode(follower.world, NAME, SEEDS, ("Live", step_timeout(follower))).await?;
    let view = follower.until(Object::Migration(NAME), |_| false).await?;
    judge(follower, before, view, Outage::Never).await
}

/// A control plane stops at one seed and starts at the other.
pub async fn classic(follower: &mut Follower<'_>, before: &Workload) -> Result<Seen> {
    story::create_in_mode(follower.world, NAME, SEEDS, ("Classic", step_timeout(follower))).await?;
    let view = follower.until(Object::Migration(NAME), |_| false).await?;
    judge(follower, before, view, Outage::Recorded).await
}

fn step_timeout(follower: &Follower<'_>) -> &'static str {
    let is_short = follower.injection.as_ref().is_some_and(|one| one.fault().kind == Kind::Never);
    if is_short { SHORT_STEP_TIMEOUT } else { story::STEP_TIMEOUT }
}

/// How a migration may end.
fn may_end(follower: &Follower<'_>) -> &'static [&'static str] {
    match follower.injection.as_ref().map(|one| one.fault().kind) {
        None | Some(Kind::Kill) => SUCCEEDED,
        Some(Kind::Never) => ROLLED_BACK,
        Some(Kind::StopSeed | Kind::Link) => EITHER,
    }
}

/// What is promised of a migration with both seeds, however it has ended.
async fn judge(follower: &mut Follower<'_>, before: &Workload, view: View, outage: Outage) -> Result<Seen> {
    let world = follower.world;
    end_fault(follower).await?;
    until_answered(follower.requests).await?;
    let has_moved = view.phase == "Succeeded";
    let seed = if has_moved { SEEDS.1 } else { SEEDS.0 };
    let mut checks = vec![ended(&view, may_end(follower))];
    checks.extend(proofs::writes(world, follower.requests, seed, Loss::Nothing).await);
    checks.push(proofs::workload(world, before).await);
    checks.push(match has_moved {
        true => proofs::moved(world, before, SEEDS).await,
        false => proofs::stayed(world, SEEDS.1).await,
    });
    let mut windows = Vec::new();
    if let Some(away) = view.outage().filter(|_| outage == Outage::Recorded) {
        let to = away.to.unwrap_or_else(Timestamp::now);
        windows.push(Window {
            why: "kube-apiservers of one seed stop before others serve".to_owned(),
            from: away.from,
            to,
        });
    }
    windows.extend(window_of_fault(follower));
    checks.extend(check_of_fault(follower));
    Ok(Seen { may_end: may_end(follower), view, windows, checks, seed })
}

/// A control plane leaves a seed that does not answer, and that comes back later.
pub async fn forced(follower: &mut Follower<'_>, before: &Workload) -> Result<Seen> {
    let world = follower.world;
    follower.progress.status("until the ShootState and a snapshot hold what is there");
    forced::until_state_is_stored(world).await?;
    forced::until_workload_is_stored(world, SEEDS.0).await?;
    let at_source = world.shoot.control_plane.api_at(world.landscape.seed(SEEDS.0)?).await?;
    let stopped = Timestamp::now();
    let containers = stop_seed(world, SEEDS.0).await?;
    follower.progress.line("seed-a stands still: its kube-apiserver and all Pods of the Shoot");
    let at_stop = written_at_stop(follower.requests).await?;
    story::create_in_mode(world, NAME, SEEDS, ("Forced", story::STEP_TIMEOUT)).await?;
    let confirm =
        json!({"confirmation.gardener.cloud/forced-migration": SEEDS.0, forced::SOURCE_STOPPED: SEEDS.0});
    story::annotate(world, NAME, &confirm).await?;
    follower.progress.line("confirmed: what seed-a has not stored is lost, and nobody acts there");
    let view = follower.until(Object::Migration(NAME), |_| false).await?;
    until_answered(follower.requests).await?;
    end_fault(follower).await?;
    // A client that knows the former address goes on to ask there.
    let late = Requests::start(vec![at_source]);
    resume_seed(world, SEEDS.0, &containers)?;
    follower.progress.line("seed-a goes on; it must serve nothing, and what is left there is removed");
    follower.progress.status("seed-a goes on, and is cleared");
    let gone = until("the source to be removed", DEADLINE, async || world.ensure_gone(SEEDS.0).await).await;
    let mut checks = vec![ended(&view, may_end(follower)), silent(&late)];
    drop(late);
    checks.extend(proofs::writes(world, follower.requests, SEEDS.1, Loss::NewestOf(&at_stop)).await);
    checks.push(proofs::workload(world, before).await);
    checks.push(Proof::of(
        "nothing of the Shoot is left at a source that comes back",
        gone.map(|()| "its namespace and BackupEntry are gone".to_owned()),
    ));
    let back = view.completed("ApiDnsSwitched").unwrap_or_else(Timestamp::now);
    let mut windows = vec![Window { why: "the source stands still".to_owned(), from: stopped, to: back }];
    windows.extend(window_of_fault(follower));
    checks.extend(check_of_fault(follower));
    Ok(Seen { may_end: may_end(follower), view, windows, checks, seed: SEEDS.1 })
}

/// What the source had acknowledged when it stood still. Every client has waited in vain by then, so no acknowledgement is on its way.
async fn written_at_stop(requests: &Requests) -> Result<BTreeMap<String, Written>> {
    let clients = requests.clients();
    until("all clients to wait in vain", DEADLINE, async || {
        let failed = requests.failures().len();
        ensure!(failed >= clients, "{failed} requests have failed");
        Ok(())
    })
    .await?;
    Ok(requests.written())
}

/// Nothing was acknowledged by a source that has come back.
fn silent(late: &Requests) -> Proof {
    let (count, what) = (late.count(), "a source that comes back acknowledges nothing");
    let failed = count.failed.len();
    Proof::of(
        what,
        match count.answered {
            0 => Ok(format!("{failed} requests to its former address failed")),
            answered => Err(anyhow::anyhow!("{answered} requests to its former address were answered")),
        },
    )
}

/// A zone is left and used again.
pub async fn isolate(follower: &mut Follower<'_>) -> Result<Seen> {
    let world = follower.world;
    let before = isolations::machines(world).await?;
    isolations::annotate(world, &json!(ZONE.0)).await?;
    follower.progress.line(&format!("the Shoot has the annotation {}={}", isolations::ANNOTATION, ZONE.0));
    let left = follower.until(Object::Isolation, |view| view.phase == "Failover Done").await?;
    let during = isolations::machines(world).await?;
    let is_cut = is_cut_off(world);
    follower.progress.line("the annotation is removed: the zone is used again");
    isolations::annotate(world, &Value::Null).await?;
    let view = follower.until(Object::Isolation, |_| false).await?;
    end_fault(follower).await?;
    let after = until("a machine in the zone", DEADLINE, async || {
        let after = isolations::machines(world).await?;
        ensure!(after.len() == before.len() && after.iter().any(is_in_zone), "{after:?}");
        Ok(after)
    })
    .await;
    until_answered(follower.requests).await?;
    let mut checks = vec![
        ended(&left, &["Failover Done"]),
        empty(&before, &during),
        Proof::of(
            "the networks of the zone were cut off",
            is_cut.then(|| ZONE.1.to_owned()).context("they were not"),
        ),
        ended(&view, FAILBACK_DONE),
        Proof::of(
            "machines of other zones are the same, and the zone is used again",
            after.and_then(|after| same(&before, &after)),
        ),
        Proof::of(
            "no network is cut off any more",
            (!is_cut_off(world)).then(|| "none is".to_owned()).context("one is"),
        ),
    ];
    checks.extend(proofs::writes(world, follower.requests, SEEDS.0, Loss::Nothing).await);
    checks.extend(check_of_fault(follower));
    let windows = window_of_fault(follower).into_iter().collect();
    Ok(Seen { may_end: FAILBACK_DONE, view, windows, checks, seed: SEEDS.0 })
}

type Machines = std::collections::BTreeSet<(String, String)>;

fn is_cut_off(world: &World) -> bool {
    world.landscape.providers.networks.isolated_of(&world.name().technical_id()).is_some()
}

/// The zone is the second one of the Shoot.
fn is_in_zone((_, zone): &(String, String)) -> bool {
    zone == "z2"
}

fn others(machines: &Machines) -> Machines {
    machines.iter().filter(|one| !is_in_zone(one)).cloned().collect()
}

/// No machine was left in the zone, and those of other zones stayed.
fn empty(before: &Machines, during: &Machines) -> Proof {
    let look = || {
        ensure!(!during.iter().any(is_in_zone), "there were {during:?}");
        ensure!(during.len() == before.len(), "before {before:?}, then {during:?}");
        ensure!(others(before).is_subset(during), "before {before:?}, then {during:?}");
        Ok(format!("{} machines, all in other zones", during.len()))
    };
    Proof::of("no machine was left in the zone, and there were as many as before", look())
}

fn same(before: &Machines, after: &Machines) -> Result<String> {
    ensure!(others(before) == others(after), "before {before:?}, after {after:?}");
    Ok(format!("{} machines", after.len()))
}

fn ended(view: &View, may: &[&str]) -> Proof {
    let what = format!("the flow ends as {}", may.join(" or "));
    let is_right = may.contains(&view.phase.as_str());
    Proof::of(
        &what,
        match is_right {
            true => Ok(view.phase.clone()),
            false => Err(anyhow::anyhow!("it ended as {}: {}", view.phase, view.message)),
        },
    )
}

/// Waits until clients are answered again, by wherever the control plane is now.
async fn until_answered(requests: &Requests) -> Result<()> {
    let before = requests.count().answered;
    until("clients to be answered", DEADLINE, async || {
        let now = requests.count().answered;
        ensure!(now > before, "nobody is answered");
        Ok(())
    })
    .await
}

/// A fault that lasts longer than the flow ends with it.
async fn end_fault(follower: &mut Follower<'_>) -> Result<()> {
    if let Some(injection) = &mut follower.injection
        && let Some(text) = injection.end().await?
    {
        follower.progress.line(&text);
    }
    Ok(())
}

fn window_of_fault(follower: &Follower<'_>) -> Option<Window> {
    let injection = follower.injection.as_ref().filter(|one| one.fault().excuses_failures())?;
    let (from, to) = injection.times()?;
    Some(Window { why: format!("the fault {}", injection.fault().name()), from, to })
}

/// A rehearsal of a fault that never began has shown nothing.
fn check_of_fault(follower: &Follower<'_>) -> Option<Proof> {
    let injection = follower.injection.as_ref()?;
    let outcome = injection.times().map(|(from, to)| format!("from {from} to {to}"));
    let outcome = outcome.with_context(|| format!("{} was never started", injection.fault().step));
    Some(Proof::of(&format!("the fault {} was brought about", injection.fault().name()), outcome))
}
