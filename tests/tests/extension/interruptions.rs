//! Controllers that are killed, and objects that change while an operation runs.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::TryStreamExt as _;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::WatchStreamExt as _;
use repot_extension::Settings;
use repot_extension::annotations::Requested;
use repot_extension::request::{Request, is_released};
use repot_extension::status::{OperationState, OperationType};
use repot_tests::run;
use repot_tests::wait::until;

use super::world::{Cloud, DEADLINE, World, shared_seed};

const RECONCILE: (&str, &str) = ("gardener.cloud/operation", "reconcile");

#[test]
fn killed_controller_continues_from_the_state_that_it_saved() {
    run(async |_| {
        let shared = shared_seed()?;
        let world = World::make(&shared, "killed").await?;
        let cloud = Cloud::new();
        cloud.set_gate(false);
        let first = world.start(&cloud);
        world.create("a", &[RECONCILE]).await?;
        until("the saved state", DEADLINE, async || {
            let object = world.get("a").await?;
            object.status.and_then(|status| status.state).context("there is no state")
        })
        .await?;
        // It has nothing left to do before the gate, so all of it is dropped there.
        until("an operation at the gate", DEADLINE, async || {
            ensure!(cloud.gate.receiver_count() > 0, "none waits");
            Ok(())
        })
        .await?;
        first.kill().await?;
        until("the operation to be dropped", DEADLINE, async || {
            ensure!(cloud.dropped() == 1, "{} operations were dropped", cloud.dropped());
            Ok(())
        })
        .await?;
        let object = world.get("a").await?;
        let status = object.status.as_ref().context("a status")?;
        let last = status.last_operation.as_ref().context("a last operation")?;
        ensure!(last.summary() == (&OperationType::Create, &OperationState::Processing), "it is {last:?}");
        ensure!(
            !object.annotations().contains_key(RECONCILE.0),
            "the status tells of the request, not the annotation"
        );

        cloud.set_gate(true);
        let _second = world.start(&cloud);
        world.until_last("a", OperationType::Create, OperationState::Succeeded).await?;
        cloud.until_calls(&["reconcile a", "reconcile a"]).await?;
        ensure!(cloud.networks() == 1, "{} networks were made", cloud.networks());
        Ok(())
    });
}

#[test]
fn annotation_that_changes_during_an_operation_is_served_next() {
    run(async |_| {
        let shared = shared_seed()?;
        let world = World::make(&shared, "changes").await?;
        let cloud = Cloud::new();
        cloud.set_gate(false);
        let _controller = world.start(&cloud);
        world.create("a", &[RECONCILE]).await?;
        cloud.until_calls(&["reconcile a"]).await?;
        let request = Request::new(Requested::Migrate, Timestamp::now());
        world.ask("a", &request).await?;
        cloud.set_gate(true);
        let object = world.until_done("a", &request).await?;
        cloud.until_calls(&["reconcile a", "migrate a"]).await?;
        ensure!(is_released(&object), "its finalizers are {:?}", object.finalizers());
        ensure!(cloud.networks() == 1, "the network is gone");
        Ok(())
    });
}

#[test]
fn request_that_is_renewed_during_an_operation_is_served_once_more() {
    run(async |_| {
        let shared = shared_seed()?;
        let world = World::make(&shared, "renewed").await?;
        let cloud = Cloud::new();
        cloud.set_gate(false);
        let _controller = world.start(&cloud);
        let first = Request::new(Requested::Reconcile, Timestamp::now());
        let annotations: Vec<_> = first.annotations().into_iter().collect();
        let annotations: Vec<_> = annotations.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        world.create("a", &annotations).await?;
        cloud.until_calls(&["reconcile a"]).await?;
        let renewed = Request::new(Requested::Reconcile, Timestamp::now());
        world.ask("a", &renewed).await?;
        cloud.set_gate(true);
        world.until_done("a", &renewed).await?;
        cloud.until_calls(&["reconcile a", "reconcile a"]).await
    });
}

/// The annotation is gone while a reconciliation runs, so one that is there was set meanwhile, be it with the same value and time.
#[test]
fn request_that_is_repeated_word_for_word_during_an_operation_is_served_once_more() {
    run(async |_| {
        let shared = shared_seed()?;
        let world = World::make(&shared, "repeated").await?;
        let cloud = Cloud::new();
        cloud.set_gate(false);
        let _controller = world.start(&cloud);
        world.create("a", &[RECONCILE]).await?;
        cloud.until_calls(&["reconcile a"]).await?;
        let again = BTreeMap::from([(RECONCILE.0.to_owned(), RECONCILE.1.to_owned())]);
        world.annotate("a", &again).await?;
        cloud.set_gate(true);
        world.until_last("a", OperationType::Reconcile, OperationState::Succeeded).await?;
        cloud.until_calls(&["reconcile a", "reconcile a"]).await
    });
}

/// gardenlet looks at an object when its status changes, and lets be what still has the annotation.
#[test]
fn success_of_a_reconciliation_is_written_to_an_object_without_its_annotation() {
    run(async |_| {
        let shared = shared_seed()?;
        let world = World::make(&shared, "without").await?;
        let cloud = Cloud::new();
        let changes = kube::runtime::watcher(world.infrastructures.clone(), Default::default());
        let mut changes = std::pin::pin!(changes.applied_objects());
        let _controller = world.start(&cloud);
        world.create("a", &[RECONCILE]).await?;
        let succeeded = async {
            while let Some(object) = changes.try_next().await? {
                let last = object.status.as_ref().and_then(|status| status.last_operation.as_ref());
                if last.is_some_and(|last| last.state == OperationState::Succeeded) {
                    return Ok(object);
                }
            }
            anyhow::bail!("the watch ended")
        };
        let object = tokio::time::timeout(DEADLINE, succeeded).await??;
        ensure!(!object.annotations().contains_key(RECONCILE.0), "it became {object:?}");
        Ok(())
    });
}

#[test]
fn requeued_work_stops_when_the_object_is_migrated() {
    run(async |_| {
        let shared = shared_seed()?;
        let world = World::make(&shared, "requeued").await?;
        let cloud = Cloud::new();
        cloud.fail_next(1_000);
        let _controller = world.start(&cloud);
        world.create("a", &[RECONCILE]).await?;
        let object = world.until_last("a", OperationType::Create, OperationState::Error).await?;
        let error = object.status.and_then(|status| status.last_error).context("a last error")?;
        ensure!(error.description.contains("the quota is exhausted"), "it is {error:?}");
        ensure!(error.codes.len() == 1 && error.codes[0].needs_user(), "its codes are {:?}", error.codes);

        let request = Request::new(Requested::Migrate, Timestamp::now());
        world.ask("a", &request).await?;
        until("a call of migrate", DEADLINE, async || {
            ensure!(cloud.calls().contains(&"migrate a".to_owned()), "there was none");
            Ok(())
        })
        .await?;
        cloud.fail_next(0);
        world.until_done("a", &request).await?;
        let calls = cloud.calls();
        let begun = calls.iter().position(|call| call == "migrate a").context("a migration")?;
        ensure!(calls[begun..].iter().all(|call| call == "migrate a"), "they are {calls:?}");
        ensure!(
            world.get("a").await?.status.is_some_and(|status| status.last_error.is_none()),
            "an error is left"
        );
        Ok(())
    });
}

#[test]
fn operation_beyond_its_deadline_fails_and_is_tried_again() {
    run(async |_| {
        let shared = shared_seed()?;
        let world = World::make(&shared, "deadline").await?;
        let cloud = Cloud::new();
        cloud.set_gate(false);
        let settings = Settings { deadline: Duration::from_millis(300), ..world.settings() };
        let _controller = world.start_with(settings, &cloud, true);
        world.create("a", &[RECONCILE]).await?;
        let object = world.until_last("a", OperationType::Create, OperationState::Error).await?;
        let error = object.status.and_then(|status| status.last_error).context("a last error")?;
        ensure!(error.description.contains("did not finish within"), "it is {error:?}");
        cloud.set_gate(true);
        world.until_last("a", OperationType::Create, OperationState::Succeeded).await.map(drop)
    });
}

#[test]
fn outcome_that_the_api_server_refuses_is_shown_as_an_error() {
    run(async |_| {
        let shared = shared_seed()?;
        let world = World::make(&shared, "refused-outcome").await?;
        let cloud = Cloud::new();
        cloud.misreport(true);
        let _controller = world.start(&cloud);
        world.create("a", &[RECONCILE]).await?;
        let object = world.until_last("a", OperationType::Create, OperationState::Error).await?;
        let error = object.status.and_then(|status| status.last_error).context("a last error")?;
        ensure!(error.description.contains("status.nodesCIDR"), "it is {error:?}");
        cloud.misreport(false);
        let object = world.until_last("a", OperationType::Create, OperationState::Succeeded).await?;
        let cidr = object.status.and_then(|status| status.nodes_cidr);
        ensure!(cidr.as_deref() == Some("10.0.0.0/16"), "it is {cidr:?}");
        ensure!(cloud.networks() == 1, "{} networks were made", cloud.networks());
        Ok(())
    });
}

#[test]
fn deletion_waits_for_its_confirmation() {
    run(async |_| {
        let shared = shared_seed()?;
        let world = World::make(&shared, "confirmation").await?;
        let cloud = Cloud::new();
        let _controller = world.start(&cloud);
        world.create("a", &[RECONCILE]).await?;
        world.until_last("a", OperationType::Create, OperationState::Succeeded).await?;
        world.delete("a").await?;
        let object = world.until_last("a", OperationType::Delete, OperationState::Pending).await?;
        let description = object.status.and_then(|s| s.last_operation).context("an operation")?.description;
        ensure!(description.contains("confirmation.gardener.cloud/deletion=true"), "it says {description}");
        let wrong = ("confirmation.gardener.cloud/deletion".to_owned(), "maybe".to_owned());
        world.annotate("a", &BTreeMap::from([wrong])).await?;
        world.until_quiet("quiet").await?;
        ensure!(cloud.networks() == 2, "a network is gone");

        world.confirm_deletion("a").await?;
        world.until_gone("a").await?;
        cloud.until_calls(&["reconcile a", "reconcile quiet", "delete a"]).await?;
        ensure!(cloud.networks() == 1, "the network is still there");
        Ok(())
    });
}

#[test]
fn deletion_during_a_migration_touches_no_infrastructure() {
    run(async |_| {
        let shared = shared_seed()?;
        let world = World::make(&shared, "deleted-midway").await?;
        let cloud = Cloud::new();
        let _controller = world.start(&cloud);
        world.create("a", &[RECONCILE]).await?;
        world.until_last("a", OperationType::Create, OperationState::Succeeded).await?;
        cloud.fail_next(1);
        cloud.set_gate(false);
        let request = Request::new(Requested::Migrate, Timestamp::now());
        world.ask("a", &request).await?;
        cloud.until_calls(&["reconcile a", "migrate a"]).await?;
        // The annotation is gone and the migration fails: upstream's library would delete the infrastructure now.
        remove_operation(&world, "a").await?;
        world.confirm_deletion("a").await?;
        world.delete("a").await?;
        cloud.set_gate(true);
        world.until_gone("a").await?;
        cloud.until_calls(&["reconcile a", "migrate a", "migrate a"]).await?;
        ensure!(cloud.networks() == 1, "the network is gone");
        Ok(())
    });
}

async fn remove_operation(world: &World, name: &str) -> Result<()> {
    let patch = kube::api::Patch::Merge(
        serde_json::json!({"metadata": {"annotations": {"gardener.cloud/operation": null}}}),
    );
    world.infrastructures.patch(name, &Default::default(), &patch).await?;
    Ok(())
}
