//! Forced migrations from a seed that lives on with a fault. A client writes to each side at its own address, whatever DNS says, so it is
//! known what each side has acknowledged, and when.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures::future::try_join_all;
use repot_etcd::snapshot::changes::{Change, changes};
use repot_etcd_core::snapshot::Revision;
pub use repot_tests::landscape::forced::until_object_is_stored;
use repot_tests::landscape::forced::{backups, until_workload_is_stored};
use repot_tests::wait::until;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::faulty_seed::{Fault, FaultySeed};
use super::forced::{SOURCE_STOPPED, force, until_state_is_stored};
use super::story::{self, DEADLINE};
use super::world::{Workload, World};
use super::writer::{self, Writer};

const SOURCE: &str = "source-";
const DESTINATION: &str = "destination-";

/// One forced migration away from a seed.
pub struct Departure<'a> {
    /// The Shoot that is moved.
    pub world: &'a World,
    /// Name of the migration, and the beginning of the names of what is written meanwhile.
    pub name: &'a str,
    /// The seed with the fault, and the one where the Shoot goes.
    pub seeds: (&'a str, &'a str),
    /// What is wrong with the first.
    pub fault: Fault,
    /// How long that lasts at least, from its beginning on.
    pub lasts: Duration,
}

/// What a departure has to be judged by: what was there before, and who writes at the source.
struct Before {
    workload: Workload,
    at_source: Writer,
}

/// Control planes leave a seed with a fault, all at a time, which goes on with its work as far as it can; then the fault ends. All of them
/// have the same seeds and fault. Fails where a source acknowledges a write after the destination, where a write is neither stored nor
/// reported as lost, or where the workload changes.
pub async fn leave(all: &[Departure<'_>]) -> Result<()> {
    let worlds: Vec<&World> = all.iter().map(|one| one.world).collect();
    let Some(&Departure { seeds, fault, lasts, .. }) = all.first() else { return Ok(()) };
    let before = try_join_all(all.iter().map(Departure::prepare)).await?;
    let begun = Instant::now();
    let faulty = FaultySeed::new(&worlds, seeds.0, fault).await?;
    // What tests share is healed, however this ends.
    let moved = try_join_all(all.iter().map(Departure::move_away)).await;
    let lasts = if moved.is_ok() { lasts } else { Duration::ZERO };
    // The fault is what lasts; nothing is waited for.
    sleep(lasts.saturating_sub(begun.elapsed())).await;
    faulty.heal(&worlds).await?;
    let at_destination = moved?;
    let judged = all.iter().zip(&before).zip(&at_destination);
    try_join_all(judged.map(|((one, before), at_destination)| one.judge(before, at_destination)))
        .await
        .map(drop)
}

/// The source acknowledges nothing from the moment on at which the destination has acknowledged something.
fn ensure_one_side_at_a_time(fault: Fault, source: &Writer, destination: &Writer) -> Result<()> {
    let (_, last) = source.times().context("the source acknowledged nothing")?;
    let (first, _) = destination.times().context("the destination acknowledged nothing")?;
    println!("{fault:?}: nobody acknowledged anything for {:?}", first.saturating_duration_since(last));
    ensure!(last < first, "the source acknowledged a write {:?} after the destination", last - first);
    Ok(())
}

impl Departure<'_> {
    /// Waits until the source has stored what has to be there afterwards, and starts to write to it.
    async fn prepare(&self) -> Result<Before> {
        let workload = self.world.workload().await?;
        until_state_is_stored(self.world).await?;
        until_workload_is_stored(self.world, self.seeds.0).await?;
        let source = self.world.landscape.seed(self.seeds.0)?;
        let api = self.world.shoot.control_plane.api_at(source).await?;
        let at_source = Writer::start_with(api, &self.prefix(SOURCE));
        until("some writes", DEADLINE, async || {
            let count = at_source.acknowledged().len();
            ensure!(count > 20, "{count} were acknowledged");
            Ok(())
        })
        .await?;
        Ok(Before { workload, at_source })
    }

    /// Waits until the source is gone, and judges what both sides have acknowledged.
    async fn judge(&self, before: &Before, at_destination: &Writer) -> Result<()> {
        let &Self { world, seeds, fault, .. } = self;
        until("the source to be removed", DEADLINE, async || world.ensure_gone(seeds.0).await).await?;
        ensure_one_side_at_a_time(fault, &before.at_source, at_destination)?;
        self.ensure_nothing_is_unaccounted_for(&before.at_source).await?;
        // The client goes on: what it writes after this the list may not hold.
        let acknowledged = at_destination.acknowledged();
        let stored = self.stored(DESTINATION).await?;
        let lost: Vec<_> = acknowledged.difference(&stored).copied().collect();
        ensure!(lost.is_empty(), "{lost:?} of the destination are lost");
        ensure!(world.workload().await? == before.workload, "the workload has changed");
        Ok(())
    }

    /// What is stored of what was written to a side. An etcd that cannot resolve its owner on a busy machine is away for a while.
    async fn stored(&self, side: &str) -> Result<BTreeSet<u32>> {
        let (api, prefix) = (self.world.api()?, self.prefix(side));
        until("the objects to be listed", DEADLINE, async || writer::stored_with(&api, &prefix).await).await
    }

    fn prefix(&self, side: &str) -> String {
        format!("{}-{side}", self.name)
    }

    /// Moves it, and gives the client that writes at the destination.
    async fn move_away(&self) -> Result<Writer> {
        let &Self { world, name, seeds, fault, .. } = self;
        force(world, name, seeds).await?;
        story::annotate(world, name, &json!({SOURCE_STOPPED: seeds.0})).await?;
        story::until_started(world, name, ("destination", "EtcdServes")).await?;
        let destination = world.landscape.seed(seeds.1)?;
        let api = world.shoot.control_plane.api_at(destination).await?;
        let writer = Writer::start_with(api, &self.prefix(DESTINATION));
        let migration = story::until_success(world, name, seeds.1).await?;
        let (outage, loss) = (&migration["status"]["apiOutage"], &migration["status"]["destination"]["loss"]);
        println!("{fault:?}: outage {outage}, loss {loss}");
        Ok(writer)
    }

    /// What the source acknowledged is at the destination, or in the late snapshot that is reported.
    async fn ensure_nothing_is_unaccounted_for(&self, source: &Writer) -> Result<()> {
        let late = until("the late snapshot to be reported", DEADLINE, async || {
            let late = story::read(self.world, self.name).await?["status"]["lateSnapshot"].take();
            let is_known = late["state"] == "Reported" || late["state"] == "Contained";
            if is_known { Ok(late) } else { bail!("{late}") }
        })
        .await?;
        let acknowledged = source.acknowledged();
        let stored = self.stored(SOURCE).await?;
        let lost: BTreeSet<u32> = acknowledged.difference(&stored).copied().collect();
        println!("{} were acknowledged, {} are lost: {late}", acknowledged.len(), lost.len());
        let reported = if late["state"] == "Reported" { self.created(&late).await? } else { BTreeSet::new() };
        let unknown: Vec<_> = lost.difference(&reported).collect();
        ensure!(unknown.is_empty(), "{unknown:?} are neither stored nor reported: {late}");
        Ok(())
    }

    /// Numbers of objects that the late snapshot has created, by the copy in the bucket of the destination.
    async fn created(&self, late: &Value) -> Result<BTreeSet<u32>> {
        let store = backups(self.world, self.seeds.1)?;
        let history = late["history"].as_str().context("no history")?;
        let after = Revision(late["heldRevision"].as_i64().context("no revision")?);
        let found = changes(&store.history(history), after, &std::env::temp_dir()).await?;
        let names = found.keys.iter().filter(|(_, change)| **change == Change::Created).map(|(key, _)| key);
        let begin = format!("/registry/configmaps/default/{}", self.prefix(SOURCE));
        let numbers =
            names.filter_map(|key| std::str::from_utf8(key).ok()?.strip_prefix(&begin)?.parse().ok());
        Ok(numbers.collect())
    }
}
