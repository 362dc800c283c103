//! The rollback table: clients are led back to the source, and then the members of the destination leave the etcd.

use super::{members as etcd, tunnel};
use crate::{
    flow::Row,
    ledger::Check,
    migration::{
        MigrationFlow, Side, Step,
        context::{Context, destination},
        destination::{is_stopped, stop},
        effect::Effect,
        going_back as back,
        observed::ExtensionOperation,
        rows::day_long,
        source::have_done,
    },
};

/// Rows in their order; each stands behind those that it waits for.
pub(super) static ROLLBACK: &[Row<MigrationFlow>] = &[
    back::SOURCE_API_RESTORED,
    Row {
        after: &[Step::SourceApiRestored],
        does: "The DNSRecords of the destination report a migrate that succeeded, so nothing at the destination writes them.",
        guard: was_dns_switched,
        advice: "see in the DNSRecords what their controller reports",
        effects: |_| vec![Effect::RequestDnsRecords { operation: ExtensionOperation::Migrate }],
        ..day_long(Side::Destination, Step::DestinationDnsReleased, is_dns_released)
    },
    Row {
        after: &[Step::DestinationDnsReleased],
        does: "The DNSRecords of the source report a restore that succeeded, and the servers of the zone answer with the source.",
        guard: |context| context.notes.dns_records_migrated,
        advice: "see in the DNSRecords what their controller reports",
        effects: |_| vec![Effect::RequestDnsRecords { operation: ExtensionOperation::Restore }],
        ..day_long(Side::Source, Step::DnsRecordsRestored, is_dns_back)
    },
    Row {
        after: &[Step::DnsRecordsRestored],
        does: "The TTL of the DNS record has passed, so no client finds the destination by it.",
        guard: |context| context.notes.dns_records_migrated,
        advice: "wait for the TTL",
        ..day_long(Side::Source, Step::DestinationAddressExpired, |context| {
            etcd::has_address_expired(context, Step::DestinationAddressExpired)
        })
    },
    Row {
        after: &[Step::DestinationAddressExpired],
        does: "kube-apiservers and controllers of the destination are stopped, and its members have left the etcd and are stopped.",
        advice: "see in the status of the Etcd at the destination why its members cannot leave",
        effects: stop,
        ..day_long(Side::Destination, Step::DestinationStopped, is_stopped)
    },
    Row { after: &[Step::DestinationStopped], ..back::SOURCE_CONTROLLERS_RESTORED },
    Row {
        after: &[Step::DestinationStopped],
        does: "Members of a destination that never comes back are no members of the etcd any more.",
        guard: |context| context.observed.request.destination_lost,
        advice: "see in the status of the Etcd which member of the destination is still there",
        effects: etcd::remove_lost_members,
        ..day_long(Side::Source, Step::LostMembersRemoved, etcd::have_lost_members_left)
    },
    Row { after: &[Step::DestinationStopped], ..tunnel::TEMPORARY_CLIENT_REMOVED },
    Row {
        // A member that restarts is missed where others never come back.
        after: &[Step::DestinationStopped, Step::LostMembersRemoved],
        does: "The members are known by the addresses of their own seed, and the Services and DNS names for other seeds are gone.",
        guard: |context| context.notes.controllers.is_some(),
        advice: "see in the status of the Etcd which member is not ready",
        effects: etcd::hide_again,
        ..day_long(Side::Source, Step::SourceMembersHidden, etcd::are_hidden_at_source)
    },
    Row {
        // Not before: a resolver may ask a server that still answers with the destination.
        after: &[Step::DestinationStopped],
        ..back::API_TTL_RESTORED
    },
    Row {
        after: &[Step::DestinationStopped, Step::SourceControllersRestored, Step::SourceMembersHidden],
        ..back::DESTINATION_REMOVED
    },
    Row { after: &[Step::SourceControllersRestored, Step::SourceMembersHidden], ..back::SEED_NAME_RESTORED },
];

/// Whether DNSRecords of the destination may have been written.
fn was_dns_switched(context: &Context) -> bool {
    context.ledger.is_started(Step::ApiDnsSwitched)
}

fn is_dns_back(context: &Context) -> Check {
    match back::are_dns_records_restored(context) {
        Check::Met(_) if !context.at_source().is_some_and(|facts| facts.api_dns_here) => {
            Check::waiting("SwitchingDNS", "servers of the zone answer otherwise")
        }
        check => check,
    }
}

fn is_dns_released(context: &Context) -> Check {
    destination(context, |facts| have_done(&facts.dns_records, ExtensionOperation::Migrate))
}
