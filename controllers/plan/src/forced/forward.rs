//! The forward table. Rows of the source stand last: nobody waits for them.

use super::destination as forced;
use crate::{
    classic::{
        ClassicMigration, Side, Step, api_dns,
        destination::{self as to, has_nodes, has_workers, is_awake},
        garden,
        rows::{A_DAY, day_long},
        source as from, standby,
    },
    flow::{OnFailure, Proof, Row, Timeout},
};

/// The table.
pub(super) static FORWARD: &[Row<ClassicMigration>] = &[
    Row {
        does: "The finalizer is on the ControlPlaneMigration, and `status.lastOperation` of the Shoot is Migrate.",
        timeout: A_DAY,
        advice: "wait for the other migration of this Shoot, or abort it",
        on_start: garden::note_start,
        effects: garden::record,
        ..Row::new(Side::Garden, Step::MigrationRecorded, garden::is_recorded)
    },
    Row {
        after: &[Step::MigrationRecorded],
        does: "The rules, the conditions of the destination seed, its versions and its capacity allow it.",
        proof: Proof::HeldUntil(Step::OwnerRecordTaken),
        advice: "repair the destination, or migrate to another seed",
        ..Row::new(Side::Garden, Step::DestinationFit, garden::is_destination_fit)
    },
    Row {
        after: &[Step::DestinationFit],
        does: "The destination has access to the backup bucket of the source, and reads it.",
        proof: Proof::HeldUntil(Step::OwnerRecordTaken),
        advice: "see whether credentials and networks of the destination reach the bucket of the source",
        on_start: to::note_change,
        effects: to::ensure_source_backup_entry,
        ..Row::new(Side::Destination, Step::SourceBucketReadable, to::is_bucket_readable)
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
        does: "Each binding that a carried object declares has its value at the destination.",
        proof: Proof::HeldUntil(Step::OwnerRecordTaken),
        advice: "correct the annotation with the bindings of the object that is named",
        effects: to::ensure_exposure,
        ..Row::new(Side::Destination, Step::BindingsResolved, to::are_bindings_resolved)
    },
    Row {
        after: &[Step::BindingsResolved],
        does: "Namespace, Secrets, carried objects without replicas and extension resources exist, and Machines are guarded.",
        proof: Proof::HeldUntil(Step::OwnerRecordTaken),
        advice: "see which of the named objects the API server of the destination refuses",
        effects: to::prepare,
        ..Row::new(Side::Destination, Step::DestinationPrepared, to::is_prepared)
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
        does: "A quorum serves what the bucket of the source holds. The members wait by themselves for the end of the source.",
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
    Row {
        after: &[Step::MoveCommitted],
        does: "The servers of the zone answer with the destination for the name of the API. The outage ends.",
        guard: is_awake,
        advice: "see in the DNSRecord what its controller reports; the API serves at its new address",
        effects: api_dns::switch_dns,
        ..day_long(Side::Destination, Step::ApiDnsSwitched, api_dns::is_dns_switched)
    },
    Row {
        after: &[Step::MoveCommitted],
        does: "`status.seedName` of the Shoot is the destination, so a migration that follows begins there.",
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
        after: &[Step::MoveCommitted, Step::SourceFenced],
        does: "Controllers of the source are stopped, by their Pods or by a confirmation. The API serves meanwhile.",
        guard: has_workers,
        timeout: Timeout::Hours(14 * 24),
        advice: "take the credentials for the infrastructure away from the source seed, or switch its nodes off",
        ..day_long(Side::Destination, Step::SourceControllersFenced, forced::are_controllers_fenced)
    },
    Row {
        after: &[Step::SourceControllersFenced],
        does: "The Infrastructure reports a restore that succeeded.",
        guard: has_workers,
        advice: "see in the Infrastructure what its controller reports",
        effects: to::restore_infrastructure,
        ..day_long(Side::Destination, Step::InfrastructureRestored, to::is_infrastructure_restored)
    },
    Row {
        after: &[Step::SourceFenced, Step::MoveCommitted, Step::InfrastructureRestored],
        does: "ControlPlane, Network, DNSRecord, Extension, OperatingSystemConfig and ContainerRuntime report a restore that succeeded.",
        advice: "see in the extension resource what its controller reports",
        effects: to::restore_extensions,
        ..day_long(Side::Destination, Step::ExtensionsRestored, to::are_extensions_restored)
    },
    Row {
        after: &[Step::ExtensionsRestored, Step::ApiDnsSwitched],
        does: "The Workers report a restore that succeeded, so all Machines exist. The machine-controller-manager is stopped.",
        guard: has_workers,
        advice: "see in the Worker what its controller reports",
        effects: to::restore_workers,
        ..day_long(Side::Destination, Step::WorkersRestored, to::are_workers_restored)
    },
    Row {
        after: &[Step::WorkersRestored],
        does: "Machines, classes, templates and provider IDs equal the carried state, so no node is replaced.",
        guard: has_workers,
        advice: "correct what differs; until then the controllers of Machines stay stopped, and nodes run on",
        effects: to::stop_early_controllers,
        ..day_long(Side::Destination, Step::MachinesUnchanged, to::are_machines_unchanged)
    },
    Row {
        after: &[Step::ApiDnsSwitched],
        does: "Kubelets have renewed their Leases through the destination, so no node is taken for lost.",
        guard: has_nodes,
        advice: "see whether the nodes reach the new address; delete Nodes that do not exist any more",
        ..day_long(Side::Destination, Step::NodeLeasesRenewed, to::are_leases_renewed)
    },
    Row {
        after: &[Step::ExtensionsRestored, Step::MachinesUnchanged, Step::NodeLeasesRenewed],
        does: "As many controllers as before run at the destination.",
        advice: "see why the controllers do not become ready",
        effects: to::start_controllers,
        ..day_long(Side::Destination, Step::ControllersStarted, to::are_controllers_started)
    },
    Row {
        after: &[Step::ControllersStarted],
        does: "All nodes are healthy.",
        guard: has_nodes,
        on_failure: OnFailure::Skip,
        timeout: Timeout::Steps(2),
        advice: "look at the nodes that are named; the control plane is at the destination",
        ..Row::new(Side::Destination, Step::NodesHealthy, to::are_nodes_healthy)
    },
    Row {
        after: &[Step::EtcdComplete, Step::ControllersStarted],
        does: "The BackupEntry for the bucket of the source is deleted. Its snapshots stay for their retention.",
        on_failure: OnFailure::Skip,
        timeout: A_DAY,
        advice: "delete the BackupEntry by hand",
        effects: to::remove_source_backup_entry,
        ..Row::new(Side::Destination, Step::SourceBackupEntryRemoved, to::is_source_backup_entry_gone)
    },
    Row {
        after: &[Step::NodesHealthy],
        does: "The policy that keeps Machines is deleted.",
        advice: "delete the ValidatingAdmissionPolicy by hand",
        effects: to::remove_machine_guard,
        ..day_long(Side::Destination, Step::MachineGuardRemoved, to::is_machine_guard_gone)
    },
    Row {
        after: &[Step::StatusMoved, Step::SourceBackupEntryRemoved, Step::MachineGuardRemoved],
        does: "`status.lastOperation` of the Shoot is Restore, Succeeded.",
        advice: "see why the Shoot cannot be written",
        effects: garden::report_success,
        ..day_long(Side::Garden, Step::OperationSucceeded, garden::has_succeeded)
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
    Row {
        after: &[Step::SourceControllersStopped],
        does: "The other extension resources of the source report a migrate that succeeded and is newer than its request.",
        advice: "see in the extension resource what its controller reports",
        effects: from::migrate_extensions,
        ..day_long(Side::Source, Step::ExtensionsMigrated, from::are_extensions_migrated)
    },
    Row {
        after: &[Step::SourceControllersStopped],
        does: "The workloads of machine-controller-manager and other controllers are deleted, so that nobody scales them up.",
        advice: "delete these workloads at the source",
        effects: from::remove_controllers,
        ..day_long(Side::Source, Step::SourceControllersRemoved, from::are_controllers_removed)
    },
    Row {
        after: &[
            Step::StatusMoved,
            Step::EtcdComplete,
            Step::SourceEtcdStopped,
            Step::DnsRecordsMigrated,
            Step::ExtensionsMigrated,
            Step::SourceControllersRemoved,
        ],
        does: "The objects of the Shoot are deleted at the source, its namespace last, and no infrastructure with them.",
        on_failure: OnFailure::Skip,
        timeout: A_DAY,
        advice: "see which finalizers hold the objects that are left, and delete them by hand",
        effects: from::remove_source,
        ..Row::new(Side::Source, Step::SourceRemoved, from::is_source_removed)
    },
];
