//! The forward table. Rows of the source stand last: nobody waits for them.

use super::destination as forced;
use crate::{
    flow::{OnFailure, Proof, Row, Timeout},
    migration::{
        MigrationFlow, Side, Step,
        destination::{self as to, has_workers, is_awake},
        garden,
        rows::{A_DAY, day_long},
        shared, source as from, standby, tunnel,
    },
};

/// Rows of a forced migration, in the order of the paper.
pub(super) static FORWARD: &[Row<MigrationFlow>] = &[
    Row {
        does: "Migrations of this Shoot that have not left the same source have ended, and what they made at the destination is removed.",
        timeout: A_DAY,
        advice: "see in the status of the other migration what it waits for",
        on_done: garden::note_epoch_of_others,
        effects: garden::supersede,
        ..Row::new(Side::Garden, Step::OthersSuperseded, garden::are_others_superseded)
    },
    // Whether gardenlet honours it is not tried: that of a dead seed cannot show it.
    Row { after: &[Step::OthersSuperseded], ..shared::SHOOT_IGNORED },
    Row { after: &[Step::ShootIgnored], ..shared::MIGRATION_RECORDED },
    Row {
        after: &[Step::MigrationRecorded],
        does: "The rules, the conditions of the destination seed, its versions and its capacity allow it.",
        proof: Proof::HeldUntil(Step::OwnerRecordTaken),
        advice: "repair the destination, or migrate to another seed",
        ..Row::new(Side::Garden, Step::DestinationFit, garden::is_destination_fit)
    },
    Row {
        after: &[Step::DestinationFit],
        proof: Proof::HeldUntil(Step::OwnerRecordTaken),
        ..shared::SOURCE_BUCKET_READABLE
    },
    Row {
        after: &[Step::SourceBucketReadable],
        does: "A person has confirmed that what the source stored after its newest snapshot is lost, and DNS answers.",
        timeout: A_DAY,
        advice: "look at the age of the snapshot, and confirm the loss or abort the migration",
        on_done: forced::note_loss,
        ..Row::new(Side::Destination, Step::LossConfirmed, forced::is_loss_confirmed)
    },
    Row {
        after: &[Step::SourceBucketReadable],
        proof: Proof::HeldUntil(Step::OwnerRecordTaken),
        ..shared::BINDINGS_RESOLVED
    },
    Row {
        after: &[Step::BindingsResolved],
        proof: Proof::HeldUntil(Step::OwnerRecordTaken),
        ..shared::DESTINATION_PREPARED
    },
    Row {
        after: &[Step::LossConfirmed, Step::DestinationPrepared],
        does: "The owner record names the destination, with a higher epoch than any before. The members of the source stop.",
        proof: Proof::HeldUntil(Step::MoveCommitted),
        advice: "see whether the DNS servers of the zone take updates",
        on_start: forced::note_take_over,
        effects: to::take_ownership,
        ..day_long(Side::Destination, Step::OwnerRecordTaken, to::is_owner)
    },
    Row {
        after: &[Step::OwnerRecordTaken],
        does: "The record has named the destination for as long as a member of the source may believe in an earlier one.",
        advice: "wait for TTL, check interval and grace of the owner check",
        ..day_long(Side::Destination, Step::SourceFenced, forced::is_source_fenced)
    },
    Row {
        after: &[Step::OwnerRecordTaken],
        does: "The command of the operator has taken away the credentials of the source seed.",
        guard: garden::has_quarantine_command,
        on_failure: OnFailure::Skip,
        timeout: A_DAY,
        advice: "see in the message and in the logs of the garden's controllers what the command says; or revoke them by hand",
        effects: garden::revoke_credentials,
        ..Row::new(Side::Garden, Step::SourceQuarantined, garden::is_source_quarantined)
    },
    Row {
        // It waits for the fence by itself: a row that does not apply would hold up those behind it until then.
        after: &[Step::OwnerRecordTaken],
        does: "The snapshots of a hibernated Shoot are in the bucket of the destination: its etcd is restored when it wakes.",
        guard: |context| !is_awake(context),
        advice: "see in the logs of the copying Job what it waits for",
        effects: forced::copy_snapshots,
        ..day_long(Side::Destination, Step::SnapshotsCopiedAhead, to::are_snapshots_copied)
    },
    Row {
        after: &[Step::OwnerRecordTaken, Step::SnapshotsCopiedAhead],
        does: "A quorum serves what the newest snapshots of the source hold. The members wait by themselves for the end of the source.",
        proof: Proof::HeldUntil(Step::MoveCommitted),
        advice: "see in the status of the Etcd and in the logs of its Job and members what they wait for",
        effects: forced::serve_etcd,
        ..day_long(Side::Destination, Step::EtcdServes, forced::does_etcd_serve)
    },
    Row {
        // Not after the whole wait: the members begin earlier where a final snapshot proves that those of the source have stopped.
        after: &[Step::EtcdServes],
        does: "A kube-apiserver of the destination is ready, and answers at its Service, which has an address.",
        guard: is_awake,
        proof: Proof::HeldUntil(Step::MoveCommitted),
        advice: "see in the logs of the kube-apiservers why they do not become ready, and whether the load balancer leads to them",
        effects: to::serve_api,
        ..day_long(Side::Destination, Step::ApiServes, to::does_api_serve)
    },
    Row {
        after: &[Step::ApiServes, Step::EtcdServes, Step::OwnerRecordTaken],
        does: "From here on clients may write to the destination.",
        advice: "look at what the message says",
        ..day_long(Side::Destination, Step::MoveCommitted, to::is_committed)
    },
    Row { after: &[Step::MoveCommitted], ..shared::API_DNS_SWITCHED },
    Row {
        after: &[Step::MoveCommitted],
        does: "`status.seedName` of the Shoot is the destination, so a migration that follows begins there; its BackupEntry is moved.",
        advice: "see why the Shoot cannot be written",
        effects: garden::move_status,
        ..day_long(Side::Garden, Step::StatusMoved, garden::is_status_moved)
    },
    Row {
        after: &[Step::MoveCommitted],
        does: "All members of the etcd are ready.",
        guard: is_awake,
        advice: "see in the status of the Etcd which member is not ready, and why",
        effects: forced::serve_etcd,
        ..day_long(Side::Destination, Step::EtcdComplete, standby::is_complete)
    },
    Row {
        after: &[Step::MoveCommitted],
        does: "Snapshots that the etcd did not begin with are in the bucket of the destination too, for restores of earlier states.",
        guard: is_awake,
        on_failure: OnFailure::Skip,
        timeout: A_DAY,
        advice: "see in the logs of the copying Job what it waits for; without them no earlier state can be restored",
        effects: forced::copy_older,
        ..Row::new(Side::Destination, Step::OlderSnapshotsCopied, forced::are_older_copied)
    },
    Row {
        after: &[Step::MoveCommitted, Step::SourceFenced],
        does: "Controllers of the source cannot act: by their Pods, revoked credentials or a confirmation. The API serves meanwhile.",
        guard: has_workers,
        timeout: Timeout::Hours(14 * 24),
        advice: "take the credentials for the infrastructure away from the source seed, or switch its nodes off",
        ..day_long(Side::Destination, Step::SourceControllersFenced, forced::are_controllers_fenced)
    },
    Row { after: &[Step::SourceControllersFenced], ..shared::INFRASTRUCTURE_RESTORED },
    Row {
        after: &[Step::SourceFenced, Step::MoveCommitted, Step::InfrastructureRestored],
        ..shared::EXTENSIONS_RESTORED
    },
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
        // A live migration that this one supersedes may have left a temporary client, which only an API of the Shoot can remove.
        after: &[Step::KubeControllersStarted],
        guard: forced::has_tunnel,
        does: "No temporary client of the tunnel is left in the Shoot; one is deleted when the usual client has been ready for a minute.",
        check: forced::is_tunnel_moved,
        ..tunnel::TUNNEL_MOVED
    },
    Row {
        after: &[Step::EtcdComplete, Step::ControllersStarted, Step::OlderSnapshotsCopied],
        ..shared::SOURCE_BACKUP_ENTRY_REMOVED
    },
    Row { after: &[Step::NodesHealthy], ..shared::MACHINE_GUARD_REMOVED },
    Row {
        after: &[Step::StatusMoved, Step::SourceBackupEntryRemoved, Step::MachineGuardRemoved],
        ..shared::OPERATION_SUCCEEDED
    },
    Row {
        after: &[Step::OwnerRecordTaken],
        does: "No machine-controller-manager, autoscaler, kube-controller-manager or other controller runs, by their Pods.",
        advice: "see why these Pods do not end, and whether somebody else scales their workloads",
        on_start: from::note_controllers,
        effects: from::stop_controllers,
        ..day_long(Side::Source, Step::SourceControllersStopped, from::are_controllers_stopped)
    },
    Row {
        after: &[Step::SourceControllersStopped],
        does: "No kube-apiserver runs, by its Pods.",
        advice: "see why kube-apiservers do not end, and whether somebody else scales their Deployment",
        on_start: from::note_api,
        effects: from::stop_api,
        ..day_long(Side::Source, Step::SourceApiStopped, from::is_api_stopped)
    },
    Row {
        after: &[Step::SourceApiStopped],
        does: "A member has stored the final snapshot, which may hold what the destination does not.",
        guard: is_awake,
        on_failure: OnFailure::Skip,
        timeout: Timeout::Steps(1),
        advice: "the volumes of the source hold what was not stored, until the namespace is deleted",
        on_start: from::note_epoch,
        on_done: from::note_final_snapshot,
        ..Row::new(Side::Source, Step::FinalSnapshotTaken, from::is_final_snapshot_taken)
    },
    Row {
        after: &[Step::FinalSnapshotTaken],
        does: "No member runs at the source, by its Pods.",
        advice: "see why the members of the source do not end",
        effects: |context| from::scale_etcd(context, 0, context.forward_fence()),
        ..day_long(Side::Source, Step::SourceEtcdStopped, from::is_etcd_stopped)
    },
    Row {
        after: &[Step::OwnerRecordTaken],
        does: "The DNSRecords of the source, that of the owner included, report a migrate that succeeded.",
        advice: "see in the DNSRecords what their controller reports",
        on_start: from::note_dns,
        effects: from::migrate_dns_records,
        ..day_long(Side::Source, Step::DnsRecordsMigrated, from::are_dns_records_migrated)
    },
    Row { after: &[Step::SourceControllersStopped], ..shared::EXTENSIONS_MIGRATED },
    Row { after: &[Step::SourceControllersStopped], ..shared::SOURCE_CONTROLLERS_REMOVED },
    Row {
        after: &[
            Step::StatusMoved,
            Step::EtcdComplete,
            Step::SourceEtcdStopped,
            Step::DnsRecordsMigrated,
            Step::ExtensionsMigrated,
            Step::SourceControllersRemoved,
        ],
        ..shared::SOURCE_REMOVED
    },
];
