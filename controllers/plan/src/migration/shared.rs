//! Rows that migrations of more than one mode have in common. Each table says what comes before them, and how long they count.

use std::time::Duration;

use super::{
    api_dns,
    destination::{self as to, has_nodes, has_workers, is_awake},
    flow::MigrationFlow,
    garden, ignored,
    rows::{A_DAY, day_long},
    source as from,
    step::{Side, Step},
};
use crate::flow::{OnFailure, Row, Timeout};

pub(crate) const TURN_TAKEN: Row<MigrationFlow> = Row {
    does: "The finalizer is on the ControlPlaneMigration. At either seed fewer migrations are under way than may be at once. Those that were created first begin first.",
    timeout: Timeout::Computed { text: "7 d while others go first, else 24 h", limit: garden::turn_limit },
    advice: "wait, or abort what is not urgent; --max-migrations-per-seed of the controllers in the garden says how many there may be",
    on_start: garden::note_turn,
    effects: garden::ensure_finalizer,
    ..Row::new(Side::Garden, Step::TurnTaken, garden::is_turn_taken)
};

pub(crate) const SHOOT_IGNORED: Row<MigrationFlow> = Row {
    guard: ignored::is_asked_for,
    does: "The finalizer is on the ControlPlaneMigration. The Shoot has `shoot.gardener.cloud/ignore`, and a new generation.",
    timeout: A_DAY,
    advice: "wait for what is named, or abort this migration",
    on_start: garden::note_begin,
    effects: garden::ignore,
    ..Row::new(Side::Garden, Step::ShootIgnored, garden::is_ignored)
};

pub(crate) const MIGRATION_RECORDED: Row<MigrationFlow> = Row {
    does: "The finalizer is on the ControlPlaneMigration, and `status.lastOperation` of the Shoot is Migrate.",
    timeout: A_DAY,
    advice: "wait for the other migration of this Shoot, or abort it",
    on_start: garden::note_start,
    effects: garden::record,
    ..Row::new(Side::Garden, Step::MigrationRecorded, garden::is_recorded)
};

pub(crate) const SOURCE_BUCKET_READABLE: Row<MigrationFlow> = Row {
    does: "The destination has access to the backup bucket of the source, and reads it.",
    advice: "see whether credentials and networks of the destination reach the bucket of the source",
    on_start: to::note_change,
    effects: to::ensure_source_backup_entry,
    ..Row::new(Side::Destination, Step::SourceBucketReadable, to::is_bucket_readable)
};

pub(crate) const BINDINGS_RESOLVED: Row<MigrationFlow> = Row {
    does: "Each binding that a carried object declares has its value at the destination.",
    advice: "correct the annotation with the bindings of the object that is named",
    on_start: to::note_change,
    effects: to::ensure_exposure,
    ..Row::new(Side::Destination, Step::BindingsResolved, to::are_bindings_resolved)
};

pub(crate) const DESTINATION_PREPARED: Row<MigrationFlow> = Row {
    does: "Namespace, Secrets, carried objects without replicas and extension resources exist, and Machines are guarded.",
    advice: "see which of the named objects the API server of the destination refuses",
    effects: to::prepare,
    ..Row::new(Side::Destination, Step::DestinationPrepared, to::is_prepared)
};

pub(crate) const API_DNS_SWITCHED: Row<MigrationFlow> = Row {
    does: "The servers of the zone answer with the destination for the name of the API. The outage ends.",
    guard: is_awake,
    advice: "see in the DNSRecord what its controller reports; the API serves at its new address",
    effects: api_dns::switch_dns,
    on_done: api_dns::note_written,
    ..day_long(Side::Destination, Step::ApiDnsSwitched, api_dns::is_dns_switched)
};

pub(crate) const EXTENSIONS_MIGRATED: Row<MigrationFlow> = Row {
    does: "The other extension resources of the source report a migrate that succeeded and is newer than its request.",
    advice: "see in the extension resource what its controller reports",
    effects: from::migrate_extensions,
    ..day_long(Side::Source, Step::ExtensionsMigrated, from::are_extensions_migrated)
};

pub(crate) const SOURCE_CONTROLLERS_REMOVED: Row<MigrationFlow> = Row {
    does: "The workloads of machine-controller-manager and other controllers are deleted, so that nobody scales them up.",
    advice: "delete these workloads at the source",
    effects: from::remove_controllers,
    ..day_long(Side::Source, Step::SourceControllersRemoved, from::are_controllers_removed)
};

pub(crate) const INFRASTRUCTURE_RESTORED: Row<MigrationFlow> = Row {
    does: "The Infrastructure reports a restore that succeeded.",
    guard: has_workers,
    advice: "see in the Infrastructure what its controller reports",
    effects: to::restore_infrastructure,
    ..day_long(Side::Destination, Step::InfrastructureRestored, to::is_infrastructure_restored)
};

pub(crate) const EXTENSIONS_RESTORED: Row<MigrationFlow> = Row {
    does: "ControlPlane, Network, DNSRecord, Extension, OperatingSystemConfig and ContainerRuntime report a restore that succeeded.",
    advice: "see in the extension resource what its controller reports",
    effects: to::restore_extensions,
    ..day_long(Side::Destination, Step::ExtensionsRestored, to::are_extensions_restored)
};

pub(crate) const WORKERS_RESTORED: Row<MigrationFlow> = Row {
    does: "The Workers report a restore that succeeded, so all Machines exist. The machine-controller-manager is stopped.",
    guard: has_workers,
    advice: "see in the Worker what its controller reports",
    effects: to::restore_workers,
    ..day_long(Side::Destination, Step::WorkersRestored, to::are_workers_restored)
};

pub(crate) const MACHINES_UNCHANGED: Row<MigrationFlow> = Row {
    does: "Machines, classes, templates and provider IDs equal the carried state, so no node is replaced.",
    guard: has_workers,
    advice: "correct what differs; until then the controllers of Machines stay stopped, and nodes run on",
    effects: to::stop_early_controllers,
    ..day_long(Side::Destination, Step::MachinesUnchanged, to::are_machines_unchanged)
};

pub(crate) const NODE_LEASES_RENEWED: Row<MigrationFlow> = Row {
    does: "Kubelets have renewed their Leases through the destination, so no node is taken for lost.",
    guard: has_nodes,
    advice: "see whether the nodes reach the new address; delete Nodes that do not exist any more",
    ..day_long(Side::Destination, Step::NodeLeasesRenewed, to::are_leases_renewed)
};

pub(crate) const KUBE_CONTROLLERS_STARTED: Row<MigrationFlow> = Row {
    does: "kube-controller-manager and kube-scheduler run at the destination. They touch no infrastructure, so they do not wait for Machines.",
    guard: is_awake,
    advice: "see why kube-controller-manager and kube-scheduler do not become ready",
    effects: to::start_kube_controllers,
    ..day_long(Side::Destination, Step::KubeControllersStarted, to::are_kube_controllers_started)
};

pub(crate) const CONTROLLERS_STARTED: Row<MigrationFlow> = Row {
    does: "As many controllers as before run at the destination.",
    advice: "see why the controllers do not become ready",
    effects: to::start_controllers,
    ..day_long(Side::Destination, Step::ControllersStarted, to::are_controllers_started)
};

pub(crate) const NODES_HEALTHY: Row<MigrationFlow> = Row {
    does: "All nodes are healthy.",
    guard: has_nodes,
    on_failure: OnFailure::Skip,
    timeout: Timeout::Steps(2),
    advice: "look at the nodes that are named; the control plane is at the destination",
    ..Row::new(Side::Destination, Step::NodesHealthy, to::are_nodes_healthy)
};

pub(crate) const SOURCE_REMOVED: Row<MigrationFlow> = Row {
    does: "The objects of the Shoot are deleted at the source, its namespace last, and no infrastructure with them.",
    on_failure: OnFailure::Skip,
    timeout: A_DAY,
    advice: "see which finalizers hold the objects that are left, and delete them by hand",
    effects: from::remove_source,
    ..Row::new(Side::Source, Step::SourceRemoved, from::is_source_removed)
};

pub(crate) const SOURCE_BACKUP_ENTRY_REMOVED: Row<MigrationFlow> = Row {
    does: "The BackupEntry for the bucket of the source is deleted. Its snapshots stay for their retention.",
    on_failure: OnFailure::Skip,
    timeout: A_DAY,
    advice: "delete the BackupEntry by hand",
    effects: to::remove_source_backup_entry,
    ..Row::new(Side::Destination, Step::SourceBackupEntryRemoved, to::is_source_backup_entry_gone)
};

pub(crate) const MACHINE_GUARD_REMOVED: Row<MigrationFlow> = Row {
    does: "The policy that keeps Machines is deleted.",
    advice: "delete the ValidatingAdmissionPolicy by hand",
    effects: to::remove_machine_guard,
    ..day_long(Side::Destination, Step::MachineGuardRemoved, to::is_machine_guard_gone)
};

pub(crate) const OPERATION_SUCCEEDED: Row<MigrationFlow> = Row {
    does: "`status.lastOperation` of the Shoot is Restore, Succeeded.",
    advice: "see why the Shoot cannot be written",
    effects: garden::report_success,
    ..day_long(Side::Garden, Step::OperationSucceeded, garden::has_succeeded)
};

pub(crate) const GARDENLET_EXCLUDED: Row<MigrationFlow> = Row {
    guard: ignored::is_tried,
    does: "No gardenlet has observed the new generation of the Shoot for 20 s, and no operation of the Shoot runs.",
    timeout: Timeout::Hours(2),
    advice: "see which controller reconciles the Shoot; gardenlet honours the annotation with respectSyncPeriodOverwrite",
    ..Row::new(Side::Garden, Step::GardenletExcluded, ignored::is_gardenlet_excluded)
};

pub(crate) const STATE_SYNCED: Row<MigrationFlow> = Row {
    does: "The ShootState holds the secrets, extension states and Machines of the source.",
    advice: "see in the events of the ShootState why it cannot be written",
    effects: from::sync_state,
    ..Row::new(Side::Source, Step::StateSynced, from::is_state_synced)
};

pub(crate) const API_TTL_LOWERED: Row<MigrationFlow> = Row {
    does: "The DNS record of the API has a TTL of 10 s.",
    guard: is_awake,
    advice: "see in the DNSRecord what its controller reports",
    on_start: from::note_ttl,
    effects: from::lower_ttl,
    ..Row::new(Side::Source, Step::ApiTtlLowered, from::is_ttl_low)
};

pub(crate) const FORMER_TTL_EXPIRED: Row<MigrationFlow> = Row {
    does: "No resolver holds the record with its former TTL.",
    guard: is_awake,
    timeout: Timeout::Computed {
        text: "the former TTL and 10 minutes",
        limit: |context| from::former_ttl(context) + Duration::from_secs(600),
    },
    advice: "wait for the former TTL",
    ..Row::new(Side::Source, Step::FormerTtlExpired, from::has_former_ttl_expired)
};

pub(crate) const SOURCE_CONTROLLERS_STOPPED: Row<MigrationFlow> = Row {
    does: "No machine-controller-manager, autoscaler, kube-controller-manager or other controller runs, by their Pods.",
    advice: "see why these Pods do not end, and whether somebody else scales their workloads",
    on_start: from::note_controllers,
    effects: from::stop_controllers,
    ..Row::new(Side::Source, Step::SourceControllersStopped, from::are_controllers_stopped)
};

pub(crate) const FINAL_STATE_SYNCED: Row<MigrationFlow> = Row {
    does: "The ShootState holds what the controllers did until they stopped.",
    advice: "see in the events of the ShootState why it cannot be written",
    effects: from::sync_state,
    ..Row::new(Side::Source, Step::FinalStateSynced, from::is_state_synced)
};

pub(crate) const DNS_RECORDS_MIGRATED: Row<MigrationFlow> = Row {
    does: "The DNSRecords of the source report a migrate that succeeded, so nothing at the source writes them.",
    advice: "see in the DNSRecords what their controller reports",
    on_start: from::note_dns,
    effects: from::migrate_dns_records,
    ..Row::new(Side::Source, Step::DnsRecordsMigrated, from::are_dns_records_migrated)
};

pub(crate) const API_SERVES: Row<MigrationFlow> = Row {
    does: "A kube-apiserver of the destination is ready, and answers at its Service, which has an address. No client knows that yet.",
    guard: is_awake,
    advice: "see in the logs of the kube-apiservers why they do not become ready, and whether the load balancer leads to them",
    effects: to::serve_api,
    ..Row::new(Side::Destination, Step::ApiServes, to::does_api_serve)
};

pub(crate) const MIGRATED_STATE_SYNCED: Row<MigrationFlow> = Row {
    does: "The ShootState holds what extension controllers stored until they stopped.",
    advice: "see in the events of the ShootState why it cannot be written",
    effects: from::sync_state,
    ..day_long(Side::Source, Step::MigratedStateSynced, from::is_state_synced)
};

pub(crate) const STATUS_MOVED: Row<MigrationFlow> = Row {
    does: "`status.seedName` of the Shoot is the destination, its last operation is Restore, and its BackupEntry names the destination.",
    advice: "see why the Shoot cannot be written",
    effects: garden::move_status,
    ..day_long(Side::Garden, Step::StatusMoved, garden::is_status_moved)
};

pub(crate) const API_TTL_RAISED: Row<MigrationFlow> = Row {
    does: "The DNS record of the API has the TTL that it had before the migration.",
    guard: is_awake,
    on_failure: OnFailure::Skip,
    timeout: Timeout::Steps(2),
    advice: "write the TTL of the DNSRecord by hand",
    effects: api_dns::raise_ttl,
    ..Row::new(Side::Destination, Step::ApiTtlRaised, api_dns::is_ttl_raised)
};
