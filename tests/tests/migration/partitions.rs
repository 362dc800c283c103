//! Forced migrations from a seed that lives on, cut off from what the destination sees of it. A client writes to each side at its own
//! address, whatever DNS says, so it is known what each side has acknowledged, and when.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use repot_etcd::snapshot::changes::{Change, changes};
use repot_etcd::snapshot::store::{Environment, Store};
use repot_etcd_core::snapshot::Revision;
use repot_tests::TestEnv;
use repot_tests::landscape::seed::Seed;
use repot_tests::pods::Cut;
use repot_tests::wait::until;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::forced::{SOURCE_STOPPED, force, until_state_is_stored};
use super::story::{self, DEADLINE};
use super::world::{SEEDS, World, run, small};
use super::writer::{self, Writer};

const SOURCE: &str = "source-";
const DESTINATION: &str = "destination-";
/// How long an answer of DNS stays away, and how long it comes, while the network flaps.
const FLAP: Duration = Duration::from_secs(4);

/// What Pods of the source get no answers from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Dns,
    Bucket,
    DnsAndBucket,
    /// Its kube-apiserver, the garden, DNS and the bucket.
    Everything,
    /// DNS, a few seconds at a time.
    FlappingDns,
}

/// Cuts links of a seed until [`Partition::heal`].
struct Partition {
    cuts: Vec<Cut>,
    flaps: Option<Flapping>,
}

struct Flapping {
    is_over: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<Result<()>>,
}

impl Partition {
    async fn of(world: &World, fault: Fault) -> Result<Self> {
        let seed = world.landscape.seed(SEEDS.0)?;
        let (dns, bucket) = (seed.dns_address(), seed.store_address());
        let cuts = match fault {
            Fault::Dns => vec![seed.runner.cut_server(dns).await?],
            Fault::Bucket => vec![seed.runner.cut_server(bucket).await?],
            Fault::DnsAndBucket => {
                vec![seed.runner.cut_server(dns).await?, seed.runner.cut_server(bucket).await?]
            }
            Fault::Everything => vec![seed.runner.cut_servers().await?],
            Fault::FlappingDns => Vec::new(),
        };
        let flaps = (fault == Fault::FlappingDns).then(|| flap(world));
        Ok(Self { cuts, flaps })
    }

    async fn heal(self, seed: &Seed) -> Result<()> {
        if let Some(flaps) = self.flaps {
            flaps.is_over.store(true, Ordering::Relaxed);
            flaps.task.await??;
        }
        for cut in self.cuts {
            seed.runner.heal(cut).await?;
        }
        Ok(())
    }
}

fn flap(world: &World) -> Flapping {
    let (landscape, is_over) = (world.landscape.clone(), Arc::new(AtomicBool::new(false)));
    let ended = is_over.clone();
    let task = tokio::spawn(async move {
        let seed = landscape.seed(SEEDS.0)?;
        while !ended.load(Ordering::Relaxed) {
            let cut = seed.runner.cut_server(seed.dns_address()).await?;
            sleep(FLAP).await;
            seed.runner.heal(cut).await?;
            sleep(FLAP).await;
        }
        Ok(())
    });
    Flapping { is_over, task }
}

/// The control plane leaves a seed with this fault, which goes on with its work as far as it can; then the fault ends.
async fn leave(env: &TestEnv, name: &str, fault: Fault) -> Result<()> {
    let world = World::create(env, name, small()).await?;
    let before = world.workload().await?;
    until_state_is_stored(&world).await?;
    until_workload_is_stored(&world).await?;
    let source = world.landscape.seed(SEEDS.0)?;
    let at_source = Writer::start_with(world.shoot.control_plane.api_at(source).await?, SOURCE);
    until("some writes", DEADLINE, async || {
        let count = at_source.acknowledged().len();
        ensure!(count > 20, "{count} were acknowledged");
        Ok(())
    })
    .await?;

    let partition = Partition::of(&world, fault).await?;
    // What tests share is healed, however this ends.
    let moved = move_away(&world, fault).await;
    partition.heal(source).await?;
    let at_destination = moved?;
    until("the source to be removed", DEADLINE, async || world.ensure_gone(SEEDS.0).await).await?;
    ensure_one_side_at_a_time(fault, &at_source, &at_destination)?;
    ensure_nothing_is_unaccounted_for(&world, &at_source).await?;
    let api = world.api()?;
    let stored = writer::stored_with(&api, DESTINATION).await?;
    let lost: Vec<_> = at_destination.acknowledged().difference(&stored).copied().collect();
    ensure!(lost.is_empty(), "{lost:?} of the destination are lost");
    ensure!(world.workload().await? == before, "the workload has changed");
    world.stop(SEEDS.1).await
}

/// Moves it, and gives the client that writes at the destination.
async fn move_away(world: &World, fault: Fault) -> Result<Writer> {
    force(world, "move", SEEDS).await?;
    story::annotate(world, "move", &json!({SOURCE_STOPPED: SEEDS.0})).await?;
    story::until_started(world, "move", ("destination", "EtcdServes")).await?;
    let destination = world.landscape.seed(SEEDS.1)?;
    let api = world.shoot.control_plane.api_at(destination).await?;
    let writer = Writer::start_with(api, DESTINATION);
    let migration = story::until_success(world, "move", SEEDS.1).await?;
    println!(
        "{fault:?}: outage {}, loss {}",
        migration["status"]["apiOutage"], migration["status"]["destination"]["loss"]
    );
    Ok(writer)
}

/// Waits until a snapshot in the bucket of the source holds what has to be the same afterwards.
async fn until_workload_is_stored(world: &World) -> Result<()> {
    let marker = world.api()?.get("/api/v1/namespaces/default/configmaps/marker").await?.ok()?;
    let revision: i64 = marker["metadata"]["resourceVersion"].as_str().context("no version")?.parse()?;
    let store = backups(world, SEEDS.0)?;
    until("the marker to be stored", DEADLINE, async || {
        let stored = store.list().await?.iter().map(|one| one.name.last.0).max();
        ensure!(stored >= Some(revision), "up to {stored:?} of {revision} is stored");
        Ok(())
    })
    .await
}

/// Where the etcd of the Shoot stores its snapshots at a seed.
fn backups(world: &World, seed: &str) -> Result<Store> {
    let seed = world.landscape.seed(seed)?;
    let environment: Environment = seed.store.environment().into_iter().collect();
    let prefix = format!("{}/etcd-main", world.name().backup_entry());
    Ok(Store::open(&seed.store.url(&prefix), &environment)?)
}

/// The source acknowledges nothing from the moment on at which the destination has acknowledged something.
fn ensure_one_side_at_a_time(fault: Fault, source: &Writer, destination: &Writer) -> Result<()> {
    let (_, last) = source.times().context("the source acknowledged nothing")?;
    let (first, _) = destination.times().context("the destination acknowledged nothing")?;
    println!("{fault:?}: nobody acknowledged anything for {:?}", first.saturating_duration_since(last));
    ensure!(last < first, "the source acknowledged a write {:?} after the destination", last - first);
    Ok(())
}

/// What the source acknowledged is at the destination, or in the late snapshot that is reported.
async fn ensure_nothing_is_unaccounted_for(world: &World, source: &Writer) -> Result<()> {
    let late = until("the late snapshot to be reported", DEADLINE, async || {
        let late = story::read(world, "move").await?["status"]["lateSnapshot"].take();
        let is_known = late["state"] == "Reported" || late["state"] == "Contained";
        if is_known { Ok(late) } else { bail!("{late}") }
    })
    .await?;
    let stored = writer::stored_with(&world.api()?, SOURCE).await?;
    let lost: BTreeSet<u32> = source.acknowledged().difference(&stored).copied().collect();
    println!("{} were acknowledged, {} are lost: {late}", source.acknowledged().len(), lost.len());
    let reported = if late["state"] == "Reported" { created(world, &late).await? } else { BTreeSet::new() };
    let unknown: Vec<_> = lost.difference(&reported).collect();
    ensure!(unknown.is_empty(), "{unknown:?} are neither stored nor reported: {late}");
    Ok(())
}

/// Numbers of objects that the late snapshot has created, by the copy in the bucket of the destination.
async fn created(world: &World, late: &Value) -> Result<BTreeSet<u32>> {
    let store = backups(world, SEEDS.1)?;
    let history = late["history"].as_str().context("no history")?;
    let after = Revision(late["heldRevision"].as_i64().context("no revision")?);
    let found = changes(&store.history(history), after, &std::env::temp_dir()).await?;
    let names = found.keys.iter().filter(|(_, change)| **change == Change::Created).map(|(key, _)| key);
    let begin = format!("/registry/configmaps/default/{SOURCE}");
    let numbers = names.filter_map(|key| std::str::from_utf8(key).ok()?.strip_prefix(&begin)?.parse().ok());
    Ok(numbers.collect())
}

/// Its etcd stops when it cannot resolve its owner for too long, and takes the final snapshot when it sees who the owner is.
#[test]
#[ignore = "minutes, in make soak"]
fn seed_that_is_cut_off_from_dns_stops_by_itself() {
    run(async |env| leave(env, "pi", Fault::Dns).await);
}

/// Its etcd sees that it is not the owner any more, and cannot store what it has acknowledged since its last snapshot.
#[test]
#[ignore = "minutes, in make soak"]
fn seed_that_is_cut_off_from_its_bucket_reports_what_is_lost_when_it_is_back() {
    run(async |env| leave(env, "rho", Fault::Bucket).await);
}

#[test]
#[ignore = "minutes, in make soak"]
fn seed_that_is_cut_off_from_dns_and_its_bucket_stops_by_itself_and_reports_later() {
    run(async |env| leave(env, "sigma", Fault::DnsAndBucket).await);
}

/// Clients still reach it, and the nodes of the Shoot do.
#[test]
#[ignore = "minutes, in make soak"]
fn seed_that_is_cut_off_from_everything_but_its_clients_stops_by_itself() {
    run(async |env| leave(env, "tau", Fault::Everything).await);
}

#[test]
#[ignore = "minutes, in make soak"]
fn seed_whose_dns_comes_and_goes_never_serves_beside_the_destination() {
    run(async |env| leave(env, "upsilon", Fault::FlappingDns).await);
}
