//! Rows of a rollback that bring the source back: its kube-apiservers, its controllers and its DNS records.

use super::{
    context::{Context, source},
    effect::Effect,
    observed::{ExtensionOperation, Replicas, Workloads},
    source::have_done,
};
use crate::ledger::Check;

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
