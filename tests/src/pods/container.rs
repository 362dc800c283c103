//! The life of one container: start, probes, end, and again after a pause that grows.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Container;
use k8s_openapi::jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::environment::{Data, Facts, expand, references, resolve};
use super::pod::Cell;
use super::probe::{self, Target};
use super::root::{COMPLETE, Invocation, Mount, Shape};
use super::roster::Running;
use super::security::Security;
use super::status::{End, Seen, State};
use super::volume;
use super::wire::API_IP;

/// How long a container that ended waits before it is started again: nothing at first, then `first`, and twice as long each time.
struct BackOff {
    first: Duration,
    longest: Duration,
    /// A container that ran for so long starts afresh.
    calm: Duration,
}

/// Short, so that tests need not wait for what starts in any order.
const SHORT: BackOff = BackOff {
    first: Duration::from_millis(250),
    longest: Duration::from_secs(5),
    calm: Duration::from_secs(10),
};
/// As a kubelet waits.
const KUBELET: BackOff = BackOff {
    first: Duration::from_secs(10),
    longest: Duration::from_secs(300),
    calm: Duration::from_secs(600),
};

/// When a container that ended is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restart {
    Always,
    OnFailure,
    Never,
}

/// Says that a pod is to stop, and how long that may take.
pub(super) type Stop = watch::Receiver<Option<Duration>>;

/// Why a container could not be started.
struct Refusal {
    reason: &'static str,
    message: String,
}

/// A container that runs.
struct Started {
    process: Running,
    invocation: Invocation,
}

/// Runs a container until it has ended for good; gives how it ended, or nothing when it never ran.
pub(super) async fn run(cell: &Cell, spec: &Container, restart: Restart, mut stop: Stop) -> Option<End> {
    let (mut pause, mut end) = (Duration::ZERO, None);
    let (mut first, mut longest) = (SHORT.first, SHORT.longest);
    while stop.borrow().is_none() {
        match start(cell, spec).await {
            Ok(started) => {
                let began = Instant::now();
                let ended = attend(cell, spec, &started, &mut stop).await;
                let back_off = if cell.life.waits_as_kubelet() { KUBELET } else { SHORT };
                (first, longest) = (back_off.first, back_off.longest);
                let over = stop.borrow().is_some() || !restart.follows(ended.code);
                end = Some(ended);
                if over {
                    return end;
                }
                pause = if began.elapsed() > back_off.calm { Duration::ZERO } else { pause };
                if !pause.is_zero() {
                    let message = format!("back-off {pause:?} restarting failed container {}", spec.name);
                    await_start(cell, spec, "CrashLoopBackOff", message);
                }
            }
            Err(refusal) => {
                await_start(cell, spec, refusal.reason, refusal.message);
                pause = pause.max(first);
            }
        }
        tokio::select! {
            () = sleep(pause) => pause = (pause * 2).clamp(first, longest),
            () = stopped(&mut stop) => {}
        }
    }
    end
}

/// Returns when the pod is to stop.
pub(super) async fn stopped(stop: &mut Stop) {
    // The sender lives as long as the pod; should it be gone, the pod is, too.
    let _ = stop.wait_for(Option::is_some).await;
}

impl Restart {
    fn follows(self, code: i32) -> bool {
        self == Self::Always || (self == Self::OnFailure && code != 0)
    }
}

/// Sees a container through one run, and notes its end.
async fn attend(cell: &Cell, spec: &Container, started: &Started, stop: &mut Stop) -> End {
    let began = Timestamp::now();
    note(cell, spec, |seen| {
        if let State::Ended(end) = &seen.state {
            seen.last = Some(end.clone());
        }
        seen.restarts = seen.starts;
        seen.starts += 1;
        seen.state = State::Running { since: began };
    });
    let process = &started.process;
    let (code, message) = tokio::select! {
        code = process.exit() => (code, String::new()),
        why = watch_health(cell, spec, started) => {
            let grace = cell.grace();
            (shut_down(spec, started, grace, stop).await, why)
        }
        () = stopped(stop) => {
            let grace = stop.borrow().unwrap_or_default();
            (shut_down(spec, started, grace, stop).await, String::new())
        }
    };
    let end = End { code, message, began, ended: Timestamp::now() };
    note(cell, spec, |seen| {
        seen.state = State::Ended(end.clone());
        (seen.ready, seen.started) = (false, false);
    });
    cell.life.ground.roster.end(&cell.name_of(spec), process);
    end
}

/// Follows the probes; ends with the reason when the container has to be started again.
async fn watch_health(cell: &Cell, spec: &Container, started: &Started) -> String {
    let target = Target {
        wire: &cell.life.ground.wire,
        ip: cell.sandbox.ip,
        container: spec,
        invocation: &started.invocation,
        pid: started.process.pid(),
    };
    let failed = |kind: &str, good: bool, why: String| {
        (!good).then(|| format!("container {} failed {kind} probe: {why}", spec.name))
    };
    if let Some(startup) = &spec.startup_probe {
        let judge = |good, why| Some(failed("startup", good, why));
        if let Some(why) = probe::watch(startup, &target, false, judge).await {
            return why;
        }
    }
    note(cell, spec, |seen| (seen.started, seen.ready) = (true, spec.readiness_probe.is_none()));
    let liveness = async {
        match &spec.liveness_probe {
            Some(liveness) => {
                probe::watch(liveness, &target, true, |good, why| failed("liveness", good, why)).await
            }
            None => std::future::pending().await,
        }
    };
    let readiness = async {
        match &spec.readiness_probe {
            Some(readiness) => {
                let tell = |good, _| {
                    note(cell, spec, |seen| seen.ready = good);
                    None::<()>
                };
                probe::watch(readiness, &target, false, tell).await;
            }
            None => std::future::pending().await,
        }
    };
    tokio::select! { why = liveness => why, () = readiness => String::new() }
}

/// Asks the container to stop, as its hook and its signal have it, and kills it when its time is over.
async fn shut_down(spec: &Container, started: &Started, grace: Duration, stop: &mut Stop) -> i32 {
    let mut deadline = Instant::now() + grace;
    let process = &started.process;
    let asked = async {
        if let Some(hook) = spec.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref()) {
            if let Some(pause) = &hook.sleep {
                sleep(Duration::from_secs(pause.seconds.try_into().unwrap_or_default())).await;
            }
            if let Some(exec) = &hook.exec {
                // A hook that fails does not keep a container alive.
                let argv = exec.command.clone().unwrap_or_default();
                let _ = timeout(grace, probe::run(argv, &started.invocation, process.pid())).await;
            }
        }
        process.terminate();
        std::future::pending::<()>().await;
    };
    tokio::pin!(asked);
    loop {
        tokio::select! {
            code = process.exit() => return code,
            () = &mut asked => {}
            () = sleep_until(deadline) => process.kill(),
            // Somebody is in more of a hurry than whoever asked first.
            Ok(()) = stop.changed() => {
                let grace = stop.borrow_and_update().unwrap_or(grace);
                deadline = deadline.min(Instant::now() + grace);
            }
        }
    }
}

async fn start(cell: &Cell, spec: &Container) -> Result<Started, Refusal> {
    let ground = &cell.life.ground;
    let name = spec.image.as_deref().unwrap_or_default();
    let image = ground.images.find(name).ok_or_else(|| Refusal {
        reason: "ErrImagePull",
        message: format!("image \"{name}\" is none of those that the test has given"),
    })?;
    let refused = |reason| move |error: anyhow::Error| Refusal { reason, message: format!("{error:#}") };
    let bad_config = || refused("CreateContainerConfigError");
    check_support(spec).map_err(bad_config())?;
    let security = Security::of(&cell.life.spec(), spec, image.user).map_err(bad_config())?;
    let mut env = image.env.clone();
    env.extend(environment(cell, spec).await.map_err(bad_config())?);
    let mut argv = spec.command.clone().unwrap_or_default();
    if argv.is_empty() {
        argv = image.entrypoint_of(security.user);
    }
    argv.extend(spec.args.iter().flatten().cloned());
    let argv = argv.iter().map(|word| expand(word, &env)).collect();
    let working_dir =
        spec.working_dir.clone().filter(|dir| !dir.is_empty()).unwrap_or_else(|| "/".to_owned());
    let mounts = mounts(cell, spec, &env, image.root.is_none()).map_err(bad_config())?;
    let invocation = Invocation { argv, working_dir, env, security };
    let shape = Shape {
        name: spec.name.clone(),
        host_name: cell.life.host_name(),
        namespaces: vec![format!("--net=/proc/{}/ns/net", cell.sandbox.pid()), ground.wire.mounts()],
        root: ground.root.clone(),
        mounts,
        image,
        command: invocation.clone(),
    };
    let process = launch(cell, spec, &shape).map_err(refused("RunContainerError"))?;
    // Before that, probes and hooks would run in the root of the machine.
    process.wait_for_file(COMPLETE).await;
    Ok(Started { process, invocation })
}

fn launch(cell: &Cell, spec: &Container, shape: &Shape) -> Result<Running> {
    let dir = cell.life.dir.join(&spec.name);
    std::fs::create_dir_all(&dir)?;
    cell.life.ground.roster.start(&cell.name_of(spec), dir, shape.spec())
}

/// What is not supported must not be overlooked in silence.
fn check_support(spec: &Container) -> Result<()> {
    let lifecycle = spec.lifecycle.as_ref();
    let hook = lifecycle.and_then(|lifecycle| lifecycle.pre_stop.as_ref());
    ensure!(lifecycle.is_none_or(|l| l.post_start.is_none()), "lifecycle.postStart is not supported");
    ensure!(hook.is_none_or(|hook| hook.http_get.is_none()), "lifecycle.preStop.httpGet is not supported");
    let probes = [&spec.startup_probe, &spec.liveness_probe, &spec.readiness_probe];
    let grpc = probes.into_iter().flatten().any(|probe| probe.grpc.is_some());
    ensure!(!grpc, "probes by grpc are not supported");
    ensure!(spec.volume_devices.is_none(), "volumeDevices are not supported");
    Ok(())
}

/// The environment: what every container has, and its own.
async fn environment(cell: &Cell, spec: &Container) -> Result<BTreeMap<String, String>> {
    let life = &cell.life;
    let (config_maps, secrets) = references(spec);
    let (client, namespace) = (&life.ground.client, &life.namespace);
    let (mut maps, mut kept) = (BTreeMap::<String, Data>::new(), BTreeMap::new());
    for name in config_maps {
        let found = volume::config_map(client, namespace, &name).await?;
        maps.extend(found.map(|data| (name, data)));
    }
    for name in secrets {
        let found = volume::secret(client, namespace, &name).await?;
        kept.extend(found.map(|data| (name, data)));
    }
    let pod = life.pod.borrow().clone();
    let facts = Facts {
        pod: &pod,
        pod_ip: cell.sandbox.ip,
        host_ip: life.host_ip(),
        config_maps: maps,
        secrets: kept,
    };
    let mut env = BTreeMap::from(
        [("HOSTNAME", life.host_name()), ("KUBERNETES_SERVICE_HOST", API_IP.to_string())]
            .map(|(name, value)| (name.to_owned(), value)),
    );
    env.insert("KUBERNETES_SERVICE_PORT".to_owned(), "443".to_owned());
    env.extend(resolve(spec, &facts)?);
    Ok(env)
}

/// Outer places come before those inside them. `machine`: whether the root is that of the machine.
fn mounts(
    cell: &Cell,
    spec: &Container,
    env: &BTreeMap<String, String>,
    machine: bool,
) -> Result<Vec<Mount>> {
    let mut mounts = Vec::new();
    for wanted in spec.volume_mounts.iter().flatten() {
        let volume = cell.volumes.get(&wanted.name);
        let mut source = volume.with_context(|| format!("there is no volume {}", wanted.name))?.clone();
        let within = wanted.sub_path_expr.as_ref().map(|text| expand(text, env)).or(wanted.sub_path.clone());
        if let Some(within) = within.filter(|path| !path.is_empty()) {
            let root = cell.life.ground.wire.seen_from_here(&source);
            make_sub_path(&root, &within)?;
            source = source.join(within);
        }
        let writable = wanted.read_only != Some(true);
        mounts.push(Mount { source, place: PathBuf::from(&wanted.mount_path), writable });
    }
    mounts.sort_by(|a, b| a.place.cmp(&b.place));
    let mut all = if machine { cell.life.ground.other_mounts.clone() } else { Vec::new() };
    for (name, place) in [("hosts", "/etc/hosts"), ("resolv.conf", "/etc/resolv.conf")] {
        all.push(Mount { source: cell.life.dir.join(name), place: place.into(), writable: true });
    }
    all.extend(mounts);
    Ok(all)
}

/// Makes a directory in a volume, which has the mode and the group of the volume.
fn make_sub_path(volume: &Path, within: &str) -> Result<()> {
    let path = volume.join(within);
    if !path.exists() {
        std::fs::create_dir_all(&path).with_context(|| format!("failed to make {}", path.display()))?;
        std::fs::set_permissions(&path, std::fs::metadata(volume)?.permissions())?;
    }
    Ok(())
}

/// Notes that a container will be started later.
fn await_start(cell: &Cell, spec: &Container, reason: &'static str, message: String) {
    note(cell, spec, |seen| {
        if let State::Ended(end) = &seen.state {
            seen.last = Some(end.clone());
        }
        seen.state = State::Waiting { reason, message };
    });
}

fn note(cell: &Cell, spec: &Container, change: impl FnOnce(&mut Seen)) {
    cell.life.seen.send_modify(|seen| change(seen.containers.entry(spec.name.clone()).or_default()));
}
