//! Every constant name of the API, with its origin.

/// Group of ShootState in GEP-7 (the paper); upstream serves the group today without ShootState in v1alpha1.
pub const CORE_GROUP: &str = "core.gardener.cloud";
/// Repot's own group, for everything upstream has no room for.
pub const MIGRATION_GROUP: &str = "migration.gardener.cloud";
/// The one version served.
pub const V1ALPHA1: &str = "v1alpha1";

/// Set by garbage collection for foreground deletion (Kubernetes).
pub const FINALIZER_FOREGROUND: &str = "foregroundDeletion";
/// Set by garbage collection for orphaning deletion (Kubernetes).
pub const FINALIZER_ORPHAN: &str = "orphan";
/// On the bookmark that ends the initial events of a watch (Kubernetes).
pub const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
/// Marks the trimmed form in which an object too large for a watch frame is shown (Repot).
pub const TRIMMED: &str = "migration.gardener.cloud/trimmed";
/// The newest resource version of a store, on a Lease (Repot).
pub const HIGH_WATER_MARK: &str = "migration.gardener.cloud/high-water-mark";
/// Condition of the Pod of an API server that has marked the Pod of another one as not ready (Repot).
pub const MARKS_PEER: &str = "migration.gardener.cloud/marks-peer";

/// Group of Gardener's extension kinds, and of SubnetIsolation (GEP-21).
pub const EXTENSIONS_GROUP: &str = "extensions.gardener.cloud";
/// Group of etcd-druid's kinds.
pub const DRUID_GROUP: &str = "druid.gardener.cloud";

/// What a controller is asked to do with an object, once (Gardener).
pub const OPERATION: &str = "gardener.cloud/operation";
/// The other spelling of [`OPERATION`], on extension kinds (GEP-7).
pub const OPERATION_GEP_7: &str = "core.gardener.cloud/operation";
/// Value of [`OPERATION`] that gives an extension object up in its seed (Gardener).
pub const OPERATION_MIGRATE: &str = "migrate";
/// Value of [`OPERATION`] that takes an extension object over from its state (Gardener).
pub const OPERATION_RESTORE: &str = "restore";
/// Value of [`OPERATION`] with which an extension object waits for its state (Gardener).
pub const OPERATION_WAIT_FOR_STATE: &str = "wait-for-state";
/// Value of [`OPERATION`] that makes the next change of seed a live migration (GEP-39).
pub const OPERATION_LIVE_MIGRATE: &str = "live-migrate";
/// Value of [`OPERATION`] that asks for a reconciliation at once (Gardener).
pub const OPERATION_RECONCILE: &str = "reconcile";
/// Value of [`OPERATION`] that lets a failed operation begin again (Gardener).
pub const OPERATION_RETRY: &str = "retry";
/// Value of [`OPERATION`] that asks for the maintenance at once (Gardener).
pub const OPERATION_MAINTAIN: &str = "maintain";
/// Tells gardenlet to leave a Shoot alone (Gardener).
pub const IGNORE: &str = "shoot.gardener.cloud/ignore";
/// The ControlPlaneMigration for which a Shoot is ignored: its UID, and `/kept` behind it where the Shoot was ignored before (Repot).
pub const IGNORED_FOR: &str = "migration.gardener.cloud/ignored-for";
/// What is to be done in the next maintenance (Gardener).
pub const MAINTENANCE_OPERATION: &str = "maintenance.gardener.cloud/operation";
/// The other spelling of the trigger, a boolean (Gardener 1.142).
pub const LIVE_MIGRATE: &str = "migration.gardener.cloud/live-migrate";
/// Lets a live migration pass although the regions are too distant or their distance is not known (GEP-39).
pub const ALLOW_DISTANT_REGIONS: &str = "migration.gardener.cloud/allow-distant-regions";
/// Calls a live migration off: `true`, or `force` (GEP-39; `force`: Repot).
pub const ABORT_LIVE_MIGRATION: &str = "migration.shoot.gardener.cloud/abort-live-migration";
/// Removes the source members of the etcd before the destination's API servers are up (GEP-39).
pub const FORCE_SHRINK_ETCD: &str = "migration.gardener.cloud/force-shrink-etcd";
/// The greatest distance of a live migration, on the region ConfigMap (GEP-39).
pub const SEED_DISTANCE_THRESHOLD: &str = "migration.gardener.cloud/inter-seed-distance-threshold";
/// The other spelling of [`SEED_DISTANCE_THRESHOLD`] (Gardener 1.142).
pub const REGION_DISTANCE_THRESHOLD: &str = "migration.gardener.cloud/inter-region-distance-threshold";
/// When the migration that runs was asked for, set by admission (Repot).
pub const REQUESTED_AT: &str = "migration.gardener.cloud/requested-at";
/// The zone that is to be isolated (GEP-21).
pub const ISOLATED_ZONE: &str = "shoot.gardener.cloud/isolated-zone";
/// On a Worker: whether its controller leaves zones out when it is asked (Repot).
pub const LEAVES_ZONES_OUT: &str = "migration.gardener.cloud/leaves-zones-out";
/// On a Worker: the zone that is left out, beside `spec.isolatedZoneID`, which API servers with another form of the kind drop (Repot).
pub const LEFT_OUT_ZONE: &str = "migration.gardener.cloud/isolated-zone-id";
/// On a Worker: since when a zone is left out, in RFC 3339 (Repot).
pub const LEFT_OUT_SINCE: &str = "migration.gardener.cloud/isolated-since";
/// On a Worker: the code of that zone, beside `status.isolatedZoneCode` (Repot).
pub const LEFT_OUT_ZONE_CODE: &str = "migration.gardener.cloud/isolated-zone-code";
/// Annotation of a Shoot: an integer. `repot drain` moves Shoots with higher ones first.
pub const DRAIN_PRIORITY: &str = "migration.gardener.cloud/drain-priority";
/// On a Worker: machines that zones can still take by the quotas of the account, as JSON by the codes of zones (Repot).
pub const FREE_QUOTA: &str = "migration.gardener.cloud/free-quota";
/// Zone codes by region and zone id, as JSON, on a CloudProfile (Repot).
pub const ZONE_IDS: &str = "migration.gardener.cloud/zone-ids";
/// Restores a control plane whose source does not answer (Gardener up to 1.65).
pub const FORCE_RESTORE: &str = "shoot.gardener.cloud/force-restore";
/// Confirms [`FORCE_RESTORE`]; the value is the name of the source seed (Repot).
pub const CONFIRM_FORCE_RESTORE: &str = "confirmation.gardener.cloud/force-restore";
/// Confirms a ControlPlaneMigration in mode Forced, on that object; the value is the name of the source seed (Repot).
pub const CONFIRM_FORCED_MIGRATION: &str = "confirmation.gardener.cloud/forced-migration";
/// Confirms, on a ControlPlaneMigration in mode Forced, that controllers of the source reach no infrastructure any more; the value is the
/// name of the source seed (Repot).
pub const CONFIRM_SOURCE_STOPPED: &str = "confirmation.gardener.cloud/source-controllers-stopped";
/// Confirms, on a ControlPlaneMigration with executor Gardenlet, that nothing of the Shoot runs at the source any more: no etcd, no API
/// server, no controller; the value is the name of the source seed (Repot).
pub const CONFIRM_SOURCE_OFF: &str = "confirmation.gardener.cloud/source-seed-off";
/// On a Seed: the kind of its backup store, `S3`, `GCS`, `ABS` or `Local`, where the provider of its backups does not tell (Repot).
pub const STORE_PROVIDER: &str = "migration.gardener.cloud/store-provider";
/// Confirms an isolation of a zone that nobody knows; the value is that of [`ISOLATED_ZONE`] (Repot).
pub const CONFIRM_ISOLATED_ZONE: &str = "confirmation.gardener.cloud/isolated-zone";
/// On a ControlPlaneMigration: its destination never comes back, by the name of that seed, so a live migration is aborted without it.
pub const CONFIRM_DESTINATION_LOST: &str = "confirmation.gardener.cloud/destination-lost";
/// Confirms that a Shoot leaves a destination that died; the value is the name of that seed (Repot).
pub const CONFIRM_LEAVE_DESTINATION: &str = "confirmation.gardener.cloud/leave-destination";
/// Confirms a deletion (Gardener).
pub const CONFIRM_DELETION: &str = "confirmation.gardener.cloud/deletion";
/// Confirms that a person changes what only controllers should change, such as ownership records (Repot).
pub const CONFIRM_TAKEOVER: &str = "confirmation.gardener.cloud/takeover";
/// When an object was last written by its controller (Gardener).
pub const TIMESTAMP: &str = "gardener.cloud/timestamp";
/// Stops etcd-druid from reconciling the spec of an Etcd (etcd-druid).
pub const SUSPEND_ETCD: &str = "druid.gardener.cloud/suspend-etcd-spec-reconcile";
/// Lets anybody change what etcd-druid made (etcd-druid).
pub const UNPROTECT_ETCD: &str = "druid.gardener.cloud/disable-etcd-component-protection";
/// `true` on an Etcd: the leader moves and members leave although gateways do not answer, or calls through them do not end; set by
/// people (Repot).
pub const WITHOUT_GATEWAYS: &str = "migration.gardener.cloud/without-gateways";
/// Label, `true` on objects of a control plane's namespace that a ShootState carries to the destination (Repot).
pub const CARRY: &str = "migration.gardener.cloud/carry";
/// Certificates of a carried Secret that are issued anew where the Secret is made, so that their keys are not carried: a JSON list
/// (Repot).
pub const CERTIFICATES: &str = "migration.gardener.cloud/certificates";
/// Label, `true` on Secrets that a ShootState carries and from which others are generated (Gardener).
pub const PERSIST: &str = "persist";
/// On the Secret of authorities: who asks for new serving certificates, as any word that was not used before (Repot).
pub const ROTATE_CERTIFICATES: &str = "migration.gardener.cloud/rotate-certificates";
/// On the Secret of authorities: who asks for a new authority, as any word that was not used before (Repot).
pub const ROTATE_AUTHORITIES: &str = "migration.gardener.cloud/rotate-authorities";
/// On a Secret with certificates: the last request that was carried out (Repot).
pub const ROTATED_FOR: &str = "migration.gardener.cloud/rotated-for";
/// Prefix, on the Secret of authorities: since when all clients have had a bundle with the authority of this number, in RFC 3339 (Repot).
pub const TRUSTED_SINCE: &str = "migration.gardener.cloud/trusted-since-";
/// On the Secret of authorities: when the Secret with the encryption key was made, in RFC 3339 (Repot).
pub const ENCRYPTION_KEY_MADE: &str = "migration.gardener.cloud/encryption-key-made";
/// Label of objects: who manages them (Kubernetes).
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Finalizer of a ShootState while its Shoot moves (Gardener).
pub const FINALIZER_SHOOT_STATE: &str = "core.gardener.cloud/shootstate";
/// Prefix of the labels that tell on which seeds a Shoot is, or is going to be (Gardener).
pub const SEED_LABEL_PREFIX: &str = "name.seed.gardener.cloud/";

/// What ConfigMaps with region distances are labelled with (Gardener).
pub const PURPOSE: (&str, &str) = ("scheduling.gardener.cloud/purpose", "region-config");
/// For which CloudProfiles a ConfigMap has distances (Gardener).
pub const PURPOSE_PROFILES: &str = "scheduling.gardener.cloud/cloudprofiles";
/// The namespace of such ConfigMaps (Gardener).
pub const GARDEN_NAMESPACE: &str = "garden";

/// Stops all reconciliations of Shoots on a Seed when `true` (Gardener).
pub const EMERGENCY_STOP: &str = "shoot.gardener.cloud/emergency-stop-reconciliations";
/// Group of Bastions (Gardener).
pub const OPERATIONS_GROUP: &str = "operations.gardener.cloud";

/// The group of all gardenlets (Gardener).
pub const SEEDS_GROUP: &str = "gardener.cloud:system:seeds";
/// What the user of a gardenlet begins with; its seed follows (Gardener).
pub const SEED_USER_PREFIX: &str = "gardener.cloud:system:seed:";
/// The verb on Shoots that allows annotations by which data or availability is given up (Repot).
pub const VERB_FORCE: &str = "force-migration";
/// The group of cluster administrators (Kubernetes).
pub const MASTERS_GROUP: &str = "system:masters";

/// The step of the paper in which source and destination form one etcd (GEP-39).
pub const STEP_SIX_MEMBERS: &str = "SixMemberETCDReady";
/// The same as a condition (Gardener 1.142).
pub const STEP_PEERS_JOINED: &str = "DestinationEtcdPeersJoined";
/// The API servers of the destination are up (Gardener 1.142).
pub const STEP_API_SERVER_READY: &str = "DestinationKubeAPIServerReady";
/// Steps from the first removal of a source member on (Gardener 1.142): a live migration can then only go forward.
pub const STEPS_OF_NO_RETURN: [&str; 3] =
    ["EtcdMigrationComplete", "SourceSeedCleanup", "MigrationCompleted"];
/// Reasons with which a condition of a step counts as failed.
pub const STEP_FAILED: [&str; 3] = ["Failed", "DeadlineExceeded", "StepFailed"];
