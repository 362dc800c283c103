//! The forward table. What a row stops at the source is served by the destination before.

use super::{api, members as etcd, rows, tunnel};
use crate::{
    flow::{OnFailure, Proof, Row, Timeout},
    migration::{MigrationFlow, Side, Step, shared},
};

/// Rows in their order; each stands behind those that it waits for.
pub(super) static FORWARD: &[Row<MigrationFlow>] = &[
    shared::TURN_TAKEN,
    Row { after: &[Step::TurnTaken], ..shared::SHOOT_IGNORED },
    Row {
        after: &[Step::ShootIgnored],
        proof: Proof::HeldUntil(Step::SourceControllersStopped),
        ..shared::GARDENLET_EXCLUDED
    },
    Row { after: &[Step::GardenletExcluded], ..shared::MIGRATION_RECORDED },
    Row {
        after: &[Step::MigrationRecorded],
        proof: Proof::HeldUntil(Step::SourceControllersStopped),
        ..rows::DESTINATION_FIT
    },
    Row {
        after: &[Step::DestinationFit],
        proof: Proof::HeldUntil(Step::SourceControllersStopped),
        ..rows::SOURCE_SERVES
    },
    Row { after: &[Step::DestinationFit], ..shared::STATE_SYNCED },
    Row {
        after: &[Step::SourceServes],
        proof: Proof::HeldUntil(Step::SixMemberEtcdReady),
        ..rows::SOURCE_MEMBERS_EXPOSED
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
    Row { after: &[Step::DestinationPrepared], ..rows::DESTINATION_MEMBERS_EXPOSED },
    Row {
        after: &[Step::StateSynced],
        proof: Proof::HeldUntil(Step::DnsRecordsMigrated),
        ..shared::API_TTL_LOWERED
    },
    Row { after: &[Step::ApiTtlLowered], ..shared::FORMER_TTL_EXPIRED },
    Row {
        after: &[Step::SourceMembersExposed, Step::DestinationMembersExposed],
        proof: Proof::HeldUntil(Step::MoveCommitted),
        ..rows::SIX_MEMBER_ETCD_READY
    },
    Row { after: &[Step::SourceMembersExposed, Step::DestinationPrepared], ..tunnel::TUNNEL_EXPOSED },
    Row { after: &[Step::TunnelExposed], ..tunnel::TEMPORARY_CLIENT_STARTED },
    Row {
        // A kube-apiserver that reaches no aggregated API says so in the Shoot, and those of the source believe it.
        after: &[Step::SixMemberEtcdReady, Step::TemporaryClientStarted],
        proof: Proof::HeldUntil(Step::MoveCommitted),
        ..api::API_SERVES
    },
    Row { after: &[Step::ApiServes], ..tunnel::TUNNEL_SERVES },
    Row { after: &[Step::ApiServes], ..api::WATCH_CACHES_STARTED },
    Row { after: &[Step::WatchCachesStarted], ..api::WATCH_CACHES_FILLED },
    Row {
        after: &[Step::TunnelServes, Step::WatchCachesFilled, Step::FormerTtlExpired],
        proof: Proof::HeldUntil(Step::MoveCommitted),
        ..shared::DNS_RECORDS_MIGRATED
    },
    Row { after: &[Step::DnsRecordsMigrated], ..api::API_DNS_SWITCHED },
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
        proof: Proof::HeldUntil(Step::MoveCommitted),
        ..rows::SOURCE_API_STOPPED
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
        ..rows::MOVE_COMMITTED
    },
    Row { after: &[Step::MoveCommitted], ..rows::SOURCE_MEMBERS_REMOVED },
    Row { after: &[Step::SourceMembersRemoved], ..rows::SOURCE_ETCD_STOPPED },
    Row { after: &[Step::SourceMembersRemoved], ..rows::OWNER_RECORD_TAKEN },
    Row { after: &[Step::MoveCommitted], ..tunnel::TUNNEL_MOVED },
    Row {
        after: &[Step::OwnerRecordTaken, Step::SourceEtcdStopped, Step::TunnelMoved],
        ..rows::DESTINATION_MEMBERS_HIDDEN
    },
    Row { after: &[Step::OwnerRecordTaken], ..rows::SNAPSHOT_STORED },
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
    Row {
        // Beyond this nothing at the destination can be removed again, as it has to be where the etcd is lost with the source. Nor can
        // it be given up: its controllers of Machines may run.
        after: &[Step::SourceMembersRemoved, Step::MigratedStateSynced, Step::SnapshotStored],
        ..shared::INFRASTRUCTURE_RESTORED
    },
    Row { after: &[Step::MigratedStateSynced, Step::InfrastructureRestored], ..shared::EXTENSIONS_RESTORED },
    Row { after: &[Step::ExtensionsRestored], ..shared::WORKERS_RESTORED },
    Row { after: &[Step::WorkersRestored], ..shared::MACHINES_UNCHANGED },
    Row { after: &[Step::ExtensionsRestored, Step::MachinesUnchanged], ..shared::CONTROLLERS_STARTED },
    Row { after: &[Step::ControllersStarted], ..shared::NODES_HEALTHY },
    Row {
        // A forced migration leaves from the seed that the Shoot names, by the snapshots in the bucket of that seed and by what the source
        // has stored last.
        after: &[Step::OwnerRecordTaken, Step::MigratedStateSynced, Step::SnapshotStored],
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
