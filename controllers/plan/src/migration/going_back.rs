//! Rows of a rollback that bring the source back: its kube-apiservers, its controllers and its DNS records.

use super::{
    context::{Context, source},
    destination::{is_removed, remove},
    effect::Effect,
    flow::MigrationFlow,
    garden::{is_seed_name_restored, restore_seed_name},
    observed::{ExtensionOperation, Replicas, Workloads},
    rows::day_long,
    source::have_done,
    step::{Side, Step},
};
use crate::{
    flow::{OnFailure, Row, Timeout},
    ledger::Check,
};

fn are_as_before(workloads: &Workloads, before: Option<&Replicas>, fence: &str, what: &str) -> Check {
    let is_any_wanted = before.is_some_and(|before| before.values().any(|replicas| *replicas > 0));
    if before != Some(&workloads.wanted) || workloads.fence != fence {
        Check::waiting("Starting", format!("the replicas of {what}s are being written"))
    } else if is_any_wanted && workloads.ready == 0 {
        Check::waiting("NotReady", format!("no {what} is ready"))
    } else {
        Check::Met(format!("{} {what}s are ready", workloads.ready))
    }
}

pub(crate) fn is_api_restored(context: &Context) -> Check {
    let (before, fence) = (context.notes.api_servers.as_ref(), context.rollback_fence());
    source(context, |facts| are_as_before(&facts.api, before, &fence, "kube-apiserver"))
}

pub(crate) fn restore_api(context: &Context) -> Vec<Effect> {
    let replicas = context.notes.api_servers.clone().into_iter();
    replicas.map(|replicas| Effect::EnsureApi { replicas, fence: context.rollback_fence() }).collect()
}

pub(crate) fn are_dns_records_restored(context: &Context) -> Check {
    source(context, |facts| have_done(&facts.dns_records, ExtensionOperation::Restore))
}

pub(crate) fn are_controllers_restored(context: &Context) -> Check {
    let (before, fence) = (context.notes.controllers.as_ref(), context.rollback_fence());
    source(context, |facts| are_as_before(&facts.controllers, before, &fence, "controller"))
}

pub(crate) fn restore_controllers(context: &Context) -> Vec<Effect> {
    let replicas = context.notes.controllers.clone().into_iter();
    replicas.map(|replicas| Effect::EnsureControllers { replicas, fence: context.rollback_fence() }).collect()
}

pub(crate) fn is_ttl_restored(context: &Context) -> Check {
    let (former, fence) = (context.notes.api_ttl().unwrap_or_default(), context.rollback_fence());
    source(context, |facts| {
        if facts.api_ttl == former && facts.api_ttl_fence == fence {
            Check::Met(format!("the TTL is {} s", former.as_secs()))
        } else {
            Check::waiting("RestoringTTL", "the DNS record of the API is being written")
        }
    })
}

pub(crate) fn restore_ttl(context: &Context) -> Vec<Effect> {
    let former = context.notes.api_ttl().into_iter();
    former.map(|ttl| Effect::EnsureApiTtl { ttl, fence: context.rollback_fence() }).collect()
}

pub(crate) const SOURCE_API_RESTORED: Row<MigrationFlow> = Row {
    does: "As many kube-apiservers as before run at the source, and one is ready.",
    guard: |context| context.notes.api_servers.is_some(),
    advice: "see why the kube-apiservers of the source do not become ready; the etcd serves",
    effects: restore_api,
    ..day_long(Side::Source, Step::SourceApiRestored, is_api_restored)
};

pub(crate) const SOURCE_CONTROLLERS_RESTORED: Row<MigrationFlow> = Row {
    does: "As many controllers as before run at the source.",
    guard: |context| context.notes.controllers.is_some(),
    advice: "see why the controllers of the source do not start",
    effects: restore_controllers,
    ..day_long(Side::Source, Step::SourceControllersRestored, are_controllers_restored)
};

pub(crate) const API_TTL_RESTORED: Row<MigrationFlow> = Row {
    does: "The DNS record of the API has its former TTL.",
    guard: |context| context.notes.api_ttl_seconds.is_some(),
    on_failure: OnFailure::Skip,
    timeout: Timeout::Hours(2),
    advice: "set the TTL of the DNSRecord by hand",
    effects: restore_ttl,
    ..day_long(Side::Source, Step::ApiTtlRestored, is_ttl_restored)
};

pub(crate) const DESTINATION_REMOVED: Row<MigrationFlow> = Row {
    does: "Nothing of the Shoot is left at the destination, and no infrastructure was touched.",
    advice: "see which finalizers hold the objects that are left",
    effects: remove,
    ..day_long(Side::Destination, Step::DestinationRemoved, is_removed)
};

pub(crate) const SEED_NAME_RESTORED: Row<MigrationFlow> = Row {
    does: "`spec.seedName` of the Shoot is the source again, and its last operation says so.",
    advice: "see why the Shoot cannot be written",
    effects: restore_seed_name,
    ..day_long(Side::Garden, Step::SeedNameRestored, is_seed_name_restored)
};
