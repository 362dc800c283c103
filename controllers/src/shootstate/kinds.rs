//! Which kinds are read in a seed, and how.

use kube::core::{ApiResource, DynamicObject, Resource};
use repot_api::names::{DRUID_GROUP, EXTENSIONS_GROUP, V1ALPHA1};

/// Group of machine-controller-manager's kinds.
pub const MACHINE_GROUP: &str = "machine.sapcloud.io";

/// A kind of a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SeedKind {
    /// Group; empty for the core group.
    pub group: &'static str,
    /// Version within the group, such as `v1alpha1`.
    pub version: &'static str,
    /// Name of the kind in CamelCase.
    pub kind: &'static str,
    /// Plural in lower case.
    pub plural: &'static str,
}

const fn kind(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> SeedKind {
    SeedKind { group, version, kind, plural }
}

const fn extension(name: &'static str, plural: &'static str) -> SeedKind {
    kind(EXTENSIONS_GROUP, V1ALPHA1, name, plural)
}

/// Secrets, of which those with the label `persist=true` are read.
pub const SECRET: SeedKind = kind("", "v1", "Secret", "secrets");
/// Services, which have fields that only their API server knows.
pub const SERVICE: SeedKind = kind("", "v1", "Service", "services");
/// MachineDeployments, one for each pool and zone.
pub const MACHINE_DEPLOYMENT: SeedKind =
    kind(MACHINE_GROUP, V1ALPHA1, "MachineDeployment", "machinedeployments");
/// MachineSets, which belong to MachineDeployments.
pub const MACHINE_SET: SeedKind = kind(MACHINE_GROUP, V1ALPHA1, "MachineSet", "machinesets");
/// Machines, which belong to MachineSets.
pub const MACHINE: SeedKind = kind(MACHINE_GROUP, V1ALPHA1, "Machine", "machines");
/// BackupEntries, which have no namespace.
pub const BACKUP_ENTRY: SeedKind = extension("BackupEntry", "backupentries");
/// Clusters, which have no namespace.
pub const CLUSTER: SeedKind = extension("Cluster", "clusters");

/// All kinds of machine-controller-manager that are read.
pub const MACHINE_KINDS: [SeedKind; 3] = [MACHINE_DEPLOYMENT, MACHINE_SET, MACHINE];

/// Extension kinds with a namespace: their states are stored, and they may be carried.
pub const EXTENSION_KINDS: [SeedKind; 10] = [
    extension("Bastion", "bastions"),
    extension("ContainerRuntime", "containerruntimes"),
    extension("ControlPlane", "controlplanes"),
    extension("DNSRecord", "dnsrecords"),
    extension("Extension", "extensions"),
    extension("Infrastructure", "infrastructures"),
    extension("Network", "networks"),
    extension("OperatingSystemConfig", "operatingsystemconfigs"),
    extension("SelfHostedShootExposure", "selfhostedshootexposures"),
    extension("Worker", "workers"),
];

/// Other kinds whose objects may be carried.
pub const CARRIED_KINDS: [SeedKind; 11] = [
    kind("apps", "v1", "Deployment", "deployments"),
    kind("apps", "v1", "StatefulSet", "statefulsets"),
    SERVICE,
    kind("", "v1", "ConfigMap", "configmaps"),
    SECRET,
    kind("", "v1", "ServiceAccount", "serviceaccounts"),
    kind("rbac.authorization.k8s.io", "v1", "Role", "roles"),
    kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
    kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"),
    kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    kind(DRUID_GROUP, V1ALPHA1, "Etcd", "etcds"),
];

impl SeedKind {
    /// Group and version as in `apiVersion`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The kind as clients of any kind take it.
    #[must_use]
    pub fn resource(&self) -> ApiResource {
        ApiResource {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            api_version: self.api_version(),
            kind: self.kind.to_owned(),
            plural: self.plural.to_owned(),
        }
    }

    /// Path of its collection: in one namespace, or of the whole cluster.
    #[must_use]
    pub fn path(&self, namespace: Option<&str>) -> String {
        DynamicObject::url_path(&self.resource(), namespace)
    }
}

/// The kind of a reference, where it is one of those that are read anyway.
#[must_use]
pub fn find(api_version: &str, name: &str) -> Option<SeedKind> {
    let known = CARRIED_KINDS.iter().chain(&EXTENSION_KINDS).chain(&MACHINE_KINDS);
    known.copied().find(|kind| kind.kind == name && kind.api_version() == api_version)
}
