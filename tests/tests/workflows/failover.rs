//! Two controllers of which one acts: the leader is killed, asked to end, made to stand still, or kept from renewing its Lease, and
//! another one goes on. What either of them has changed, and when, is read from the audit log of kube-apiserver: the tokens of both
//! say which Pod it was.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use repot_tests::wait::until;
use repot_tests::{SharedRef, run};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::JoinHandle;

use super::control_plane::{ControlPlaneFixture, Data, Front, SMALL};
use super::world::{CONTROLLERS, DEADLINE, SYSTEM, TestNamespace, World};

/// Tests take the leader away, one after the other.
static TURN: Mutex<()> = Mutex::const_new(());

/// Who holds the Lease, and how often it went from one to another.
#[derive(Clone, Debug)]
struct Leader {
    identity: String,
    transitions: i64,
}

impl Leader {
    fn pod(&self) -> &str {
        pod_of(&self.identity)
    }
}

/// An identity is the name of the Pod and a random word.
fn pod_of(identity: &str) -> &str {
    identity.rsplit_once('_').map_or(identity, |(pod, _)| pod)
}

/// Who leads now.
async fn leader(world: &World) -> Result<Leader> {
    let get = ["get", "lease", CONTROLLERS, "-n", SYSTEM, "-o", "json"];
    let lease: Value = serde_json::from_str(&world.garden.kubectl(get).await?.text()?)?;
    let identity = lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
    ensure!(!identity.is_empty(), "nobody holds the Lease: {lease}");
    let transitions = lease["spec"]["leaseTransitions"].as_i64().context("no transitions")?;
    Ok(Leader { identity, transitions })
}

/// Waits until somebody else leads, and nobody did in between.
async fn successor(world: &World, first: &Leader) -> Result<Leader> {
    let second = until("another leader", DEADLINE, async || {
        let now = leader(world).await?;
        ensure!(now.identity != first.identity, "it is still {now:?}");
        Ok(now)
    });
    let second = second.await?;
    ensure!(second.transitions == first.transitions + 1, "{first:?}, and then {second:?}");
    Ok(second)
}

/// Something that one of the controllers has asked for, whatever came of it.
struct Change {
    received: Timestamp,
    /// When it was answered.
    done: Timestamp,
    pod: String,
    what: String,
    /// Of the Lease: who holds it by that, and for how many seconds.
    lease: Option<(String, i64)>,
}

/// All of them, in the order in which they were answered.
fn changes(world: &World) -> Result<Vec<Change>> {
    let text = std::fs::read_to_string(&world.audit)?;
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut all = events.map(|event| change(&event)).collect::<Result<Vec<_>>>()?;
    all.sort_by_key(|change| change.done);
    Ok(all)
}

fn change(event: &Value) -> Result<Change> {
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let pods = &event["user"]["extra"]["authentication.kubernetes.io/pod-name"];
    let of_lease = text("/objectRef/resource") == "leases" && text("/objectRef/namespace") == SYSTEM;
    let spec = &event["requestObject"]["spec"];
    let holder = spec["holderIdentity"].as_str().unwrap_or_default().to_owned();
    let is_done = event["responseStatus"]["code"].as_u64().is_some_and(|code| code < 300);
    Ok(Change {
        received: text("/requestReceivedTimestamp").parse()?,
        done: text("/stageTimestamp").parse()?,
        pod: pods[0].as_str().context("the token names no Pod")?.to_owned(),
        what: format!("{} {} ({})", text("/verb"), text("/requestURI"), event["responseStatus"]["code"]),
        lease: (of_lease && is_done)
            .then(|| (holder, spec["leaseDurationSeconds"].as_i64().unwrap_or_default())),
    })
}

impl Change {
    fn is_of_lease(&self) -> bool {
        self.what.contains(&format!("/namespaces/{SYSTEM}/leases"))
    }

    /// Of the Lease: whether by that a Pod holds it at a moment.
    fn is_held_by(&self, pod: &str, moment: Timestamp) -> bool {
        let Some((holder, seconds)) = &self.lease else { return false };
        pod_of(holder) == pod && moment <= self.done + SignedDuration::from_secs(*seconds)
    }
}

/// Checks that whatever was asked for was asked for by who held the Lease then, before its time was over, and gives the Pods that did.
fn acted(world: &World) -> Result<BTreeSet<String>> {
    let all = changes(world)?;
    let leases: Vec<&Change> = all.iter().filter(|change| change.lease.is_some()).collect();
    let mut pods = BTreeSet::new();
    for change in all.iter().filter(|change| !change.is_of_lease()) {
        // The one that was answered last, and those that may have been done already.
        let known = leases.partition_point(|lease| lease.done <= change.received);
        let begun = leases[known..].iter().filter(|lease| lease.received <= change.received);
        let mut holders = leases[..known].last().into_iter().chain(begun);
        let is_held = holders.any(|lease| lease.is_held_by(&change.pod, change.received));
        let last = leases[..known].last().and_then(|lease| lease.lease.clone());
        ensure!(is_held, "{} asked for {} while the Lease was of {last:?}", change.pod, change.what);
        pods.insert(change.pod.clone());
    }
    Ok(pods)
}

/// A migration that is under way.
struct Journey {
    fixture: ControlPlaneFixture,
    before: Data,
    first: Leader,
    _turn: MutexGuard<'static, ()>,
}

impl Journey {
    /// Begins one, and waits until this step is at work.
    async fn begin(namespace: &str, step: &str) -> Result<Self> {
        let turn = TURN.lock().await;
        let ns = TestNamespace::make_with_two(namespace).await?;
        let fixture = ControlPlaneFixture::start_in(ns, 1, Front::Writer, SMALL).await?;
        let before = fixture.data().await?;
        fixture.migrate(json!({"storageClassName": "fast", "size": "2Gi"})).await?;
        fixture.step(step, "Running").await?;
        let first = leader(&fixture.ns.world).await?;
        Ok(Self { fixture, before, first, _turn: turn })
    }

    fn world(&self) -> &SharedRef<World> {
        &self.fixture.ns.world
    }

    /// It is done, nothing is missing, and there was always one who acted.
    async fn ends(self, second: &Leader) -> Result<()> {
        self.fixture.ns.ends("etcdmigration", "m", "Succeeded").await?;
        self.fixture.api_is_up().await?;
        until("everything to be there", DEADLINE, async || self.fixture.holds(&self.before).await).await?;
        let pods = acted(self.world())?;
        ensure!(
            [&self.first, second].iter().all(|leader| pods.contains(leader.pod())),
            "only {pods:?} acted"
        );
        Ok(())
    }
}

#[test]
#[ignore = "minutes, in make soak"]
fn migration_whose_controllers_are_killed_is_ended_by_the_others() {
    run(async |_| {
        let journey = Journey::begin("failover-kill", "EtcdDeleted").await?;
        journey.world().runner.kill(SYSTEM, journey.first.pod(), "controllers")?;
        let second = successor(journey.world(), &journey.first).await?;
        journey.ends(&second).await
    });
}

#[test]
fn controllers_that_are_asked_to_end_give_the_lease_back_first() {
    run(async |_| {
        let journey = Journey::begin("failover-stop", "BackupTaken").await?;
        let (world, first) = (journey.world(), journey.first.clone());
        let delete = ["delete", "pod", first.pod(), "-n", SYSTEM, "--wait=false"];
        world.garden.kubectl(delete).await?.text()?;
        let second = successor(world, &first).await?;
        let leases: Vec<_> = changes(world)?.into_iter().filter_map(|change| change.lease).collect();
        let taken = leases.iter().position(|(holder, _)| *holder == second.identity).context("not taken")?;
        let before = taken.checked_sub(1).and_then(|at| leases.get(at)).context("nothing before")?;
        // So there was nothing to wait for.
        ensure!(*before == (String::new(), 1), "{second:?} took it from {before:?}");
        journey.ends(&second).await
    });
}

/// Changes an Etcd without end, so that whoever looks after it always has something to write. Gives the last change.
async fn keep_busy(world: SharedRef<World>, namespace: String, stop: Arc<AtomicBool>) -> Result<u64> {
    let path = format!("/apis/druid.gardener.cloud/v1alpha1/namespaces/{namespace}/etcds/busy");
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        count += 1;
        let service = json!({"annotations": {"tests.repot.dev/count": count.to_string()}});
        let patch = json!({"spec": {"etcd": {"clientService": service}}});
        world.garden.api().patch(&path, "application/merge-patch+json", &patch).await?.ok()?;
    }
    Ok(count)
}

/// An Etcd that always gives the leader something to write.
struct Busy {
    ns: TestNamespace,
    first: Leader,
    /// How often the leader's container had started.
    starts: Option<u64>,
    stop: Arc<AtomicBool>,
    work: JoinHandle<Result<u64>>,
    _turn: MutexGuard<'static, ()>,
}

impl Busy {
    /// Begins, and waits until the leader is at work.
    async fn begin(namespace: &str) -> Result<Self> {
        let turn = TURN.lock().await;
        let ns = TestNamespace::make_with_two(namespace).await?;
        let world = ns.world.clone();
        let etcd = json!({
            "apiVersion": "druid.gardener.cloud/v1alpha1", "kind": "Etcd", "metadata": {"name": "busy"},
            "spec": {"replicas": 1, "storageClass": "slow", "storageCapacity": "1Gi", "etcd": {}},
        });
        ns.apply(&[etcd]).await?;
        ns.until("etcd", "busy", "ready", |etcd| etcd["status"]["readyReplicas"] == 1).await?;
        let stop = Arc::new(AtomicBool::new(false));
        let work = tokio::spawn(keep_busy(world.clone(), ns.namespace.clone(), stop.clone()));
        let first = leader(&world).await?;
        let starts = container(&world, &first).await?["restartCount"].as_u64();
        ns.until("service", "busy-client", "at work", |service| {
            service["metadata"]["annotations"]["tests.repot.dev/count"].is_string()
        })
        .await?;
        Ok(Self { ns, first, starts, stop, work, _turn: turn })
    }

    /// Waits until the process that led has ended by itself.
    async fn first_ends(&self) -> Result<()> {
        until("it to end", DEADLINE, async || {
            let status = container(&self.ns.world, &self.first).await?;
            ensure!(status["restartCount"].as_u64() > self.starts, "{status}");
            let code = &status["lastState"]["terminated"]["exitCode"];
            ensure!(*code == 1, "it ended with {code}");
            Ok(())
        })
        .await
    }

    /// All is as it was wanted last, and there was never a moment with another one who wrote than the holder of the Lease.
    async fn ends(self, second: &Leader) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let last = self.work.await??.to_string();
        self.ns
            .until("service", "busy-client", "as it was wanted last", |service| {
                service["metadata"]["annotations"]["tests.repot.dev/count"] == last.as_str()
            })
            .await?;
        let pods = acted(&self.ns.world)?;
        ensure!(
            [&self.first, second].iter().all(|leader| pods.contains(leader.pod())),
            "only {pods:?} acted"
        );
        Ok(())
    }
}

/// How the container of a leader stands.
async fn container(world: &World, leader: &Leader) -> Result<Value> {
    let get = ["get", "pod", leader.pod(), "-n", SYSTEM, "-o", "json"];
    let pod: Value = serde_json::from_str(&world.garden.kubectl(get).await?.text()?)?;
    Ok(pod["status"]["containerStatuses"][0].clone())
}

#[test]
#[ignore = "minutes, in make soak"]
fn controllers_that_stood_still_write_nothing_any_more_and_end() {
    run(async |_| {
        let busy = Busy::begin("failover-freeze").await?;
        let (world, first) = (&busy.ns.world, &busy.first);
        world.runner.freeze(SYSTEM, first.pod(), "controllers")?;
        let second = successor(world, first).await;
        world.runner.resume(SYSTEM, first.pod(), "controllers")?;
        let second = second?;
        busy.first_ends().await?;
        busy.ends(&second).await
    });
}

/// What the controllers may do with their Lease, in ns of what they might.
async fn allow(world: &World, verbs: &Value) -> Result<Value> {
    let role = ["role", "repot-controllers-lease", "-n", SYSTEM];
    let get = [&["get"][..], &role, &["-o", "json"]].concat();
    let before: Value = serde_json::from_str(&world.garden.kubectl(get).await?.text()?)?;
    let rule = "/rules/1";
    let patch = json!([
        {"op": "test", "path": format!("{rule}/resourceNames"), "value": [CONTROLLERS]},
        {"op": "replace", "path": format!("{rule}/verbs"), "value": verbs},
    ]);
    let patch = patch.to_string();
    world.garden.kubectl([&["patch"][..], &role, &["--type=json", "-p", &patch]].concat()).await?.text()?;
    Ok(before["rules"][1]["verbs"].clone())
}

#[test]
fn controllers_that_cannot_renew_their_lease_write_nothing_any_more_and_end() {
    run(async |_| {
        let busy = Busy::begin("failover-renewal").await?;
        let world = &busy.ns.world;
        // All else they may still do, and there is always something to do.
        let before = allow(world, &json!(["get"])).await?;
        let ended = busy.first_ends().await;
        allow(world, &before).await?;
        ended?;
        let second = successor(world, &busy.first).await?;
        busy.ends(&second).await
    });
}
