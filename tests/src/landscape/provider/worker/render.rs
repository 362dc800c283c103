//! The machine objects of a pool. Pure.

use kube::ResourceExt;
use repot_extension::kinds::{Worker, WorkerPool};
use serde_json::{Value, json};

use super::api::api_version;

/// How IDs of zones begin in this cloud; the code of the zone follows.
const ZONE_IDS: &str = "local-";

/// One zone of a pool, which has a MachineClass and a MachineDeployment.
pub(super) struct Zone<'a> {
    cluster: String,
    region: &'a str,
    pool: &'a WorkerPool,
    zone: &'a str,
    /// Name of the MachineDeployment.
    pub(super) name: String,
    /// Least number of its machines.
    pub(super) minimum: i32,
    /// Greatest number of its machines.
    pub(super) maximum: i32,
}

/// All zones of all pools. As in Gardener they are numbered from 1, and machines are spread over them; the first ones get the rest. One that
/// is isolated keeps its number, and gets none.
pub(super) fn zones(worker: &Worker) -> impl Iterator<Item = Zone<'_>> {
    worker.spec.pools.iter().flat_map(|pool| zones_of(worker, pool))
}

fn zones_of<'a>(worker: &'a Worker, pool: &'a WorkerPool) -> impl Iterator<Item = Zone<'a>> {
    let cluster = worker.namespace().unwrap_or_default();
    let isolated = isolated_zone(worker);
    let count = pool.zones.iter().filter(|zone| isolated.as_ref() != Some(*zone)).count();
    let count = i32::try_from(count).unwrap_or(i32::MAX);
    let mut next = 0;
    (1..).zip(&pool.zones).map(move |(number, zone): (usize, &String)| {
        let (index, is_used) = (next, isolated.as_ref() != Some(zone));
        next += i32::from(is_used);
        let share = |all: i32| if is_used { all / count + i32::from(index < all % count) } else { 0 };
        Zone {
            name: format!("{cluster}-{}-z{number}", pool.name),
            cluster: cluster.clone(),
            region: &worker.spec.region,
            pool,
            zone,
            minimum: share(pool.minimum),
            maximum: share(pool.maximum),
        }
    })
}

/// The code of the zone that is isolated. In this cloud the ID of `eu-1a` is `local-eu-1a`.
pub(super) fn isolated_zone(worker: &Worker) -> Option<String> {
    worker.left_out_zone().map(zone_of_id)
}

/// The code of the zone with an ID of this cloud.
pub(in crate::landscape::provider) fn zone_of_id(id: &str) -> String {
    id.strip_prefix(ZONE_IDS).unwrap_or(id).to_owned()
}

impl Zone<'_> {
    /// The code of the zone.
    pub(super) fn code(&self) -> &str {
        self.zone
    }

    /// Name of its pool.
    pub(super) fn pool_name(&self) -> &str {
        &self.pool.name
    }

    /// A new class for each change that needs new machines: its name ends with a hash of what machines are made of.
    fn class_name(&self) -> String {
        let image = self.pool.machine_image.as_ref();
        let image = image.map(|image| format!("{}/{}", image.name, image.version)).unwrap_or_default();
        let properties = [self.pool.machine_type.as_str(), &image, self.region, self.zone].join("\n");
        format!("{}-{:05x}", self.name, hash(&properties) & 0xf_ffff)
    }

    pub(super) fn class(&self) -> Value {
        let user_data = &self.pool.user_data_secret_ref;
        json!({
            "apiVersion": api_version(), "kind": "MachineClass", "metadata": {"name": self.class_name()},
            "provider": "counting", "providerSpec": {"cluster": self.cluster},
            "secretRef": {"name": user_data.name, "namespace": self.cluster},
            "nodeTemplate": {
                "capacity": {"cpu": "2", "memory": "8Gi", "gpu": "0"}, "instanceType": self.pool.machine_type,
                "region": self.region, "zone": self.zone,
            },
        })
    }

    pub(super) fn deployment(&self, replicas: i32) -> Value {
        let labels = json!({"name": self.name});
        let node_labels =
            json!({"worker.gardener.cloud/pool": self.pool.name, "node.kubernetes.io/role": "node"});
        let update = json!({"maxSurge": self.pool.max_surge, "maxUnavailable": self.pool.max_unavailable});
        json!({
            "apiVersion": api_version(), "kind": "MachineDeployment", "metadata": {"name": self.name},
            "spec": {
                "replicas": replicas, "minReadySeconds": 5, "selector": {"matchLabels": labels},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": update},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "class": {"kind": "MachineClass", "name": self.class_name()},
                        "nodeTemplate": {"metadata": {"labels": node_labels}},
                    },
                },
            },
        })
    }
}

/// FNV-1a: equal in each process and at each seed.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
