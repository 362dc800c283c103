//! What the buckets of both seeds hold.

use repot_apimachinery::time::Time;
use repot_plan::migration::{
    Step,
    observed::{FinalSnapshot, SourceSnapshot},
};

use super::{copies, objects::Objects};
use crate::{
    errors::causes,
    migration::{
        context::Context,
        error::Error,
        overall::{Ledger, is_open},
        seed::snapshots,
    },
};

/// Asked until it was reached: later reads of the bucket fail by themselves.
pub async fn bucket_problem(context: &Context, objects: &Objects, ledger: &Ledger) -> Option<String> {
    if ledger.is_settled(Step::SourceBucketReadable) {
        return None;
    }
    let Some(store) = objects.carried_etcd.as_ref().and_then(copies::source_store) else {
        return Some("the ShootState has no Etcd with a store of backups yet".to_owned());
    };
    let opened = async {
        let store = snapshots::open(context.own_client(), &objects.namespace, &store, &context.local_stores);
        store.await?.newest_revision().await
    };
    match opened.await {
        Ok(Some(_)) => None,
        Ok(None) => Some("the bucket of the source has no snapshot yet".to_owned()),
        Err(error) => Some(causes(&error)),
    }
}

/// Asked while somebody has to confirm what is lost.
pub async fn source_newest(context: &Context, objects: &Objects, ledger: &Ledger) -> Option<SourceSnapshot> {
    let carried = objects.carried_etcd.as_ref().filter(|_| is_open(ledger, Step::LossConfirmed))?;
    let store = copies::source_store(carried)?;
    let newest = async {
        let store = snapshots::open(context.own_client(), &objects.namespace, &store, &context.local_stores);
        store.await?.newest().await
    };
    let failed =
        |error: &Error| tracing::warn!(error = causes(error), "the bucket of the source cannot be read");
    newest.await.inspect_err(failed).ok().flatten()
}

/// What the bucket of the destination has.
#[derive(Default)]
pub struct Snapshots {
    /// Revision up to which snapshots are copied and verified.
    pub copied: Option<u64>,
    /// The final snapshot that is copied and verified.
    pub final_copied: Option<FinalSnapshot>,
}

/// From when on snapshots in the bucket are those of a live migration: the bucket may have older ones of an earlier stay of the Shoot.
fn begun_alone(ledger: &Ledger) -> Option<Time> {
    let is_asked = is_open(ledger, Step::SnapshotStored);
    let removed = ledger.steps.get(&Step::SourceMembersRemoved).filter(|_| is_asked)?;
    removed.completed
}

/// What the bucket of the destination has, by the Jobs that have verified it.
pub async fn snapshots(
    context: &Context,
    objects: &Objects,
    ledger: &Ledger,
    last: Option<&FinalSnapshot>,
) -> Snapshots {
    let is_ahead =
        [Step::SnapshotsCopiedAhead, Step::StandbyFollows].iter().any(|step| is_open(ledger, *step))
            && copies::is_complete(&objects.jobs, copies::AHEAD);
    let is_copied = |last: &&FinalSnapshot| copies::is_complete(&objects.jobs, &copies::name_of_final(last));
    let last = last.filter(|_| is_open(ledger, Step::FinalSnapshotCopied)).filter(is_copied);
    let alone = begun_alone(ledger);
    let Some(store) = objects.etcds.main().or(objects.carried_etcd.as_ref()).and_then(copies::target_store)
    else {
        return Snapshots::default();
    };
    if !is_ahead && last.is_none() && alone.is_none() {
        return Snapshots::default();
    }
    let found = async {
        let store = snapshots::open(context.own_client(), &objects.namespace, &store, &context.local_stores);
        let store = store.await?;
        let copied = match alone {
            Some(alone) => store.newest_since(alone).await?.map(|one| one.revision),
            None if is_ahead => store.newest_revision().await?,
            None => None,
        };
        let final_copied = match last {
            Some(last) if store.has(&last.name).await? => Some(last.clone()),
            Some(_) | None => None,
        };
        Ok::<_, Error>(Snapshots { copied, final_copied })
    };
    found.await.unwrap_or_else(|error| {
        tracing::warn!(error = causes(&error), "the bucket of the destination cannot be read");
        Snapshots::default()
    })
}
