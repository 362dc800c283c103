//! Sides and steps of a migration between two seeds.

use crate::named_enum;

named_enum! {
    /// Who works on a migration. Each side is one controller, which acts on its own cluster.
    pub enum Side {
        /// The cluster that holds the Shoot and the ControlPlaneMigration.
        Garden = "garden",
        /// The seed that hosts the control plane before the migration.
        Source = "source",
        /// The seed that hosts the control plane after the migration.
        Destination = "destination",
    }
}

named_enum! {
    /// Steps of classic, forced and live migrations and of their rollbacks. The tables say what each of them does.
    pub enum Step {
        /// Forced: migrations that this one supersedes have ended.
        OthersSuperseded,
        /// Classic and live: not too many migrations have begun that lead from or to one of the seeds.
        TurnTaken,
        /// gardenlet is told to leave the Shoot alone.
        ShootIgnored,
        /// Classic: no gardenlet reconciles the Shoot.
        GardenletExcluded,
        /// The migration is recorded in the status of the Shoot.
        MigrationRecorded,
        /// The rules, the destination seed and the versions of both seeds allow the migration.
        DestinationFit,
        /// The source owns the etcd, and serves unless the Shoot is hibernated.
        SourceServes,
        /// The destination can read the backup bucket of the source.
        SourceBucketReadable,
        /// Forced: somebody has confirmed that what the source stored after its newest snapshot is lost.
        LossConfirmed,
        /// The ShootState holds the state of the source.
        StateSynced,
        /// Each declared binding of a carried object has its value at the destination.
        BindingsResolved,
        /// Snapshots of the etcd are copied while the source serves.
        SnapshotsCopiedAhead,
        /// Namespace, Secrets, carried objects and extension resources exist at the destination.
        DestinationPrepared,
        /// A member of the etcd at the destination follows the snapshots of the source.
        StandbyFollows,
        /// A standby that does not follow is gone, so that it founds no etcd.
        StandbyRemoved,
        /// The etcd of a hibernated Shoot runs, so that it can take its final snapshot.
        SourceEtcdAwake,
        /// The DNS record of the API has a low TTL.
        ApiTtlLowered,
        /// Resolvers have forgotten the DNS record of the API with its former TTL.
        FormerTtlExpired,
        /// No controller of the control plane runs at the source.
        SourceControllersStopped,
        /// The ShootState holds what the controllers of the source did last.
        FinalStateSynced,
        /// No kube-apiserver runs at the source.
        SourceApiStopped,
        /// The owner record does not name the source any more.
        OwnerRecordDeleted,
        /// The final snapshot of the source's etcd is stored.
        FinalSnapshotTaken,
        /// No member of the source's etcd runs.
        SourceEtcdStopped,
        /// DNS controllers of the source do not write the records of the Shoot any more.
        DnsRecordsMigrated,
        /// The destination holds the final snapshot.
        FinalSnapshotCopied,
        /// The owner record names the destination.
        OwnerRecordTaken,
        /// Forced: no member of the source can serve any more.
        SourceFenced,
        /// Forced: a command of the operator has taken away the credentials of the source seed.
        SourceQuarantined,
        /// Forced: no controller of the source acts on the infrastructure any more.
        SourceControllersFenced,
        /// kube-apiservers of the destination are started before its etcd serves.
        ApiStarted,
        /// The etcd of the destination serves what the final snapshot holds.
        EtcdServes,
        /// A kube-apiserver of the destination is ready.
        ApiServes,
        /// Live: other seeds reach the members at the source.
        SourceMembersExposed,
        /// Live: other seeds reach the members at the destination, once they run.
        DestinationMembersExposed,
        /// Live: members of both seeds are one etcd (GEP-39).
        SixMemberEtcdReady = "SixMemberETCDReady",
        /// Live: servers of the tunnel run at the destination, and clients in the Shoot find them.
        TunnelExposed,
        /// Live: a temporary client of the tunnel is ready in the Shoot.
        TemporaryClientStarted,
        /// Live: kube-apiservers of the destination reach the Shoot.
        TunnelServes,
        /// Live: each kube-apiserver of the destination watches all kinds in the etcd.
        WatchCachesStarted,
        /// Live: they have done so for longer than the versions are old from which clients watch on.
        WatchCachesFilled,
        /// Live: the usual client of the tunnel has reconnected, and the temporary one is gone.
        TunnelMoved,
        /// Live: no resolver has the address of the source any more.
        SourceAddressExpired,
        /// The point of no return: clients may be sent to the destination.
        MoveCommitted,
        /// The DNS record of the API names the destination.
        ApiDnsSwitched,
        /// Live: the members of the source have left the etcd.
        SourceMembersRemoved,
        /// Live: no other seed reaches the members at the destination any more.
        DestinationMembersHidden,
        /// Live: the bucket of the destination has a snapshot of the etcd.
        SnapshotStored,
        /// All members of the etcd of the destination are ready.
        EtcdComplete,
        /// Forced: the bucket of the destination has the snapshots as well that its etcd did not begin with.
        OlderSnapshotsCopied,
        /// Extension controllers of the source do not act on the Shoot any more.
        ExtensionsMigrated,
        /// The controllers of the control plane are deleted at the source.
        SourceControllersRemoved,
        /// The ShootState holds what extension controllers of the source stored last.
        MigratedStateSynced,
        /// The Infrastructure is restored at the destination.
        InfrastructureRestored,
        /// Extension resources other than Infrastructure and Worker are restored.
        ExtensionsRestored,
        /// Worker resources, and with them the Machines, are restored.
        WorkersRestored,
        /// The Machines at the destination are those of the source.
        MachinesUnchanged,
        /// Kubelets have renewed their Leases through the destination.
        NodeLeasesRenewed,
        /// kube-controller-manager and kube-scheduler run at the destination.
        KubeControllersStarted,
        /// All controllers of the control plane run at the destination.
        ControllersStarted,
        /// Nodes that were healthy before are healthy.
        NodesHealthy,
        /// `status.seedName` of the Shoot is the destination.
        StatusMoved,
        /// The DNS record of the API has its former TTL at the destination.
        ApiTtlRaised,
        /// Nothing of the Shoot is left at the source.
        SourceRemoved,
        /// The destination has no access to the bucket of the source any more.
        SourceBackupEntryRemoved,
        /// Machines may be deleted at the destination again.
        MachineGuardRemoved,
        /// The last operation of the Shoot says that the migration succeeded.
        OperationSucceeded,
        /// Rollback: DNS controllers of the destination do not write the records of the Shoot any more.
        DestinationDnsReleased,
        /// Rollback: no resolver has the address of the destination any more.
        DestinationAddressExpired,
        /// Rollback: no kube-apiserver, controller or member runs at the destination.
        DestinationStopped,
        /// Rollback: the etcd on the former volumes of the source is ended by its final snapshot.
        SourceOwnershipEnded,
        /// Rollback: the owner record names the source, with a new epoch.
        OwnerRecordRestored,
        /// Rollback: no member at the destination can serve any more.
        DestinationFenced,
        /// Rollback: the etcd of the source serves from new volumes.
        SourceEtcdRestored,
        /// Rollback: as many kube-apiservers as before run at the source.
        SourceApiRestored,
        /// Rollback: members of a destination that never comes back are no members of the etcd any more.
        LostMembersRemoved,
        /// Rollback: the temporary client of the tunnel is gone.
        TemporaryClientRemoved,
        /// Rollback: no other seed reaches the members at the source any more.
        SourceMembersHidden,
        /// Rollback: DNS controllers of the source reconcile the records of the Shoot again.
        DnsRecordsRestored,
        /// Rollback: as many controllers as before run at the source.
        SourceControllersRestored,
        /// Rollback: the etcd of a hibernated Shoot does not run.
        SourceEtcdAsleep,
        /// Rollback: the DNS record of the API has its former TTL.
        ApiTtlRestored,
        /// Rollback: nothing of the Shoot is left at the destination.
        DestinationRemoved,
        /// Rollback: `spec.seedName` of the Shoot is the source.
        SeedNameRestored,
    }
}
