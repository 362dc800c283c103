//! The forward table. Everything slow comes before the outage, which lasts from `SourceApiStopped` to `ApiDnsSwitched`.

use crate::{
    flow::{OnFailure, Proof, Row, Timeout},
    migration::{
        MigrationFlow, Side, Step,
        destination::{self as to, is_awake},
        garden,
        rows::{A_DAY, day_long},
        shared,
        source::{self as from},
        standby,
    },
};

/// Rows in their order; each stands behind those that it waits for.
pub(crate) static FORWARD: &[Row<MigrationFlow>] = &[
    shared::TURN_TAKEN,
    Row { after: &[Step::TurnTaken], ..shared::SHOOT_IGNORED },
    Row {
        // Before spec.seedName is written, on which gardenlet would begin a migration of its own.
        after: &[Step::ShootIgnored],
        proof: Proof::HeldUntil(Step::SourceControllersStopped),
        ..shared::GARDENLET_EXCLUDED
    },
    Row { after: &[Step::GardenletExcluded], ..shared::MIGRATION_RECORDED },
    Row {
        after: &[Step::MigrationRecorded],
        does: "The rules, the conditions of the destination seed, the versions of gardenlet and extensions, and its capacity allow it.",
        proof: Proof::HeldUntil(Step::SourceControllersStopped),
        advice: "repair the destination, or migrate to another seed",
        ..Row::new(Side::Garden, Step::DestinationFit, garden::is_destination_fit)
    },
    Row {
        after: &[Step::DestinationFit],
        proof: Proof::HeldUntil(Step::SourceControllersStopped),
        ..shared::SOURCE_BUCKET_READABLE
    },
    Row {
        after: &[Step::DestinationFit],
        does: "The owner record names the source with the epoch that its members check, and its etcd and API serve.",
        proof: Proof::HeldUntil(Step::SourceControllersStopped),
        advice: "repair the control plane at the source, or start a forced migration",
        ..Row::new(Side::Source, Step::SourceServes, from::does_source_serve)
    },
    Row { after: &[Step::DestinationFit], ..shared::STATE_SYNCED },
    Row {
        after: &[Step::StateSynced],
        proof: Proof::HeldUntil(Step::SourceControllersStopped),
        ..shared::BINDINGS_RESOLVED
    },
    Row {
        after: &[Step::SourceBucketReadable],
        does: "The snapshots of the source are copied to the bucket of the destination, and verified.",
        timeout: Timeout::Hours(4),
        advice: "see in the logs of the copying Job what it waits for",
        effects: to::copy_snapshots,
        ..Row::new(Side::Destination, Step::SnapshotsCopiedAhead, to::are_snapshots_copied)
    },
    Row {
        after: &[Step::SourceBucketReadable, Step::BindingsResolved],
        proof: Proof::HeldUntil(Step::MoveCommitted),
        ..shared::DESTINATION_PREPARED
    },
    Row {
        after: &[Step::SnapshotsCopiedAhead, Step::DestinationPrepared],
        does: "A standby member has restored the snapshots and follows new ones, so the outage restores one delta.",
        guard: standby::is_offered,
        on_failure: OnFailure::Skip,
        timeout: Timeout::Steps(4),
        advice: "the migration goes on without it, and the outage lasts as long as a whole restore",
        on_start: standby::note,
        effects: standby::ensure,
        ..Row::new(Side::Destination, Step::StandbyFollows, standby::does_follow)
    },
    Row {
        after: &[Step::StandbyFollows],
        does: "A standby that does not follow in time is stopped: it would found an etcd when the owner record names it.",
        guard: |context| !standby::has_followed(context),
        advice: "see why the Pod of the standby does not end",
        effects: standby::remove,
        ..Row::new(Side::Destination, Step::StandbyRemoved, standby::is_removed)
    },
    Row {
        after: &[Step::StateSynced, Step::SnapshotsCopiedAhead, Step::DestinationPrepared],
        does: "The etcd of a hibernated Shoot is scaled up, so that it can take its final snapshot.",
        guard: |context| !is_awake(context),
        advice: "see why the members of the source do not start",
        on_start: from::note_etcd,
        effects: from::wake_etcd,
        ..Row::new(Side::Source, Step::SourceEtcdAwake, from::is_etcd_awake)
    },
    Row {
        after: &[Step::StateSynced],
        proof: Proof::HeldUntil(Step::SourceControllersStopped),
        ..shared::API_TTL_LOWERED
    },
    Row { after: &[Step::ApiTtlLowered], ..shared::FORMER_TTL_EXPIRED },
    Row {
        after: &[
            Step::SourceServes,
            Step::StateSynced,
            Step::DestinationPrepared,
            Step::StandbyFollows,
            Step::StandbyRemoved,
            Step::SourceEtcdAwake,
            Step::FormerTtlExpired,
        ],
        proof: Proof::HeldUntil(Step::MoveCommitted),
        ..shared::SOURCE_CONTROLLERS_STOPPED
    },
    Row { after: &[Step::SourceControllersStopped], ..shared::FINAL_STATE_SYNCED },
    Row {
        after: &[Step::SourceControllersStopped],
        proof: Proof::HeldUntil(Step::MoveCommitted),
        ..shared::DNS_RECORDS_MIGRATED
    },
    Row {
        // kube-apiserver needs seconds of CPU before it asks for the etcd, so that is done before the outage. Without an etcd it exits
        // after half a minute, so nothing that may take long comes between this and the hand-over.
        after: &[Step::FinalStateSynced, Step::DnsRecordsMigrated],
        does: "kube-apiservers of the destination run and had 10 s to start. They wait at the gateway of the standby for an etcd.",
        guard: standby::lets_api_start,
        on_failure: OnFailure::Skip,
        advice: "the migration goes on: they are started when the etcd serves",
        effects: to::serve_api,
        ..Row::new(Side::Destination, Step::ApiStarted, to::is_api_started)
    },
    Row {
        after: &[Step::ApiStarted, Step::FinalStateSynced, Step::DnsRecordsMigrated],
        does: "No kube-apiserver runs, by its Pods. The outage begins.",
        proof: Proof::HeldUntil(Step::MoveCommitted),
        advice: "see why kube-apiservers do not end, and whether somebody else scales their Deployment",
        on_start: from::note_api,
        on_done: from::note_last_answer,
        effects: from::stop_api,
        ..Row::new(Side::Source, Step::SourceApiStopped, from::is_api_stopped)
    },
    Row {
        after: &[Step::SourceApiStopped],
        does: "The owner record is deleted, so the members lose ownership.",
        advice: "see whether the DNS servers of the zone take updates",
        on_start: from::note_epoch,
        effects: from::delete_owner,
        ..Row::new(Side::Source, Step::OwnerRecordDeleted, from::is_owner_deleted)
    },
    Row {
        after: &[Step::OwnerRecordDeleted],
        does: "A member has stored the final snapshot, which ends the epoch of the source.",
        advice: "see in the logs of the members why the final snapshot cannot be stored",
        effects: from::check_owner,
        on_done: from::note_final_snapshot,
        ..Row::new(Side::Source, Step::FinalSnapshotTaken, from::is_final_snapshot_taken)
    },
    Row {
        after: &[Step::FinalSnapshotTaken],
        does: "No member runs at the source, by its Pods. None of them serves clients since the final snapshot.",
        on_failure: OnFailure::Skip,
        timeout: A_DAY,
        advice: "see why the members of the source do not end",
        effects: from::stop_etcd,
        ..Row::new(Side::Source, Step::SourceEtcdStopped, from::is_etcd_stopped)
    },
    Row {
        after: &[Step::FinalSnapshotTaken, Step::SnapshotsCopiedAhead, Step::DestinationPrepared],
        does: "The final snapshot is in the bucket of the destination, and verified. A standby needs no copy.",
        guard: |context| !standby::has_followed(context),
        advice: "see in the logs of the copying Job what it waits for",
        effects: to::copy_final_snapshot,
        ..Row::new(Side::Destination, Step::FinalSnapshotCopied, to::is_final_snapshot_copied)
    },
    Row {
        after: &[Step::FinalSnapshotTaken],
        does: "The owner record names the destination, with the next epoch.",
        proof: Proof::HeldUntil(Step::MoveCommitted),
        advice: "see whether the DNS servers of the zone take updates",
        on_start: to::note_epoch,
        effects: to::take_ownership,
        ..Row::new(Side::Destination, Step::OwnerRecordTaken, to::is_owner)
    },
    Row {
        // Not after the end of the source's members: the final snapshot names the epoch that it ends, and members store it only when
        // none of them serves clients and none can again from its volumes.
        after: &[Step::FinalSnapshotCopied, Step::OwnerRecordTaken],
        does: "A quorum serves at least the revision of the final snapshot; that of a hibernated Shoot has no replicas.",
        proof: Proof::HeldUntil(Step::MoveCommitted),
        advice: "see in the logs of the members why they do not serve",
        on_start: standby::note_start,
        effects: standby::take_over,
        ..Row::new(Side::Destination, Step::EtcdServes, standby::does_etcd_serve)
    },
    Row { after: &[Step::EtcdServes], proof: Proof::HeldUntil(Step::MoveCommitted), ..shared::API_SERVES },
    Row {
        after: &[
            Step::ApiServes,
            Step::EtcdServes,
            Step::FinalSnapshotCopied,
            Step::OwnerRecordTaken,
            Step::FinalStateSynced,
            Step::DnsRecordsMigrated,
        ],
        does: "The point of no return is recorded. From here on clients may write to the destination.",
        on_failure: OnFailure::Fail,
        advice: "look at what the message says",
        ..Row::new(Side::Destination, Step::MoveCommitted, to::is_committed)
    },
    Row { after: &[Step::MoveCommitted], ..shared::API_DNS_SWITCHED },
    Row {
        after: &[Step::MoveCommitted],
        proof: Proof::HeldUntil(Step::SourceRemoved),
        does: "All members of the etcd are ready, as many as at the source. The Etcd of a hibernated Shoot is as it was written.",
        advice: "see in the status of the Etcd which member is not ready, and why",
        effects: standby::complete_etcd,
        ..day_long(Side::Destination, Step::EtcdComplete, standby::is_complete)
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
    Row { after: &[Step::ExtensionsRestored, Step::ApiDnsSwitched], ..shared::WORKERS_RESTORED },
    Row { after: &[Step::WorkersRestored], ..shared::MACHINES_UNCHANGED },
    Row { after: &[Step::ApiDnsSwitched], ..shared::NODE_LEASES_RENEWED },
    Row { after: &[Step::ApiDnsSwitched, Step::NodeLeasesRenewed], ..shared::KUBE_CONTROLLERS_STARTED },
    Row {
        after: &[Step::ExtensionsRestored, Step::MachinesUnchanged, Step::KubeControllersStarted],
        ..shared::CONTROLLERS_STARTED
    },
    Row { after: &[Step::ControllersStarted], ..shared::NODES_HEALTHY },
    Row {
        // As early as the source has nothing left to store: a forced migration has to leave from where the newest state is.
        after: &[Step::MoveCommitted, Step::MigratedStateSynced],
        ..shared::STATUS_MOVED
    },
    Row { after: &[Step::ControllersStarted], ..shared::API_TTL_RAISED },
    Row { after: &[Step::StatusMoved, Step::NodesHealthy, Step::EtcdComplete], ..shared::SOURCE_REMOVED },
    Row { after: &[Step::SourceRemoved], ..shared::SOURCE_BACKUP_ENTRY_REMOVED },
    Row { after: &[Step::SourceRemoved], ..shared::MACHINE_GUARD_REMOVED },
    Row {
        after: &[Step::SourceBackupEntryRemoved, Step::MachineGuardRemoved, Step::ApiTtlRaised],
        ..shared::OPERATION_SUCCEEDED
    },
];
