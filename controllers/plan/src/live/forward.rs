//! The forward table. What a row stops at the source is served by the destination before.

use super::members as etcd;
use crate::{
    flow::{OnFailure, Proof, Row, Timeout},
    migration::{
        MigrationFlow, Side, Step, api_dns, destination as to, garden,
        rows::{A_DAY, day_long},
        shared,
        source::{self as from},
    },
};

/// Rows in their order; each stands behind those that it waits for.
pub(super) static FORWARD: &[Row<MigrationFlow>] = &[
    shared::SHOOT_IGNORED,
    Row {
        after: &[Step::ShootIgnored],
        proof: Proof::HeldUntil(Step::SourceControllersStopped),
        ..shared::GARDENLET_EXCLUDED
    },
    Row { after: &[Step::GardenletExcluded], ..shared::MIGRATION_RECORDED },
    Row {
        after: &[Step::MigrationRecorded],
        does: "The rules, the conditions of the destination seed, and the versions of gardenlet and extensions allow it.",
        proof: Proof::HeldUntil(Step::SourceControllersStopped),
        advice: "repair the destination, or migrate to another seed",
        ..Row::new(Side::Garden, Step::DestinationFit, garden::is_destination_fit)
    },
    Row {
        after: &[Step::DestinationFit],
        does: "The owner record names the source with the epoch that its members check. Its API serves, and its etcd has three members.",
        proof: Proof::HeldUntil(Step::SourceControllersStopped),
        advice: "repair the control plane at the source, or start a forced migration",
        ..Row::new(Side::Source, Step::SourceServes, etcd::does_source_serve)
    },
    Row { after: &[Step::DestinationFit], ..shared::STATE_SYNCED },
    Row {
        after: &[Step::SourceServes],
        does: "Each member has a Service and a DNS name that other seeds reach, is known by it alone, and is ready.",
        timeout: Timeout::Steps(2),
        proof: Proof::HeldUntil(Step::SixMemberEtcdReady),
        advice: "see in the Service and DNSRecord that are named why they have no address; see in the status of the Etcd which member is not ready",
        on_start: etcd::note_source,
        on_done: etcd::note_members,
        effects: etcd::expose,
        ..Row::new(Side::Source, Step::SourceMembersExposed, etcd::are_exposed_at_source)
    },
    Row {
        after: &[Step::StateSynced],
        proof: Proof::HeldUntil(Step::SourceControllersStopped),
        ..shared::BINDINGS_RESOLVED
    },
    Row {
        after: &[Step::BindingsResolved],
        proof: Proof::HeldUntil(Step::MoveCommitted),
        ..shared::DESTINATION_PREPARED
    },
    Row {
        after: &[Step::DestinationPrepared],
        does: "Each member that is going to join has a Service and a DNS name that other seeds reach.",
        advice: "see in the Service and DNSRecord that are named why they have no address",
        effects: etcd::expose,
        ..Row::new(Side::Destination, Step::DestinationMembersExposed, etcd::are_exposed_at_destination)
    },
    Row {
        after: &[Step::StateSynced],
        proof: Proof::HeldUntil(Step::DnsRecordsMigrated),
        ..shared::API_TTL_LOWERED
    },
    Row { after: &[Step::ApiTtlLowered], ..shared::FORMER_TTL_EXPIRED },
    Row {
        after: &[Step::SourceMembersExposed, Step::DestinationMembersExposed],
        does: "All members of the destination have joined the etcd of the source: its voters and those of the destination are one etcd.",
        proof: Proof::HeldUntil(Step::MoveCommitted),
        timeout: Timeout::Steps(3),
        advice: "see in the status of the Etcd at the destination which member has not joined, and whether the seeds reach each other",
        on_start: etcd::note_join,
        effects: etcd::join,
        ..Row::new(Side::Destination, Step::SixMemberEtcdReady, etcd::have_joined)
    },
    Row {
        after: &[Step::SixMemberEtcdReady],
        proof: Proof::HeldUntil(Step::MoveCommitted),
        ..shared::API_SERVES
    },
    Row {
        after: &[Step::ApiServes, Step::FormerTtlExpired],
        proof: Proof::HeldUntil(Step::MoveCommitted),
        ..shared::DNS_RECORDS_MIGRATED
    },
    Row {
        after: &[Step::DnsRecordsMigrated],
        does: "The servers of the zone answer with the destination for the name of the API, while the source still serves.",
        advice: "see in the DNSRecord what its controller reports; both sides serve",
        effects: api_dns::switch_dns,
        on_done: api_dns::note_written,
        ..Row::new(Side::Destination, Step::ApiDnsSwitched, api_dns::is_dns_switched)
    },
    Row {
        after: &[Step::ApiDnsSwitched],
        does: "The TTL of the DNS record has passed, so no client finds the source by it.",
        advice: "wait for the TTL",
        ..Row::new(Side::Source, Step::SourceAddressExpired, |context| {
            etcd::has_address_expired(context, Step::SourceAddressExpired)
        })
    },
    Row {
        after: &[Step::SourceAddressExpired],
        proof: Proof::HeldUntil(Step::MoveCommitted),
        ..shared::SOURCE_CONTROLLERS_STOPPED
    },
    Row {
        after: &[Step::SourceControllersStopped],
        timeout: Timeout::Steps(1),
        on_failure: OnFailure::RollBack,
        ..shared::KUBE_CONTROLLERS_STARTED
    },
    Row { after: &[Step::SourceControllersStopped], ..shared::FINAL_STATE_SYNCED },
    Row {
        after: &[Step::KubeControllersStarted, Step::FinalStateSynced],
        does: "No kube-apiserver runs at the source, by its Pods. Its connections were closed with GOAWAY, so clients go to the destination.",
        proof: Proof::HeldUntil(Step::MoveCommitted),
        advice: "see why kube-apiservers do not end, and whether somebody else scales their Deployment",
        effects: from::stop_api,
        ..Row::new(Side::Source, Step::SourceApiStopped, from::is_api_stopped)
    },
    Row {
        after: &[Step::SourceApiStopped],
        timeout: Timeout::Steps(1),
        on_failure: OnFailure::RollBack,
        ..shared::NODE_LEASES_RENEWED
    },
    Row {
        after: &[
            Step::SixMemberEtcdReady,
            Step::ApiServes,
            Step::ApiDnsSwitched,
            Step::SourceApiStopped,
            Step::FinalStateSynced,
            Step::KubeControllersStarted,
            Step::NodeLeasesRenewed,
        ],
        does: "The point of no return is recorded. From here on members of the source leave the etcd.",
        on_failure: OnFailure::Fail,
        advice: "look at what the message says",
        ..Row::new(Side::Destination, Step::MoveCommitted, to::is_committed)
    },
    Row {
        after: &[Step::MoveCommitted],
        does: "The etcd has the members of the destination alone, and all of them are ready.",
        advice: "see in the status of the Etcd at the destination which member of the source is still there",
        effects: etcd::remove_source_members,
        ..day_long(Side::Destination, Step::SourceMembersRemoved, etcd::have_source_members_left)
    },
    Row {
        after: &[Step::SourceMembersRemoved],
        does: "No member runs at the source, by its Pods.",
        on_failure: OnFailure::Skip,
        timeout: A_DAY,
        advice: "see why the members of the source do not end",
        effects: from::stop_removed_members,
        ..Row::new(Side::Source, Step::SourceEtcdStopped, from::is_etcd_stopped)
    },
    Row {
        after: &[Step::SourceMembersRemoved],
        does: "The owner record names the destination, with the next epoch.",
        advice: "see whether the DNS servers of the zone take updates",
        effects: to::take_ownership,
        ..day_long(Side::Destination, Step::OwnerRecordTaken, to::is_owner)
    },
    Row {
        after: &[Step::OwnerRecordTaken, Step::SourceEtcdStopped],
        does: "The members are known by the addresses of their own seed, and the Services and DNS names for other seeds are gone.",
        advice: "see in the status of the Etcd which member is not ready",
        effects: etcd::hide,
        ..day_long(Side::Destination, Step::DestinationMembersHidden, etcd::are_hidden_at_destination)
    },
    Row {
        after: &[Step::OwnerRecordTaken],
        does: "The bucket of the destination has a snapshot of the etcd.",
        advice: "see in the logs of the members why no snapshot can be stored",
        ..day_long(Side::Destination, Step::SnapshotStored, etcd::is_snapshot_stored)
    },
    Row { after: &[Step::MoveCommitted], ..shared::EXTENSIONS_MIGRATED },
    Row {
        after: &[Step::MoveCommitted],
        proof: Proof::HeldUntil(Step::SourceRemoved),
        ..shared::SOURCE_CONTROLLERS_REMOVED
    },
    Row {
        after: &[Step::ExtensionsMigrated, Step::SourceControllersRemoved],
        ..shared::MIGRATED_STATE_SYNCED
    },
    Row { after: &[Step::MigratedStateSynced], ..shared::INFRASTRUCTURE_RESTORED },
    Row { after: &[Step::MigratedStateSynced, Step::InfrastructureRestored], ..shared::EXTENSIONS_RESTORED },
    Row { after: &[Step::ExtensionsRestored], ..shared::WORKERS_RESTORED },
    Row { after: &[Step::WorkersRestored], ..shared::MACHINES_UNCHANGED },
    Row { after: &[Step::ExtensionsRestored, Step::MachinesUnchanged], ..shared::CONTROLLERS_STARTED },
    Row { after: &[Step::ControllersStarted], ..shared::NODES_HEALTHY },
    Row {
        // As early as the source has nothing left to store: a forced migration has to leave from where the newest state is.
        after: &[Step::OwnerRecordTaken, Step::MigratedStateSynced],
        ..shared::STATUS_MOVED
    },
    Row { after: &[Step::ControllersStarted], ..shared::API_TTL_RAISED },
    Row {
        after: &[Step::StatusMoved, Step::NodesHealthy, Step::SnapshotStored, Step::DestinationMembersHidden],
        ..shared::SOURCE_REMOVED
    },
    Row { after: &[Step::SourceRemoved], ..shared::MACHINE_GUARD_REMOVED },
    Row { after: &[Step::MachineGuardRemoved, Step::ApiTtlRaised], ..shared::OPERATION_SUCCEEDED },
];
