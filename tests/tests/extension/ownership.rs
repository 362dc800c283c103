//! Ownership that is lost while an operation runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::ResourceExt;
use repot_extension::annotations::Requested;
use repot_extension::ownership::{Ownership, OwnershipUnknown, Subject};
use repot_extension::request::{Request, is_released};
use repot_extension::status::{OperationState, OperationType};
use repot_tests::run;
use repot_tests::wait::until;

use super::world::{Cloud, DEADLINE, World, shared_seed};

/// An owner record that a test changes, and that counts how often it was read.
#[derive(Default)]
struct OwnerRecord {
    owned: AtomicBool,
    reads: AtomicUsize,
}

#[derive(Clone, Default)]
struct Record(Arc<OwnerRecord>);

impl Record {
    fn set(&self, owned: bool) {
        self.0.owned.store(owned, Ordering::SeqCst);
    }

    /// Waits until the record was read so often from now on.
    async fn until_read(&self, times: usize) -> Result<()> {
        let before = self.0.reads.load(Ordering::SeqCst);
        until("reads of the owner record", DEADLINE, async || {
            let reads = self.0.reads.load(Ordering::SeqCst) - before;
            ensure!(reads >= times, "it was read {reads} times");
            Ok(())
        })
        .await
    }
}

impl Ownership for Record {
    fn check<'a>(&'a self, _: Subject<'a>) -> BoxFuture<'a, Result<bool, OwnershipUnknown>> {
        self.0.reads.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(Ok(self.0.owned.load(Ordering::SeqCst))))
    }
}

#[test]
fn operation_ends_and_nothing_is_written_when_ownership_is_lost() {
    run(async |_| {
        let shared = shared_seed()?;
        let world = World::make(&shared, "lost").await?;
        let (cloud, record) = (Cloud::new(), Record::default());
        record.set(true);
        cloud.set_gate(false);
        let _controller = world.start_owned(&cloud, record.clone());
        world.create("a", &[("gardener.cloud/operation", "reconcile")]).await?;
        cloud.until_calls(&["reconcile a"]).await?;
        // It has nothing left to do before the gate, so all of it is dropped there.
        until("an operation at the gate", DEADLINE, async || {
            ensure!(cloud.gate.receiver_count() > 0, "none waits");
            Ok(())
        })
        .await?;
        record.set(false);
        until("the operation to be dropped", DEADLINE, async || {
            ensure!(cloud.dropped() == 1, "{} operations were dropped", cloud.dropped());
            Ok(())
        })
        .await?;
        cloud.set_gate(true);
        let before = world.get("a").await?;
        record.until_read(5).await?;
        let after = world.get("a").await?;
        ensure!(before.resource_version() == after.resource_version(), "it became {after:?}");
        cloud.until_calls(&["reconcile a"]).await?;

        // A migration is cleaning up in this seed, and needs no ownership.
        let request = Request::new(Requested::Migrate, Timestamp::now());
        world.ask("a", &request).await?;
        let object = world.until_done("a", &request).await?;
        ensure!(is_released(&object) && cloud.networks() == 1, "it is {object:?}");
        Ok(())
    });
}

#[test]
fn operation_begins_when_ownership_is_gained() {
    run(async |_| {
        let shared = shared_seed()?;
        let world = World::make(&shared, "gained").await?;
        let (cloud, record) = (Cloud::new(), Record::default());
        let _controller = world.start_owned(&cloud, record.clone());
        let created = world.create("a", &[("gardener.cloud/operation", "reconcile")]).await?;
        record.until_read(3).await?;
        let now = world.get("a").await?;
        ensure!(now.resource_version() == created.resource_version(), "it became {now:?}");
        ensure!(cloud.calls().is_empty(), "the provider was called");
        record.set(true);
        world.until_last("a", OperationType::Create, OperationState::Succeeded).await.map(drop)
    });
}

#[test]
fn deletion_without_ownership_removes_nothing() {
    run(async |_| {
        let shared = shared_seed()?;
        let world = World::make(&shared, "lost-deletion").await?;
        let (cloud, record) = (Cloud::new(), Record::default());
        record.set(true);
        let _controller = world.start_owned(&cloud, record.clone());
        world.create("a", &[("gardener.cloud/operation", "reconcile")]).await?;
        world.until_last("a", OperationType::Create, OperationState::Succeeded).await?;
        record.set(false);
        world.confirm_deletion("a").await?;
        world.delete("a").await?;
        record.until_read(3).await?;
        ensure!(cloud.networks() == 1, "the network is gone");
        world.get("a").await.map(drop)
    });
}
