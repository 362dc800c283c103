//! The forward table where the source is given up for a destination whose kube-apiservers do not start on the etcd of both seeds, as
//! where these are too far from each other (`spec.forceShrinkEtcd`). Members of the source leave first, so there is an outage: until the
//! destination serves on its own members and clients find it.

use super::{api, members as etcd, rows, tunnel};
use crate::{
    flow::{OnFailure, Proof, Row},
    migration::{
        MigrationFlow, Step,
        rows::A_DAY,
        shared,
        source::{self as from},
    },
};

/// A row past the point of no return, which has a day.
const fn committed(row: Row<MigrationFlow>) -> Row<MigrationFlow> {
    Row { on_failure: OnFailure::Fail, timeout: A_DAY, proof: Proof::Latched, ..row }
}

/// Rows in their order; each stands behind those that it waits for. The same steps as in the other table, but for the waits for the TTL,
/// the tunnel and watch caches: nobody serves at the former address.
pub(super) static SHRUNK: &[Row<MigrationFlow>] = &[
    shared::TURN_TAKEN,
    Row { after: &[Step::TurnTaken], ..shared::SHOOT_IGNORED },
    Row {
        after: &[Step::ShootIgnored],
        proof: Proof::HeldUntil(Step::MoveCommitted),
        ..shared::GARDENLET_EXCLUDED
    },
    Row { after: &[Step::GardenletExcluded], ..shared::MIGRATION_RECORDED },
    Row {
        after: &[Step::MigrationRecorded],
        proof: Proof::HeldUntil(Step::MoveCommitted),
        ..rows::DESTINATION_FIT
    },
    Row { after: &[Step::DestinationFit], ..rows::SOURCE_SERVES },
    Row { after: &[Step::DestinationFit], ..shared::STATE_SYNCED },
    Row { after: &[Step::SourceServes], ..rows::SOURCE_MEMBERS_EXPOSED },
    Row {
        after: &[Step::StateSynced],
        proof: Proof::HeldUntil(Step::MoveCommitted),
        ..shared::BINDINGS_RESOLVED
    },
    Row {
        after: &[Step::BindingsResolved],
        proof: Proof::HeldUntil(Step::MoveCommitted),
        ..shared::DESTINATION_PREPARED
    },
    Row { after: &[Step::DestinationPrepared], ..rows::DESTINATION_MEMBERS_EXPOSED },
    Row {
        after: &[Step::SourceMembersExposed, Step::DestinationMembersExposed],
        proof: Proof::HeldUntil(Step::MoveCommitted),
        ..rows::SIX_MEMBER_ETCD_READY
    },
    Row { after: &[Step::SourceMembersExposed, Step::DestinationPrepared], ..tunnel::TUNNEL_EXPOSED },
    Row { after: &[Step::TunnelExposed], ..tunnel::TEMPORARY_CLIENT_STARTED },
    Row { after: &[Step::SixMemberEtcdReady], on_start: etcd::note_shrunk, ..rows::MOVE_COMMITTED },
    Row { after: &[Step::MoveCommitted], ..rows::SOURCE_MEMBERS_REMOVED },
    committed(Row { after: &[Step::SourceMembersRemoved], ..shared::API_SERVES }),
    committed(Row { after: &[Step::MoveCommitted], ..shared::API_TTL_LOWERED }),
    committed(Row { after: &[Step::ApiTtlLowered], ..shared::DNS_RECORDS_MIGRATED }),
    committed(Row { after: &[Step::ApiServes, Step::DnsRecordsMigrated], ..api::API_DNS_SWITCHED }),
    committed(Row { after: &[Step::MoveCommitted], ..shared::SOURCE_CONTROLLERS_STOPPED }),
    committed(Row { after: &[Step::SourceControllersStopped], ..shared::FINAL_STATE_SYNCED }),
    committed(Row {
        after: &[Step::SourceMembersRemoved],
        effects: from::stop_api,
        ..rows::SOURCE_API_STOPPED
    }),
    Row { after: &[Step::ApiDnsSwitched], ..shared::NODE_LEASES_RENEWED },
    Row {
        after: &[Step::SourceControllersStopped, Step::NodeLeasesRenewed],
        ..shared::KUBE_CONTROLLERS_STARTED
    },
    Row { after: &[Step::SourceApiStopped], ..rows::SOURCE_ETCD_STOPPED },
    Row { after: &[Step::SourceMembersRemoved], ..rows::OWNER_RECORD_TAKEN },
    Row { after: &[Step::SourceApiStopped, Step::ApiDnsSwitched], ..tunnel::TUNNEL_MOVED },
    Row {
        after: &[Step::OwnerRecordTaken, Step::SourceEtcdStopped, Step::TunnelMoved],
        ..rows::DESTINATION_MEMBERS_HIDDEN
    },
    Row { after: &[Step::OwnerRecordTaken], ..rows::SNAPSHOT_STORED },
    Row { after: &[Step::FinalStateSynced], ..shared::EXTENSIONS_MIGRATED },
    Row {
        after: &[Step::FinalStateSynced],
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
    Row {
        after: &[Step::ExtensionsRestored, Step::MachinesUnchanged, Step::KubeControllersStarted],
        ..shared::CONTROLLERS_STARTED
    },
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
